// The codebook of a rescue: for units whose official bytes no loader could use (docs/format.md, "Rescue").
//
// Any prefix code is allowed by the format; the loaders care only that there are at most 17 tables and that
// no chunk holds too many weights. So: codes of at most 16 bits, whose long ones (above 8 bits) share at most
// 16 first bytes, and none shorter than min_length. Among those codes this finds one of least total bits (EOF
// counted once, and given a place among the tables) by dynamic programming over Kraft budgets. Allowing codes
// of 17 to 32 bits would gain less than 0.02 bits a weight: all 240 rare symbols together spend 240 / 2^16 of
// the code space.
#pragma once

#include "format/codebook.h"

namespace weightpress::df11 {

/// Rescue codes have two levels of tables.
inline constexpr std::uint32_t kMaxRestrictedBits = 16;

/// Builds it; codes are assigned canonically (shorter first, then EOF, then by exponent).
/// Preconditions: at least one count is not zero; exponents < kFirstPointer; min_length is 1 or 2.
Codebook build_restricted_codebook(const Histogram& histogram, std::uint32_t min_length);

}  // namespace weightpress::df11
