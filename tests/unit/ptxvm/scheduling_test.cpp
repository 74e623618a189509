// Orders of lanes, warps and blocks, and host threads: what may depend on them, and what must not.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "hand_written_ptx.h"
#include "ptxvm/launch.h"

namespace weightpress::ptxvm {
namespace {

using Words = std::vector<std::uint32_t>;

const std::string kPtx = testing::ptx_module(R"(
// out[place] = a number that each thread gets once.
.visible .entry tickets(.param .u64 counter, .param .u64 out)
{
.reg .b32 %r<6>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [counter];
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0;
atom.global.add.u32 %r4, [%rd0], 1;
mul.wide.u32 %rd2, %r3, 4;
add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r4;
ret;
}
// The same for the second time that the lanes of a warp go on.
.visible .entry tickets_after_meeting(.param .u64 counter, .param .u64 out)
{
.reg .b32 %r<6>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [counter];
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0;
bar.sync 0;
atom.global.add.u32 %r4, [%rd0], 1;
mul.wide.u32 %rd2, %r3, 4;
add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r4;
ret;
}
// Sums each block's numbers in shared memory, and rotates them; divergent, with barriers, shuffles, atomics.
.visible .entry work(.param .u64 sums, .param .u64 out)
{
.reg .pred %p<4>;
.reg .b32 %r<12>;
.reg .b64 %rd<4>;
.shared .align 4 .b8 words[512];
.shared .align 4 .b8 sum[4];
ld.param.u64 %rd0, [sums];
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mad.lo.u32 %r3, %r1, %r2, %r0;
setp.eq.u32 %p0, %r0, 0;
@%p0 st.shared.u32 [sum], 0;
mov.u32 %r4, words;
mad.lo.u32 %r5, %r0, 4, %r4;
mul.lo.u32 %r6, %r3, %r3;
st.shared.u32 [%r5], %r6;
bar.sync 0;
and.b32 %r7, %r3, 15;
AGAIN:
atom.shared.add.u32 %r8, [sum], %r7;
sub.u32 %r7, %r7, 1;
setp.gt.s32 %p1, %r7, 0;
@%p1 bra AGAIN;
xor.b32 %r9, %r0, 65;
mad.lo.u32 %r9, %r9, 4, %r4;
ld.shared.u32 %r10, [%r9];
shfl.sync.bfly.b32 %r10, %r10, 3, 31, -1;
mul.wide.u32 %rd2, %r3, 4;
add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r10;
bar.sync 0;
@!%p0 bra END;
ld.shared.u32 %r11, [sum];
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd0, %rd0, %rd2;
st.global.u32 [%rd0], %r11;
END:
ret;
}
// Notes each block that runs; those from `first` on that `step` divides do not come through.
.visible .entry traps(.param .u64 seen, .param .u32 first, .param .u32 step)
{
.reg .pred %p<4>;
.reg .b32 %r<8>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [seen];
ld.param.u32 %r0, [first];
ld.param.u32 %r1, [step];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %nctaid.x;
mul.wide.u32 %rd1, %r2, 4;
add.u64 %rd0, %rd0, %rd1;
st.global.u32 [%rd0], %r3;
setp.ge.u32 %p0, %r2, %r0;
rem.u32 %r4, %r2, %r1;
setp.eq.and.u32 %p0, %r4, 0, %p0;
@%p0 trap; // here
ret;
}
// Where (2, 3, 1) of the grid and (4, 1, 2) of the block is, is a trap. The others add 1 to their own word.
.visible .entry place(.param .u64 out)
{
.reg .pred %p<8>;
.reg .b32 %r<16>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %tid.y;
mov.u32 %r2, %tid.z;
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ctaid.y;
mov.u32 %r5, %ctaid.z;
mov.u32 %r6, %ntid.y;
mad.lo.u32 %r7, %r2, %r6, %r1;
mov.u32 %r6, %ntid.x;
mad.lo.u32 %r7, %r7, %r6, %r0;
mov.u32 %r6, %nctaid.y;
mad.lo.u32 %r8, %r5, %r6, %r4;
mov.u32 %r6, %nctaid.x;
mad.lo.u32 %r8, %r8, %r6, %r3;
mov.u32 %r9, %ntid.x;
mov.u32 %r10, %ntid.y;
mul.lo.u32 %r9, %r9, %r10;
mov.u32 %r10, %ntid.z;
mul.lo.u32 %r9, %r9, %r10;
mad.lo.u32 %r7, %r8, %r9, %r7;
mul.wide.u32 %rd1, %r7, 4;
add.u64 %rd0, %rd0, %rd1;
red.global.add.u32 [%rd0], 1;
setp.eq.u32 %p0, %r0, 4;
setp.eq.and.u32 %p0, %r1, 1, %p0;
setp.eq.and.u32 %p0, %r2, 2, %p0;
setp.eq.and.u32 %p0, %r3, 2, %p0;
setp.eq.and.u32 %p0, %r4, 3, %p0;
setp.eq.and.u32 %p0, %r5, 1, %p0;
@%p0 trap; // here
ret;
}
// Block `waits` spins until the word is not 0; block `sets` sets it; block `traps` does not come through.
.visible .entry flag(.param .u64 word, .param .u32 waits, .param .u32 sets, .param .u32 traps)
{
.reg .pred %p<4>;
.reg .b32 %r<8>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [word];
ld.param.u32 %r0, [waits];
ld.param.u32 %r1, [sets];
ld.param.u32 %r2, [traps];
mov.u32 %r3, %ctaid.x;
setp.eq.u32 %p0, %r3, %r0;
setp.eq.u32 %p1, %r3, %r1;
setp.eq.u32 %p2, %r3, %r2;
@%p2 trap;
@%p1 st.volatile.global.u32 [%rd0], 1;
@!%p0 bra END;
AGAIN:
ld.volatile.global.u32 %r4, [%rd0];
setp.eq.u32 %p3, %r4, 0;
@%p3 bra AGAIN;
END:
ret;
}
// Adds its number to the first word and 1 to the second, after `rounds` of a loop.
.visible .entry sum_of_blocks(.param .u64 sums, .param .u32 rounds)
{
.reg .pred %p<2>;
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [sums];
ld.param.u32 %r1, [rounds];
mov.u32 %r0, %ctaid.x;
cvt.u64.u32 %rd1, %r0;
setp.eq.u32 %p0, %r1, 0;
@%p0 bra DONE;
AGAIN:
sub.u32 %r1, %r1, 1;
setp.ne.u32 %p0, %r1, 0;
@%p0 bra AGAIN;
DONE:
red.global.add.u64 [%rd0], %rd1;
red.global.add.u64 [%rd0+8], 1;
ret;
}
// Each parameter to a word of its own.
.visible .entry parameters(.param .u64 out, .param .u8 a, .param .u64 b, .param .u16 c, .param .u32 d)
{
.reg .b16 %h<4>;
.reg .b64 %rd<6>;
.reg .b32 %r<4>;
ld.param.u64 %rd0, [out];
ld.param.u8 %h0, [a];
ld.param.u64 %rd1, [b];
ld.param.u16 %h1, [c];
ld.param.u32 %r0, [d];
cvt.u64.u16 %rd2, %h0;
cvt.u64.u16 %rd3, %h1;
cvt.u64.u32 %rd4, %r0;
st.global.u64 [%rd0], %rd2;
st.global.u64 [%rd0+8], %rd1;
st.global.u64 [%rd0+16], %rd3;
st.global.u64 [%rd0+24], %rd4;
ret;
}
)");

class Scheduling : public ::testing::Test {
 protected:
  void SetUp() override {
    auto module = LoadedModule::load(kPtx, memory_);
    ASSERT_TRUE(module.has_value()) << module.error().message;
    module_ = std::move(*module);
  }

