#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

/// Runs under several orders of lanes and warps.
void check_in_any_order(Snippet snippet, std::size_t num_elements, const std::vector<Values>& expected) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    snippet.options.seed = seed;
    const auto output = run(snippet, {}, num_elements);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(output->results[i], expected[i]) << "%d" << i << ", seed " << seed << "\n" << snippet.body;
  }
}

Values for_each(std::size_t count, const std::function<std::uint64_t(std::size_t)>& value) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(i);
  return values;
}

TEST(ControlInstructions, SpecialRegisters) {
  const std::vector<std::string> names = {
      "%tid.x",       "%tid.y",       "%tid.z",       "%ntid.x",      "%ntid.y",
      "%ntid.z",      "%ctaid.x",     "%ctaid.y",     "%ctaid.z",     "%nctaid.x",
      "%nctaid.y",    "%nctaid.z",    "%laneid",      "%lanemask_eq", "%lanemask_le",
      "%lanemask_lt", "%lanemask_ge", "%lanemask_gt", "WARP_SZ",      "%dynamic_smem_size",
      "%warpid",      "%nwarpid",     "%smid",        "%nsmid",       "%total_smem_size"};
  const Dim3 grid{2, 3, 2}, block{5, 3, 4};
  std::string text =
      ".version 8.3\n.target sm_90\n.address_size 64\n.extern .shared .align 4 .b8 dynamic[];\n.visible "
      ".entry k(.param .u64 out)\n{\n"
      "  .shared .align 4 .b8 fixed[100];\n  .reg .b32 %r<40>;\n  .reg .b64 %o, %p;\n"
      "  mov.u32 %r30, fixed;\n  mov.u32 %r30, dynamic;\n";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += "  mov.u32 %r" + std::to_string(i) + ", " + names[i] + ";\n";
  text +=
      "  mad.lo.u32 %r31, %r8, %r10, %r7;\n  mad.lo.u32 %r31, %r31, %r9, %r6;\n  mul.lo.u32 %r31, %r31, "
      "%r3;\n"
      "  mul.lo.u32 %r31, %r31, %r4;\n  mul.lo.u32 %r31, %r31, %r5;\n  mad.lo.u32 %r32, %r2, %r4, %r1;\n"
      "  mad.lo.u32 %r32, %r32, %r3, %r0;\n  add.u32 %r31, %r31, %r32;\n  ld.param.u64 %o, [out];\n  "
      "mul.wide.u32 %p, %r31, 128;\n"
      "  add.s64 %o, %o, %p;\n";
  for (std::size_t i = 0; i < names.size(); ++i)
    text += "  st.global.u32 [%o+" + std::to_string(4 * i) + "], %r" + std::to_string(i) + ";\n";
  text += "  ret;\n}\n";
  Memory memory;
  const auto module = LoadedModule::load(text, memory);
  ASSERT_TRUE(module) << module.error().message;
  using Row = std::array<std::uint32_t, 32>;
  std::vector<Row> rows(grid.count() * block.count());
  const std::uint64_t parameters[] = {memory.adopt(
      std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(rows.data()), rows.size() * sizeof(Row)))};
  const auto report = launch(**module, "k", {grid, block, 200}, std::span<const std::uint64_t>(parameters),
                             memory, {.seed = 3, .num_threads = 2});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_FALSE(report->fault) << report->fault->message;
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    const std::uint32_t thread = i % 60, lane = thread % 32, number = i / 60, own = 1U << lane;
    const std::uint32_t expected[] = {thread % 5,
                                      thread / 5 % 3,
                                      thread / 15,
                                      5,
                                      3,
                                      4,
                                      number % 2,
                                      number / 2 % 3,
                                      number / 6,
                                      2,
                                      3,
                                      2,
                                      lane,
                                      own,
                                      own | (own - 1),
                                      own - 1,
                                      ~(own - 1),
                                      ~(own - 1) & ~own,
                                      32,
                                      200,
                                      thread / 32};
    for (std::size_t r = 0; r < std::size(expected); ++r)
      ASSERT_EQ(rows[i][r], expected[r]) << names[r] << " of thread " << i;
    ASSERT_LT(rows[i][20], rows[i][21]) << "%warpid, %nwarpid";
    ASSERT_LT(rows[i][22], rows[i][23]) << "%smid, %nsmid";
    ASSERT_GE(rows[i][24], 300u) << "%total_smem_size";
    ASSERT_LE(rows[i][24], 48u * 1024) << "%total_smem_size";
  }
}

