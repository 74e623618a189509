#include <functional>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

const std::string kCells =
    "  .shared .b32 cells[256];\n  .reg .b32 %own, %base;\n  mov.u32 %base, cells;\n  shl.b32 %own, %t, 2;\n "
    " add.s32 %own, %own, %base;\n";

void check_in_any_order(Snippet snippet, std::size_t num_elements,
                        const std::function<std::uint64_t(std::size_t)>& expected) {
  snippet.options = {.num_threads = 2,
                     .check_initialised = true,
                     .check_races = true,
                     .check_barriers = snippet.options.check_barriers};
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    snippet.options.seed = seed;
    const auto output = run(snippet, {}, num_elements);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < num_elements; ++i)
      ASSERT_EQ(output->results[0][i], expected(i)) << i << ", seed " << seed << "\n" << snippet.body;
  }
}

/// Each thread reads, twice, what another warp's has written.
TEST(BarrierInstructions, ABlockMeets) {
  for (const std::string barrier :
       {"bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;", "bar.sync 15;", "bar.sync %number;",
        "bar.sync 3, 256;", "bar.sync %number, %threads;", "barrier.sync.aligned %number, %threads;",
        "barrier.cta.sync 2;", "barrier.cta.sync.aligned 2, 256;", "bar.cta.sync 1;"}) {
    Snippet snippet{{},
                    {"b32"},
                    kCells +
                        "  .reg .b32 %number, %other;\n  mov.u32 %number, 7;\n  xor.b32 %other, %own, 512;\n "
                        " st.shared.u32 [%own], %i;\n  " +
                        barrier + "\n  ld.shared.u32 %d0, [%other];\n  " + barrier +
                        "\n  add.u32 %d0, %d0, 1;\n  st.shared.u32 [%own], %d0;\n  " + barrier +
                        "\n  ld.shared.u32 %d0, [%other];\n"};
    snippet.options.check_barriers = true;
    check_in_any_order(snippet, 512, [](std::size_t i) { return i + 1; });
  }
}

/// The halves of a block, each at a barrier of its own, a different number of times.
TEST(BarrierInstructions, PartsOfABlockMeet) {
  Snippet snippet{{},
                  {"b32"},
                  kCells +
                      "  .reg .b32 %number, %turns, %other;\n  shr.u32 %number, %t, 6;\n  add.u32 %turns, "
                      "%number, 1;\n  add.u32 %number, %number, 1;\n"
                      "  xor.b32 %other, %own, 128;\n  st.shared.u32 [%own], %i;\n$turn:\n  bar.sync "
                      "%number, 64;\n  ld.shared.u32 %d0, [%other];\n"
                      "  bar.sync %number, 64;\n  add.u32 %d0, %d0, 1000;\n  st.shared.u32 [%own], %d0;\n  "
                      "sub.u32 %turns, %turns, 1;\n"
                      "  setp.ne.u32 %guard, %turns, 0;\n  @%guard bra $turn;\n",
                  "",
                  128};
  check_in_any_order(snippet, 256, [](std::size_t i) {
    const std::size_t turns = i % 128 / 64 + 1;
    return (turns % 2 == 1 ? i ^ 32 : i) + 1000 * turns;
  });
}

/// One warp writes and arrives; the other waits, reads, and arrives in turn.
TEST(BarrierInstructions, ProducersArriveAndConsumersWait) {
  for (const std::string arrive :
       {"bar.arrive", "barrier.arrive", "barrier.arrive.aligned", "barrier.cta.arrive"}) {
    Snippet snippet{{},
                    {"b32"},
                    kCells +
                        "  .reg .b32 %turn, %other;\n  xor.b32 %other, %own, 128;\n  mov.u32 %turn, 0;\n  "
                        "mov.u32 %d0, 0;\n  setp.lt.u32 %guard, %t, 32;\n"
                        "  @%guard bra $consume;\n$produce:\n  add.u32 %bit, %turn, %t;\n  st.shared.u32 "
                        "[%own], %bit;\n  " +
                        arrive +
                        " 1, 64;\n  bar.sync 2, 64;\n  add.u32 %turn, %turn, 1;\n  setp.lt.u32 %guard, "
                        "%turn, 5;\n  @%guard bra $produce;\n"
                        "  bra.uni $met;\n$consume:\n  bar.sync 1, 64;\n  ld.shared.u32 %bit, [%other];\n  "
                        "add.u32 %d0, %d0, %bit;\n  " +
                        arrive +
                        " 2, 64;\n  add.u32 %turn, %turn, 1;\n  setp.lt.u32 %guard, %turn, 5;\n  @%guard bra "
                        "$consume;\n$met:\n",
                    "",
                    64};
    check_in_any_order(snippet, 128, [](std::size_t i) { return i % 64 < 32 ? 5 * (i % 64 + 32) + 10 : 0; });
  }
}