  Result<LaunchReport> run(const char* kernel, Dim3 grid, Dim3 block,
                           const std::vector<std::uint64_t>& parameters, const LaunchOptions& options) {
    LaunchConfig config;
    config.grid = grid;
    config.block = block;
    return launch(*module_, kernel, config, std::span<const std::uint64_t>(parameters), memory_, options);
  }

  /// Without a fault.
  Counters run_clean(const char* kernel, Dim3 grid, Dim3 block, const std::vector<std::uint64_t>& parameters,
                     const LaunchOptions& options) {
    const auto report = run(kernel, grid, block, parameters, options);
    EXPECT_TRUE(report.has_value()) << report.error().message;
    if (!report.has_value()) return {};
    EXPECT_FALSE(report->fault.has_value()) << report->fault->message;
    return report->counters;
  }

  template <class T>
  std::vector<T> words_at(std::uint64_t address, std::size_t count) {
    std::vector<T> words(count);
    EXPECT_TRUE(memory_.read(address, {reinterpret_cast<std::uint8_t*>(words.data()), count * sizeof(T)}));
    return words;
  }

  Words tickets(const char* kernel, std::uint32_t blocks, std::uint32_t threads,
                const LaunchOptions& options) {
    const std::uint64_t counter = memory_.allocate(4),
                        out = memory_.allocate(std::uint64_t{4} * blocks * threads);
    run_clean(kernel, {blocks, 1, 1}, {threads, 1, 1}, {counter, out}, options);
    const Words result = words_at<std::uint32_t>(out, std::size_t{blocks} * threads);
    EXPECT_TRUE(memory_.free(counter));
    EXPECT_TRUE(memory_.free(out));
    return result;
  }

