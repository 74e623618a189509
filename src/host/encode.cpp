// Encode stage: segments in parallel, each into its own pieces; then the borders between them, one after the
// other.
#include <algorithm>
#include <cassert>
#include <vector>

#include "format/gap_packing.h"
#include "format/slab_border.h"
#include "host/host_stages.h"
#include "host/segment_encoder.h"
#include "host/segment_places.h"

namespace weightpress::host {
namespace {

// Below this many weights building the pair table costs more than it saves. docs/benchmarking.md, "Tuned
// constants".
constexpr std::uint64_t kPairCodesFrom = 8'192;

/// Cuts the slab's outputs into the segments' pieces.
class OutputCutter {
 public:
  OutputCutter(const df11::EncodeArguments& arguments, const SegmentPlace& first)
      : arguments_(arguments),
        first_byte_(first.first_bit / 8),
        first_group_(first.first_window() / df11::kWindowsPerGapGroup),
        first_position_(df11::first_open_chunk(first.first_window())) {}

  SegmentOutput cut(const SegmentPlace& place, const SegmentPlace& next) const {
    const auto piece = [](auto span, std::uint64_t begin, std::uint64_t end) {
      return span.subspan(begin, end - begin);
    };
    const std::uint64_t window = place.first_window();
    const std::uint64_t next_window = next.first_window();
    return {piece(arguments_.sign_mantissa, place.first_weight, next.first_weight),
            piece(arguments_.encoded_exponent, place.first_bit / 8 - first_byte_,
                  next.first_bit / 8 - first_byte_),
            piece(arguments_.gaps, (window / df11::kWindowsPerGapGroup - first_group_) * df11::kGapGroupBytes,
                  (next_window / df11::kWindowsPerGapGroup - first_group_) * df11::kGapGroupBytes),
            piece(arguments_.positions, df11::first_open_chunk(window) - first_position_,
                  df11::first_open_chunk(next_window) - first_position_)};
  }

 private:
  const df11::EncodeArguments& arguments_;
  std::uint64_t first_byte_;
  std::uint64_t first_group_;
  std::uint64_t first_position_;
};

/// What follows the last code of a unit: EOF's bits, the gap of the stream's end, empty windows, last
/// positions. border: what the last segment left unfinished; it is finished here.
void write_unit_end(const df11::EncodeArguments& arguments, const SegmentPlace& end,
                    df11::SlabBorder& border) {
  const df11::StreamLayout& layout = *arguments.layout;
  const std::uint32_t used = static_cast<std::uint32_t>(layout.total_bits % 8);
  if (used != 0) {
    arguments.encoded_exponent.back() =
        static_cast<std::uint8_t>(border.byte | df11::eof_padding(*arguments.codebook, 8 - used));
  }

  const std::uint64_t end_window = end.first_window();
  const std::uint64_t groups_left =
      layout.gaps_bytes / df11::kGapGroupBytes - end_window / df11::kWindowsPerGapGroup;
  const std::span<std::uint8_t> rest = arguments.gaps.last(groups_left * df11::kGapGroupBytes);
  std::fill(rest.begin(), rest.end(), std::uint8_t{0});
  if (!rest.empty()) {
    std::uint8_t gaps[df11::kWindowsPerGapGroup] = {};
    if (layout.end_opens_window) {
      gaps[end_window % df11::kWindowsPerGapGroup] =
          static_cast<std::uint8_t>(layout.total_bits % df11::kWindowBits);
    }
    df11::pack_gap_group(gaps, rest.data());
    for (std::uint32_t i = 0; i < df11::kGapGroupBytes; ++i) rest[i] |= border.gap_group[i];
  }

  const auto num_weights = static_cast<std::uint32_t>(layout.num_weights);
  arguments.positions.back() = num_weights;
  if (layout.end_opens_chunk) arguments.positions[arguments.positions.size() - 2] = num_weights;
  border = {};
}

}  // namespace

df11::Completion HostStages::encode(const df11::EncodeArguments& arguments) {
  const std::vector<SegmentPlace> places =
      segment_places(arguments.weights, arguments.segment_weights, arguments.position, *arguments.codebook,
                     arguments.histograms);
  if (places.empty()) return df11::Completion({df11::StageCode::kSourceChanged, 0});
  const std::uint64_t segments = places.size() - 1;
  // A last slab that does not end where the layout says cannot be cut into the pieces that the caller made.
  if (arguments.position.is_last &&
      (places.back().first_bit != arguments.layout->total_bits ||
       places.back().previous_code_length != arguments.layout->last_code_length)) {
    return df11::Completion({df11::StageCode::kSourceChanged, segments - 1});
  }
#ifndef NDEBUG
  const df11::SlabPieces pieces =
      df11::slab_pieces(arguments.position, places.back().first_bit - places.front().first_bit,
                        places.back().previous_code_length, *arguments.layout);
  assert(arguments.sign_mantissa.size() == arguments.weights.size());
  assert(arguments.encoded_exponent.size() == pieces.num_bytes);
  assert(arguments.gaps.size() == pieces.num_gap_groups * df11::kGapGroupBytes);
  assert(arguments.positions.size() == pieces.num_positions);
#endif
  const PairCodes::Entry* pairs = nullptr;
  if (arguments.weights.size() >= kPairCodesFrom) {
    pair_codes_.prepare(*arguments.codebook);
    pairs = pair_codes_.entries();
  }

  const OutputCutter cutter(arguments, places.front());
  std::vector<df11::SlabBorder> borders(segments);
  std::vector<std::uint8_t> changed(segments, 0);
#pragma omp parallel for num_threads(threads_for(segments)) schedule(dynamic)
  for (std::uint64_t segment = 0; segment < segments; ++segment) {
    const SegmentPlace& place = places[segment];
    const SegmentPlace& next = places[segment + 1];
    changed[segment] =
        !encode_segment(arguments.weights.subspan(place.first_weight, next.first_weight - place.first_weight),
                        arguments.position.first_weight + place.first_weight, place, next,
                        *arguments.codebook, pairs, cutter.cut(place, next), borders[segment]);
  }
  for (std::uint64_t segment = 0; segment < segments; ++segment) {
    if (changed[segment] != 0) return df11::Completion({df11::StageCode::kSourceChanged, segment});
  }

  df11::SlabJoiner joiner;
  for (std::uint64_t segment = 0; segment < segments; ++segment) {
    const SegmentOutput output = cutter.cut(places[segment], places[segment + 1]);
    joiner.add(output.encoded_exponent, output.gaps, borders[segment]);
  }
  *arguments.border = joiner.carried();
  if (arguments.position.is_last) write_unit_end(arguments, places.back(), *arguments.border);
  return df11::Completion(df11::StageStatus{});
}

}  // namespace weightpress::host
