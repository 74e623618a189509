// Exact division of a state by a frequency, as a multiplication.
#pragma once

#include <bit>
#include <cstdint>

#include "format/host_device.h"
#include "format/tile_ans_constants.h"

namespace weightpress::tile_ans {

/// x / f == (x * multiplier) >> shift, in 64 bits, for every x < 2^31.
//
// Let s be the least number with f <= 2^s, so that s <= 12; shift = 31 + s, M = multiplier = ceil(2^shift /
// f), e = M * f - 2^shift. Then 0 <= e < f. With x = q * f + r, 0 <= r < f:
//   x * M = q * f * M + r * M = q * 2^shift + q * e + r * M, so
//   x * M / 2^shift = q + (q * e * f + r * M * f) / (f * 2^shift)
//                   = q + (q * e * f + r * 2^shift + r * e) / (f * 2^shift) = q + r / f + x * e / (f *
//                   2^shift).
// The last term is below 1 / f, since x * e < 2^31 * f <= 2^shift; and r / f <= 1 - 1 / f. So the floor is q.
// M fits 32 bits: for s = 0 it is 2^31. Otherwise f >= 2^(s-1) + 1 (s = 1: f = 2), so f * (2^32 - 1) >=
// 2^(31+s) + 2^32 - 2^(s-1) - 1 >= 2^shift and M <= 2^32 - 1. x * M < 2^63.
struct Reciprocal {
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 0;  ///< 31 .. 43

  WP_HOST_DEVICE constexpr std::uint32_t divide(std::uint32_t x) const {
    return static_cast<std::uint32_t>((std::uint64_t{x} * multiplier) >> shift);
  }
};

/// frequency: 1 .. 4096.
constexpr Reciprocal reciprocal_of(std::uint32_t frequency) {
  const std::uint32_t shift = kStateBits + static_cast<std::uint32_t>(std::bit_width(frequency - 1));
  return {static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + frequency - 1) / frequency), shift};
}

static_assert(reciprocal_of(1).multiplier == 1u << 31 && reciprocal_of(1).shift == 31);
static_assert(reciprocal_of(kMaxTableSize).shift == kStateBits + kMaxProbabilityBits);

}  // namespace weightpress::tile_ans
