#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

constexpr std::uint32_t kWarp = 32;

std::uint64_t bits32(std::uint64_t value) {
  return value & 0xFFFFFFFF;
}

struct Shuffled {
  bool in_segment = false;
  std::uint32_t lane = 0;
};

/// As the ISA's pseudo code has it.
Shuffled shuffled(const std::string& mode, std::uint32_t lane, std::uint64_t b, std::uint64_t c) {
  const auto step = static_cast<int>(b & 31), clamp = static_cast<int>(c & 31),
             mask = static_cast<int>(c >> 8 & 31);
  const int own = static_cast<int>(lane), last = (own & mask) | (clamp & ~mask), first = own & mask;
  const int from = mode == "up"     ? own - step
                   : mode == "down" ? own + step
                   : mode == "bfly" ? own ^ step
                                    : first | (step & ~mask);
  const bool in_segment = mode == "up" ? from >= last : from <= last;
  return {in_segment, static_cast<std::uint32_t>(in_segment ? from : own)};
}

const std::vector<std::string> kModes = {"up", "down", "bfly", "idx"};

/// Lanes of %e, a mask that each warp has, run what follows "@%guard"; %e stays the mask.
const std::string kGuardOfMask =
    "  and.b32 %bit, %t, 31;\n  shr.u32 %bit, %e, %bit;\n  and.b32 %bit, %bit, 1;\n  setp.ne.u32 %guard, "
    "%bit, 0;\n";

/// Noise in all but the warps' masks, which are full in every third warp.
std::vector<Values> warp_rows(std::size_t num_elements, Random& random) {
  std::vector<Values> rows;
  for (int i = 0; i < 4; ++i) rows.push_back(random_values("b32", num_elements, random));
  for (std::size_t i = 0; i < num_elements; ++i) {
    if (i % kWarp != 0)
      rows[3][i] = rows[3][i - 1];
    else if (i / kWarp % 3 == 0)
      rows[3][i] = 0xFFFFFFFF;
    else if (bits32(rows[3][i]) == 0)
      rows[3][i] = 1;
  }
  return rows;
}

void compare_shuffle(const std::string& mode, const std::vector<Values>& rows, const Values& values,
                     const Values* in_segment) {
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    const auto lane = static_cast<std::uint32_t>(i % kWarp);
    if ((rows[3][i] >> lane & 1) == 0) continue;
    const Shuffled expected = shuffled(mode, lane, rows[1][i], rows[2][i]);
    if (in_segment != nullptr) {
      ASSERT_EQ((*in_segment)[i], expected.in_segment) << mode << ", element " << i << ", seed " << kSeed;
    }
    // From a lane that does not take part anything may come.
    if ((rows[3][i] >> expected.lane & 1) == 0) continue;
    ASSERT_EQ(values[i], bits32(rows[0][i - lane + expected.lane]))
        << mode << ", element " << i << ", b " << hex(rows[1][i]) << ", c " << hex(rows[2][i]) << ", mask "
        << hex(bits32(rows[3][i])) << ", seed " << kSeed;
  }
}

TEST(WarpInstructions, ShflOfAllSegmentsAndMasks) {
  constexpr std::size_t kElements = 1024 * kWarp * 4;
  Random random(kSeed);
  std::vector<Values> rows = warp_rows(kElements, random);
  // All pairs of segment mask and clamp a warp each; in the last quarter each lane has its own.
  for (std::size_t i = 0; i < kElements * 3 / 4; ++i) {
    const std::size_t warp = i / kWarp;
    rows[1][i] = i % kWarp == 0 || warp % 2 == 0 ? rows[1][i] : rows[1][i - 1];
    rows[2][i] = (warp % 32) | (warp / 32 % 32) << 8 | (rows[2][i] & ~std::uint64_t{0x1F1F});
  }
  for (const std::string& mode : kModes) {
    const std::string name = "  @%guard shfl.sync." + mode + ".b32 ";
    const auto output = run({{"b32", "b32", "b32", "b32"},
                             {"b32", "b32", "pred"},
                             kGuardOfMask + "  mov.b32 %d1, %a;\n" + name + "%d0, %a, %b, %c, %e;\n" + name +
                                 "%d1|%d2, %d1, %b, %c, %e;\n"},
                            rows, kElements);
    ASSERT_TRUE(output);
    compare_shuffle(mode, rows, output->results[0], nullptr);
    compare_shuffle(mode, rows, output->results[1], &output->results[2]);
  }
}