  Memory memory_;
  std::unique_ptr<LoadedModule> module_;
};

LaunchOptions order(std::uint64_t seed, int num_threads) {
  LaunchOptions options;
  options.seed = seed;
  options.num_threads = num_threads;
  return options;
}

std::string text_of(const LaunchOptions& options) {
  return "order " + std::to_string(options.seed) + ", " + std::to_string(options.num_threads) +
         " host threads";
}

bool is_ascending(std::span<const std::uint32_t> words) {
  return std::is_sorted(words.begin(), words.end());
}

TEST_F(Scheduling, Seed0IsAscending) {
  for (const char* const kernel : {"tickets", "tickets_after_meeting"}) {
    Words expected(4 * 96);
    std::iota(expected.begin(), expected.end(), 0u);
    EXPECT_EQ(tickets(kernel, 4, 96, order(0, 1)), expected) << kernel;
  }
}

TEST_F(Scheduling, SeedsChangeTheOrderAndNothingElseDoes) {
  constexpr std::uint32_t kBlocks = 4, kThreads = 96;
  for (const char* const kernel : {"tickets", "tickets_after_meeting"}) {
    SCOPED_TRACE(kernel);
    std::set<Words> different;
    bool blocks_move = false, warps_move = false, lanes_move = false;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const Words numbers = tickets(kernel, kBlocks, kThreads, order(seed, 1));
      EXPECT_EQ(tickets(kernel, kBlocks, kThreads, order(seed, 1)), numbers) << seed;
      different.insert(numbers);
      Words sorted = numbers;
      std::sort(sorted.begin(), sorted.end());
      for (std::uint32_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i) << seed;
      // The numbers of the first thread of each block, of each warp of block 1, of the lanes of a warp.
      Words first_of_block, first_of_warp;
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        const auto begin = numbers.begin() + block * kThreads;
        first_of_block.push_back(*std::min_element(begin, begin + kThreads));
      }
      for (std::uint32_t warp = 0; warp < kThreads / 32; ++warp) {
        const auto begin = numbers.begin() + kThreads + warp * 32;
        first_of_warp.push_back(*std::min_element(begin, begin + 32));
      }
      blocks_move |= !is_ascending(first_of_block);
      warps_move |= !is_ascending(first_of_warp);
      lanes_move |= !is_ascending(std::span(numbers).subspan(kThreads, 32));
    }
    EXPECT_EQ(different.size(), 12u);
    EXPECT_TRUE(blocks_move);
    EXPECT_TRUE(warps_move);
    EXPECT_TRUE(lanes_move);
  }
}

TEST_F(Scheduling, SeveralHostThreadsHandOutEachTicketOnce) {
  for (const int num_threads : {2, 3, 16})
    for (const std::uint64_t seed : {0u, 1u}) {
      Words numbers = tickets("tickets", 50, 40, order(seed, num_threads));
      std::sort(numbers.begin(), numbers.end());
      for (std::uint32_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i) << seed;
    }
}