TEST(ControlInstructions, ClocksNeverGoBack) {
  const auto output =
      run({{},
           {"pred", "pred", "pred", "b64"},
           "  .reg .b64 %from, %to;\n  .reg .b32 %begin, %end;\n  mov.u64 %from, %clock64;\n  mov.u64 %to, "
           "%clock64;\n"
           "  setp.ge.u64 %d0, %to, %from;\n  mov.u64 %from, %globaltimer;\n  mov.u64 %to, %globaltimer;\n"
           "  setp.ge.u64 %d1, %to, %from;\n  mov.u32 %begin, %clock;\n  mov.u32 %end, %clock;\n"
           "  sub.u32 %end, %end, %begin;\n  setp.ge.s32 %d2, %end, 0;\n  mov.u64 %d3, %gridid;\n"},
          {}, 300);
  ASSERT_TRUE(output);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(output->results[static_cast<std::size_t>(i)], Values(300, 1));
  EXPECT_EQ(output->results[3], Values(300, output->results[3][0]));
}

/// The length of a Collatz sequence: a loop with a branch in it, of a different length in every lane.
std::uint64_t collatz(std::uint64_t value) {
  std::uint64_t steps = 0;
  for (; value != 1; ++steps) value = value % 2 == 0 ? value / 2 : 3 * value + 1;
  return steps;
}

TEST(ControlInstructions, LoopsAndBranches) {
  check_in_any_order({{},
                      {"b32"},
                      "  .reg .b32 %n;\n  .reg .pred %odd;\n  add.u32 %n, %i, 1;\n  mov.u32 %d0, 0;\n  "
                      "bra.uni $test;\n$loop:\n"
                      "  and.b32 %bit, %n, 1;\n  setp.eq.u32 %odd, %bit, 1;\n  @!%odd bra $even;\n  "
                      "mad.lo.u32 %n, %n, 3, 1;\n"
                      "  bra $next;\n$even: shr.u32 %n, %n, 1;\n$next:\n  add.u32 %d0, %d0, 1;\n$test:\n  "
                      "setp.ne.u32 %guard, %n, 1;\n"
                      "  @%guard bra $loop;\n"},
                     700, {for_each(700, [](std::size_t i) { return collatz(i + 1); })});
}

/// As inline assembly has it: names and labels of a scope of their own, which hide those outside.
TEST(ControlInstructions, ScopesHideNames) {
  check_in_any_order({{},
                      {"b32"},
                      "  mov.u32 %d0, 0;\n  { .reg .u32 r0; .reg .pred p; mov.u32 r0, 5; setp.eq.u32 p, %i, "
                      "3; @p add.u32 r0, r0, %i; mov.u32 %d0, r0; }\n"
                      "  { .reg .u64 r0; mov.u64 r0, 7;\n  { .reg .u32 r0; mov.u32 r0, 9; LOOP: sub.u32 r0, "
                      "r0, 1; setp.ne.u32 %guard, r0, 0;\n"
                      "  @%guard bra LOOP;\n  add.u32 %d0, %d0, r0;\n  }\n  cvt.u32.u64 %bit, r0;\n  add.u32 "
                      "%d0, %d0, %bit;\n  }\n"
                      "  { .reg .u32 r0; mov.u32 r0, 2; LOOP: sub.u32 r0, r0, 1; setp.ne.u32 %guard, r0, 0; "
                      "@%guard bra LOOP; add.u32 %d0, %d0, r0; }\n"},
                     10, {for_each(10, [](std::size_t i) { return i == 3 ? 15 : 12; })});
}

TEST(ControlInstructions, EndsUnderAGuard) {
  for (const std::string end : {"ret", "exit", "ret.uni"}) {
    Snippet snippet{
        {}, {}, "  setp.lt.u32 %guard, %t, 100;\n  @%guard " + end + ";\n  red.global.add.u32 [%x], 1;\n"};
    snippet.extra_bytes = 4;
    const auto output = run(snippet, {}, 512);
    ASSERT_TRUE(output);
    EXPECT_EQ(output->extra[0] + 256 * output->extra[1], 2 * 156) << end;
  }
}

