#include "format/tile_ans_layout.h"

#include <string>

namespace weightpress::tile_ans {

Result<void> check_settings(const Settings& settings) {
  if (settings.tile_elements > kMaxTileElements) {
    return Unexpected(ErrorCode::kUsage, "a tile has at most " + std::to_string(kMaxTileElements) +
                                             " elements, not " + std::to_string(settings.tile_elements));
  }
  if (settings.probability_bits != 0 &&
      (settings.probability_bits < kMinProbabilityBits || settings.probability_bits > kMaxProbabilityBits)) {
    return Unexpected(ErrorCode::kUsage,
                      "probability bits are 9, 10, 11 or 12, or 0 for the best of them, not " +
                          std::to_string(settings.probability_bits));
  }
  // Written so that NaN fails.
  if (!(settings.raw_lane_threshold >= 0 && settings.raw_lane_threshold <= 8)) {
    return Unexpected(ErrorCode::kUsage, "the raw lane threshold is a number from 0 to 8, not " +
                                             std::to_string(settings.raw_lane_threshold));
  }
  return {};
}

std::uint64_t automatic_tile_elements(std::uint64_t tensor_bytes) {
  return tensor_bytes <= (std::uint64_t{32} << 20) ? 4096 : 8192;
}

std::uint64_t Layout::raw_lane_words() const {
  return num_elements / tile_elements * raw_words(tile_elements) + raw_words(num_elements % tile_elements);
}

}  // namespace weightpress::tile_ans
