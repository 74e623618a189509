#include "format/luts_check.h"

#include <array>

namespace weightpress::df11 {
namespace {

constexpr std::uint32_t kLevels = kMaxCodeBits / 8;

/// Whether the table has an aligned run of `size` entries that say `exponent`.
bool has_run(const LutsView& luts, std::uint32_t table, std::uint8_t exponent, std::uint32_t size) {
  for (std::uint32_t first = 0; first < kNumSymbols; first += size) {
    std::uint32_t same = 0;
    while (same < size && luts.entry(table, first + same) == exponent) ++same;
    if (same == size) return true;
  }
  return false;
}

}  // namespace

std::optional<std::uint8_t> find_lost_code(const LutsView& luts) {
  // Pointers reach kMaxTables tables at most.
  std::array<std::array<bool, kMaxTables>, kLevels> reached{};
  reached[0][0] = true;
  for (std::uint32_t level = 0; level + 1 < kLevels; ++level) {
    for (std::uint32_t table = 0; table < kMaxTables; ++table) {
      if (!reached[level][table]) continue;
      for (std::uint32_t byte = 0; byte < kNumSymbols; ++byte) {
        const std::uint8_t value = luts.entry(table, byte);
        if (value >= kFirstPointer && 256u - value < luts.num_tables())
          reached[level + 1][256u - value] = true;
      }
    }
  }
  for (std::uint32_t exponent = 0; exponent < kFirstPointer; ++exponent) {
    const std::uint32_t length = luts.length(exponent);
    if (length == 0) continue;
    const std::uint32_t level = (length - 1) / 8;
    bool found = false;
    for (std::uint32_t table = 0; table < kMaxTables && !found; ++table) {
      found = reached[level][table] &&
              has_run(luts, table, static_cast<std::uint8_t>(exponent), 1u << (8 - (length - 8 * level)));
    }
    if (!found) return static_cast<std::uint8_t>(exponent);
  }
  return std::nullopt;
}

}  // namespace weightpress::df11