TEST(ControlInstructions, TrapIsAFault) {
  const auto fault = fault_of({{}, {}, "  setp.eq.u32 %guard, %i, 300;\n  @%guard trap;\n"}, {}, 512);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::kTrap);
  EXPECT_EQ(fault->block.x, 1u);
  EXPECT_EQ(fault->thread.x, 44u);
  EXPECT_NE(fault->message.find("trap"), std::string::npos) << fault->message;
}

const std::string kFunctions =
    ".func (.param .b32 result) twice(.param .b32 value);\n"
    ".func (.param .b32 result) four_times(.param .b32 value)\n{\n  .reg .b32 %r<3>;\n  ld.param.u32 %r1, "
    "[value];\n"
    "  {\n  .param .b32 param0;\n  st.param.b32 [param0+0], %r1;\n  .param .b32 retval0;\n  call.uni "
    "(retval0), twice, (param0);\n"
    "  ld.param.b32 %r2, [retval0+0];\n  }\n"
    "  {\n  .param .b32 param0;\n  st.param.b32 [param0+0], %r2;\n  .param .b32 retval0;\n  call.uni "
    "(retval0), twice, (param0);\n"
    "  ld.param.b32 %r2, [retval0+0];\n  }\n  st.param.b32 [result+0], %r2;\n  ret;\n}\n"
    ".func (.param .b32 result) twice(.param .b32 value)\n{\n  .reg .b32 %r<3>;\n  ld.param.u32 %r1, "
    "[value];\n"
    "  shl.b32 %r1, %r1, 1;\n  st.param.b32 [result+0], %r1;\n  ret;\n}\n"
    // Returns early for odd values; the structure is {u32 scale, u64 offset}.
    ".func (.param .align 8 .b8 result[16]) apply(.param .b32 value, .param .align 8 .b8 structure[16])\n{\n"
    "  .reg .b32 %r<6>;\n  .reg .b64 %l<6>;\n  .reg .pred %p;\n  ld.param.u32 %r1, [value];\n  and.b32 %r2, "
    "%r1, 1;\n"
    "  setp.eq.u32 %p, %r2, 1;\n  @%p st.param.b32 [result+0], 77;\n  @%p st.param.b64 [result+8], -1;\n  "
    "@%p ret;\n"
    "  ld.param.u32 %r3, [structure];\n  ld.param.u64 %l1, [structure+8];\n  mul.lo.u32 %r4, %r1, %r3;\n"
    "  cvt.u64.u32 %l2, %r4;\n  add.u64 %l2, %l2, %l1;\n  st.param.b32 [result], %r4;\n  st.param.b64 "
    "[result+8], %l2;\n  ret;\n}\n"
    ".func count_up(.param .b64 counter)\n{\n  .reg .b64 %l1;\n  ld.param.u64 %l1, [counter];\n  "
    "red.global.add.u32 [%l1], 1;\n}\n"
    // Sums 0 to value - 1 by way of memory of its own.
    ".func (.param .b32 result) sum_below(.param .b32 value)\n{\n  .local .align 4 .b8 stack[8];\n  .reg "
    ".b32 %r<4>;\n  .reg .pred %p;\n"
    "  mov.u32 %r1, 0;\n  st.local.u32 [stack+4], %r1;\n  ld.param.u32 %r2, [value];\n$L_test:\n  "
    "setp.ge.u32 %p, %r1, %r2;\n"
    "  @%p bra $L_end;\n  ld.local.u32 %r3, [stack+4];\n  add.u32 %r3, %r3, %r1;\n  st.local.u32 [stack+4], "
    "%r3;\n  add.u32 %r1, %r1, 1;\n"
    "  bra.uni $L_test;\n$L_end:\n  ld.local.u32 %r3, [stack+4];\n  st.param.b32 [result], %r3;\n  ret;\n}\n"
    // The block's threads meet inside.
    ".func (.param .b32 result) from_neighbour(.param .b32 value)\n{\n  .shared .align 4 .b8 cells[1024];\n  "
    ".reg .b32 %r<5>;\n"
    "  ld.param.u32 %r1, [value];\n  mov.u32 %r2, %tid.x;\n  shl.b32 %r2, %r2, 2;\n  mov.u32 %r3, cells;\n  "
    "add.s32 %r3, %r3, %r2;\n"
    "  bar.sync 0;\n  st.shared.u32 [%r3], %r1;\n  bar.sync 0;\n  xor.b32 %r3, %r3, 128;\n  ld.shared.u32 "
    "%r4, [%r3];\n"
    "  shfl.sync.bfly.b32 %r4, %r4, 1, 31, -1;\n  st.param.b32 [result], %r4;\n  ret;\n}\n";

