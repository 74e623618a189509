// The official launch: its limits, its one corner, and that what the interpreter watches for is found when
// the kernel is spoilt.
#include <gtest/gtest.h>

#include "official_kernel/decode_kernel_test_support.h"
#include "official_kernel/random_units.h"
#include "support/plain_encoder.h"

namespace weightpress {
namespace {

using testing::DecodeKernel;
using testing::KernelRun;
using testing::KernelRunOptions;

using DecodeKernelLaunch = testing::DecodeKernelTest;

TEST_F(DecodeKernelLaunch, TheModuleIsTheOneThatIsKnown) {
  const ptxvm::LoadedModule& module = kernel().module();
  EXPECT_EQ(module.kernel_names(), std::vector<std::string>{"decode"});
  const ptxvm::KernelInfo* decode = module.find_kernel("decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->num_instructions, 707u);
  EXPECT_EQ(decode->parameters.size(), 9u);
  EXPECT_EQ(decode->parameter_bytes, 60u);
  EXPECT_EQ(decode->static_shared_bytes, 0u);
}

/// A chunk of `count` weights and one more of few; codes of one and two bits.
testing::CodedUnit unit_with_chunk_of(std::uint64_t count, testing::Random& random) {
  // n codes of one bit and m of two fill the chunk: n + m weights, n + 2 m bits.
  const std::uint64_t twos = 32'768 - count, ones = count - twos;
  std::vector<std::uint16_t> weights;
  for (std::uint64_t i = 0; i < ones + twos; ++i)
    weights.push_back(testing::with_exponent(random, i % 2 == 0 && i / 2 < twos ? 102 : 101));
  for (int i = 0; i < 100; ++i) weights.push_back(testing::with_exponent(random, 102));
  return testing::plain_unit("dense", testing::code_of_all_lengths(), std::move(weights),
                             testing::PlainPositions::kOfficial, 0);
}

TEST_F(DecodeKernelLaunch, TakesAChunkOf23550WeightsAndNoMore) {
  testing::Random random(41);
  ASSERT_EQ(testing::kMaxLaunchedChunkWeights, 23'550u);
  for (const std::uint64_t count : {23'549u, 23'550u, 23'551u, 32'768u}) {
    const testing::CodedUnit made = unit_with_chunk_of(count, random);
    ASSERT_EQ(testing::densest_chunk(made.unit), count);
    const KernelRun run = kernel().run(made.unit);
    EXPECT_EQ(run.refusal.has_value(), count > 23'550) << count << ": " << run.trouble();
    if (!run.refusal) {
      EXPECT_TRUE(is_exact(run, made.weights)) << count;
    }
    // Only the launch is in the way; and this is the longest legal way between two barriers.
    EXPECT_TRUE(is_exact(kernel().run(made.unit, {.max_shared_bytes = 96 * 1024}), made.weights)) << count;
  }
}

TEST_F(DecodeKernelLaunch, BranchesBetweenBarriersAreAsManyAsDerived) {
  // 32,768 weights of one bit: each window holds 64, and each thread copies 64.
  std::vector<std::uint16_t> weights(32'768, 101 << 7);
  const Df11Unit unit = testing::encode_plainly(testing::code_of_all_lengths(), weights);
  KernelRunOptions options = {.max_shared_bytes = 96 * 1024};
  EXPECT_TRUE(is_exact(kernel().run(unit, options), weights));
  options.launch.max_branches = testing::kLegalBranches / 2;
  const KernelRun run = kernel().run(unit, options);
  ASSERT_TRUE(run.fault) << run.trouble();
  EXPECT_EQ(run.fault->kind, ptxvm::FaultKind::kEndless);
}

/// The last chunk has no start, and its entry of output_positions is not stored.
TEST_F(DecodeKernelLaunch, ReadsAPositionBehindTheLastInTheShortCorner) {
  testing::Random random(42);
  int corners = 0;
  for (const unsigned last : {2u, 7u, 11u, 25u, 32u}) {
    for (std::uint64_t behind = 1; behind < last; ++behind) {
      if (testing::kIsSlowBuild && behind % 4 != 0) continue;
      const auto weights = testing::weights_of_bits(32'768 + behind, last, true, random);
      for (const auto ending : {testing::PlainPositions::kOfficial, testing::PlainPositions::kShort,
                                testing::PlainPositions::kLong}) {
        const Df11Unit unit = testing::encode_plainly(testing::code_of_all_lengths(), weights,
                                                      testing::PlainFill::kRepeat, ending);
        const bool is_short = unit.output_positions.size() / 4 == 2;
        corners += is_short;
        for (const unsigned pad : {0x00u, 0xFFu}) {
          const KernelRun run = kernel().run(unit, {.pad = static_cast<std::uint8_t>(pad)});
          ASSERT_TRUE(is_exact(run, weights)) << last << ' ' << behind;
          ASSERT_EQ(run.positions_reads_past_end, is_short ? 1u : 0u);
          ASSERT_EQ(run.gaps_reads_past_end, 1u);
        }
      }
    }
  }
  EXPECT_GT(corners, 10);
}

/// The text without its barrier number `which`, from 1.
std::string without_barrier(std::string ptx, int which) {
  std::size_t at = 0;
  for (int i = 0; i < which; ++i) at = ptx.find("bar.sync", at + 1);
  return ptx.replace(at, 2, "//b");
}

TEST_F(DecodeKernelLaunch, WithoutABarrierThereAreRaces) {
  const auto weights = testing::normal_weights(3'000, 43);
  const Df11Unit unit = compress_df11_unit(weights);
  KernelRunOptions options;
  options.launch.check_races = true;
  // The first one orders nothing: no shared memory is written before it.
  for (int which = 1; which <= 7; ++which) {
    DecodeKernel spoilt(without_barrier(*DecodeKernel::read_text(), which));
    const KernelRun run = spoilt.run(unit, options);
    if (which == 1) {
      EXPECT_TRUE(is_exact(run, weights));
      continue;
    }
    ASSERT_TRUE(run.fault) << which;
    EXPECT_EQ(run.fault->kind, ptxvm::FaultKind::kRace) << which << ": " << run.trouble();
  }
}

/// The weights are copied by warps, 32 neighbours at a time, from each chunk's first one on.
TEST_F(DecodeKernelLaunch, StoreSectorsAreThoseOfTheWeights) {
  const auto weights = testing::normal_weights(60'000, 45);
  const Df11Unit unit = compress_df11_unit(weights);
  std::uint64_t sectors = 0;
  for (std::uint64_t chunk = 0; chunk < unit.gaps.size() / 320; ++chunk) {
    const std::uint64_t end = testing::position_of(unit, chunk + 1);
    for (std::uint64_t i = testing::position_of(unit, chunk); i < end; i += 32)
      sectors += (2 * std::min(i + 32, end) - 1) / 32 - 2 * i / 32 + 1;
  }
  for (const std::uint64_t seed : {0u, 1u}) {
    KernelRunOptions options;
    options.launch.count_accesses = true;
    options.launch.seed = seed;
    const KernelRun run = kernel().run(unit, options);
    ASSERT_TRUE(is_exact(run, weights));
    EXPECT_EQ(run.counters.global_store_sectors, sectors);
  }
}

TEST_F(DecodeKernelLaunch, SomeBlocksOnly) {
  const auto weights = testing::normal_weights(60'000, 44);
  const Df11Unit unit = compress_df11_unit(weights);
  const std::uint64_t chunks = unit.gaps.size() / 320;
  ASSERT_GE(chunks, 4u);
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    for (const std::uint64_t count : {1u, 2u}) {
      if (chunk + count > chunks) continue;
      KernelRunOptions options;
      options.launch.first_block = chunk;
      options.launch.num_blocks = count;
      options.fill = 0xFF;  // NaN: no weight
      const KernelRun run = kernel().run(unit, options);
      ASSERT_TRUE(run.is_clean()) << run.trouble();
      const std::size_t begin = testing::position_of(unit, chunk),
                        end = testing::position_of(unit, chunk + count);
      for (std::size_t i = 0; i < weights.size(); ++i)
        ASSERT_EQ(run.weights[i], i >= begin && i < end ? weights[i] : 0xFFFF) << chunk << ' ' << i;
      EXPECT_EQ(run.gaps_reads_past_end, chunk + count == chunks ? 1u : 0u);
    }
  }
}

}  // namespace
}  // namespace weightpress
