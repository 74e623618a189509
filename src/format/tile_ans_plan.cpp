// Compiled without contraction of a * b + c (CMakeLists.txt): the order and rounding of the sums decide.
#include "format/tile_ans_plan.h"

#include <algorithm>
#include <cassert>

#include "format/tile_ans_entropy.h"

namespace weightpress::tile_ans {
namespace {

constexpr double kStateBytesPerTile = kNumStates * 4;

LaneMode mode_of(double bits, double threshold) {
  return bits >= threshold ? LaneMode::kRaw : LaneMode::kAns;
}

bool all_raw(std::span<const Histogram> histograms, double threshold) {
  return std::all_of(histograms.begin(), histograms.end(), [&](const Histogram& histogram) {
    return mode_of(shannon_bits(histogram), threshold) == LaneMode::kRaw;
  });
}

/// The smallest precision whose estimate is within 0.15% of the tensor of the best one.
const PrecisionCandidate& smallest_good_enough(std::span<const PrecisionCandidate> candidates,
                                               std::uint64_t tensor_bytes) {
  double best = candidates.front().estimated_bytes;
  for (const PrecisionCandidate& candidate : candidates) best = std::min(best, candidate.estimated_bytes);
  const double limit = best + static_cast<double>(tensor_bytes) * 0.0015;
  return *std::find_if(candidates.begin(), candidates.end(), [&](const PrecisionCandidate& candidate) {
    return candidate.estimated_bytes <= limit;
  });
}

}  // namespace

std::uint32_t TensorPlan::num_ans_lanes() const {
  return ans_rank(layout.num_lanes);
}

std::uint32_t TensorPlan::ans_rank(std::uint32_t lane) const {
  return static_cast<std::uint32_t>(std::count_if(
      lanes.begin(), lanes.begin() + lane, [](const LanePlan& plan) { return plan.mode == LaneMode::kAns; }));
}

std::uint64_t TensorPlan::max_payload_words() const {
  const std::uint64_t ans = num_ans_lanes();
  return ans * layout.num_elements + (layout.num_lanes - ans) * layout.raw_lane_words();
}

std::uint64_t TensorPlan::stored_bytes(std::uint64_t payload_words) const {
  const std::uint64_t states = num_ans_lanes() * layout.num_tiles() * kNumStates;
  const std::uint64_t entries = std::uint64_t{layout.num_lanes} * layout.table_size();
  return 2 * payload_words + 4 * (layout.num_offsets() + states + entries) + layout.num_lanes + 4 * 8;
}

double effective_threshold(double raw_lane_threshold, std::uint64_t tile_elements) {
  return std::min(raw_lane_threshold, 8.0 - 8 * kStateBytesPerTile / static_cast<double>(tile_elements));
}

std::vector<PrecisionCandidate> precision_candidates(const Layout& layout, double threshold,
                                                     std::span<const Histogram> histograms) {
  std::vector<PrecisionCandidate> candidates;
  const std::uint32_t most = all_raw(histograms, threshold) ? kMinProbabilityBits : kMaxProbabilityBits;
  const double num_elements = static_cast<double>(layout.num_elements);
  for (std::uint32_t bits = kMinProbabilityBits; bits <= most; ++bits) {
    PrecisionCandidate& candidate = candidates.emplace_back();
    candidate.probability_bits = bits;
    // The last 40 is the reference's idea of the layout's size; four words are stored.
    const std::uint64_t fixed_bytes = layout.num_offsets() * 4 +
                                      std::uint64_t{layout.num_lanes} * (std::uint64_t{4} << bits) +
                                      layout.num_lanes + 40;
    double bytes = static_cast<double>(fixed_bytes);
    for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
      LanePlan& plan = candidate.lanes[lane];
      plan.frequencies = normalise(histograms[lane], bits);
      const double lane_bits = coded_bits(histograms[lane], plan.frequencies, bits);
      plan.mode = mode_of(lane_bits / num_elements, threshold);
      if (plan.mode == LaneMode::kRaw) {
        bytes += static_cast<double>(2 * layout.raw_lane_words());
      } else {
        bytes += lane_bits / 8;
        bytes += static_cast<double>(layout.num_tiles()) * kStateBytesPerTile;
      }
    }
    candidate.estimated_bytes = bytes;
  }
  return candidates;
}

Result<TensorPlan> plan_tensor(const Settings& settings, std::span<const Histogram> histograms) {
  if (auto checked = check_settings(settings); !checked) return Unexpected(checked.error());
  assert(is_lane_count(histograms.size()));
  const std::uint64_t num_elements = total_count(histograms.front());
  if (!std::all_of(histograms.begin(), histograms.end(),
                   [&](const Histogram& lane) { return total_count(lane) == num_elements; })) {
    return Unexpected(ErrorCode::kDeviceFailed,
                      "the histograms of its lanes do not have as many symbols each");
  }
  if (num_elements == 0)
    return Unexpected(ErrorCode::kEmptyUnit, "Tile-ANS cannot store a tensor without elements");
  if (num_elements > kMaxElements) {
    return Unexpected(ErrorCode::kUnitTooLarge, "Tile-ANS stores tensors of up to " +
                                                    std::to_string(kMaxElements) + " elements, not " +
                                                    std::to_string(num_elements));
  }

  TensorPlan plan;
  Layout& layout = plan.layout;
  layout.num_lanes = static_cast<std::uint32_t>(histograms.size());
  layout.num_elements = num_elements;
  layout.tile_elements =
      settings.tile_elements != 0 ? settings.tile_elements : automatic_tile_elements(layout.num_bytes());
  const double threshold = effective_threshold(settings.raw_lane_threshold, layout.tile_elements);
  if (settings.probability_bits == 0) {
    const std::vector<PrecisionCandidate> candidates = precision_candidates(layout, threshold, histograms);
    const PrecisionCandidate& chosen = smallest_good_enough(candidates, layout.num_bytes());
    layout.probability_bits = chosen.probability_bits;
    plan.lanes = chosen.lanes;
  } else {
    layout.probability_bits = settings.probability_bits;
    for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
      plan.lanes[lane].frequencies = normalise(histograms[lane], layout.probability_bits);
      plan.lanes[lane].mode = mode_of(shannon_bits(histograms[lane]), threshold);
    }
  }
  return plan;
}

}  // namespace weightpress::tile_ans
