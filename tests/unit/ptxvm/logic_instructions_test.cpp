#include <algorithm>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

using Function = std::function<Wide(const Wide*)>;

const std::vector<std::string> kTypes = {"u16", "s16", "u32", "s32", "u64", "s64"};
const std::vector<std::string> kBits = {"b16", "b32", "b64"};
const std::vector<std::string> kAnyType = {"b16", "u16", "s16", "b32", "u32", "s32",
                                           "b64", "u64", "s64", "f32", "f64"};

std::uint64_t word(Wide value) {
  return static_cast<std::uint64_t>(value);
}

TEST(LogicInstructions, AndOrXorNot) {
  for (const std::string type : {"b16", "b32", "b64", "pred"}) {
    check({"and." + type, type, {type, type}, [](const Wide* s) { return s[0] & s[1]; }});
    check({"or." + type, type, {type, type}, [](const Wide* s) { return s[0] | s[1]; }});
    check({"xor." + type, type, {type, type}, [](const Wide* s) { return s[0] ^ s[1]; }});
    check({"not." + type, type, {type}, [](const Wide* s) { return ~s[0]; }});
  }
  for (const std::string& type : kBits)
    check({"cnot." + type, type, {type}, [](const Wide* s) -> Wide { return s[0] == 0; }});
}

TEST(LogicInstructions, Shifts) {
  for (const std::string bits : {"16", "32", "64"}) {
    const auto clamped = [](Wide amount) { return static_cast<int>(std::min<Wide>(amount, 64)); };
    check({"shl.b" + bits, "b" + bits, {"b" + bits, "u32"}, [=](const Wide* s) -> Wide {
             return clamped(s[1]) == 64 ? 0 : word(s[0]) << clamped(s[1]);
           }});
    // Of an unsigned value zeros move in, of a signed one its sign.
    for (const std::string kind : {"b", "u", "s"}) {
      check({"shr." + kind + bits, kind + bits, {kind + bits, "u32"}, [=](const Wide* s) {
               return s[0] >> clamped(s[1]);
             }});
    }
  }
}

TEST(LogicInstructions, FunnelShifts) {
  for (const bool wraps : {false, true}) {
    const auto amount = [wraps](const Wide* s) { return wraps ? s[2] & 31 : std::min<Wide>(s[2], 32); };
    const std::string mode = wraps ? "wrap.b32" : "clamp.b32";
    check({"shf.l." + mode, "b32", {"b32", "b32", "u32"}, [=](const Wide* s) {
             return ((s[1] << 32 | s[0]) << amount(s)) >> 32;
           }});
    check({"shf.r." + mode, "b32", {"b32", "b32", "u32"}, [=](const Wide* s) {
             return (s[1] << 32 | s[0]) >> amount(s);
           }});
  }
}

Wide lop3(const Wide* s, int table) {
  Wide result = 0;
  for (int i = 0; i < 32; ++i) {
    const Wide place = (s[0] >> i & 1) * 4 + (s[1] >> i & 1) * 2 + (s[2] >> i & 1);
    result |= static_cast<Wide>(table >> static_cast<int>(place) & 1) << i;
  }
  return result;
}

TEST(LogicInstructions, Lop3OfAllTables) {
  const std::vector<std::string> types = {"b32", "b32", "b32"};
  for (const int table : {0x96, 0xE8, 0x1B}) {
    check({"lop3.b32", "b32", types, [table](const Wide* s) { return lop3(s, table); }, nullptr, true,
           ~std::uint64_t{0}, ", " + std::to_string(table)});
  }
  Snippet snippet{types, std::vector<std::string>(256, "b32"), ""};
  for (int table = 0; table < 256; ++table) {
    snippet.body += "  lop3.b32 %d" + std::to_string(table) + ", %a, %b, %c, " +
                    hex(static_cast<std::uint64_t>(table)) + ";\n";
  }
  Random random(kSeed);
  std::vector<Values> rows;
  for (int i = 0; i < 3; ++i) rows.push_back(random_values("b32", 64, random));
  const auto output = run(snippet, rows, 64);
  ASSERT_TRUE(output);
  for (int table = 0; table < 256; ++table) {
    for (std::size_t row = 0; row < 64; ++row) {
      const Wide sources[3] = {number({'b', 32}, rows[0][row]), number({'b', 32}, rows[1][row]),
                               number({'b', 32}, rows[2][row])};
      ASSERT_EQ(output->results[table][row], low_bits(32, lop3(sources, table)))
          << "table " << table << ", row " << row << ", seed " << kSeed;
    }
  }
}