TEST(WarpInstructions, ShflWithImmediates) {
  constexpr std::size_t kElements = 4 * kWarp;
  Random random(kSeed);
  for (const std::string& mode : kModes) {
    for (const std::uint64_t b : {0, 1, 2, 5, 16, 31}) {
      for (const std::uint64_t c : {0x0, 0x1F, 0x181F, 0x1C1F, 0x1E03, 0x0700}) {
        std::vector<Values> rows = warp_rows(kElements, random);
        for (std::size_t i = 0; i < kElements; ++i) rows[1][i] = b, rows[2][i] = c, rows[3][i] = 0xFFFFFFFF;
        const std::string last = ", " + std::to_string(b) + ", " + std::to_string(c) + ", ";
        const auto output = run({{"b32"},
                                 {"b32", "b32", "pred"},
                                 "  shfl.sync." + mode + ".b32 %d0, %a" + last + "-1;\n  shfl.sync." + mode +
                                     ".b32 %d1|%d2, %a" + last + "0xffffffff;\n"},
                                rows, kElements);
        ASSERT_TRUE(output);
        compare_shuffle(mode, rows, output->results[0], nullptr);
        compare_shuffle(mode, rows, output->results[1], &output->results[2]);
      }
    }
  }
}

struct Voted {
  bool all = true, any = false;
  std::uint64_t ballot = 0;
};

/// Of the elements from `first` on, up to the end of their warp or of all; bit 0 of %a is the vote.
Voted voted(const std::vector<Values>& rows, std::size_t first, std::size_t end, bool negated) {
  Voted result;
  for (std::size_t i = first; i < end; ++i) {
    if ((rows[3][i] >> (i - first) & 1) == 0) continue;
    const bool vote = ((rows[0][i] & 1) != 0) != negated;
    result.all = result.all && vote;
    result.any = result.any || vote;
    result.ballot |= std::uint64_t{vote} << (i - first);
  }
  return result;
}

TEST(WarpInstructions, Vote) {
  for (const std::uint32_t block : {256U, 48U}) {  // 48: the second warp is short
    const std::size_t num_elements = std::size_t{block} * 60;
    Random random(kSeed);
    std::vector<Values> rows = warp_rows(num_elements, random);
    for (std::size_t i = 0; i < num_elements; ++i) {
      if (i % block % kWarp != 0) rows[3][i] = rows[3][i - 1];      // warps begin with each block
      rows[0][i] = random.below(i / block % 2 == 0 ? 2 : 40) != 0;  // often all alike
      if (i / block % 4 == 3) rows[0][i] = i / kWarp % 2;
    }
    for (const std::string vote : {"%a", "!%a"}) {
      const std::string end = ", " + vote + ", %e;\n";
      const auto output = run(
          {{"pred", "b32", "b32", "b32"},
           {"pred", "pred", "pred", "b32", "b32"},
           kGuardOfMask + "  mov.b32 %d4, -1;\n  @%guard vote.sync.all.pred %d0" + end +
               "  @%guard vote.sync.any.pred %d1" + end + "  @%guard vote.sync.uni.pred %d2" + end +
               "  @%guard vote.sync.ballot.b32 %d3" + end + "  @%guard vote.sync.ballot.b32 %d4, 1, %e;\n",
           "",
           block},
          rows, num_elements);
      ASSERT_TRUE(output);
      for (std::size_t i = 0; i < num_elements; ++i) {
        const std::size_t in_block = i % block, first = i - in_block % kWarp;
        const std::size_t end_of_warp = std::min(first + kWarp, i - in_block + block);
        if ((rows[3][i] >> (i - first) & 1) == 0) continue;
        const Voted expected = voted(rows, first, end_of_warp, vote == "!%a");
        ASSERT_EQ(output->results[0][i], expected.all) << i << " " << vote << ", seed " << kSeed;
        ASSERT_EQ(output->results[1][i], expected.any) << i << " " << vote << ", seed " << kSeed;
        ASSERT_EQ(output->results[2][i], expected.all || !expected.any)
            << i << " " << vote << ", seed " << kSeed;
        ASSERT_EQ(hex(output->results[3][i]), hex(expected.ballot)) << i << " " << vote << ", seed " << kSeed;
        const std::uint64_t present = end_of_warp - first == kWarp ? 0xFFFFFFFF : 0xFFFF;
        ASSERT_EQ(hex(output->results[4][i]), hex(rows[3][i] & present)) << i;
      }
    }
  }
}