TEST_F(Scheduling, ResultsAndCountersOfOrderlyKernelsAreTheSame) {
  constexpr std::uint32_t kBlocks = 9, kThreads = 128;
  Words expected_sums(kBlocks), expected(kBlocks * kThreads);
  for (std::uint32_t i = 0; i < expected.size(); ++i) {
    expected_sums[i / kThreads] += (i % 16) * (i % 16 + 1) / 2;
    const std::uint32_t from = i / kThreads * kThreads + ((i ^ 3) % kThreads ^ 65);
    expected[i] = from * from;
  }
  const std::uint64_t sums = memory_.allocate(4 * kBlocks), out = memory_.allocate(4 * expected.size());
  std::optional<Counters> first;
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    for (const int num_threads : {1, 2, 3, 20})
      for (const bool checks : {false, true}) {
        LaunchOptions options = order(seed, num_threads);
        options.check_initialised = options.check_races = options.check_barriers = checks;
        options.count_accesses = true;
        SCOPED_TRACE(text_of(options));
        const std::vector<std::uint8_t> nothing(4 * expected.size(), 0xEE);
        ASSERT_TRUE(memory_.write(out, nothing));
        ASSERT_TRUE(memory_.write(sums, std::span(nothing).first(4 * kBlocks)));
        const Counters counters = run_clean("work", {kBlocks, 1, 1}, {kThreads, 1, 1}, {sums, out}, options);
        ASSERT_EQ(words_at<std::uint32_t>(sums, kBlocks), expected_sums);
        ASSERT_EQ(words_at<std::uint32_t>(out, expected.size()), expected);
        if (!first.has_value()) first = counters;
        EXPECT_EQ(counters.lane_instructions, first->lane_instructions);
        EXPECT_EQ(counters.global_store_bytes, first->global_store_bytes);
        EXPECT_EQ(counters.global_store_sectors, first->global_store_sectors);
        EXPECT_EQ(counters.shared_instructions, first->shared_instructions);
        EXPECT_EQ(counters.shared_bank_words, first->shared_bank_words);
        EXPECT_EQ(counters.atomic_instructions, first->atomic_instructions);
        EXPECT_EQ(counters.atomic_lanes, first->atomic_lanes);
      }
  EXPECT_GT(first->lane_instructions, 0u);
  EXPECT_GT(first->atomic_lanes, 0u);
}

TEST_F(Scheduling, TheFaultIsThatOfTheFirstBlockInTheOrder) {
  constexpr std::uint32_t kBlocks = 40;
  const std::uint64_t seen = memory_.allocate(4 * kBlocks);
  std::set<std::uint64_t> blocks;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    std::optional<std::uint64_t> expected;
    if (seed == 0) expected = 9;  // the first from 7 on that 3 divides
    for (const int num_threads : {1, 2, 3, 8})
      for (int again = 0; again < 5; ++again) {
        SCOPED_TRACE(text_of(order(seed, num_threads)));
        const auto report = run("traps", {kBlocks, 1, 1}, {2, 1, 1}, {seen, 7, 3}, order(seed, num_threads));
        ASSERT_TRUE(report.has_value()) << report.error().message;
        ASSERT_TRUE(report->fault.has_value());
        if (!expected.has_value()) expected = report->fault->block_number;
        EXPECT_EQ(report->fault->block_number, *expected);
        EXPECT_EQ(report->fault->block.x, *expected);
        EXPECT_EQ(report->fault->kind, FaultKind::kTrap);
        EXPECT_EQ(std::vector{report->fault->line},
                  std::vector{testing::lines_with(kPtx, "@%p0 trap; // here")[0]});
      }
    EXPECT_EQ(*expected % 3, 0u);
    EXPECT_GE(*expected, 7u);
    blocks.insert(*expected);
  }
  EXPECT_GT(blocks.size(), 1u) << "seeds do not change the order of blocks";
}

TEST_F(Scheduling, BlocksAfterAFaultAreNotBegun) {
  const std::uint64_t seen = memory_.allocate(4 * 40);
  const auto report = run("traps", {40, 1, 1}, {2, 1, 1}, {seen, 7, 3}, order(0, 1));
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const Words words = words_at<std::uint32_t>(seen, 40);
  for (std::uint32_t block = 0; block < 40; ++block) EXPECT_EQ(words[block], block <= 9 ? 40u : 0u) << block;
}

