// Reads units back with the slow decoder, which shares no code with the encoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <weightpress/df11.h>

#include "selftest/slow_decoder.h"

namespace weightpress::testing {

inline selftest::UnitBytes bytes_of(const Df11Unit& unit) {
  return {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps};
}

/// Every buffer is as docs/format.md says, the official kernel ends and decodes it, and it holds `weights`.
inline ::testing::AssertionResult reads_back_as(const Df11Unit& unit,
                                                std::span<const std::uint16_t> weights) {
  const selftest::SlowDecoding back = selftest::window_decode(bytes_of(unit));
  if (!back.ok) return ::testing::AssertionFailure() << back.problem;
  if (!std::equal(back.weights.begin(), back.weights.end(), weights.begin(), weights.end())) {
    return ::testing::AssertionFailure() << "it decodes to other weights";
  }
  return ::testing::AssertionSuccess();
}

inline bool same_bytes(const Df11Unit& a, const Df11Unit& b) {
  return a.luts == b.luts && a.encoded_exponent == b.encoded_exponent && a.sign_mantissa == b.sign_mantissa &&
         a.output_positions == b.output_positions && a.gaps == b.gaps;
}

}  // namespace weightpress::testing