TEST(WarpInstructions, Match) {
  constexpr std::size_t kElements = 400 * kWarp;
  Random random(kSeed);
  for (const int bits : {32, 64}) {
    const std::string type = "b" + std::to_string(bits);
    std::vector<Values> rows = warp_rows(kElements, random);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::uint64_t kinds = i / kWarp % 4 == 0 ? 1 : 1 + i / kWarp % 9;
      rows[0][i] = random.below(kinds) << (bits - 8) | 5;  // 64: differ above bit 32
    }
    const auto output =
        run({{type, "b32", "b32", "b32"},
             {"b32", "b32", "pred", "b32"},
             kGuardOfMask + "  @%guard match.any.sync." + type + " %d0, %a, %e;\n  @%guard match.all.sync." +
                 type + " %d1|%d2, %a, %e;\n  @%guard match.all.sync." + type + " %d3, %a, %e;\n"},
            rows, kElements);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::size_t first = i / kWarp * kWarp;
      const std::uint64_t mask = bits32(rows[3][i]);
      if ((mask >> (i - first) & 1) == 0) continue;
      std::uint64_t alike = 0;
      for (std::size_t lane = 0; lane < kWarp; ++lane)
        if ((mask >> lane & 1) != 0 && rows[0][first + lane] == rows[0][i]) alike |= std::uint64_t{1} << lane;
      ASSERT_EQ(hex(output->results[0][i]), hex(alike)) << i << ", seed " << kSeed;
      ASSERT_EQ(hex(output->results[1][i]), hex(alike == mask ? mask : 0)) << i << ", seed " << kSeed;
      ASSERT_EQ(output->results[2][i], alike == mask) << i << ", seed " << kSeed;
      ASSERT_EQ(hex(output->results[3][i]), hex(alike == mask ? mask : 0)) << i << ", seed " << kSeed;
    }
  }
}

TEST(WarpInstructions, Redux) {
  struct Row {
    std::string name, type;
    Wide (*joined)(Wide a, Wide b);
  };
  std::vector<Row> table = {{"and", "b32", [](Wide a, Wide b) { return a & b; }},
                            {"or", "b32", [](Wide a, Wide b) { return a | b; }},
                            {"xor", "b32", [](Wide a, Wide b) { return a ^ b; }}};
  for (const std::string type : {"u32", "s32"}) {
    table.push_back({"add", type, [](Wide a, Wide b) { return a + b; }});
    table.push_back({"min", type, [](Wide a, Wide b) { return std::min(a, b); }});
    table.push_back({"max", type, [](Wide a, Wide b) { return std::max(a, b); }});
  }
  constexpr std::size_t kElements = 100 * kWarp;
  Random random(kSeed);
  for (const Row& row : table) {
    const std::vector<Values> rows = warp_rows(kElements, random);
    const auto output =
        run({{"b32", "b32", "b32", "b32"},
             {"b32"},
             kGuardOfMask + "  @%guard redux.sync." + row.name + "." + row.type + " %d0, %a, %e;\n"},
            rows, kElements);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::size_t first = i / kWarp * kWarp;
      const std::uint64_t mask = bits32(rows[3][i]);
      if ((mask >> (i - first) & 1) == 0) continue;
      Wide expected = number(value_type(row.type), rows[0][i]);
      for (std::size_t lane = 0; lane < kWarp; ++lane) {
        if ((mask >> lane & 1) != 0 && first + lane != i)
          expected = row.joined(expected, number(value_type(row.type), rows[0][first + lane]));
      }
      ASSERT_EQ(hex(output->results[0][i]), hex(low_bits(32, expected)))
          << row.name << "." << row.type << ", element " << i << ", seed " << kSeed;
    }
  }
}