/// A call of a function of one b32.
std::string call_of(const std::string& function, const std::string& result, const std::string& value) {
  return "  {\n  .param .b32 param0;\n  st.param.b32 [param0], " + value +
         ";\n  .param .b32 retval0;\n  call (retval0), " + function + ", (param0);\n  ld.param.b32 " +
         result + ", [retval0];\n  }\n";
}

TEST(ControlInstructions, CallsReturnValues) {
  check_in_any_order(
      {{},
       {"b32", "b32", "b32"},
       call_of("twice", "%d0", "%i") + call_of("four_times", "%d1", "%i") + call_of("sum_below", "%d2", "%t"),
       kFunctions},
      600,
      {for_each(600, [](std::size_t i) { return 2 * i; }), for_each(600, [](std::size_t i) { return 4 * i; }),
       for_each(600, [](std::size_t i) { return i % 256 == 0 ? 0 : (i % 256) * (i % 256 - 1) / 2; })});
}

TEST(ControlInstructions, CallsPassStructures) {
  const std::string body =
      "  .reg .b64 %w;\n  cvt.u64.u32 %w, %i;\n  add.u64 %w, %w, 1000;\n  {\n  .param .b32 param0;\n  "
      "st.param.b32 [param0+0], %i;\n"
      "  .param .align 8 .b8 param1[16];\n  st.param.b32 [param1+0], 10;\n  st.param.b64 [param1+8], %w;\n"
      "  .param .align 8 .b8 retval0[16];\n  call.uni (retval0), apply, (param0, param1);\n  ld.param.b32 "
      "%d0, [retval0+0];\n"
      "  ld.param.b64 %d1, [retval0+8];\n  }\n";
  check_in_any_order(
      {{}, {"b32", "b64"}, body, kFunctions}, 300,
      {for_each(300, [](std::size_t i) { return i % 2 == 1 ? 77 : 10 * i; }),
       for_each(300, [](std::size_t i) { return i % 2 == 1 ? ~std::uint64_t{0} : 11 * i + 1000; })});
}

TEST(ControlInstructions, CallsPassVectors) {
  const std::string scope =
      ".func (.param .align 16 .b8 result[16]) reversed(.param .align 16 .b8 value[16])\n{\n  .reg .b32 "
      "%r<5>;\n"
      "  ld.param.v4.b32 {%r1, %r2, %r3, %r4}, [value];\n  st.param.v2.b32 [result], {%r4, %r3};\n"
      "  st.param.v2.b32 [result+8], {%r2, %r1};\n  ret;\n}\n";
  const std::string body =
      "  .reg .b32 %r<4>;\n  add.u32 %r1, %i, 100;\n  {\n  .param .align 16 .b8 param0[16];\n"
      "  st.param.v4.b32 [param0], {%i, %r1, 2, 3};\n  .param .align 16 .b8 retval0[16];\n"
      "  call.uni (retval0),\n  reversed,\n  (\n  param0\n  );\n  ld.param.v4.b32 {%d0, %d1, %d2, %d3}, "
      "[retval0];\n  }\n";
  check_in_any_order({{}, {"b32", "b32", "b32", "b32"}, body, scope}, 100,
                     {Values(100, 3), Values(100, 2), for_each(100, [](std::size_t i) { return i + 100; }),
                      for_each(100, [](std::size_t i) { return i; })});
}

