// How many weights a chunk can hold, as far as segment histograms tell without a look at the weights.
#pragma once

#include <cstdint>
#include <span>

#include "format/codebook.h"
#include "format/histogram.h"

namespace weightpress::df11 {

/// An upper bound of the number of weights that start in any one chunk. `segments`: all of the unit, in
/// order; their symbols all have codes. Exact enough to rule a dense chunk out where the short codes are
/// rare, or few.
std::uint64_t densest_chunk_bound(std::span<const SegmentHistogram> segments, const Codebook& codebook);

}  // namespace weightpress::df11
