// The tensor types of safetensors files.
//
// The order is the package's own rank, low to high: save_file sorts tensors by it, descending
// (safetensors_layout.h), so it decides bytes of every file we write.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weightpress::model {

enum class Dtype : std::uint8_t {
  kBool,
  kF4,
  kF6E2m3,
  kF6E3m2,
  kU8,
  kI8,
  kF8E5m2,
  kF8E4m3,
  kF8E8m0,
  kF8E4m3fnuz,
  kF8E5m2fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64
};

inline constexpr unsigned kNumDtypes = static_cast<unsigned>(Dtype::kU64) + 1;

/// The type a header calls `name`; nothing if the format has no such type.
std::optional<Dtype> parse_dtype(std::string_view name);

/// The name in a header, e.g. "BF16".
std::string_view dtype_name(Dtype dtype);

/// Bits of one element: 4 to 64. Three types are smaller than a byte.
unsigned dtype_bits(Dtype dtype);

}  // namespace weightpress::model