TEST(WarpInstructions, ElectChoosesOneLaneOfItsMask) {
  constexpr std::size_t kElements = 40 * kWarp;
  Random random(kSeed);
  const std::vector<Values> rows = warp_rows(kElements, random);
  const auto output = run({{"b32", "b32", "b32", "b32"},
                           {"b32", "pred"},
                           "  mov.b32 %d0, -1;\n  setp.ne.u32 %d1, %d0, %d0;\n" + kGuardOfMask +
                               "  @%guard elect.sync %d0|%d1, %e;\n"},
                          rows, kElements);
  ASSERT_TRUE(output);
  for (std::size_t first = 0; first < kElements; first += kWarp) {
    std::uint64_t chosen = 0;
    for (std::size_t lane = 0; lane < kWarp; ++lane) chosen |= output->results[1][first + lane] << lane;
    ASSERT_EQ(std::popcount(chosen), 1);
    ASSERT_NE(chosen & rows[3][first], 0u);
    for (std::size_t lane = 0; lane < kWarp; ++lane) {
      const bool takes_part = (rows[3][first] >> lane & 1) != 0;
      ASSERT_EQ(output->results[0][first + lane],
                takes_part ? static_cast<std::uint64_t>(std::countr_zero(chosen)) : 0xFFFFFFFF);
    }
  }
}

/// Which lanes run together is not defined, except that one's own does and that ended ones do not.
TEST(WarpInstructions, Activemask) {
  const auto output = run({{},
                           {"b32", "b32"},
                           "  setp.lt.u32 %guard, %t, 7;\n  activemask.b32 %d0;\n  mov.b32 %d1, 0;\n  "
                           "@%guard activemask.b32 %d1;\n",
                           "",
                           40},
                          {}, 40);
  ASSERT_TRUE(output);
  for (std::size_t i = 0; i < 40; ++i) {
    const std::uint64_t present = i < 32 ? 0xFFFFFFFF : 0xFF, own = std::uint64_t{1} << (i % 32);
    EXPECT_EQ(output->results[0][i] & own, own);
    EXPECT_EQ(output->results[0][i] & ~present, 0u);
    EXPECT_EQ(output->results[1][i] & own, i < 7 ? own : 0);
  }
}

TEST(WarpInstructions, BarWarpSyncOrdersSharedMemory) {
  Snippet snippet{{"b32", "b32", "b32", "b32"},
                  {"b32"},
                  "  .shared .b32 cells[256];\n  .reg .b32 %own, %next;\n  mov.u32 %next, cells;\n  shl.b32 "
                  "%own, %t, 2;\n"
                  "  add.s32 %own, %own, %next;\n  xor.b32 %next, %own, 4;\n  st.shared.u32 [%own], %a;\n  "
                  "bar.warp.sync %b;\n"
                  "  ld.shared.u32 %d0, [%next];\n  bar.warp.sync -1;\n  st.shared.u32 [%own], %d0;\n"};
  snippet.options = {.check_initialised = true, .check_races = true};
  Random random(kSeed);
  std::vector<Values> rows = warp_rows(512, random);
  for (std::size_t i = 0; i < 512; ++i) rows[1][i] = std::uint64_t{3} << (i % kWarp & ~std::size_t{1});
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    snippet.options.seed = seed;
    const auto output = run(snippet, rows, 512);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < 512; ++i)
      ASSERT_EQ(output->results[0][i], bits32(rows[0][i ^ 1])) << "seed " << seed;
  }
}

