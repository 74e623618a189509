// The built-in units through the codec, all paths of this machine against each other, and what random units
// there are.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include <weightpress/selftest.h>

#include "format/codebook.h"
#include "host/simd_level.h"
#include "job/selftest_units.h"
#include "support/weights.h"

namespace weightpress {
namespace {

TEST(Selftest, AllCasesPass) {
  const std::vector<SelftestCase> cases = run_selftest(2);
  EXPECT_EQ(cases.size(), 16u + 9u);
  for (const SelftestCase& test : cases) EXPECT_TRUE(test.passed) << test.name << ": " << test.problem;
}

TEST(Selftest, AllPathsOfThisMachineAreAlike) {
  const SelftestComparison comparison =
      compare_selftest_paths({.num_threads = 2, .num_random_units = 30, .seed = 11, .max_weights = 30'000});
  EXPECT_TRUE(comparison.passed());
  EXPECT_EQ(comparison.num_units, 38u);
  EXPECT_EQ(comparison.num_tensors, 39u);
  std::vector<std::string> names, tile_ans_names;
  for (const SelftestPath& path : comparison.paths) {
    const bool is_df11 = path.format == Format::kDf11;
    (is_df11 ? names : tile_ans_names).push_back(path.name);
    EXPECT_EQ(path.num_units, is_df11 ? comparison.num_units : comparison.num_tensors) << path.name;
    for (const std::string& problem : path.problems) ADD_FAILURE() << path.name << ": " << problem;
  }
  ASSERT_GE(names.size(), 3u);
  // GPUs, or why there are none.
  EXPECT_TRUE(names.size() > 3 || !comparison.not_run.empty());
  names.resize(3);
  EXPECT_EQ(names, (std::vector<std::string>{"cpu, 1 thread", "cpu, 2 threads", "cpu, 1 thread, in pieces"}));
  const std::vector<std::string> with_simd = {
      "cpu, 1 thread, Tile-ANS without SIMD", "cpu, 1 thread, Tile-ANS with AVX2",
      "cpu, 2 threads, Tile-ANS with AVX2", "cpu, 1 thread, Tile-ANS with AVX2, in pieces"};
  const std::vector<std::string> without = {"cpu, 1 thread, Tile-ANS without SIMD",
                                            "cpu, 2 threads, Tile-ANS without SIMD",
                                            "cpu, 1 thread, Tile-ANS without SIMD, in pieces"};
  const bool has_simd = host::best_simd_level() != host::SimdLevel::kPortable;
  ASSERT_GE(tile_ans_names.size(), has_simd ? 4u : 3u);
  tile_ans_names.resize(has_simd ? 4 : 3);
  EXPECT_EQ(tile_ans_names, has_simd ? with_simd : without);
  for (const std::string& path : comparison.not_run)
    EXPECT_TRUE(path.starts_with("cuda") || (!has_simd && path.starts_with("cpu, Tile-ANS with AVX2: ")))
        << path;
}

TEST(Selftest, OneFormatOnly) {
  SelftestComparisonOptions options{.num_threads = 1, .num_random_units = 2, .max_weights = 100};
  options.tile_ans = false;
  const SelftestComparison df11 = compare_selftest_paths(options);
  EXPECT_EQ(df11.num_units, 10u);
  EXPECT_EQ(df11.num_tensors, 0u);
  options.tile_ans = true;
  options.df11 = false;
  const SelftestComparison tile_ans = compare_selftest_paths(options);
  EXPECT_EQ(tile_ans.num_units, 0u);
  EXPECT_EQ(tile_ans.num_tensors, 11u);
  for (const SelftestPath& path : df11.paths) EXPECT_EQ(path.format, Format::kDf11);
  for (const SelftestPath& path : tile_ans.paths) EXPECT_EQ(path.format, Format::kTileAns);
}

TEST(SelftestUnits, FollowFromSeedAndNumber) {
  const job::SelftestUnit unit = job::random_unit(7, 3, 5'000);
  EXPECT_EQ(unit.weights, job::random_unit(7, 3, 5'000).weights);
  EXPECT_NE(unit.weights, job::random_unit(7, 4, 5'000).weights);
  EXPECT_NE(unit.weights, job::random_unit(8, 2, 5'000).weights);
  EXPECT_TRUE(unit.name.starts_with("random unit 3 of seed 7 (")) << unit.name;
}

TEST(SelftestUnits, RandomOnesAreOfAllKindsAndSizesAndAtTheBorders) {
  constexpr std::uint64_t kMax = 100'000, kNumUnits = 400;
  std::map<std::string, int> kinds, luts;
  std::map<std::size_t, int> sizes;  // by order of magnitude
  int whole_bytes = 0, near_chunks = 0, near_tiles = 0, long_codes = 0, many_exponents = 0;
  for (std::uint64_t number = 0; number < kNumUnits; ++number) {
    const job::SelftestUnit unit = job::random_unit(5, number, kMax);
    const std::size_t count = unit.weights.size();
    ASSERT_GE(count, 1u);
    ASSERT_LE(count, kMax);
    const std::size_t begin = unit.name.find('(') + 1;
    ++kinds[unit.name.substr(begin, unit.name.find(',') - begin)];
    ++luts[unit.luts == LutFill::kSafe ? "safe" : "compat"];
    ++sizes[std::to_string(count).size()];
    EXPECT_NE(unit.name.find(", " + std::to_string(count) + " weights)"), std::string::npos) << unit.name;

    const df11::Histogram histogram = testing::histogram_of(unit.weights);
    for (std::size_t e = df11::kFirstPointer; e < histogram.size(); ++e)
      ASSERT_EQ(histogram[e], 0u) << unit.name;
    const df11::Codebook codebook = df11::build_official_codebook(histogram);
    const std::uint64_t bits = df11::total_bits(histogram, codebook);
    whole_bytes += bits % 8 == 0;
    near_chunks += bits > 100 && (bits + 4) % df11::kChunkBits <= 8;
    near_tiles += count > 1'000 && (count + 1) % 4'096 <= 2;
    long_codes += codebook.longest_length() > 16;
    many_exponents += std::ranges::count(histogram, 0u) < 256 - 100;
  }
  EXPECT_EQ(kinds.size(), 8u);
  for (const auto& [kind, number] : kinds) EXPECT_GE(number, 25) << kind;
  EXPECT_GE(std::min(luts["safe"], luts["compat"]), 150);
  for (std::size_t digits = 1; digits <= 5; ++digits) EXPECT_GE(sizes[digits], 8) << digits;
  EXPECT_GE(whole_bytes, 30);
  EXPECT_GE(near_chunks, 20);
  EXPECT_GE(near_tiles, 10);
  EXPECT_GE(long_codes, 10);
  EXPECT_GE(many_exponents, 20);
}

TEST(SelftestUnits, AreNoLargerThanAllowed) {
  for (const std::uint64_t max : {1u, 2u, 33u, 1'000u}) {
    for (const job::SelftestUnit& unit : job::built_in_units(max)) {
      EXPECT_LE(unit.weights.size(), max) << unit.name;
      EXPECT_GE(unit.weights.size(), 1u) << unit.name;
    }
    for (std::uint64_t number = 0; number < 200; ++number) {
      const std::size_t count = job::random_unit(1, number, max).weights.size();
      ASSERT_TRUE(count >= 1 && count <= max) << number << ": " << count;
    }
  }
}

}  // namespace
}  // namespace weightpress
