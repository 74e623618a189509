// Which units hang the official kernel, and the proof that safe tables never do.
#include "format/kernel_termination.h"

#include <functional>

#include <gtest/gtest.h>

#include "format/restricted_codebook.h"
#include "support/golden.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

bool official_ends(const std::vector<std::uint16_t>& weights, TableFill fill) {
  const Histogram histogram = testing::histogram_of(weights);
  const Codebook codebook = build_official_codebook(histogram);
  const LookupTables tables = build_lookup_tables(codebook, fill);
  const StreamEnd end =
      make_stream_end(codebook, total_bits(histogram, codebook), exponent_of(weights.back()));
  return official_kernel_ends(tables.rows, end);
}

TEST(KernelTermination, GoldenUnitsEndAsTheInterpretedKernelDid) {
  int hanging = 0;
  for (const std::string& name : testing::golden_units()) {
    const auto weights = testing::read_bf16(testing::golden_folder() / "df11" / name / "weights.bf16");
    const bool hangs = name.starts_with("official_tables_hang_kernel");
    hanging += hangs;
    EXPECT_EQ(official_ends(weights, TableFill::kCompat), !hangs) << name;
    EXPECT_TRUE(official_ends(weights, TableFill::kSafe)) << name;
  }
  EXPECT_EQ(hanging, 2);
}

TEST(KernelTermination, ExponentWithoutACodeOrTableThatIsNotThereNeverEnds) {
  std::vector<LookupRow> rows(2);
  rows[0].fill(120);
  rows[1][120] = 3;
  StreamEnd end{.total_bits = 10, .last_code_length = 3};
  EXPECT_TRUE(official_kernel_ends(rows, end));
  rows[1][120] = 0;
  EXPECT_FALSE(official_kernel_ends(rows, end));
  rows[0].fill(255);  // table 1 of 1
  EXPECT_FALSE(official_kernel_ends(rows, end));
}

TEST(KernelTermination, TableThatLeadsToItselfNeverEnds) {
  std::vector<LookupRow> rows(3);
  rows[0].fill(255);
  rows[1].fill(255);
  rows[2].fill(1);
  EXPECT_FALSE(official_kernel_ends(rows, {.total_bits = 10, .last_code_length = 3}));
  EXPECT_FALSE(tables_are_total(rows));
}

TEST(KernelTermination, FullLastChunkIsNotDecodedBeyondItsEnd) {
  // The stream fills its chunk: no thread starts on padding, so tables that would hang on it do no harm.
  std::vector<LookupRow> rows(2);
  rows[0].fill(120);
  EXPECT_TRUE(official_kernel_ends(rows, {.total_bits = kChunkBits, .last_code_length = 3}));
  EXPECT_FALSE(official_kernel_ends(rows, {.total_bits = kChunkBits - 64, .last_code_length = 3}));
}

/// All histograms of up to `symbols` exponents with counts from `counts`.
void for_each_histogram(std::uint32_t symbols, const std::vector<std::uint64_t>& counts,
                        const std::function<void(const Histogram&)>& visit) {
  std::vector<std::size_t> digits(symbols, 0);
  while (true) {
    Histogram histogram{};
    for (std::uint32_t i = 0; i < symbols; ++i) histogram[100 + i] = counts[digits[i]];
    if (total_count(histogram) > 0) visit(histogram);
    std::uint32_t place = 0;
    while (place < symbols && ++digits[place] == counts.size()) digits[place++] = 0;
    if (place == symbols) return;
  }
}

TEST(SafeTables, AreTotalForEveryHistogramOfTinyAlphabets) {
  // Counts that make the tree anything between flat and a list 20 deep: up to three levels of tables.
  const std::vector<std::uint64_t> counts = {0, 1, 2, 3, 50, 5'000, 500'000, 50'000'000};
  std::size_t visited = 0, deep = 0;
  for_each_histogram(5, counts, [&](const Histogram& histogram) {
    ++visited;
    const Codebook codebook = build_official_codebook(histogram);
    ASSERT_TRUE(tables_are_total(build_lookup_tables(codebook, TableFill::kSafe).rows));
  });
  EXPECT_EQ(visited, 8u * 8 * 8 * 8 * 8 - 1);
  // Deeper ones: counts doubling from a small subset, so that all four levels occur.
  for (std::uint32_t symbols = 2; symbols <= 60; ++symbols) {
    for (std::uint64_t equal = 1; equal <= 4; ++equal) {
      Histogram histogram = testing::fibonacci_histogram(symbols, 90);
      for (std::uint64_t i = 0; i < equal; ++i) histogram[90 + i] = equal;
      const Codebook codebook = build_official_codebook(histogram);
      if (count_tables(codebook) > kMaxTables) continue;
      deep += codebook.longest_length() > 24;
      ASSERT_TRUE(tables_are_total(build_lookup_tables(codebook, TableFill::kSafe).rows));
    }
  }
  EXPECT_GT(deep, 20u);
}

TEST(SafeTables, OfRestrictedCodebooksAreTotal) {
  const std::vector<std::uint64_t> counts = {0, 1, 7, 1'000'000};
  for_each_histogram(4, counts, [&](const Histogram& histogram) {
    for (const std::uint32_t min_length : {1u, 2u}) {
      const Codebook codebook = build_restricted_codebook(histogram, min_length);
      ASSERT_TRUE(tables_are_total(build_lookup_tables(codebook, TableFill::kSafe).rows));
    }
  });
}

}  // namespace
}  // namespace weightpress::df11
