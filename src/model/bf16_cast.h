// Casts F32 and F16 values to BF16 as PyTorch does: the nearest BF16 value, of two equally near ones the one
// whose last bit is 0.
//
// F16 goes through F32, which holds every F16 value. What rounds beyond the largest finite value becomes Inf,
// and Inf stays Inf. Every NaN becomes 0x7FC0, PyTorch's result for a single value (its vectorised loops give
// 0xFFFF on some processors); sign and payload of a NaN mean nothing in a model.
#pragma once

#include <cstdint>
#include <span>

#include "model/dtype.h"

namespace weightpress::model {

/// Of one cast; they add up.
struct CastCounts {
  std::uint64_t changed = 0;          ///< values that BF16 does not hold: all below, and no NaN
  std::uint64_t overflowed = 0;       ///< finite values that became Inf
  std::uint64_t flushed_to_zero = 0;  ///< values other than zero that became zero

  CastCounts& operator+=(const CastCounts& other);
  bool operator==(const CastCounts&) const = default;
};

/// F32 and F16.
bool can_cast_to_bf16(Dtype from);

/// Casts words.size() values, little-endian at any alignment, as they lie in a file. `from` must be castable;
/// `values` and `words` may not overlap. Thread-safe.
CastCounts cast_to_bf16(Dtype from, const std::uint8_t* values, std::span<std::uint16_t> words);

}  // namespace weightpress::model