TEST_F(Scheduling, PartsOfAGridSeeAllOfIt) {
  struct Part {
    std::uint64_t first, num, begin, end;
  };
  for (const Part& part :
       {Part{0, 0, 0, 20}, Part{5, 0, 5, 20}, Part{0, 1, 0, 1}, Part{19, 1, 19, 20}, Part{3, 9, 3, 12}})
    for (const std::uint64_t seed : {0u, 1u, 2u})
      for (const int num_threads : {1, 3}) {
        LaunchOptions options = order(seed, num_threads);
        options.first_block = part.first;
        options.num_blocks = part.num;
        SCOPED_TRACE(text_of(options) + ", from " + std::to_string(part.first));
        const std::uint64_t seen = memory_.allocate(4 * 20);
        run_clean("traps", {20, 1, 1}, {1, 1, 1}, {seen, 1000, 1}, options);
        const Words words = words_at<std::uint32_t>(seen, 20);
        for (std::uint32_t block = 0; block < 20; ++block)
          EXPECT_EQ(words[block], part.begin <= block && block < part.end ? 20u : 0u) << block;
        EXPECT_TRUE(memory_.free(seen));
      }
  // A fault's number is that in the grid.
  LaunchOptions options = order(0, 1);
  options.first_block = 10;
  options.num_blocks = 6;
  const std::uint64_t seen = memory_.allocate(4 * 20);
  const auto report = run("traps", {20, 1, 1}, {1, 1, 1}, {seen, 0, 7}, options);
  ASSERT_TRUE(report.has_value() && report->fault.has_value());
  EXPECT_EQ(report->fault->block_number, 14u);
  // Parts that are not inside it are refused.
  for (const Part& part : {Part{20, 0, 0, 0}, Part{20, 1, 0, 0}, Part{15, 6, 0, 0}, Part{1, 20, 0, 0}}) {
    options.first_block = part.first;
    options.num_blocks = part.num;
    const auto refused = run("traps", {20, 1, 1}, {1, 1, 1}, {seen, 1000, 1}, options);
    EXPECT_TRUE(!refused.has_value() && refused.error().code == ErrorCode::kUsage) << part.first;
  }
}

