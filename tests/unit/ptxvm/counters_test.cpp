// The counters of a launch against values worked out by hand.
#include <span>

#include <gtest/gtest.h>

#include "hand_written_ptx.h"
#include "ptxvm/launch.h"

namespace weightpress::ptxvm {
namespace {

constexpr std::uint32_t kBlocks = 3, kWarpsOfBlock = 2;
constexpr std::uint32_t kWarps = kBlocks * kWarpsOfBlock;

/// Instructions of a lane around a body (module_of).
constexpr std::uint64_t kFrameInstructions = 6;

/// What each warp adds. The body may use: the thread's number in %r0, shared memory at %r1, its lane in %r2,
/// 64 KiB at %rd0 and at %rd1.
struct Counted {
  const char* name;
  const char* body;
  std::uint64_t lane_instructions;  ///< of the body, all lanes together
  std::uint64_t load_bytes = 0, load_sectors = 0;
  std::uint64_t store_bytes = 0, store_sectors = 0;
  std::uint64_t shared_instructions = 0, bank_words = 0;
  std::uint64_t atomic_instructions = 0, atomic_lanes = 0;
};

std::string module_of(const Counted& counted) {
  return testing::ptx_module(R"(
.const .align 4 .u32 table[4] = {1, 2, 3, 4};
.func (.param .b32 sum) added(.param .b32 a, .param .b32 b)
{
.reg .b32 %r<3>;
ld.param.b32 %r0, [a];
ld.param.b32 %r1, [b];
add.u32 %r2, %r0, %r1;
st.param.b32 [sum], %r2;
ret;
}
.visible .entry counted(.param .u64 in, .param .u64 out)
{
.reg .pred %p<8>;
.reg .b16 %h<2>;
.reg .b32 %r<10>;
.reg .b64 %rd<8>;
.shared .align 16 .b8 buffer[8192];
.local .align 8 .b8 own[16];
ld.param.u64 %rd0, [in];
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, buffer;
and.b32 %r2, %r0, 31;
)" + std::string(counted.body) +
                             "\nret;\n}\n");
}

// Sums over the 32 lanes.
constexpr std::uint64_t all(std::uint64_t instructions) {
  return 32 * instructions;
}
constexpr std::uint64_t kTriangle = 32 * 33 / 2;  ///< of lane + 1

const Counted kCounted[] = {
    {"nothing", "", 0},
    {"plain", "add.u32 %r3, %r0, 1;\nmul.lo.u32 %r4, %r3, %r3;\nxor.b32 %r5, %r4, %r0;\nnot.b32 %r6, %r5;",
     all(4)},
    {"predicated off", "setp.lt.u32 %p0, %r2, 4;\n@%p0 add.u32 %r3, %r0, 1;\n@!%p0 add.u32 %r3, %r0, 2;",
     all(3)},
    {"predicated off, memory",
     "setp.lt.u32 %p0, %r2, 0;\n@%p0 ld.global.u32 %r3, [%rd0];\n@%p0 st.shared.u32 [%r1], %r0;", all(3)},
    {"set and branch",
     "setp.lt.u32 %p0, %r2, 8;\n@!%p0 bra END;\nadd.u32 %r3, %r0, 1;\nadd.u32 %r4, %r0, 1;\nEND:",
     all(2) + 8 * 2},
    {"plain branch", "bra.uni NEXT;\nNEXT:\nbra END;\nEND:", all(2)},
    {"early end", "setp.lt.u32 %p0, %r2, 8;\n@%p0 ret;\nadd.u32 %r3, %r0, 1;",
     // The 8 lanes that end here do not come to the last instruction of the frame.
     all(2) + 24 * 1 - 8},
    {"loop", "mov.u32 %r3, 0;\nAGAIN:\nadd.u32 %r3, %r3, 1;\nsetp.le.u32 %p0, %r3, %r2;\n@%p0 bra AGAIN;",
     all(1) + 3 * kTriangle},
    {"meetings", "bar.sync 0;\nshfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;\nbar.warp.sync -1;\nmembar.gl;",
     all(4)},
    {"call",
     "{\n.param .b32 a;\n.param .b32 b;\n.param .b32 sum;\nst.param.b32 [a], %r0;\nst.param.b32 [b], %r2;\n"
     "call.uni (sum), added, (a, b);\nld.param.b32 %r3, [sum];\n}",
     all(4 + 5)},
    {"parameters, constants and local memory are not counted",
     "st.local.u32 [own], %r0;\nld.local.u32 %r3, [own];\nld.const.u32 %r4, [table+4];", all(3)},

    // Global memory. Sectors are 32 bytes.
    {"coalesced copy",
     "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.u32 %r3, [%rd3];\nadd.u64 %rd4, %rd1, "
     "%rd2;\n"
     "st.global.u32 [%rd4], %r3;",
     all(5), 128, 4, 128, 4},
    {"shifted by a word",
     "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.u32 %r3, [%rd3+4];", all(3), 128, 5},
    {"stride of 8 bytes",
     "mul.wide.u32 %rd2, %r0, 8;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.nc.u32 %r3, [%rd3];", all(3), 128, 8},
    {"stride of a sector",
     "mul.wide.u32 %rd2, %r0, 32;\nadd.u64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r0;", all(3), 0, 0, 128,
     32},
    {"backwards",
     "sub.u32 %r3, 63, %r0;\nmul.wide.u32 %rd2, %r3, 4;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.u32 %r4, "
     "[%rd3];",
     all(4), 128, 4},
    {"one address", "ld.global.u32 %r3, [%rd0];", all(1), 128, 1},
    {"bytes", "cvt.u64.u32 %rd2, %r0;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.u8 %h0, [%rd3];", all(3), 32, 1},
    {"double words", "mul.wide.u32 %rd2, %r0, 8;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.u64 %rd4, [%rd3];",
     all(3), 256, 8},
    {"vectors",
     "mul.wide.u32 %rd2, %r0, 16;\nadd.u64 %rd3, %rd0, %rd2;\nld.global.v4.u32 {%r3, %r4, %r5, %r6}, "
     "[%rd3];\n"
     "add.u64 %rd4, %rd1, %rd2;\nst.global.v2.u32 [%rd4+8], {%r3, %r4};",
     all(5), 512, 16, 256, 16},
    {"half of the lanes",
     "setp.lt.u32 %p0, %r2, 16;\nmul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\n@%p0 ld.global.u32 "
     "%r3, [%rd3];",
     all(4), 64, 2},
    {"generic address", "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd1, %rd2;\nst.u32 [%rd3], %r0;", all(3),
     0, 0, 128, 4},
    {"two instructions do not merge",
     "and.b32 %r3, %r0, 1;\nsetp.eq.u32 %p0, %r3, 0;\n@%p0 bra EVEN;\nld.global.u32 %r4, [%rd0];\nbra "
     "END;\nEVEN:\n"
     "ld.global.u32 %r4, [%rd0];\nEND:",
     all(4) + 16, 128, 2},
    {"divergent loop",
     // The n-th round has the lanes from n on, 8 to a sector.
     "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\nmov.u32 %r3, 0;\nAGAIN:\nld.global.u32 %r4, "
     "[%rd3];\n"
     "add.u32 %r3, %r3, 1;\nsetp.le.u32 %p0, %r3, %r2;\n@%p0 bra AGAIN;",
     all(3) + 4 * kTriangle, 4 * kTriangle, 8 * (4 + 3 + 2 + 1)},
    {"rounds that lanes enter at different times",
     // Lanes below 16 load in rounds 0 and 1, the others in 1 and 2; they meet after each.
     "setp.lt.u32 %p0, %r2, 16;\nselp.b32 %r3, 0, 1, %p0;\nmov.u32 %r4, 0;\nAGAIN:\nsub.u32 %r5, %r4, %r3;\n"
     "setp.lt.u32 %p1, %r5, 2;\n@%p1 ld.global.u32 %r6, [%rd0];\nbar.warp.sync -1;\nadd.u32 %r4, %r4, 1;\n"
     "setp.lt.u32 %p2, %r4, 3;\n@%p2 bra AGAIN;",
     all(3 + 3 * 7), 256, 3},
    {"the same without meetings",
     // Then each lane's first load counts with the others' first.
     "setp.lt.u32 %p0, %r2, 16;\nselp.b32 %r3, 0, 1, %p0;\nmov.u32 %r4, 0;\nAGAIN:\nsub.u32 %r5, %r4, %r3;\n"
     "setp.lt.u32 %p1, %r5, 2;\n@%p1 ld.global.u32 %r6, [%rd0];\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p2, %r4, "
     "3;\n"
     "@%p2 bra AGAIN;",
     all(3 + 3 * 6), 256, 2},

    // Shared memory: 32 banks of words.
    {"shared, stride 1", "mad.lo.u32 %r3, %r2, 4, %r1;\nst.shared.u32 [%r3], %r0;", all(2), 0, 0, 0, 0, 1, 1},
    {"shared, stride 2", "mad.lo.u32 %r3, %r2, 8, %r1;\nst.shared.u32 [%r3], %r0;", all(2), 0, 0, 0, 0, 1, 2},
    {"shared, stride 3", "mad.lo.u32 %r3, %r2, 12, %r1;\nst.shared.u32 [%r3], %r0;", all(2), 0, 0, 0, 0, 1,
     1},
    {"shared, stride 6", "mad.lo.u32 %r3, %r2, 24, %r1;\nst.shared.u32 [%r3], %r0;", all(2), 0, 0, 0, 0, 1,
     2},
    {"shared, stride 32", "mad.lo.u32 %r3, %r2, 128, %r1;\nst.shared.u32 [%r3], %r0;", all(2), 0, 0, 0, 0, 1,
     32},
    {"shared, stride 33", "mad.lo.u32 %r3, %r2, 132, %r1;\nst.shared.u32 [%r3], %r0;", all(2), 0, 0, 0, 0, 1,
     1},
    {"shared, one address", "ld.shared.u32 %r3, [%r1];", all(1), 0, 0, 0, 0, 1, 1},
    {"shared bytes", "add.u32 %r3, %r2, %r1;\nst.shared.u8 [%r3], %h0;", all(2), 0, 0, 0, 0, 1, 1},
    {"shared double words", "mad.lo.u32 %r3, %r2, 8, %r1;\nst.shared.u64 [%r3], %rd0;", all(2), 0, 0, 0, 0, 1,
     2},
    {"shared vectors", "mad.lo.u32 %r3, %r2, 16, %r1;\nld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];", all(2),
     0, 0, 0, 0, 1, 4},
    {"shared, by a generic address",
     "mad.lo.u32 %r3, %r2, 8, %r1;\ncvt.u64.u32 %rd2, %r3;\ncvta.shared.u64 %rd3, %rd2;\nst.u32 [%rd3], %r0;",
     all(4), 0, 0, 0, 0, 1, 2},
    {"shared, write and two reads",
     "mad.lo.u32 %r3, %r2, 4, %r1;\nst.shared.u32 [%r3], %r0;\nbar.warp.sync -1;\nld.shared.u32 %r4, [%r1];\n"
     "mad.lo.u32 %r5, %r2, 64, %r1;\nld.shared.u32 %r6, [%r5];",
     all(6), 0, 0, 0, 0, 3, 1 + 1 + 16},

    // Atomics; they read and write.
    {"atomic on one address", "atom.global.add.u32 %r3, [%rd1], 1;", all(1), 128, 1, 128, 1, 0, 0, 1, 32},
    {"reduction on one address", "red.global.add.u32 [%rd1], 1;", all(1), 128, 1, 128, 1, 0, 0, 1, 32},
    {"atomic on addresses of their own",
     "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd1, %rd2;\natom.global.max.u32 %r3, [%rd3], 1;", all(3),
     128, 4, 128, 4, 0, 0, 1, 1},
    {"atomic on 8 addresses",
     "shr.u32 %r3, %r2, 2;\nmul.wide.u32 %rd2, %r3, 4;\nadd.u64 %rd3, %rd1, %rd2;\n"
     "atom.global.or.b32 %r4, [%rd3], 1;",
     all(4), 128, 1, 128, 1, 0, 0, 1, 4},
    {"atomic, most lanes on one address",
     "max.u32 %r3, %r2, 19;\nmul.wide.u32 %rd2, %r3, 8;\nadd.u64 %rd3, %rd1, %rd2;\natom.global.add.u64 "
     "%rd4, [%rd3], 1;",
     // Words 19 to 31 of 8 bytes: sectors 4 to 7.
     all(4), 256, 4, 256, 4, 0, 0, 1, 20},
    {"shared atomic on one address", "atom.shared.add.u32 %r3, [%r1], 1;", all(1), 0, 0, 0, 0, 1, 1, 1, 32},
    {"shared atomic in one bank", "mad.lo.u32 %r3, %r2, 128, %r1;\natom.shared.add.u32 %r4, [%r3], 1;",
     all(2), 0, 0, 0, 0, 1, 32, 1, 1},
    {"two atomics",
     "atom.shared.add.u32 %r3, [%r1], 1;\nmul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd1, %rd2;\n"
     "atom.global.exch.b32 %r4, [%rd3], 1;",
     all(4), 128, 4, 128, 4, 1, 1, 2, 33},
};

Result<LaunchReport> run(const std::string& ptx, const LaunchOptions& options) {
  Memory memory;
  const auto module = LoadedModule::load(ptx, memory);
  if (!module.has_value()) return Unexpected(module.error());
  const std::uint64_t parameters[] = {memory.allocate(65'536), memory.allocate(65'536)};
  LaunchConfig config;
  config.grid.x = kBlocks;
  config.block.x = 32 * kWarpsOfBlock;
  return launch(**module, "counted", config, std::span<const std::uint64_t>(parameters), memory, options);
}

void expect_counters(const Counted& counted, const LaunchReport& report, bool accesses) {
  const Counters& counters = report.counters;
  const std::uint64_t many = accesses ? kWarps : 0;
  EXPECT_EQ(counters.lane_instructions, kWarps * (counted.lane_instructions + all(kFrameInstructions)));
  EXPECT_EQ(counters.global_load_bytes, many * counted.load_bytes);
  EXPECT_EQ(counters.global_load_sectors, many * counted.load_sectors);
  EXPECT_EQ(counters.global_store_bytes, many * counted.store_bytes);
  EXPECT_EQ(counters.global_store_sectors, many * counted.store_sectors);
  EXPECT_EQ(counters.shared_instructions, many * counted.shared_instructions);
  EXPECT_EQ(counters.shared_bank_words, many * counted.bank_words);
  EXPECT_EQ(counters.atomic_instructions, many * counted.atomic_instructions);
  EXPECT_EQ(counters.atomic_lanes, many * counted.atomic_lanes);
}

TEST(LaunchCounters, AreAsWorkedOutByHand) {
  for (const Counted& counted : kCounted) {
    const std::string ptx = module_of(counted);
    for (const std::uint64_t seed : {0u, 1u, 2u, 3u})
      for (const int num_threads : {1, 2, 3})
        for (const bool accesses : {true, false}) {
          SCOPED_TRACE(std::string(counted.name) + ", order " + std::to_string(seed) + ", " +
                       std::to_string(num_threads) + " host threads" + (accesses ? "" : ", no accesses"));
          LaunchOptions options;
          options.seed = seed;
          options.num_threads = num_threads;
          options.count_accesses = accesses;
          const auto report = run(ptx, options);
          ASSERT_TRUE(report.has_value()) << report.error().message;
          ASSERT_FALSE(report->fault.has_value()) << report->fault->message;
          expect_counters(counted, *report, accesses);
        }
  }
}

TEST(LaunchCounters, DoNotDependOnTheChecks) {
  for (const Counted& counted : kCounted) {
    SCOPED_TRACE(counted.name);
    LaunchOptions options;
    options.count_accesses = options.check_barriers = true;
    const auto report = run(module_of(counted), options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_FALSE(report->fault.has_value()) << report->fault->message;
    expect_counters(counted, *report, true);
  }
}

TEST(LaunchCounters, CountThePartialWarpOfABlock) {
  Memory memory;
  const auto module = LoadedModule::load(module_of({"", R"(
mul.wide.u32 %rd2, %r0, 4;
add.u64 %rd3, %rd0, %rd2;
ld.global.u32 %r3, [%rd3];
atom.shared.add.u32 %r4, [%r1], 1;)",
                                                    0}),
                                         memory);
  ASSERT_TRUE(module.has_value()) << module.error().message;
  const std::uint64_t parameters[] = {memory.allocate(65'536), memory.allocate(65'536)};
  for (const std::uint32_t threads : {1u, 9u, 31u, 33u, 72u}) {
    SCOPED_TRACE(threads);
    LaunchConfig config;
    config.block.x = threads;
    LaunchOptions options;
    options.count_accesses = true;
    const auto report =
        launch(**module, "counted", config, std::span<const std::uint64_t>(parameters), memory, options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_FALSE(report->fault.has_value()) << report->fault->message;
    const Counters& counters = report->counters;
    const std::uint64_t warps = (threads + 31) / 32;
    EXPECT_EQ(counters.lane_instructions, threads * (kFrameInstructions + 4));
    EXPECT_EQ(counters.global_load_bytes, 4 * threads);
    EXPECT_EQ(counters.global_load_sectors, (threads + 7) / 8);
    EXPECT_EQ(counters.shared_instructions, warps);
    EXPECT_EQ(counters.shared_bank_words, warps);
    EXPECT_EQ(counters.atomic_instructions, warps);
    EXPECT_EQ(counters.atomic_lanes, threads);
    EXPECT_EQ(counters.bank_factor(), 1.0);
    EXPECT_EQ(counters.lanes_per_address(), static_cast<double>(threads) / static_cast<double>(warps));
  }
}

TEST(LaunchCounters, AddUp) {
  Counters a, b;
  EXPECT_EQ(a.bank_factor(), 0);
  EXPECT_EQ(a.lanes_per_address(), 0);
  std::uint64_t* const fields[] = {&b.lane_instructions,   &b.global_load_bytes,    &b.global_store_bytes,
                                   &b.global_load_sectors, &b.global_store_sectors, &b.shared_instructions,
                                   &b.shared_bank_words,   &b.atomic_instructions,  &b.atomic_lanes};
  std::uint64_t value = 1;
  for (std::uint64_t* const field : fields) *field = value++;
  a += b;
  a += b;
  EXPECT_EQ(a.lane_instructions, 2u);
  EXPECT_EQ(a.global_load_bytes, 4u);
  EXPECT_EQ(a.global_store_bytes, 6u);
  EXPECT_EQ(a.global_load_sectors, 8u);
  EXPECT_EQ(a.global_store_sectors, 10u);
  EXPECT_EQ(a.shared_instructions, 12u);
  EXPECT_EQ(a.shared_bank_words, 14u);
  EXPECT_EQ(a.atomic_instructions, 16u);
  EXPECT_EQ(a.atomic_lanes, 18u);
  EXPECT_EQ(a.bank_factor(), 14.0 / 12.0);
  EXPECT_EQ(a.lanes_per_address(), 18.0 / 16.0);
}

}  // namespace
}  // namespace weightpress::ptxvm
