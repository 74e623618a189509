#include "host/segment_places.h"

#include <algorithm>
#include <cassert>

#include "format/bf16_fields.h"

namespace weightpress::host {

std::vector<SegmentPlace> segment_places(std::span<const std::uint16_t> weights,
                                         std::uint64_t segment_weights, const df11::SlabPosition& position,
                                         const df11::Codebook& codebook,
                                         std::span<const df11::SegmentHistogram> histograms) {
  assert(histograms.size() == df11::num_segments(weights.size(), segment_weights));
  std::vector<SegmentPlace> places(histograms.size() + 1);
  places[0] = {0, position.first_bit, position.previous_code_length};
  for (std::size_t segment = 0; segment < histograms.size(); ++segment) {
    const SegmentPlace& place = places[segment];
    const std::uint64_t end = std::min<std::uint64_t>(place.first_weight + segment_weights, weights.size());
    const std::uint64_t bits = df11::total_bits(histograms[segment], codebook);
    const std::uint32_t last_length = codebook.lengths[df11::exponent_of(weights[end - 1])];
    if (last_length == 0 || last_length > bits) return {};
    places[segment + 1] = {end, place.first_bit + bits, last_length};
  }
  return places;
}

}  // namespace weightpress::host
