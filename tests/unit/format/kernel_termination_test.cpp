// Which units hang the official kernel, and the proof that safe tables never do.
#include "format/kernel_termination.h"

#include <algorithm>
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

TEST(KernelTermination, LengthsAreAddedUpModulo256) {
  // 20 + 250 comes to 14, where the window is all zeros and the code has no length.
  std::vector<LookupRow> rows(2);
  rows[0].fill(50);
  rows[0][0] = 60;
  rows[1][50] = 250;
  StreamEnd end{.total_bits = 20, .last_code_length = 4};
  end.window.fill(0xFF);
  EXPECT_FALSE(official_kernel_ends(rows, end));
  rows[1][60] = 5;
  EXPECT_FALSE(tables_are_total(rows));
  rows[1][50] = 32;
  EXPECT_TRUE(tables_are_total(rows));
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

/// Codebooks of one way to make histograms: how many have more than one table, and how many are not total
/// when compatible fill is used, which shows that the fill decides.
struct Proof {
  std::size_t visited = 0, with_several_tables = 0, four_levels = 0, not_total_with_compat_fill = 0;

  void visit(const Codebook& codebook) {
    if (count_tables(codebook) > kMaxTables) return;
    ++visited;
    with_several_tables += count_tables(codebook) > 1;
    four_levels += codebook.longest_length() > 24;
    not_total_with_compat_fill += !tables_are_total(build_lookup_tables(codebook, TableFill::kCompat).rows);
    ASSERT_TRUE(tables_are_total(build_lookup_tables(codebook, TableFill::kSafe).rows));
  }
};

TEST(SafeTables, AreTotalForEveryHistogramOfTinyAlphabets) {
  // All histograms of eleven exponents with counts 1, 32 and 1,024, and a twelfth, dominant one: trees from
  // flat to a list, codes beyond eight bits for many, EOF at every place.
  Proof proof;
  for_each_histogram(11, {1, 32, 1'024}, [&](const Histogram& histogram) {
    Histogram with_dominant = histogram;
    with_dominant[111] = 100'000;
    proof.visit(build_official_codebook(with_dominant));
  });
  EXPECT_EQ(proof.visited, 177'147u);  // 3^11
  EXPECT_GT(proof.with_several_tables, 10'000u);
}

TEST(SafeTables, AreTotalForEveryOrderOfDoublingCounts) {
  // Codes of one bit to nine and ten: which exponent is rare, and where EOF falls among the rare ones,
  // decides the fill.
  Proof proof;
  std::vector<std::uint64_t> counts = {1, 1, 2, 4, 8, 16, 32, 64};
  do {
    Histogram histogram{};
    for (std::size_t i = 0; i < counts.size(); ++i) histogram[100 + i] = counts[i];
    histogram[99] = 128;
    histogram[109] = 256;
    proof.visit(build_official_codebook(histogram));
  } while (std::next_permutation(counts.begin(), counts.end()));
  EXPECT_EQ(proof.visited, 20'160u);  // 8! / 2!
  EXPECT_EQ(proof.with_several_tables, proof.visited);
}

TEST(SafeTables, AreTotalForFourLevels) {
  Proof proof;
  for (std::uint32_t symbols = 2; symbols <= 60; ++symbols) {
    for (std::uint64_t equal = 1; equal <= 4; ++equal) {
      Histogram histogram = testing::fibonacci_histogram(symbols, 90);
      for (std::uint64_t i = 0; i < equal; ++i) histogram[90 + i] = equal;
      proof.visit(build_official_codebook(histogram));
    }
  }
  EXPECT_GT(proof.four_levels, 20u);
  EXPECT_GT(proof.not_total_with_compat_fill, 0u);
}

TEST(SafeTables, OfRestrictedCodebooksAreTotal) {
  testing::Random random(37);
  Proof proof;
  for (int round = 0; round < 120; ++round) {
    // A few common exponents and so many rare ones that codes beyond eight bits are needed.
    Histogram histogram{};
    for (std::uint64_t i = 0; i < 4; ++i) histogram[120 + i] = 1 + random.below(1 << 20);
    const std::uint64_t rare = 1 + random.below(200);
    for (std::uint64_t i = 0; i < rare; ++i) histogram[random.below(240)] += 1 + random.below(20);
    for (const std::uint32_t min_length : {1u, 2u})
      proof.visit(build_restricted_codebook(histogram, min_length));
  }
  EXPECT_EQ(proof.visited, 240u);
  EXPECT_GT(proof.with_several_tables, 100u);
}

TEST(KernelTermination, EmptyWindowsAreDecodedFromZero) {
  // The end's own window finishes; the empty windows after it meet the entry of eight 0 bits, which has no
  // code.
  std::vector<LookupRow> rows(2);
  rows[0].fill(120);
  rows[0][0] = 99;
  rows[1][120] = 8;
  StreamEnd end{.total_bits = 120, .last_code_length = 8};
  end.window.fill(0x11);
  EXPECT_FALSE(official_kernel_ends(rows, end));
  rows[0][0] = 120;
  EXPECT_TRUE(official_kernel_ends(rows, end));
}

}  // namespace
}  // namespace weightpress::df11
