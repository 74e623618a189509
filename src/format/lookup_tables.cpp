#include "format/lookup_tables.h"

#include <algorithm>
#include <cassert>
#include <compare>
#include <optional>

namespace weightpress::df11 {
namespace {

/// The whole bytes of a code that select its table: the first 8 * levels bits.
struct Prefix {
  std::uint32_t levels = 0;
  std::uint32_t bits = 0;

  auto operator<=>(const Prefix&) const = default;
};

std::uint32_t levels_of(const CodebookEntry& entry) {
  return (entry.length - 1u) / 8u;
}

/// The first 8 * levels bits of a code that has at least so many.
Prefix prefix_of(const CodebookEntry& entry, std::uint32_t levels) {
  return {levels, levels == 0 ? 0 : entry.code >> (entry.length - 8 * levels)};
}

/// Distinct prefixes in table order of first appearance, then stably sorted by length. The empty prefix is
/// always one.
///
/// Only tables in which some code ends appear here, and no others exist: docs/format.md, "Lookup tables". A
/// restricted codebook has two levels only.
std::vector<Prefix> collect_prefixes(const Codebook& codebook) {
  std::vector<Prefix> prefixes{Prefix{}};
  for (const CodebookEntry& entry : codebook.entries) {
    if (entry.symbol == kEofSymbol) continue;
    const Prefix prefix = prefix_of(entry, levels_of(entry));
    if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end()) prefixes.push_back(prefix);
  }
  std::sort(prefixes.begin(), prefixes.end());
  return prefixes;
}

}  // namespace

std::size_t count_tables(const Codebook& codebook) {
  return collect_prefixes(codebook).size();
}

LookupTables build_lookup_tables(const Codebook& codebook, TableFill fill) {
  const std::vector<Prefix> prefixes = collect_prefixes(codebook);
  assert(prefixes.size() <= kMaxTables);
  const auto table_of = [&prefixes](Prefix prefix) {
    const auto found = std::find(prefixes.begin(), prefixes.end(), prefix);
    assert(found != prefixes.end());
    return static_cast<std::uint32_t>(found - prefixes.begin());
  };

  LookupTables tables;
  tables.rows.resize(prefixes.size() + 1);
  std::optional<std::uint8_t> carried;
  for (std::size_t table = 0; table < prefixes.size(); ++table) {
    const Prefix prefix = prefixes[table];
    std::array<std::optional<std::uint8_t>, kNumSymbols> reached{};
    for (const CodebookEntry& entry : codebook.entries) {
      if (entry.symbol == kEofSymbol || levels_of(entry) < prefix.levels ||
          prefix_of(entry, prefix.levels) != prefix) {
        continue;
      }
      const std::uint32_t rest_bits = entry.length - 8 * prefix.levels;  // 1 .. 32
      const std::uint32_t rest =
          static_cast<std::uint32_t>(entry.code & ((std::uint64_t{1} << rest_bits) - 1));
      if (rest_bits <= 8) {
        assert(entry.symbol < static_cast<int>(kFirstPointer));
        reached[rest << (8 - rest_bits)] = static_cast<std::uint8_t>(entry.symbol);
      } else {
        const std::uint32_t deeper = table_of(prefix_of(entry, prefix.levels + 1));
        reached[rest >> (rest_bits - 8)] = static_cast<std::uint8_t>(256 - deeper);
      }
    }
    if (!carried || fill == TableFill::kSafe) {
      carried =
          *std::find_if(reached.begin(), reached.end(), [](const auto& value) { return value.has_value(); });
    }
    for (std::uint32_t byte = 0; byte < kNumSymbols; ++byte) {
      if (reached[byte]) carried = reached[byte];
      tables.rows[table][byte] = *carried;
    }
  }
  tables.rows.back() = codebook.lengths;
  return tables;
}

}  // namespace weightpress::df11
