// The official kernel on 2,000 random units, each with safe, official and zero-filled tables: exact, or
// endless where src/format says so, or refused for its shared memory.
#include <map>

#include <gtest/gtest.h>

#include "official_kernel/decode_kernel_test_support.h"
#include "official_kernel/random_units.h"

namespace weightpress {
namespace {

using testing::CodedUnit;
using testing::KernelRun;

constexpr std::uint64_t kUnits = testing::kIsSlowBuild ? 40 : 2'000;
constexpr std::uint64_t kParts = 8;

struct Tally {
  std::uint64_t exact = 0, endless = 0, refused = 0, byte_borders = 0, long_codes = 0, several_tables = 0;
};

/// In parts, so that they run beside each other.
class RandomUnits : public testing::DecodeKernelTestOf<std::uint64_t> {
 protected:
  void check(const CodedUnit& made, const std::vector<std::uint8_t>& luts, std::uint64_t seed) {
    Df11Unit unit = made.unit;
    unit.luts = luts;
    testing::KernelRunOptions options;
    options.launch.seed = seed % 4;
    options.pad = static_cast<std::uint8_t>(seed * 37);
    KernelRun run = kernel().run(unit, options);
    if (run.refusal) {
      ++tally_.refused;
      EXPECT_GT(testing::densest_chunk(unit), testing::kMaxLaunchedChunkWeights) << *run.refusal;
      options.max_shared_bytes = 96 * 1024;
      run = kernel().run(unit, options);
    } else {
      EXPECT_LE(testing::densest_chunk(unit), testing::kMaxLaunchedChunkWeights);
    }
    EXPECT_TRUE(is_as_foretold(run, unit, made.weights));
    if (run.fault) {
      ++tally_.endless;
      return;
    }
    ++tally_.exact;
    EXPECT_EQ(run.gaps_reads_past_end, 1u);
    EXPECT_EQ(run.positions_reads_past_end, unit.output_positions.size() / 4 == unit.gaps.size() / 320);
  }

  Tally tally_;
};

TEST_P(RandomUnits, AreExactOrEndAsForetold) {
  std::map<std::string, int> kinds;
  for (std::uint64_t seed = 1 + GetParam(); seed <= kUnits; seed += kParts) {
    const CodedUnit made = testing::random_unit(seed);
    SCOPED_TRACE("random_unit(" + std::to_string(seed) + "): " + made.kind + ", " +
                 std::to_string(made.weights.size()) + " weights");
    ++kinds[made.kind];
    tally_.byte_borders += testing::code_starts(made.unit, made.weights).back() % 8 == 0;
    tally_.long_codes += *std::ranges::max_element(made.code.lengths) > 24;
    tally_.several_tables += made.unit.luts.size() > 2 * 256;

    const auto safe = made.unit.luts, carried = testing::with_carried_fill(safe, made.code),
               zeros = testing::with_zero_fill(safe, made.code);
    ASSERT_TRUE(testing::kernel_should_end(made.unit, made.weights));
    check(made, safe, seed);
    if (carried != safe) check(made, carried, seed);
    if (zeros != safe) check(made, zeros, seed);
    if (HasFailure()) return;
  }
  std::string counts;
  for (const auto& [kind, count] : kinds) counts += ", " + std::to_string(count) + " " + kind;
  std::printf(
      "%llu exact, %llu endless, %llu refused; units: %llu end on a byte, %llu codes over 24 bits, %llu "
      "with several tables%s\n",
      static_cast<unsigned long long>(tally_.exact), static_cast<unsigned long long>(tally_.endless),
      static_cast<unsigned long long>(tally_.refused), static_cast<unsigned long long>(tally_.byte_borders),
      static_cast<unsigned long long>(tally_.long_codes),
      static_cast<unsigned long long>(tally_.several_tables), counts.c_str());
  if (testing::kIsSlowBuild) return;
  EXPECT_EQ(kinds.size(), 11u);
  EXPECT_GT(tally_.exact, 250u);
  EXPECT_GT(tally_.endless, 20u);
  EXPECT_GT(tally_.refused, 3u);
  EXPECT_GT(tally_.byte_borders, 20u);
  EXPECT_GT(tally_.long_codes, 20u);
  EXPECT_GT(tally_.several_tables, 50u);
}

INSTANTIATE_TEST_SUITE_P(Part, RandomUnits, ::testing::Range(std::uint64_t{0}, kParts));

/// The tables made here are those of the program.
TEST(RandomUnitTables, CarriedFillIsTheCompatibleOne) {
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const CodedUnit made = testing::random_unit(seed);
    const Df11Unit compat = compress_df11_unit(made.weights, {.num_threads = 1});
    // Another code, or tables that would hang: not the official ones.
    if (!compat.rescues.empty() || compat.encoded_exponent != made.unit.encoded_exponent) continue;
    ++compared;
    EXPECT_EQ(testing::with_carried_fill(made.unit.luts, made.code), compat.luts) << seed;
  }
  EXPECT_GT(compared, 15);
}

}  // namespace
}  // namespace weightpress