TEST(BarrierInstructions, BarriersReduce) {
  struct Row {
    std::string line;
    std::function<std::uint64_t(std::size_t count)>
        result;  ///< of how many of 128 threads hold the predicate
  };
  const std::vector<Row> table = {
      {"bar.red.popc.u32 %d0, 0, %guard;", [](std::size_t count) { return count; }},
      {"bar.red.popc.u32 %d0, 1, !%guard;", [](std::size_t count) { return 128 - count; }},
      {"bar.red.popc.u32 %d0, 2, 128, %guard;", [](std::size_t count) { return count; }},
      {"barrier.red.popc.aligned.u32 %d0, 0, %guard;", [](std::size_t count) { return count; }},
      {"barrier.cta.red.popc.u32 %d0, 0, %guard;", [](std::size_t count) { return count; }},
      {"bar.red.and.pred %said, 0, %guard;", [](std::size_t count) { return count == 128 ? 1 : 0; }},
      {"bar.red.or.pred %said, 0, %guard;", [](std::size_t count) { return count > 0 ? 1 : 0; }},
      {"bar.red.and.pred %said, 3, !%guard;", [](std::size_t count) { return count == 0 ? 1 : 0; }},
      {"barrier.red.or.pred %said, 3, 128, !%guard;", [](std::size_t count) { return count < 128 ? 1 : 0; }}};
  for (const Row& row : table) {
    // A block has as many threads with the predicate as its number says, from 0 to 128.
    const bool is_predicate = row.line.find("%said") != std::string::npos;
    Snippet snippet{{},
                    {"b32"},
                    "  .reg .pred %said;\n  mov.u32 %bit, 64;\n  mul.lo.u32 %bit, %bit, %block;\n  "
                    "setp.lt.u32 %guard, %t, %bit;\n  " +
                        row.line + "\n" + (is_predicate ? "  selp.u32 %d0, 1, 0, %said;\n" : ""),
                    "",
                    128};
    check_in_any_order(snippet, 3 * 128, [&](std::size_t i) { return row.result(i / 128 * 64); });
  }
}

/// Half of the warps, or of each warp, has ended.
TEST(BarrierInstructions, NobodyWaitsForEndedThreads) {
  for (const std::string bit : {"32", "1"}) {
    Snippet snippet{{},
                    {"b32"},
                    kCells + "  .reg .b32 %other;\n  and.b32 %bit, %t, " + bit +
                        ";\n  mov.u32 %d0, 5;\n  st.global.u32 [%out], %d0;\n  setp.ne.u32 %guard, %bit, 0;\n"
                        "  @%guard exit;\n  xor.b32 %other, %own, 256;\n  st.shared.u32 [%own], %i;\n  "
                        "bar.sync 0;\n  ld.shared.u32 %d0, [%other];\n",
                    "",
                    128};
    const std::size_t mask = bit == "32" ? 32 : 1;
    check_in_any_order(snippet, 256, [mask](std::size_t i) { return (i & mask) != 0 ? 5 : i ^ 64; });
  }
}

/// barrier.sync, unlike bar.sync, need not be the same instruction for a warp's lanes.
TEST(BarrierInstructions, LanesMeetInDifferentInstructions) {
  Snippet snippet{{},
                  {"b32"},
                  kCells +
                      "  .reg .b32 %other;\n  xor.b32 %other, %own, 4;\n  and.b32 %bit, %t, 1;\n  "
                      "setp.eq.u32 %guard, %bit, 0;\n  st.shared.u32 [%own], %i;\n"
                      "  @%guard bra $even;\n  barrier.sync 0;\n  ld.shared.u32 %d0, [%other];\n  bra.uni "
                      "$met;\n$even:\n  barrier.sync 0;\n"
                      "  ld.shared.u32 %d0, [%other];\n  add.u32 %d0, %d0, 500;\n$met:\n",
                  "",
                  64};
  check_in_any_order(snippet, 128, [](std::size_t i) { return (i ^ 1) + (i % 2 == 0 ? 500 : 0); });
}

TEST(BarrierInstructions, ABarrierThatNeverCompletesIsAFault) {
  const auto fault =
      fault_of({{},
                {},
                "  setp.lt.u32 %guard, %t, 32;\n  @%guard bar.sync 1, 64;\n  @!%guard bar.sync 2, 64;\n",
                "",
                64},
               {}, 64);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::kBarrier) << fault->message;
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
