// A BF16 word and its two halves as DF11 stores them (docs/format.md, "Fields of a weight").
//
//   bit      15 | 14 ....... 7 | 6 ....... 0
//   BF16   sign | exponent (8) | mantissa (7)      sign_mantissa: sign in bit 7, mantissa in bits 6..0
#pragma once

#include <cstdint>

#include "format/host_device.h"

namespace weightpress::df11 {

WP_HOST_DEVICE constexpr std::uint8_t exponent_of(std::uint16_t weight) {
  return static_cast<std::uint8_t>(weight >> 7);
}

WP_HOST_DEVICE constexpr std::uint8_t sign_mantissa_of(std::uint16_t weight) {
  return static_cast<std::uint8_t>(((weight >> 8) & 0x80) | (weight & 0x7F));
}

WP_HOST_DEVICE constexpr std::uint16_t join_bf16(std::uint8_t exponent, std::uint8_t sign_mantissa) {
  return static_cast<std::uint16_t>(((sign_mantissa & 0x80) << 8) | (exponent << 7) | (sign_mantissa & 0x7F));
}

}  // namespace weightpress::df11
