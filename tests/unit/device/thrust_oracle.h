// Histograms and prefix sums by Thrust on the CPU: nothing of the kernels is in them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/histogram.h"

namespace weightpress::device {

/// Counts by exponent, one histogram a segment: sorted, and equal ones counted.
std::vector<df11::SegmentHistogram> thrust_histograms(std::span<const std::uint16_t> weights,
                                                      std::uint64_t segment_weights);

/// first, first + values[0], first + values[0] + values[1], ...: one more than there are values.
std::vector<std::uint64_t> thrust_prefix_sums(std::span<const std::uint64_t> values, std::uint64_t first);

}  // namespace weightpress::device