TEST_F(Scheduling, GridsAndBlocksOfThreeDimensions) {
  const Dim3 grid{3, 4, 2}, block{5, 2, 3};
  const std::uint64_t count = grid.count() * block.count();
  for (const std::uint64_t seed : {0u, 3u}) {
    const std::uint64_t out = memory_.allocate(4 * count);
    const auto report = run("place", grid, block, {out}, order(seed, 1));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_TRUE(report->fault.has_value());
    const Fault& fault = *report->fault;
    EXPECT_EQ(fault.block.x, 2u);
    EXPECT_EQ(fault.block.y, 3u);
    EXPECT_EQ(fault.block.z, 1u);
    EXPECT_EQ(fault.block_number, 23u);
    EXPECT_EQ(fault.thread.x, 4u);
    EXPECT_EQ(fault.thread.y, 1u);
    EXPECT_EQ(fault.thread.z, 2u);
    EXPECT_TRUE(memory_.free(out));
  }
  // Without that block all come through, and each once.
  for (const std::uint64_t seed : {0u, 3u})
    for (const int num_threads : {1, 3}) {
      const std::uint64_t out = memory_.allocate(4 * count);
      LaunchOptions options = order(seed, num_threads);
      options.num_blocks = 23;
      run_clean("place", grid, block, {out}, options);
      const Words words = words_at<std::uint32_t>(out, count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(words[i], i / block.count() < 23 ? 1u : 0u) << i;
      EXPECT_TRUE(memory_.free(out));
    }
}

TEST_F(Scheduling, ManySmallBlocks) {
  constexpr std::uint32_t kBlocks = 100'000;
  for (const std::uint64_t seed : {0u, 1u})
    for (const int num_threads : {1, 3}) {
      const std::uint64_t sums = memory_.allocate(16);
      const Counters counters =
          run_clean("sum_of_blocks", {kBlocks, 1, 1}, {1, 1, 1}, {sums, 0}, order(seed, num_threads));
      EXPECT_EQ(words_at<std::uint64_t>(sums, 2),
                (std::vector<std::uint64_t>{std::uint64_t{kBlocks} * (kBlocks - 1) / 2, kBlocks}));
      EXPECT_EQ(counters.lane_instructions, 9 * std::uint64_t{kBlocks});
      EXPECT_TRUE(memory_.free(sums));
    }
}

TEST_F(Scheduling, BlocksMayWaitForOthers) {
  // For ones before and after them in any order: where one spins, the next begins.
  for (const std::uint64_t seed : {0u, 1u, 2u})
    for (const int num_threads : {1, 2, 3})
      for (const std::uint64_t waits : {0u, 2u, 4u}) {
        LaunchOptions options = order(seed, num_threads);
        options.max_branches = std::uint64_t{1} << 31;
        SCOPED_TRACE(text_of(options));
        const std::uint64_t word = memory_.allocate(4);
        run_clean("flag", {5, 1, 1}, {1, 1, 1}, {word, waits, 4 - waits, 9}, options);
        run_clean("flag", {5, 1, 1}, {1, 1, 1}, {word, waits, 3, 9}, options);
        EXPECT_TRUE(memory_.free(word));
      }
  // Nobody sets it.
  for (const int num_threads : {1, 2, 3}) {
    LaunchOptions options = order(0, num_threads);
    options.max_branches = 100'000;
    const std::uint64_t word = memory_.allocate(4);
    const auto report = run("flag", {5, 1, 1}, {1, 1, 1}, {word, 2, 9, 9}, options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_TRUE(report->fault.has_value());
    EXPECT_EQ(report->fault->kind, FaultKind::kEndless);
    EXPECT_EQ(report->fault->block_number, 2u);
  }
}

TEST_F(Scheduling, AFaultStopsTheOtherHostThreads) {
  // Block 1 waits for a flag that nobody sets; it would do so for minutes.
  const std::uint64_t word = memory_.allocate(4);
  LaunchOptions options = order(0, 2);
  options.max_branches = std::uint64_t{1} << 34;
  const auto begin = std::chrono::steady_clock::now();
  const auto report = run("flag", {2, 1, 1}, {1, 1, 1}, {word, 1, 9, 0}, options);
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_TRUE(report->fault.has_value());
  EXPECT_EQ(report->fault->kind, FaultKind::kTrap);
  EXPECT_EQ(report->fault->block_number, 0u);
  EXPECT_LT(seconds, 20);
}

TEST_F(Scheduling, MoreHostThreadsThanBlocks) {
  const std::uint64_t sums = memory_.allocate(16);
  run_clean("sum_of_blocks", {2, 1, 1}, {1, 1, 1}, {sums, 1'000}, order(1, 64));
  EXPECT_EQ(words_at<std::uint64_t>(sums, 2), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(Scheduling, ParametersAreLaidOutAsDeclared) {
  const KernelInfo* const info = module_->find_kernel("parameters");
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->parameters.size(), 5u);
  const std::uint32_t offsets[] = {0, 8, 16, 24, 28}, sizes[] = {8, 1, 8, 2, 4};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(info->parameters[i].offset_bytes, offsets[i]) << i;
    EXPECT_EQ(info->parameters[i].size_bytes, sizes[i]) << i;
  }
  EXPECT_EQ(info->parameter_bytes, 32u);
  EXPECT_EQ(info->num_instructions, 13u);
  const std::uint64_t out = memory_.allocate(32);
  const std::vector<std::uint64_t> expected = {0xA7, 0x0123456789ABCDEF, 0xC001, 0xDEADBEEF};
  run_clean("parameters", {1, 1, 1}, {1, 1, 1}, {out, 0xA7, 0x0123456789ABCDEF, 0xC001, 0xDEADBEEF}, {});
  EXPECT_EQ(words_at<std::uint64_t>(out, 4), expected);

  std::vector<std::uint8_t> bytes(32, 0xEE);
  const auto put = [&bytes](std::size_t offset, std::uint64_t number, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes[offset + i] = static_cast<std::uint8_t>(number >> (8 * i));
  };
  put(0, out, 8);
  put(8, 0xA7, 1);
  put(16, 0x0123456789ABCDEF, 8);
  put(24, 0xC001, 2);
  put(28, 0xDEADBEEF, 4);
  ASSERT_TRUE(memory_.write(out, std::vector<std::uint8_t>(32)));
  const auto report = launch(*module_, "parameters", {}, std::span<const std::uint8_t>(bytes), memory_);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_FALSE(report->fault.has_value()) << report->fault->message;
  EXPECT_EQ(words_at<std::uint64_t>(out, 4), expected);

  bytes.pop_back();
  EXPECT_FALSE(launch(*module_, "parameters", {}, std::span<const std::uint8_t>(bytes), memory_).has_value());
}

TEST_F(Scheduling, LaunchesAtTheSameTimeDoNotMeet) {
  // Twice the same work on memory of its own, one launch inside each of two threads.
  const std::uint64_t sums[2] = {memory_.allocate(16), memory_.allocate(16)};
  Counters counters[2];
  std::thread other(
      [&] { counters[1] = run_clean("sum_of_blocks", {300, 1, 1}, {1, 1, 1}, {sums[1], 100}, order(1, 2)); });
  counters[0] = run_clean("sum_of_blocks", {300, 1, 1}, {1, 1, 1}, {sums[0], 100}, order(2, 2));
  other.join();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(words_at<std::uint64_t>(sums[i], 2), (std::vector<std::uint64_t>{300 * 299 / 2, 300}));
    EXPECT_EQ(counters[i].lane_instructions, 300u * (9 + 3 * 100));
  }
}

}  // namespace
}  // namespace weightpress::ptxvm
