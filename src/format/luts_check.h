// Do stored tables and the row of code lengths belong together?
#pragma once

#include <cstdint>
#include <optional>

#include "format/luts_view.h"

namespace weightpress::df11 {

/// The first exponent that has a code length, but no code of that length leads to it; nothing: all have one.
/// A code of n bits takes an aligned run of 2^(8 - r) equal entries, r being the 1 to 8 bits left for its
/// last table, in a table on level (n - 1) / 8. What stands elsewhere (fill) is not looked at: makers differ.
std::optional<std::uint8_t> find_lost_code(const LutsView& luts);

}  // namespace weightpress::df11
