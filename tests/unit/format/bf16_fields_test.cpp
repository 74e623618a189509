// Split and join over all 65,536 words, against the bit picture of docs/format.md spelled out bit by bit.
#include "format/bf16_fields.h"

#include <gtest/gtest.h>

namespace weightpress::df11 {
namespace {

bool bit(std::uint32_t value, std::uint32_t index) {
  return (value >> index & 1) != 0;
}

TEST(Bf16Fields, AllWordsSplitAsThePictureSaysAndJoinBack) {
  for (std::uint32_t word = 0; word < 65'536; ++word) {
    const std::uint8_t exponent = exponent_of(static_cast<std::uint16_t>(word));
    const std::uint8_t sign_mantissa = sign_mantissa_of(static_cast<std::uint16_t>(word));
    for (std::uint32_t i = 0; i < 8; ++i) ASSERT_EQ(bit(exponent, i), bit(word, 7 + i)) << word;
    for (std::uint32_t i = 0; i < 7; ++i) ASSERT_EQ(bit(sign_mantissa, i), bit(word, i)) << word;
    ASSERT_EQ(bit(sign_mantissa, 7), bit(word, 15)) << word;
    ASSERT_EQ(join_bf16(exponent, sign_mantissa), word);
  }
}

}  // namespace
}  // namespace weightpress::df11
