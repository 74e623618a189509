// Lookup tables against docs/format.md: its example, each fill, and a decode of every code through the
// tables.
#include "format/lookup_tables.h"

#include <gtest/gtest.h>

#include "format/kernel_termination.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

/// The example of docs/format.md, "Lookup tables".
Codebook example_codebook() {
  return make_codebook(
      {{120, 1, 0b0}, {121, 2, 0b10}, {119, 3, 0b110}, {90, 9, 0b111111110}, {91, 9, 0b111111111}});
}

TEST(LookupTables, ExampleOfTheFormatPage) {
  const LookupTables tables = build_lookup_tables(example_codebook(), TableFill::kCompat);
  ASSERT_EQ(tables.num_tables(), 2u);
  EXPECT_EQ(tables.rows[0][0b00000000], 120);
  EXPECT_EQ(tables.rows[0][0b01111111], 120);
  EXPECT_EQ(tables.rows[0][0b10000000], 121);
  EXPECT_EQ(tables.rows[0][0b10111111], 121);
  EXPECT_EQ(tables.rows[0][0b11000000], 119);
  EXPECT_EQ(tables.rows[0][0b11111110], 119);
  EXPECT_EQ(tables.rows[0][0b11111111], 255);
  EXPECT_EQ(tables.rows[1][0b00000000], 90);
  EXPECT_EQ(tables.rows[1][0b10000000], 91);
  EXPECT_EQ(tables.lengths()[120], 1);
  EXPECT_EQ(tables.lengths()[91], 9);
  EXPECT_EQ(tables.lengths()[0], 0);
}

TEST(LookupTables, FillBeforeTheFirstEntryOfATable) {
  // Table 1 has its first entry at 1: code 00000000 00000001 0 leaves entry 0 to the fill. Entry 255 of table
  // 0 is 121.
  const Codebook codebook = make_codebook({{90, 16, 0x0001}, {121, 1, 1}});
  const LookupTables compat = build_lookup_tables(codebook, TableFill::kCompat);
  EXPECT_EQ(compat.rows[1][0], 121);  // carried over from the table above
  EXPECT_EQ(compat.rows[1][1], 90);
  const LookupTables safe = build_lookup_tables(codebook, TableFill::kSafe);
  EXPECT_EQ(safe.rows[1][0], 90);  // its own first entry
  EXPECT_EQ(safe.rows[1][1], 90);
}

/// Decodes the code at the top of `bits` through the tables; returns the exponent.
std::uint32_t look_up(const LookupTables& tables, std::uint32_t bits) {
  std::size_t table = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const std::uint32_t value = tables.rows[table][bits >> shift & 0xFF];
    if (value < kFirstPointer) return value;
    table = 256 - value;
  }
  return 256;
}

TEST(LookupTables, EveryCodeIsFoundWhateverFollowsIt) {
  testing::Random random(5);
  for (int round = 0; round < 300; ++round) {
    Histogram histogram{};
    const std::uint64_t symbols = 1 + random.below(60);
    for (std::uint64_t i = 0; i < symbols; ++i) {
      histogram[random.below(240)] = 1 + random.below(std::uint64_t{1} << random.below(25));
    }
    const Codebook codebook = build_official_codebook(histogram);
    if (count_tables(codebook) > kMaxTables) continue;
    for (const TableFill fill : {TableFill::kCompat, TableFill::kSafe}) {
      const LookupTables tables = build_lookup_tables(codebook, fill);
      ASSERT_EQ(tables.num_tables(), count_tables(codebook));
      for (const CodebookEntry& entry : codebook.entries) {
        if (entry.symbol == kEofSymbol) continue;
        const std::uint32_t free_bits = kMaxCodeBits - entry.length;
        const std::uint64_t low = (std::uint64_t{1} << free_bits) - 1;
        const std::uint64_t code = std::uint64_t{entry.code} << free_bits;
        for (const std::uint64_t rest : {std::uint64_t{0}, low, random.next() & low}) {
          ASSERT_EQ(look_up(tables, static_cast<std::uint32_t>(code | rest)),
                    static_cast<std::uint32_t>(entry.symbol));
        }
        ASSERT_EQ(tables.lengths()[entry.symbol], entry.length);
      }
    }
  }
}

}  // namespace
}  // namespace weightpress::df11