TEST(ControlInstructions, CallsFromDivergentCode) {
  // Some lanes call, from two places, and some again; then all meet in a function.
  const std::string body =
      "  mov.u32 %d0, 0;\n  and.b32 %bit, %t, 3;\n  setp.eq.u32 %guard, %bit, 0;\n  @%guard bra $zero;\n" +
      call_of("four_times", "%d0", "%i") + "  bra $met;\n$zero:\n" + call_of("twice", "%d0", "%t") +
      "$met:\n  @!%guard bra $skip;\n" + call_of("twice", "%d0", "%d0") + "$skip:\n" +
      call_of("from_neighbour", "%d1", "%d0");
  const auto before = [](std::size_t i) { return i % 4 == 0 ? 4 * (i % 256) : 4 * i; };
  check_in_any_order(
      {{}, {"b32", "b32"}, body, kFunctions}, 512,
      {for_each(512, before), for_each(512, [&](std::size_t i) { return before((i ^ 32) ^ 1); })});
}

TEST(ControlInstructions, CallsWithoutResults) {
  for (const std::string call :
       {"call.uni count_up, (param0);", "call count_up, (param0);", "@%guard call count_up, (param0);"}) {
    Snippet snippet{{},
                    {},
                    "  and.b32 %bit, %i, 1;\n  setp.eq.u32 %guard, %bit, 1;\n  {\n  .param .b64 param0;\n  "
                    "st.param.b64 [param0], %x;\n  " +
                        call + "\n  }\n",
                    kFunctions};
    snippet.extra_bytes = 4;
    snippet.options.num_threads = 2;
    const auto output = run(snippet, {}, 1000);
    ASSERT_TRUE(output);
    EXPECT_EQ(output->extra[0] + 256 * output->extra[1], call[0] == '@' ? 500 : 1000) << call;
  }
}

TEST(ControlInstructions, AFailedAssertionIsNamed) {
  const std::string scope =
      ".extern .func __assertfail\n(\n  .param .b64 p0,\n  .param .b64 p1,\n  .param .b32 p2,\n  .param .b64 "
      "p3,\n  .param .b64 p4\n)\n;\n"
      ".global .align 1 .b8 what[9] = {119, 32, 60, 32, 49, 48, 48, 48};\n"  // w < 1000
      ".global .align 1 .b8 where[5] = {97, 46, 99, 117};\n"                 // a.cu
      ".global .align 1 .b8 who[3] = {107, 49};\n";
  const std::string body =
      "  .reg .b64 %p<4>;\n  setp.lt.u32 %guard, %i, 5;\n  @%guard bra $fine;\n  mov.u64 %p0, what;\n  "
      "cvta.global.u64 %p1, %p0;\n"
      "  mov.u64 %p0, where;\n  cvta.global.u64 %p2, %p0;\n  mov.u64 %p0, who;\n  cvta.global.u64 %p3, "
      "%p0;\n  {\n"
      "  .param .b64 param0;\n  st.param.b64 [param0+0], %p1;\n  .param .b64 param1;\n  st.param.b64 "
      "[param1+0], %p2;\n"
      "  .param .b32 param2;\n  st.param.b32 [param2+0], 42;\n  .param .b64 param3;\n  st.param.b64 "
      "[param3+0], %p3;\n"
      "  .param .b64 param4;\n  st.param.b64 [param4+0], 1;\n  call.uni __assertfail, (param0, param1, "
      "param2, param3, param4);\n  }\n$fine:\n";
  EXPECT_TRUE(run({{}, {}, body, scope}, {}, 5));
  const auto fault = fault_of({{}, {}, body, scope}, {}, 6);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::kTrap);
  EXPECT_EQ(fault->thread.x, 5u);
  for (const std::string part : {"w < 1000", "a.cu", "42"})
    EXPECT_NE(fault->message.find(part), std::string::npos) << part << "\n" << fault->message;
}

TEST(ControlInstructions, FencesDoNothingHere) {
  std::string body = "  mov.u32 %d0, %i;\n";
  for (const std::string line :
       {"membar.cta", "membar.gl", "membar.sys", "fence.sc.cta", "fence.sc.gpu", "fence.sc.sys",
        "fence.acq_rel.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys", "fence.acq_rel.cluster",
        "nanosleep.u32 20", "nanosleep.u32 %i"})
    body += "  " + line + ";\n";
  check_in_any_order({{}, {"b32"}, body}, 40, {for_each(40, [](std::size_t i) { return i; })});
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