/// place: of the byte of b:a that becomes byte i.
Function permuted(const std::function<int(int selector, int i)>& place) {
  return [place](const Wide* s) {
    const std::uint64_t bytes = word(s[1]) << 32 | word(s[0]);
    Wide result = 0;
    for (int i = 0; i < 4; ++i)
      result |= static_cast<Wide>(bytes >> (8 * place(static_cast<int>(s[2] & 3), i)) & 255) << (8 * i);
    return result;
  };
}

TEST(LogicInstructions, PrmtOfAllSelectors) {
  const Function general = [](const Wide* s) {
    const std::uint64_t bytes = word(s[1]) << 32 | word(s[0]);
    Wide result = 0;
    for (int i = 0; i < 4; ++i) {
      const auto selector = static_cast<int>(s[2] >> (4 * i) & 15);
      const std::uint64_t byte = bytes >> (8 * (selector & 7)) & 255;
      const std::uint64_t chosen = selector < 8 ? byte : byte >= 128 ? 255 : 0;
      result |= static_cast<Wide>(chosen) << (8 * i);
    }
    return result;
  };
  const std::vector<std::pair<std::string, Function>> modes = {
      {"", general},
      {".f4e", permuted([](int selector, int i) { return selector + i; })},
      {".b4e", permuted([](int selector, int i) { return (selector - i) & 7; })},
      {".rc8", permuted([](int selector, int) { return selector; })},
      {".ecl", permuted([](int selector, int i) { return std::max(selector, i); })},
      {".ecr", permuted([](int selector, int i) { return std::min(selector, i); })},
      {".rc16", permuted([](int selector, int i) { return (selector & 1) * 2 + (i & 1); })}};
  Random random(kSeed);
  std::vector<Values> rows;
  for (int i = 0; i < 3; ++i) rows.push_back(random_values("b32", 65'536, random));
  for (std::size_t row = 0; row < 65'536; ++row) rows[2][row] = (rows[2][row] & 0xFFFF0000) | row;
  for (const auto& [mode, expected] : modes)
    check({"prmt.b32" + mode, "b32", {"b32", "b32", "b32"}, expected, nullptr, false}, rows);
  check({"prmt.b32", "b32", {"b32", "b32", "b32"}, general});
}

struct Comparison {
  std::string name;
  bool (*holds)(Wide a, Wide b);
};
const std::vector<Comparison> kEquality = {{"eq", [](Wide a, Wide b) { return a == b; }},
                                           {"ne", [](Wide a, Wide b) { return a != b; }}};
const std::vector<Comparison> kOrder = {{"lt", [](Wide a, Wide b) { return a < b; }},
                                        {"le", [](Wide a, Wide b) { return a <= b; }},
                                        {"gt", [](Wide a, Wide b) { return a > b; }},
                                        {"ge", [](Wide a, Wide b) { return a >= b; }}};
const std::vector<Comparison> kUnsignedOrder = {{"lo", [](Wide a, Wide b) { return a < b; }},
                                                {"ls", [](Wide a, Wide b) { return a <= b; }},
                                                {"hi", [](Wide a, Wide b) { return a > b; }},
                                                {"hs", [](Wide a, Wide b) { return a >= b; }}};

std::vector<Comparison> comparisons_of(const std::string& type) {
  std::vector<Comparison> all = kEquality;
  if (type[0] != 'b') all.insert(all.end(), kOrder.begin(), kOrder.end());
  if (type[0] == 'u') all.insert(all.end(), kUnsignedOrder.begin(), kUnsignedOrder.end());
  return all;
}

std::vector<std::string> compared_types() {
  std::vector<std::string> types = kBits;
  types.insert(types.end(), kTypes.begin(), kTypes.end());
  return types;
}

TEST(LogicInstructions, Setp) {
  for (const std::string& type : compared_types()) {
    for (const Comparison& comparison : comparisons_of(type)) {
      check(
          {"setp." + comparison.name + "." + type, "pred", {type, type}, [comparison](const Wide* s) -> Wide {
             return comparison.holds(s[0], s[1]);
           }});
    }
  }
}

/// A branch right behind the comparison, which an interpreter may make one of.
TEST(LogicInstructions, SetpAndBranch) {
  for (const std::string& type : compared_types()) {
    const ValueType compared = value_type(type);
    const std::string constant = compared.kind == 'u' ? "33" : "-33";
    const std::uint64_t constant_bits = compared.kind == 'u' ? 33 : static_cast<std::uint64_t>(-33);
    for (const Comparison& comparison : comparisons_of(type)) {
      // %d0 to %d3: taken if it holds, taken if not; with a register, a constant. %d4: the predicate lives
      // on.
      std::string body;
      for (const int form : {0, 1, 2, 3, 4}) {
        const std::string d = "%d" + std::to_string(form), label = "$past" + std::to_string(form);
        body += "  mov.u32 " + d + ", 1;\n  setp." + comparison.name + "." + type + " %guard, %a, " +
                (form == 2 || form == 3 ? constant : "%b") + ";\n  " +
                (form % 2 == 0 ? "@%guard" : "@!%guard") + " bra " + label + ";\n  mov.u32 " + d + ", 0;\n" +
                label + ":\n";
      }
      body += "  @%guard add.u32 %d4, %d4, 10;\n";
      const std::vector<Values> rows = columns({type, type}, kSeed, 300);
      const auto output = run({{type, type}, std::vector<std::string>(5, "b32"), body}, rows, rows[0].size());
      ASSERT_TRUE(output);
      for (std::size_t row = 0; row < rows[0].size(); ++row) {
        const Wide a = number(compared, rows[0][row]);
        const bool holds = comparison.holds(a, number(compared, rows[1][row]));
        const bool holds_constant = comparison.holds(a, number(compared, constant_bits));
        const std::uint64_t expected[] = {holds, !holds, holds_constant, !holds_constant, holds ? 11U : 0U};
        for (std::size_t i = 0; i < 5; ++i) {
          ASSERT_EQ(output->results[i][row], expected[i])
              << comparison.name << "." << type << ", %d" << i << ", row " << row << ", seed " << kSeed;
        }
      }
    }
  }
}

TEST(LogicInstructions, SetpWithASecondResultAndAThirdSource) {
  const std::vector<std::pair<std::string, bool (*)(bool, bool)>> joins = {
      {"and", [](bool a, bool b) { return a && b; }},
      {"or", [](bool a, bool b) { return a || b; }},
      {"xor", [](bool a, bool b) { return a != b; }}};
  for (const std::string& type : compared_types()) {
    for (const Comparison& comparison : comparisons_of(type)) {
      const std::string name = "  setp." + comparison.name + ".";
      Snippet snippet{{type, type, "pred"}, {"pred", "pred"}, name + type + " %d0|%d1, %a, %b;\n"};
      for (const auto& join : joins) {
        for (const std::string third : {"%c", "!%c"}) {
          const std::size_t next = snippet.results.size();
          snippet.results.insert(snippet.results.end(), {"pred", "pred", "pred"});
          snippet.body += name + join.first + "." + type + " %d" + std::to_string(next) + "|%d" +
                          std::to_string(next + 1) + ", %a, %b, " + third + ";\n" + name + join.first + "." +
                          type + " %d" + std::to_string(next + 2) + ", %a, %b, " + third + ";\n";
        }
      }
      const std::vector<Values> rows = columns(snippet.sources, kSeed, 500);
      const auto output = run(snippet, rows, rows[0].size());
      ASSERT_TRUE(output);
      for (std::size_t row = 0; row < rows[0].size(); ++row) {
        const ValueType compared = value_type(type);
        const bool holds = comparison.holds(number(compared, rows[0][row]), number(compared, rows[1][row]));
        const bool third = (rows[2][row] & 1) != 0;
        std::vector<bool> expected = {holds, !holds};
        for (const auto& join : joins) {
          for (const bool with : {third, !third})
            expected.insert(expected.end(),
                            {join.second(holds, with), join.second(!holds, with), join.second(holds, with)});
        }
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(output->results[i][row], expected[i])
              << name << type << ", %d" << i << ", row " << row << ", seed " << kSeed << "\n"
              << snippet.body;
        }
      }
    }
  }
}

TEST(LogicInstructions, Set) {
  for (const std::string& type : compared_types()) {
    for (const Comparison& comparison : comparisons_of(type)) {
      for (const std::string result : {"u32", "s32", "f32"}) {
        const Wide all = result == "f32" ? bits_of(1.0F) : -1;
        check({"set." + comparison.name + "." + result + "." + type,
               result,
               {type, type},
               [=](const Wide* s) -> Wide { return comparison.holds(s[0], s[1]) ? all : 0; }},
              columns({type, type}, kSeed, 200));
      }
    }
    check({"set.ne.and.u32." + type,
           "u32",
           {type, type, "pred"},
           [](const Wide* s) -> Wide { return s[0] != s[1] && s[2] != 0 ? -1 : 0; }},
          columns({type, type, "pred"}, kSeed, 200));
  }
}

TEST(LogicInstructions, SelpAndSlct) {
  for (const std::string& type : kAnyType) {
    const Function of_number = [](const Wide* s) { return s[2] != 0 ? s[0] : s[1]; };
    check({"selp." + type, type, {type, type, "pred"}, of_number}, columns({type, type, "pred"}, kSeed, 500));
    check({"slct." + type + ".s32",
           type,
           {type, type, "s32"},
           [](const Wide* s) { return s[2] >= 0 ? s[0] : s[1]; }},
          columns({type, type, "s32"}, kSeed, 500));
    check({"slct." + type + ".f32",
           type,
           {type, type, "f32"},
           [](const Wide* s) { return as_f32(s[2]) >= 0 ? s[0] : s[1]; }},
          columns({type, type, "f32"}, kSeed, 500));
  }
}

TEST(LogicInstructions, Mov) {
  for (const std::string& type : kAnyType)
    check({"mov." + type, type, {type}, [](const Wide* s) { return s[0]; }});
  check({"mov.pred", "pred", {"pred"}, [](const Wide* s) { return s[0]; }});
}

/// -1 and 1 are true, 0 is false; a guard may be what its own instruction sets.
TEST(LogicInstructions, PredicateLiteralsAndGuardsThatChange) {
  const auto output =
      run({{"pred"},
           {"pred", "pred", "pred", "pred", "pred"},
           "  mov.pred %d0, -1;\n  mov.pred %d1, 0;\n  mov.pred %d2, 1;\n  mov.pred %d3, %a;\n"
           "  @%d3 setp.eq.u32 %d3, %i, 3;\n  mov.pred %d4, %a;\n  @!%d4 not.pred %d4, %d4;\n"},
          {{0, 1, 0, 1, 1}}, 5);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->results[0], Values(5, 1));
  EXPECT_EQ(output->results[1], Values(5, 0));
  EXPECT_EQ(output->results[2], Values(5, 1));
  EXPECT_EQ(output->results[3], (Values{0, 0, 0, 1, 0}));
  EXPECT_EQ(output->results[4], Values(5, 1));
}

struct Packing {
  std::string whole, part;
  std::size_t count;
};
const std::vector<Packing> kPackings = {{"b32", "b16", 2}, {"b64", "b32", 2}, {"b64", "b16", 4}};

TEST(LogicInstructions, MovPacks) {
  for (const Packing& packing : kPackings) {
    const std::vector<std::string> names = {"%a", "%b", "%c", "%e"};
    std::string list = names[0];
    for (std::size_t i = 1; i < packing.count; ++i) list += ", " + names[i];
    const std::vector<std::string> types(packing.count, packing.part);
    const std::vector<Values> rows = columns(types, kSeed, 300);
    const auto output = run({types,
                             {packing.whole, packing.whole},
                             "  mov." + packing.whole + " %d0, {" + list + "};\n  mov." + packing.whole +
                                 " %d1, %d0;\n  @!%guard mov." + packing.whole + " %d1, 0;\n"},
                            rows, rows[0].size());
    ASSERT_TRUE(output);
    const int bits = value_type(packing.part).bits;
    for (std::size_t row = 0; row < rows[0].size(); ++row) {
      std::uint64_t expected = 0;
      for (std::size_t i = 0; i < packing.count; ++i)
        expected |= low_bits(bits, static_cast<Wide>(rows[i][row])) << (bits * i);
      ASSERT_EQ(hex(output->results[0][row]), hex(expected))
          << packing.whole << " of " << packing.part << ", row " << row;
    }
  }
}

TEST(LogicInstructions, MovUnpacks) {
  for (const Packing& packing : kPackings) {
    const std::size_t count = packing.count;
    // All parts, then all but the first, then the first into the register it came from (if it fits).
    std::string all, rest = "_";
    for (std::size_t i = 0; i < count; ++i) {
      all += (i == 0 ? "%d" : ", %d") + std::to_string(i);
      if (i > 0) rest += ", %d" + std::to_string(count + i - 1);
    }
    const std::vector<Values> rows = columns({packing.whole}, kSeed, 300);
    const auto output = run(
        {{packing.whole},
         std::vector<std::string>(2 * count - 1, packing.part),
         "  mov." + packing.whole + " {" + all + "}, %a;\n  mov." + packing.whole + " {" + rest + "}, %a;\n"},
        rows, rows[0].size());
    ASSERT_TRUE(output);
    const int bits = value_type(packing.part).bits;
    for (std::size_t row = 0; row < rows[0].size(); ++row) {
      for (std::size_t i = 0; i < 2 * count - 1; ++i) {
        const std::size_t part = i < count ? i : i - count + 1;
        ASSERT_EQ(hex(output->results[i][row]),
                  hex(low_bits(bits, static_cast<Wide>(rows[0][row] >> (bits * part)))))
            << packing.part << " " << i << " of " << packing.whole << ", row " << row;
      }
    }
  }
}

TEST(LogicInstructions, MovSwapsTheHalvesOfARegister) {
  const std::vector<Values> rows = columns({"b64"}, kSeed, 300);
  const auto output =
      run({{"b64"},
           {"b32", "b32", "b64"},
           "  mov.b64 {%d0, %d1}, %a;\n  mov.b64 %d2, {%d1, %d0};\n  mov.b64 {%d1, %d0}, %d2;\n"},
          rows, rows[0].size());
  ASSERT_TRUE(output);
  for (std::size_t row = 0; row < rows[0].size(); ++row) {
    ASSERT_EQ(output->results[0][row], rows[0][row] & 0xFFFFFFFF);
    ASSERT_EQ(output->results[1][row], rows[0][row] >> 32);
    ASSERT_EQ(output->results[2][row], rows[0][row] << 32 | rows[0][row] >> 32);
  }
}

TEST(LogicInstructions, MovPacksAndUnpacksBytes) {
  const std::vector<Values> rows = columns({"b32"}, kSeed, 300);
  const auto output = run({{"b32"},
                           {"b32"},
                           "  {\n  .reg .b8 %x0, %x1, %x2, %x3;\n  mov.b32 {%x0, %x1, %x2, %x3}, %a;\n"
                           "  mov.b32 %d0, {%x3, %x2, %x1, %x0};\n  }\n"},
                          rows, rows[0].size());
  ASSERT_TRUE(output);
  for (std::size_t row = 0; row < rows[0].size(); ++row)
    ASSERT_EQ(output->results[0][row], __builtin_bswap32(static_cast<std::uint32_t>(rows[0][row])));
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
