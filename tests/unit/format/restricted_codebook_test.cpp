// The rescue's codebook: within its constraints, and never worse than simple codes that obey them too.
#include "format/restricted_codebook.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "format/lookup_tables.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

double entropy(const Histogram& histogram) {
  const double total = static_cast<double>(total_count(histogram));
  double bits = 0;
  for (const std::uint64_t count : histogram) {
    if (count != 0)
      bits -= static_cast<double>(count) / total * std::log2(static_cast<double>(count) / total);
  }
  return bits;
}

void expect_within_constraints(const Codebook& codebook, std::uint32_t min_length) {
  std::set<std::uint32_t> heads;
  std::uint64_t space = 0;
  for (const CodebookEntry& entry : codebook.entries) {
    EXPECT_GE(entry.length, min_length);
    EXPECT_LE(entry.length, kMaxRestrictedBits);
    if (entry.length > 8 && entry.symbol != kEofSymbol) heads.insert(entry.code >> (entry.length - 8));
    // Ascending without overlap: a prefix code.
    EXPECT_GE(std::uint64_t{entry.code} << (kMaxRestrictedBits - entry.length), space);
    space = (std::uint64_t{entry.code} + 1) << (kMaxRestrictedBits - entry.length);
  }
  EXPECT_LE(space, std::uint64_t{1} << kMaxRestrictedBits);
  EXPECT_LE(heads.size(), kMaxTables - 1);
  EXPECT_EQ(count_tables(codebook), heads.size() + 1);
}

double bits_per_weight(const Histogram& histogram, const Codebook& codebook) {
  return static_cast<double>(total_bits(histogram, codebook)) / static_cast<double>(total_count(histogram));
}

TEST(RestrictedCodebook, OneExponentTakesTwoBits) {
  Histogram histogram{};
  histogram[0] = 1'000'000;
  const Codebook codebook = build_restricted_codebook(histogram, 2);
  EXPECT_EQ(codebook.lengths[0], 2);
  EXPECT_EQ(codebook.eof_length, 2);
  expect_within_constraints(codebook, 2);
}

TEST(RestrictedCodebook, IsNoLongerThanTheBestForestOfFourTrees) {
  // Codes of two bits and more are four trees below the four heads of two bits. The best forest comes from
  // Huffman's merging stopped at four roots: an independent way to the optimum.
  testing::Random random(11);
  for (int round = 0; round < 100; ++round) {
    Histogram histogram{};
    histogram[0] = std::uint64_t{1} << 22;
    const std::uint64_t symbols = 1 + random.below(20);
    for (std::uint64_t i = 0; i < symbols; ++i) histogram[100 + random.below(40)] = 1 + random.below(1 << 18);
    std::multiset<std::uint64_t> roots{1};
    for (const std::uint64_t count : histogram) {
      if (count != 0) roots.insert(count);
    }
    std::uint64_t best = 2 * (total_count(histogram) + 1);  // EOF counts as one
    while (roots.size() > 4) {
      const std::uint64_t a = *roots.begin();
      roots.erase(roots.begin());
      const std::uint64_t b = *roots.begin();
      roots.erase(roots.begin());
      roots.insert(a + b);
      best += a + b;
    }
    const Codebook codebook = build_restricted_codebook(histogram, 2);
    expect_within_constraints(codebook, 2);
    const std::uint64_t ours = total_bits(histogram, codebook) + codebook.eof_length;
    EXPECT_GE(ours, best);
    EXPECT_LE(static_cast<double>(ours - best) / static_cast<double>(total_count(histogram)), 0.02);
  }
}

TEST(RestrictedCodebook, ManyTablesStayNearTheEntropy) {
  // Normal weights with a tenth of outliers over 200 exponents: entropy about 3.5 bits. The official code has
  // dozens of tables.
  testing::Random random(13);
  Histogram histogram = testing::histogram_of(testing::normal_weights(900'000, 13));
  for (int i = 0; i < 100'000; ++i) ++histogram[20 + random.below(200)];
  ASSERT_GT(count_tables(build_official_codebook(histogram)), kMaxTables);
  const Codebook codebook = build_restricted_codebook(histogram, 1);
  expect_within_constraints(codebook, 1);
  EXPECT_LE(bits_per_weight(histogram, codebook), entropy(histogram) + 0.2);
}

TEST(RestrictedCodebook, HoldsForAnyHistogram) {
  testing::Random random(17);
  for (int round = 0; round < 60; ++round) {
    Histogram histogram{};
    const std::uint64_t symbols = 1 + random.below(240);
    for (std::uint64_t i = 0; i < symbols; ++i) {
      histogram[random.below(240)] = 1 + random.below(std::uint64_t{1} << random.below(30));
    }
    for (const std::uint32_t min_length : {1u, 2u}) {
      const Codebook codebook = build_restricted_codebook(histogram, min_length);
      expect_within_constraints(codebook, min_length);
      EXPECT_LE(bits_per_weight(histogram, codebook), 8.0);
    }
  }
}

TEST(RestrictedCodebook, AllStorableExponentsAtOnce) {
  Histogram histogram{};
  for (std::uint32_t exponent = 0; exponent < kFirstPointer; ++exponent)
    histogram[exponent] = 1 + exponent % 7;
  expect_within_constraints(build_restricted_codebook(histogram, 1), 1);
}

}  // namespace
}  // namespace weightpress::df11
