// From counts of symbols to frequencies that sum to the table size (docs/format.md, "Tile-ANS:
// frequencies"). Bit-identical on every machine: doubles without contraction, and a total order of symbols.
#pragma once

#include <array>
#include <cstdint>

#include "format/tile_ans_constants.h"

namespace weightpress::tile_ans {

/// Counts of a lane's symbols over the whole tensor.
using Histogram = std::array<std::uint64_t, kNumSymbols>;

/// Of a lane's symbols; they sum to the table size. 0: the symbol does not occur.
using Frequencies = std::array<std::uint16_t, kNumSymbols>;

std::uint64_t total_count(const Histogram& histogram);

/// Every symbol that occurs gets at least 1. Precondition: some symbol occurs, 9 <= probability_bits <= 12.
Frequencies normalise(const Histogram& histogram, std::uint32_t probability_bits);

}  // namespace weightpress::tile_ans