/// Lanes come late, from loops of different lengths and by different paths, through different instructions.
TEST(WarpInstructions, LanesMeetAfterDivergence) {
  const std::string body =
      "  .reg .pred %half;\n  .reg .b32 %steps, %sum;\n  and.b32 %steps, %t, 31;\n  mov.u32 %sum, "
      "0;\n$loop:\n"
      "  add.u32 %sum, %sum, %steps;\n  setp.eq.u32 %guard, %steps, 0;\n  sub.u32 %steps, %steps, 1;\n  "
      "@!%guard bra $loop;\n"
      "  shfl.sync.idx.b32 %d0, %sum, 31, 31, -1;\n"
      // Two halves, each by itself.
      "  and.b32 %bit, %t, 16;\n  setp.eq.u32 %half, %bit, 0;\n  @%half bra $low;\n"
      "  vote.sync.ballot.b32 %d1, 1, 0xffff0000;\n  bra.uni $met;\n$low:\n  vote.sync.ballot.b32 %d1, 1, "
      "0xffff;\n$met:\n"
      // Odd and even lanes meet in two instructions of one kind.
      "  and.b32 %bit, %t, 1;\n  setp.eq.u32 %guard, %bit, 0;\n  @%guard bra $even;\n"
      "  shfl.sync.bfly.b32 %d2, %t, 1, 31, -1;\n  bra.uni $done;\n$even:\n  shfl.sync.bfly.b32 %d2, %t, 1, "
      "31, -1;\n$done:\n";
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    Snippet snippet{{}, {"b32", "b32", "b32"}, body};
    snippet.options.seed = seed;
    const auto output = run(snippet, {}, 256);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < 256; ++i) {
      ASSERT_EQ(output->results[0][i], 31u * 32 / 2) << "seed " << seed;
      ASSERT_EQ(output->results[1][i], i % 32 < 16 ? 0xFFFFu : 0xFFFF0000u) << "seed " << seed;
      ASSERT_EQ(output->results[2][i], i ^ 1) << "seed " << seed;
    }
  }
}

TEST(WarpInstructions, NobodyWaitsForEndedLanes) {
  Snippet snippet{
      {},
      {"b32", "b32"},
      "  mov.b32 %d0, 0;\n  mov.b32 %d1, 0;\n  and.b32 %bit, %t, 31;\n  setp.ge.u32 %guard, %bit, 12;\n"
      "  @%guard bra $leave;\n  vote.sync.ballot.b32 %d0, 1, -1;\n  redux.sync.add.u32 %d1, %bit, -1;\n"
      "  bar.warp.sync -1;\n$leave:\n  st.global.b32 [%out], %d0;\n  st.global.b32 [%out+512], %d1;\n  "
      "@%guard exit;\n  bar.warp.sync -1;\n"};
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    snippet.options.seed = seed;
    const auto output = run(snippet, {}, 64);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < 64; ++i) {
      if (i % 32 >= 12) continue;
      ASSERT_EQ(hex(output->results[0][i]), "0xfff") << "seed " << seed;
      ASSERT_EQ(output->results[1][i], 66u) << "seed " << seed;
    }
  }
}

/// Half of a warp waits at a barrier of the block, the other half in a vote of all.
TEST(WarpInstructions, LanesThatDoNotComeAreNamed) {
  const auto fault = fault_of(
      {{},
       {},
       "  setp.lt.u32 %guard, %t, 16;\n  @%guard bra $vote;\n  bar.sync 0;\n  bra.uni $met;\n$vote:\n"
       "  vote.sync.ballot.b32 %bit, 1, -1;\n$met:\n",
       "",
       32},
      {}, 32);
  ASSERT_TRUE(fault);
  EXPECT_TRUE(fault->kind == FaultKind::kWarp || fault->kind == FaultKind::kBarrier) << fault->message;
  EXPECT_GT(fault->line, 0u);
}

TEST(WarpInstructions, AMaskWithoutTheLaneItselfIsAFault) {
  for (const std::string line :
       {"shfl.sync.idx.b32 %bit, %bit, 0, 31, 14;", "vote.sync.ballot.b32 %bit, 1, 14;", "bar.warp.sync 14;",
        "match.any.sync.b32 %bit, %bit, 14;", "redux.sync.add.u32 %bit, %bit, 14;"}) {
    const auto fault = fault_of({{}, {}, "  " + line + "\n", "", 4}, {}, 4);
    ASSERT_TRUE(fault) << line;
    EXPECT_EQ(fault->kind, FaultKind::kWarp) << fault->message;
    EXPECT_EQ(fault->thread.x, 0u) << fault->message;
    EXPECT_NE(fault->message.find(line.substr(0, line.size() - 1)), std::string::npos) << fault->message;
  }
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
