// Bits a symbol of a lane, as the reference adds them up: they decide whether a lane is coded and how
// precisely, nothing else (docs/format.md, "Tile-ANS: raw or coded").
#pragma once

#include <cstdint>
#include <span>

#include "format/tile_ans_frequencies.h"

namespace weightpress::tile_ans {

/// The sum in the order of numpy's pairwise summation. At most 256 terms.
double pairwise_sum(std::span<const double> terms);

/// Shannon entropy in bits a symbol. Precondition: some symbol occurs.
double shannon_bits(const Histogram& histogram);

/// Bits that the lane takes with these frequencies. Precondition: what occurs has a frequency.
double coded_bits(const Histogram& histogram, const Frequencies& frequencies, std::uint32_t probability_bits);

}  // namespace weightpress::tile_ans
