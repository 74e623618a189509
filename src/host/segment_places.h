// Where each segment of a slab starts in the bitstream: the dot products of histograms and code lengths,
// summed up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/stages.h"

namespace weightpress::host {

struct SegmentPlace {
  std::uint64_t first_weight = 0;  // in the slab
  std::uint64_t first_bit = 0;     // of the unit's bitstream
  std::uint32_t previous_code_length = 0;

  std::uint64_t first_window() const { return df11::first_open_window(first_bit, previous_code_length); }
};

/// One place a segment, and one for what follows the slab: [num_segments + 1]. Empty if the last weight of a
/// segment cannot be the end of what its histogram counts: the source changed. Windows never run backwards in
/// the result.
std::vector<SegmentPlace> segment_places(std::span<const std::uint16_t> weights,
                                         std::uint64_t segment_weights, const df11::SlabPosition& position,
                                         const df11::Codebook& codebook,
                                         std::span<const df11::SegmentHistogram> histograms);

}  // namespace weightpress::host
