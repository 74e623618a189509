// The official kernel on every golden unit: each weight, in every order of threads, whatever stands behind
// the buffers.
#include <gtest/gtest.h>

#include "official_kernel/decode_kernel_test_support.h"
#include "official_kernel/random_units.h"
#include "support/golden.h"

namespace weightpress {
namespace {

using testing::KernelRun;
using testing::KernelRunOptions;

class GoldenKernel : public testing::DecodeKernelTestOf<std::string> {
 protected:
  void SetUp() override {
    DecodeKernelTestOf::SetUp();
    weights_ = testing::golden_weights(GetParam());
    unit_ = testing::golden_unit(GetParam());
  }

  /// As the official encoder made it, or with safe tables where that hangs.
  Df11Unit unit_that_ends() const {
    Df11Unit unit = unit_;
    if (hangs()) unit.luts = testing::golden_unit(GetParam(), "luts_safe.u8").luts;
    return unit;
  }
  bool hangs() const { return GetParam().starts_with("official_tables_hang_kernel"); }
  bool has_short_positions(const Df11Unit& unit) const {
    return unit.output_positions.size() / 4 == unit.gaps.size() / 320;
  }

  std::vector<std::uint16_t> weights_;
  Df11Unit unit_;
};

TEST_P(GoldenKernel, AllWeightsInEveryOrderWithAllChecks) {
  const Df11Unit unit = unit_that_ends();
  std::uint64_t instructions = 0;
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    for (const int threads : {1, 3}) {
      KernelRunOptions options;
      options.launch.seed = seed;
      options.launch.num_threads = threads;
      options.launch.check_initialised = true;
      options.launch.check_races = true;
      options.launch.check_barriers = true;
      const KernelRun run = kernel().run(unit, options);
      ASSERT_TRUE(is_exact(run, weights_)) << "seed " << seed << ", threads " << threads;
      // The last window's gap is read with the byte behind it; a position behind the last one is read where
      // the last chunk has no start and its entry is not stored.
      EXPECT_EQ(run.gaps_reads_past_end, 1u);
      EXPECT_EQ(run.positions_reads_past_end, has_short_positions(unit) ? 1u : 0u);
      // No thread's way depends on another's.
      if (instructions == 0) instructions = run.counters.lane_instructions;
      EXPECT_EQ(run.counters.lane_instructions, instructions) << "seed " << seed << ", threads " << threads;
    }
  }
  EXPECT_GT(instructions, 512u * 700);
}

TEST_P(GoldenKernel, WhatStandsBehindTheBuffersChangesNothing) {
  const Df11Unit unit = unit_that_ends();
  for (const unsigned pad : {0x00u, 0x01u, 0x55u, 0xFFu})
    EXPECT_TRUE(is_exact(kernel().run(unit, {.pad = static_cast<std::uint8_t>(pad)}), weights_)) << pad;
}

TEST_P(GoldenKernel, EachWeightIsWrittenOnce) {
  const Df11Unit unit = unit_that_ends();
  for (const unsigned fill : {0x00u, 0xFFu}) {
    KernelRunOptions options;
    options.fill = static_cast<std::uint8_t>(fill);
    options.launch.count_accesses = true;
    const KernelRun run = kernel().run(unit, options);
    EXPECT_TRUE(is_exact(run, weights_)) << fill;
    EXPECT_EQ(run.counters.global_store_bytes, 2 * weights_.size());
  }
}

TEST_P(GoldenKernel, OfficialSafeAndZeroFilledTablesEndAsForetold) {
  EXPECT_EQ(testing::kernel_should_end(unit_, weights_), !hangs());
  EXPECT_TRUE(is_as_foretold(kernel().run(unit_), unit_, weights_));

  Df11Unit safe = unit_;
  safe.luts = testing::golden_unit(GetParam(), "luts_safe.u8").luts;
  EXPECT_TRUE(is_exact(kernel().run(safe), weights_));

  Df11Unit zero_filled = safe;
  const testing::PlainCode code = testing::code_of_stream(safe, weights_);
  zero_filled.luts = testing::with_zero_fill(safe.luts, code);
  EXPECT_TRUE(is_as_foretold(kernel().run(zero_filled), zero_filled, weights_));

  // The fill of random units, made from the code alone, is the official one.
  EXPECT_EQ(testing::with_carried_fill(safe.luts, code), unit_.luts);
}

/// That what stands there matters to nobody is not for want of looking.
TEST_P(GoldenKernel, ReadsOneByteBehindGaps) {
  const KernelRun run = kernel().run(unit_that_ends(), {.has_pad = false});
  ASSERT_TRUE(run.fault);
  EXPECT_EQ(run.fault->kind, ptxvm::FaultKind::kOutOfBounds) << run.trouble();
  EXPECT_NE(run.fault->message.find("gaps"), std::string::npos) << run.fault->message;
  EXPECT_EQ(run.fault->thread.x, 511u);
  EXPECT_EQ(run.fault->block_number, unit_.gaps.size() / 320 - 1);
}

INSTANTIATE_TEST_SUITE_P(Official, GoldenKernel, ::testing::ValuesIn(testing::golden_units()),
                         [](const auto& test) { return test.param; });

class GoldenKernels : public testing::DecodeKernelTest {};

TEST_F(GoldenKernels, EndSomeWithZeroFilledTablesAndSomeNot) {
  int ends = 0, hangs = 0;
  for (const std::string& name : testing::golden_units()) {
    const auto weights = testing::golden_weights(name);
    Df11Unit unit = testing::golden_unit(name, "luts_safe.u8");
    unit.luts = testing::with_zero_fill(unit.luts, testing::code_of_stream(unit, weights));
    ++(testing::kernel_should_end(unit, weights) ? ends : hangs);
  }
  EXPECT_EQ(ends, 16);
  EXPECT_EQ(hangs, 3);
}

}  // namespace
}  // namespace weightpress
