// Codebooks against 48 tables of the official code, and against rules that any Huffman code obeys.
#include "format/codebook.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "format/lookup_tables.h"
#include "support/golden.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

struct GoldenTable {
  std::uint64_t seed;
  Histogram histogram{};
  std::vector<CodebookEntry> entries;
  std::string luts_hex;  // empty where the official builder fails
};

std::vector<GoldenTable> golden_tables() {
  std::ifstream file(testing::golden_folder() / "df11" / "code_tables.json");
  std::vector<GoldenTable> tables;
  for (const auto& item : nlohmann::json::parse(file)) {
    GoldenTable table{.seed = item.at("seed").get<std::uint64_t>()};
    for (const auto& [exponent, count] : item.at("counts").items())
      table.histogram[std::stoul(exponent)] = count;
    for (const auto& entry : item.at("table")) {
      const int symbol = entry.at(0).is_string() ? kEofSymbol : entry.at(0).get<int>();
      table.entries.push_back({symbol, entry.at(1).get<std::uint8_t>(), entry.at(2).get<std::uint32_t>()});
    }
    if (item.at("luts").is_string()) table.luts_hex = item.at("luts").get<std::string>();
    tables.push_back(std::move(table));
  }
  return tables;
}

std::string to_hex(const LookupTables& tables) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (std::size_t i = 0; i < tables.size_bytes(); ++i) {
    hex += kDigits[tables.data()[i] >> 4];
    hex += kDigits[tables.data()[i] & 15];
  }
  return hex;
}

TEST(OfficialCodebook, EqualsTheOfficialTables) {
  const std::vector<GoldenTable> tables = golden_tables();
  ASSERT_EQ(tables.size(), 48u);
  int with_luts = 0;
  for (const GoldenTable& golden : tables) {
    const Codebook codebook = build_official_codebook(golden.histogram);
    EXPECT_FALSE(codebook.ambiguous_limiter) << "seed " << golden.seed;
    EXPECT_EQ(codebook.entries, golden.entries) << "seed " << golden.seed;
    if (golden.luts_hex.empty()) continue;
    ++with_luts;
    EXPECT_EQ(to_hex(build_lookup_tables(codebook, TableFill::kCompat)), golden.luts_hex)
        << "seed " << golden.seed;
  }
  EXPECT_EQ(with_luts, 45);  // the official builder fails on the other three
}

TEST(OfficialCodebook, EntriesAgreeWithTheArraysByExponent) {
  const Codebook codebook =
      build_official_codebook(testing::histogram_of(testing::normal_weights(10'000, 7)));
  std::size_t with_code = 0;
  for (const std::uint8_t length : codebook.lengths) with_code += length != 0;
  EXPECT_EQ(codebook.entries.size(), with_code + 1);
  for (const CodebookEntry& entry : codebook.entries) {
    if (entry.symbol == kEofSymbol) {
      EXPECT_EQ(codebook.eof_length, entry.length);
      EXPECT_EQ(codebook.eof_code, entry.code);
    } else {
      EXPECT_EQ(codebook.lengths[entry.symbol], entry.length);
      EXPECT_EQ(codebook.codes[entry.symbol], entry.code);
    }
  }
}

/// A complete prefix code: its code space adds up to exactly 1, and codes ascend as bit strings.
void expect_complete_prefix_code(const Codebook& codebook) {
  std::uint64_t next = 0;  // in units of 2^-32
  for (const CodebookEntry& entry : codebook.entries) {
    ASSERT_GE(entry.length, 1);
    ASSERT_LE(entry.length, kMaxCodeBits);
    ASSERT_EQ(std::uint64_t{entry.code} << (kMaxCodeBits - entry.length), next);
    next += std::uint64_t{1} << (kMaxCodeBits - entry.length);
  }
  EXPECT_EQ(next, std::uint64_t{1} << kMaxCodeBits);
}

TEST(OfficialCodebook, IsACompletePrefixCodeInTableOrder) {
  testing::Random random(3);
  for (int round = 0; round < 200; ++round) {
    Histogram histogram{};
    const std::uint64_t symbols = 1 + random.below(200);
    for (std::uint64_t i = 0; i < symbols; ++i) {
      histogram[random.below(256)] = 1 + random.below(std::uint64_t{1} << random.below(30));
    }
    expect_complete_prefix_code(build_official_codebook(histogram));
  }
}

TEST(OfficialCodebook, LimiterHoldsForTheLongestCodes) {
  for (std::uint32_t symbols = 30; symbols <= 60; ++symbols) {
    const Codebook codebook = build_official_codebook(testing::fibonacci_histogram(symbols, 90));
    expect_complete_prefix_code(codebook);
    EXPECT_LE(codebook.longest_length(), kMaxCodeBits);
  }
}

TEST(OfficialCodebook, OneExponentSharesTheCodeSpaceWithEof) {
  Histogram histogram{};
  histogram[120] = 1'000;
  const Codebook codebook = build_official_codebook(histogram);
  const std::vector<CodebookEntry> expected = {{kEofSymbol, 1, 0}, {120, 1, 1}};
  EXPECT_EQ(codebook.entries, expected);
}

TEST(OfficialCodebook, TieAtTheLimiterIsReported) {
  const Codebook codebook = build_official_codebook(testing::ambiguous_histogram());
  EXPECT_TRUE(codebook.ambiguous_limiter);
  EXPECT_LE(codebook.longest_length(), kMaxCodeBits);
}

TEST(OfficialCodebook, TiesThatCannotMatterAreNotReported) {
  // Of counts that are 1 already.
  const Codebook fibonacci = build_official_codebook(testing::fibonacci_histogram(45, 100));
  EXPECT_FALSE(fibonacci.ambiguous_limiter);
  EXPECT_EQ(fibonacci.longest_length(), kMaxCodeBits);  // the limiter was at work
  // At k = 2, where no choice brings 45 doubling counts below 33 bits: the loop goes on, and later k have no
  // ties.
  Histogram doubling{};
  doubling[100] = doubling[101] = doubling[102] = 2;
  for (std::uint32_t i = 3; i < 45; ++i) doubling[100 + i] = std::uint64_t{1} << i;
  const Codebook codebook = build_official_codebook(doubling);
  EXPECT_FALSE(codebook.ambiguous_limiter);
  EXPECT_LE(codebook.longest_length(), kMaxCodeBits);
}

}  // namespace
}  // namespace weightpress::df11
