// Lookup tables ("luts"): code prefix to exponent, eight bits a level, and the row of code lengths
// (docs/format.md, "Lookup tables").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/codebook.h"
#include "format/df11_constants.h"

namespace weightpress::df11 {

/// What stands in the entries before a row's first code. No code reaches them, but padding does.
enum class TableFill : std::uint8_t {
  kCompat,  ///< the last value of the row above, as in official files (the first row: its own first value)
  kSafe     ///< the row's own first value: the official kernel then ends on every padding
};

using LookupRow = std::array<std::uint8_t, kNumSymbols>;

struct LookupTables {
  /// The tables, then one row of code lengths: [num_tables() + 1], stored as they lie here.
  std::vector<LookupRow> rows;

  std::size_t num_tables() const { return rows.size() - 1; }
  const LookupRow& lengths() const { return rows.back(); }
  std::size_t size_bytes() const { return rows.size() * sizeof(LookupRow); }
  const std::uint8_t* data() const { return rows.front().data(); }

  bool operator==(const LookupTables&) const = default;
};

/// How many tables the codebook needs: one a distinct prefix of whole bytes.
std::size_t count_tables(const Codebook& codebook);

/// Builds them.
/// Precondition: count_tables(codebook) <= kMaxTables and every exponent < kFirstPointer; otherwise the
/// values could not be told apart from pointers.
LookupTables build_lookup_tables(const Codebook& codebook, TableFill fill);

}  // namespace weightpress::df11
