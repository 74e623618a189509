// PTX text to a Module: each construct with its exact result, each kind of bad text with its line.
#include "ptxvm/ptx_parser.h"

#include <bit>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace weightpress::ptxvm {
namespace {

// Three lines, so that what follows begins in line 4.
const std::string kPreamble = ".version 8.2\n.target sm_52\n.address_size 64\n";

std::string in_function(const std::string& body) {
  return kPreamble + ".entry k()\n{\n" + body + "\n}\n";
}

constexpr std::uint32_t kFirstBodyLine = 6;

Module parsed(const std::string& text) {
  auto module = parse_ptx(text);
  if (module) return *std::move(module);
  ADD_FAILURE() << module.error().message << "\nin\n" << text.substr(0, 2'000);
  return {};
}

std::string message_of(const std::string& text) {
  const auto module = parse_ptx(text);
  if (module) return "none";
  EXPECT_EQ(module.error().code, ErrorCode::kCorruptFile);
  return module.error().message;
}

/// The body's only entry function.
Function body_of(const std::string& body) {
  Module module = parsed(in_function(body));
  return module.functions.empty() ? Function{} : module.functions[0];
}

/// Registers for every test of an instruction.
const std::string kRegisters =
    ".reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .pred %p<4>; .reg .u32 a; .local .b8 v[64];";

struct Parsed {
  Module module;
  const Function& function() const { return module.functions.back(); }
  const Instruction& instruction() const { return function().instructions.back(); }
};

/// One instruction, behind kRegisters and "g", a module variable, and "f", a function.
Parsed instruction(const std::string& text) {
  Parsed result{parsed(kPreamble + ".global .u32 g[4]; .func f() { ret; }\n.entry k() {\n" + kRegisters +
                       "\n" + text + "\n}\n")};
  if (result.module.functions.empty()) result.module.functions.emplace_back();
  if (result.module.functions.back().instructions.empty()) {
    result.module.functions.back().instructions.emplace_back();
  }
  return result;
}

/// An operand in words, with the names of what the indices say.
std::string in_words(const Parsed& parsed, const Operand& operand) {
  const auto plus = [&] {
    return operand.integer == 0 ? std::string() : "+" + std::to_string(operand.integer);
  };
  const auto name = [&](const auto& list) {
    return operand.index < list.size() ? std::string(list[operand.index].name) : std::string("?");
  };
  const auto parts = [&] {
    std::string result;
    for (const Operand& part : operand.parts) {
      result += (result.empty() ? "" : " ") + in_words(parsed, part);
    }
    return result;
  };
  switch (operand.kind) {
    case OperandKind::kRegister:
      return (operand.negated ? "not " : "reg ") + name(parsed.function().registers);
    case OperandKind::kInteger:
      return "int " + std::to_string(operand.integer);
    case OperandKind::kFloat32:
      return "f32 " + std::to_string(operand.integer);
    case OperandKind::kFloat64:
      return "f64 " + std::to_string(operand.integer);
    case OperandKind::kLocalVariable:
      return "local " + name(parsed.function().variables) + plus();
    case OperandKind::kModuleVariable:
      return "global " + name(parsed.module.variables) + plus();
    case OperandKind::kSpecial:
      return "special " + std::string(operand.name);
    case OperandKind::kLabel:
      return "label " + std::to_string(operand.index);
    case OperandKind::kFunction:
      return "function " + std::string(operand.name);
    case OperandKind::kVector:
      return "{" + parts() + "}";
    case OperandKind::kPair:
      return "<" + parts() + ">";
    case OperandKind::kAddress:
      return "[" + parts() + "]" + plus();
    case OperandKind::kList:
      return "(" + parts() + ")";
    case OperandKind::kNothing:
      return "_";
  }
  return "?";
}

/// All operands of the instruction, with ", " between.
std::string operands_of(const std::string& text) {
  const Parsed parsed = instruction(text);
  std::string result;
  for (const Operand& operand : parsed.instruction().operands) {
    result += (result.empty() ? "" : ", ") + in_words(parsed, operand);
  }
  return result;
}

TEST(PtxModule, TypesHaveTheirNames) {
  constexpr std::string_view kNames[] = {"pred", "b8", "b16", "b32", "b64", "u8",  "u16", "u32",
                                         "u64",  "s8", "s16", "s32", "s64", "f16", "f32", "f64"};
  for (const std::string_view name : kNames) {
    const Type type = parse_type(name);
    const unsigned bits = name == "pred" ? 8 : static_cast<unsigned>(std::stoi(std::string(name.substr(1))));
    EXPECT_EQ(type.bytes * 8u, bits) << name;
    const TypeKind kind = name == "pred"   ? TypeKind::kPredicate
                          : name[0] == 'b' ? TypeKind::kBits
                          : name[0] == 'u' ? TypeKind::kUnsigned
                          : name[0] == 's' ? TypeKind::kSigned
                                           : TypeKind::kFloat;
    EXPECT_EQ(type.kind, kind) << name;
  }
  for (const std::string_view name :
       {"", "u", "u1", "b128", "f8", "f128", "s33", "U32", "u32 ", "bf16", "f16x2"}) {
    EXPECT_EQ(parse_type(name).bytes, 0) << name;
  }
}

TEST(PtxModule, FindPrefersABody) {
  Module module;
  EXPECT_EQ(module.find("f"), nullptr);
  Function declared;
  declared.name = "f";
  module.functions = {declared, declared};
  EXPECT_EQ(module.find("f"), &module.functions[0]);
  module.functions[1].has_body = true;
  EXPECT_EQ(module.find("f"), &module.functions[1]);
  EXPECT_EQ(module.find("g"), nullptr);
}

TEST(PtxParser, ReadsThePreamble) {
  const Module module =
      parsed("// a comment\n/* and\n another */.version 9.0 .target sm_90a, debug .address_size 64");
  EXPECT_EQ(module.version, "9.0");
  EXPECT_EQ(module.target, "sm_90a");
  EXPECT_TRUE(module.variables.empty() && module.functions.empty());
}

TEST(PtxParser, SkipsWhatDebuggersWant) {
  const Module module = parsed(kPreamble + R"(.file 1 "a;b{.cu", 123, 45
.section .debug_str
{
$L__info_string0:
.b8 95, 90
.b64 $L__a-$L__b
}
.pragma "nounroll";
.entry k() .pragma "x"; {
.loc 1 4 5, function_name $L__info_string0, inlined_at 1 2 3
ret;
.loc 1 5 6
.pragma "nounroll";
})");
  ASSERT_EQ(module.functions.size(), 1u);
  ASSERT_EQ(module.functions[0].instructions.size(), 1u);
  EXPECT_EQ(module.functions[0].instructions[0].line, 14u);
}

TEST(PtxParser, ReadsFunctions) {
  const Module module = parsed(kPreamble + R"(
.extern .func (.param .b32 r) printf(.param .b64 x, .param .b64 y) .noreturn;
.visible .entry k(
  .param .u64 .ptr .global .align 16 a,
  .param .align 8 .b8 b[24],
  .param .u8 c
)
.maxntid 64, 2, 3
.minnctapersm 2
.maxnreg 32
.explicitcluster .reqnctapercluster 2, 1, 1
{ .local .align 32 .b8 l[3]; ret; }
.weak .func (.param .align 16 .b8 r[16]) g() { .shared .v4 .f32 s[2]; .extern .shared .b8 dynamic[]; }
.func h;
.func .noreturn h { trap; }
.entry q() .reqntid 32 .reqntid 16, 4 ;
)");
  ASSERT_EQ(module.functions.size(), 5u);
  const Function& printf = module.functions[0];
  EXPECT_EQ(printf.name, "printf");
  EXPECT_EQ(printf.line, 5u);
  EXPECT_TRUE(!printf.is_entry && !printf.has_body);
  EXPECT_EQ(printf.num_results, 1u);
  EXPECT_EQ(printf.num_parameters, 2u);
  ASSERT_EQ(printf.variables.size(), 3u);
  EXPECT_EQ(printf.variables[0].name, "r");
  EXPECT_EQ(printf.variables[0].bytes, 4u);
  EXPECT_EQ(printf.variables[2].name, "y");
  EXPECT_EQ(printf.variables[2].space, Space::kParam);
  EXPECT_EQ(printf.is_label.size(), 1u);

  const Function& k = module.functions[1];
  EXPECT_TRUE(k.is_entry && k.has_body);
  EXPECT_EQ(k.max_threads, 384u);
  EXPECT_EQ(k.num_parameters, 3u);
  ASSERT_EQ(k.variables.size(), 4u);
  const std::vector<Variable> expected = {{"a", Space::kParam, 8, 8},
                                          {"b", Space::kParam, 24, 8},
                                          {"c", Space::kParam, 1, 1},
                                          {"l", Space::kLocal, 3, 32}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(expected[i].name);
    EXPECT_EQ(k.variables[i].name, expected[i].name);
    EXPECT_EQ(k.variables[i].space, expected[i].space);
    EXPECT_EQ(k.variables[i].bytes, expected[i].bytes);
    EXPECT_EQ(k.variables[i].align, expected[i].align);
    EXPECT_FALSE(k.variables[i].is_extern);
  }

  const Function& g = module.functions[2];
  ASSERT_EQ(g.variables.size(), 3u);
  EXPECT_EQ(g.num_results, 1u);
  EXPECT_EQ(g.num_parameters, 0u);
  EXPECT_EQ(g.variables[0].align, 16u);
  EXPECT_EQ(g.variables[1].bytes, 32u);
  EXPECT_EQ(g.variables[1].align, 16u);
  EXPECT_EQ(g.variables[1].space, Space::kShared);
  EXPECT_EQ(g.variables[2].bytes, 0u);
  EXPECT_TRUE(g.variables[2].is_extern);
  EXPECT_TRUE(g.instructions.empty());
  EXPECT_EQ(g.is_label, std::vector<bool>{false});

  EXPECT_EQ(module.functions[3].name, "h");
  EXPECT_TRUE(module.functions[3].has_body);
  const Function& q = module.functions[4];
  EXPECT_TRUE(q.required_threads[0] == 16 && q.required_threads[1] == 4 && q.required_threads[2] == 1);
  EXPECT_EQ(module.find("h"), &module.functions[3]);
}

TEST(PtxParser, ReadsModuleVariables) {
  const Module module = parsed(kPreamble + R"(
.extern .shared .align 16 .b8 dynamic[];
.global .u32 a = 7, b[3], c[2] = {-1, 0xffffffff};
.visible .const .align 64 .f32 d[2][3] = {{0f3F800000, 1.5}, {0d4000000000000000}};
.global .f64 e = 0f40000000;
.global .u16 f[] = {1, 2, 3};
.shared .s16 g[2][2];
.global .align 8 .u64 h[4] = {generic(a), generic(b)+4, c-8, d};
.extern .global .u64 i;
.global .u64 i = generic(i);
.global .attribute(.managed) .b8 j[2][2] = {{1}, {2, 3}};
.common .global .v2 .u16 k = {1, 2};
.extern .global .u64 i;
.global .u8 l[][2] = {1, 2, 3}, m[][2] = {{1}, {2}};
)");
  ASSERT_EQ(module.variables.size(), 14u);
  const auto bytes = [&](std::size_t i) { return module.variables[i].initial; };
  using Bytes = std::vector<std::uint8_t>;
  const auto expect = [&](std::size_t i, std::string_view name, std::uint64_t size, std::uint32_t align) {
    EXPECT_EQ(module.variables[i].name, name);
    EXPECT_EQ(module.variables[i].bytes, size) << name;
    EXPECT_EQ(module.variables[i].align, align) << name;
  };
  expect(0, "dynamic", 0, 16);
  EXPECT_TRUE(module.variables[0].is_extern);
  EXPECT_EQ(module.variables[0].space, Space::kShared);
  expect(1, "a", 4, 4);
  EXPECT_EQ(bytes(1), (Bytes{7, 0, 0, 0}));
  expect(2, "b", 12, 4);
  EXPECT_TRUE(bytes(2).empty());
  expect(3, "c", 8, 4);
  EXPECT_EQ(bytes(3), Bytes(8, 255));
  expect(4, "d", 24, 64);
  EXPECT_EQ(module.variables[4].space, Space::kConst);
  EXPECT_EQ(bytes(4), (Bytes{0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x40}));
  expect(5, "e", 8, 8);
  EXPECT_EQ(bytes(5), (Bytes{0, 0, 0, 0, 0, 0, 0, 0x40}));
  expect(6, "f", 6, 2);
  EXPECT_EQ(bytes(6), (Bytes{1, 0, 2, 0, 3, 0}));
  expect(7, "g", 8, 2);
  expect(8, "h", 32, 8);
  ASSERT_EQ(module.variables[8].addresses.size(), 4u);
  EXPECT_EQ(bytes(8), Bytes(32, 0));
  const std::int64_t addends[] = {0, 4, -8, 0};
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Variable::Address& address = module.variables[8].addresses[i];
    EXPECT_EQ(address.offset_bytes, 8 * i);
    EXPECT_EQ(address.variable, i + 1);
    EXPECT_EQ(address.addend, addends[i]);
    EXPECT_EQ(address.is_generic, i < 2);
  }
  expect(9, "i", 8, 8);
  EXPECT_FALSE(module.variables[9].is_extern);
  ASSERT_EQ(module.variables[9].addresses.size(), 1u);
  EXPECT_EQ(module.variables[9].addresses[0].variable, 9u);
  expect(10, "j", 4, 1);
  EXPECT_EQ(bytes(10), (Bytes{1, 0, 2, 3}));
  expect(11, "k", 4, 4);
  EXPECT_EQ(bytes(11), (Bytes{1, 0, 2, 0}));
  expect(12, "l", 4, 1);
  EXPECT_EQ(bytes(12), (Bytes{1, 2, 3}));
  expect(13, "m", 4, 1);
  EXPECT_EQ(bytes(13), (Bytes{1, 0, 2}));
}

TEST(PtxParser, ReadsAnInstruction) {
  const Parsed p =
      instruction("@!%p1  ld.global.nc.L1::no_allocate.L2::128B.v2.u32\n\t{%r1, %r2}, [%rd3+8] ;");
  const Instruction& i = p.instruction();
  EXPECT_EQ(i.line, 7u);
  EXPECT_EQ(i.text, "@!%p1  ld.global.nc.L1::no_allocate.L2::128B.v2.u32\n\t{%r1, %r2}, [%rd3+8]");
  EXPECT_EQ(i.opcode, "ld");
  EXPECT_EQ(i.modifiers,
            (std::vector<std::string_view>{"global", "nc", "L1::no_allocate", "L2::128B", "v2", "u32"}));
  EXPECT_TRUE(i.has("nc") && i.has("L2::128B") && !i.has("L2") && !i.has("ld") && !i.has(""));
  ASSERT_EQ(i.guard, 1);  // "a" is 0
  EXPECT_EQ(p.function().registers[1].name, "%p1");
  EXPECT_EQ(p.function().registers[1].type, (Type{TypeKind::kPredicate, 1}));
  EXPECT_TRUE(i.guard_negated);
  EXPECT_EQ(i.used_bytes_mask, ~std::uint64_t{0});

  const Parsed plain = instruction("ret;");
  EXPECT_EQ(plain.instruction().guard, -1);
  EXPECT_TRUE(plain.instruction().operands.empty() && plain.instruction().modifiers.empty());
  EXPECT_EQ(plain.instruction().text, "ret");
  EXPECT_FALSE(instruction("@%p0 exit;").instruction().guard_negated);
}

TEST(PtxParser, ReadsOperands) {
  const auto bits64 = [](double value) { return std::to_string(std::bit_cast<std::int64_t>(value)); };
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"mov.u32 %r1, a;", "reg %r1, reg a"},
      {"x %p1, !%p2;", "reg %p1, not %p2"},
      {"x 0, -0, 007, 0x1F, 0XfU, 0b101, 12U;", "int 0, int 0, int 7, int 31, int 15, int 5, int 12"},
      {"x -1, -9223372036854775808;", "int -1, int -9223372036854775808"},
      {"x 18446744073709551615, 0x8000000000000000;", "int -1, int -9223372036854775808"},
      {"x 0f3F800000, 0Fbf800000, 0d3FF0000000000000, 0D8000000000000000;",
       "f32 1065353216, f32 3212836864, f64 " + bits64(1) + ", f64 " + bits64(-0.0)},
      {"x 1.5, -1.5, 1e3, 2.5E-2, 1e+1, 0.25;", "f64 " + bits64(1.5) + ", f64 " + bits64(-1.5) + ", f64 " +
                                                    bits64(1000) + ", f64 " + bits64(0.025) + ", f64 " +
                                                    bits64(10) + ", f64 " + bits64(0.25)},
      {"x g, g+4, g-4, v, v+8;", "global g, global g+4, global g+-4, local v, local v+8"},
      {"x %tid.x, %ntid.z, %laneid, %clock64, WARP_SZ, %envreg3;",
       "special %tid.x, special %ntid.z, special %laneid, special %clock64, special WARP_SZ, special "
       "%envreg3"},
      {"x {%r1, _, 7, %r2};", "{reg %r1 _ int 7 reg %r2}"},
      {"x %r1|%p1, %p1|%p2, _|%p3, %r1|_;", "<reg %r1 reg %p1>, <reg %p1 reg %p2>, <_ reg %p3>, <reg %r1 _>"},
      {"x [%rd1], [%rd1+4], [%rd1+-4], [%rd1-4], [ %rd1 + 0x10 ];",
       "[reg %rd1], [reg %rd1]+4, [reg %rd1]+-4, [reg %rd1]+-4, [reg %rd1]+16"},
      {"x [g], [g+8], [v+1], [64], [64+8];", "[global g], [global g]+8, [local v]+1, [int 64], [int 64]+8"},
      {"mov.u64 %rd1, f;", "reg %rd1, function f"},
      {"call f;", "function f"},
      {"call.uni f, (%r1, 5, v);", "function f, (reg %r1 int 5 local v)"},
      {"call (v), f, ();", "(local v), function f, ()"},
      {"call.uni (%r1, _),\n f,\n (%r2, g+4);", "(reg %r1 _), function f, (reg %r2 global g+4)"},
      {"call k;", "function k"},
      {"bra $L; $L: ret; bra.uni $L;", "label 1"},
      {"brx.idx %r1, L; L:", "reg %r1, label 1"},
  };
  for (const auto& [text, expected] : kCases) EXPECT_EQ(operands_of(text), expected) << text;
}

TEST(PtxParser, ReadsEveryIntegerBack) {
  const std::uint64_t seed = 6;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t value = random() >> (random() % 64);
    const auto integer = static_cast<std::int64_t>(value);
    const std::string expected = "int " + std::to_string(integer);
    EXPECT_EQ(operands_of("x " + std::to_string(value) + ";"), expected) << "seed " << seed;
    EXPECT_EQ(operands_of("x " + std::to_string(integer) + ";"), expected) << "seed " << seed;
    EXPECT_EQ(operands_of("ld [%rd1+" + std::to_string(integer) + "];"),
              "[reg %rd1]" + (integer == 0 ? "" : "+" + std::to_string(integer)))
        << "seed " << seed;
  }
}

TEST(PtxParser, HidesNamesInBraces) {
  const Function f = body_of(R"(.reg .b32 %r<3>, r0;
mov.b32 %r1, r0;
{ .reg .pred %r1; .reg .b64 r0; mov.b32 %r1, r0;
  { .reg .f32 %r<2>; mov.b32 %r1, %r2; { mov.b32 %r0, %r1; } }
  mov.b32 %r1, r0; }
mov.b32 %r1, r0;
{ .reg .b16 r0; .param .b32 p; mov.b32 r0, p; }
{ .reg .b16 r0; .param .b64 p; mov.b32 r0, p; })");
  // As (type of the first operand, type or size of the second).
  const auto describe = [&](const Operand& operand) {
    if (operand.kind == OperandKind::kLocalVariable) {
      return "v" + std::to_string(f.variables.at(operand.index).bytes);
    }
    EXPECT_EQ(operand.kind, OperandKind::kRegister);
    const Type type = f.registers.at(operand.index).type;
    return std::string(type.kind == TypeKind::kPredicate ? "p"
                       : type.kind == TypeKind::kFloat   ? "f"
                                                         : "b") +
           std::to_string(type.bytes);
  };
  std::vector<std::string> found;
  for (const Instruction& i : f.instructions) {
    ASSERT_EQ(i.operands.size(), 2u);
    found.push_back(describe(i.operands[0]) + " " + describe(i.operands[1]));
  }
  ASSERT_EQ(found, (std::vector<std::string>{"b4 b4", "p1 b8", "f4 b4", "f4 f4", "p1 b8", "b4 b4", "b2 v4",
                                             "b2 v8"}));
  // The same register each time, in and out of the braces.
  EXPECT_EQ(f.instructions[0].operands[0].index, f.instructions[5].operands[0].index);
  EXPECT_EQ(f.instructions[0].operands[1].index, f.instructions[5].operands[1].index);
  EXPECT_EQ(f.instructions[1].operands[1].index, f.instructions[4].operands[1].index);
  EXPECT_NE(f.instructions[6].operands[0].index, f.instructions[7].operands[0].index);
}

TEST(PtxParser, RangesHoldWhatTheyDeclare) {
  const Function f =
      body_of(".reg .b32 %r<12>; .reg .b64 %r1<3>; .reg .f32 %q;\nx %r0, %r9, %r11, %r1, %r12, %r10, %q;");
  ASSERT_EQ(f.instructions.size(), 1u);
  std::string sizes;
  for (const Operand& operand : f.instructions[0].operands) {
    sizes += std::to_string(f.registers.at(operand.index).type.bytes);
  }
  // %r1<3> is %r10, %r11 and %r12; the first two are in %r<12> too, which was there before.
  EXPECT_EQ(sizes, "4444844");
  for (const char* name : {"%r12", "%r01", "%r", "%r4294967296", "%r18446744073709551616", "%r1x"}) {
    EXPECT_EQ(message_of(in_function(std::string(".reg .b32 %r<12>;\nmov.b32 %r0, ") + name + ";")),
              std::string("line 7: nothing is called \"") + name + "\"");
  }
  // A name that is declared by itself comes before a range of the same braces.
  const Function own = body_of(".reg .b64 %r1; .reg .b32 %r<3>; mov.b64 %r1, %r2;");
  EXPECT_EQ(own.registers.at(own.instructions.at(0).operands.at(0).index).type.bytes, 8);
  // Unused registers cost nothing.
  EXPECT_EQ(body_of(".reg .b32 %r<4000000>;\nmov.b32 %r3999999, %r7;").registers.size(), 2u);
}

TEST(PtxParser, ReadsLabels) {
  const Function f = body_of(R"(bra end;
again: ret;
two:
names: { again: bra again; bra names; }
{ again: ret; bra again; }
bra again;
end:)");
  ASSERT_EQ(f.instructions.size(), 7u);
  EXPECT_EQ(f.is_label, (std::vector<bool>{false, true, true, false, true, false, false, true}));
  const std::vector<std::pair<std::size_t, std::uint32_t>> expected = {
      {0, 7}, {2, 2}, {3, 2}, {5, 4}, {6, 1}};
  for (const auto& [instruction, place] : expected) {
    EXPECT_EQ(f.instructions[instruction].operands.at(0).kind, OperandKind::kLabel);
    EXPECT_EQ(f.instructions[instruction].operands.at(0).index, place) << instruction;
  }
}

TEST(PtxParser, UsedBytesBelongToTheNextInstruction) {
  const Function f = body_of(R"(ret;
.pragma "used_bytes_mask 4095";
ret;
ret;
.pragma "used_bytes_mask 0xf0f0"; .pragma "nounroll"; .loc 1 2 3
label: { ret; })");
  ASSERT_EQ(f.instructions.size(), 4u);
  EXPECT_EQ(f.instructions[0].used_bytes_mask, ~std::uint64_t{0});
  EXPECT_EQ(f.instructions[1].used_bytes_mask, 4095u);
  EXPECT_EQ(f.instructions[2].used_bytes_mask, ~std::uint64_t{0});
  EXPECT_EQ(f.instructions[3].used_bytes_mask, 0xf0f0u);
}

TEST(PtxParser, CallsMayComeBeforeTheirFunctions) {
  const Module module = parsed(kPreamble + ".entry k() { call later; } .func later() { call later; }");
  ASSERT_EQ(module.functions.size(), 2u);
  EXPECT_EQ(module.functions[0].instructions.at(0).operands.at(0).name, "later");
  EXPECT_EQ(message_of(kPreamble + ".entry k() {\n call later; }"),
            "line 5: no function is called \"later\"");
}

TEST(PtxParser, SaysWhatIsWrongInAModule) {
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {".texref t;", "line 4: at module scope: \".texref\" is not supported"},
      {"/*\n\n*/ .texref t;", "line 6: at module scope: \".texref\" is not supported"},
      {"\n\n.alias a, b;", "line 6: at module scope: \".alias\" is not supported"},
      {".local .b32 x;", "line 4: at module scope: \".local\" is not supported"},
      {"mov.u32 a, b;", "line 4: expected a directive, not \"mov\""},
      {"/* x\n", "line 4: expected a directive, not a comment without an end: \"/* x\""},
      {".pragma \"x\n;", "line 4: expected a string, not a string without an end: \"\"x\""},
      {".global .u33 x;", "line 4: no type of a variable: \".u33\""},
      {".global .pred x;", "line 4: no type of a variable: \".pred\""},
      {".global x;", "line 4: expected a type, not \"x\""},
      {".global .u32 .u32 x;", "line 4: in a declaration: \".u32\" is not supported"},
      {".global .u32 .ptr x;", "line 4: in a declaration: \".ptr\" is not supported"},
      {".global .attribute(.unified) .u32 x;", "line 4: expected the attribute .managed, not \".unified\""},
      {".global .align 3 .u32 x;", "line 4: an alignment is a power of two"},
      {".global .align 2048 .u32 x;", "line 4: an alignment is from 1 to 1024, not \"2048\""},
      {".global .u32 _;", "line 4: expected a name, not \"_\""},
      {".global .u32 x", "line 4: expected \";\", not the end of the text"},
      {".global .u32 x[0];", "line 4: a size is from 1 to 34359738368, not \"0\""},
      {".global .u32 x[-1];", "line 4: expected a size, not \"-\""},
      {".global .u32 x[2][];", "line 4: expected a size, not \"]\""},
      {".global .u32 x[34359738368];", "line 4: too large: \"x\""},
      {".global .b8 x[4294967296][4294967296];", "line 4: too large: \"x\""},
      {".global .u32 x[];", "line 4: an array without a size: \"x\""},
      {".global .u32 x;\n.const .u32 x;", "line 5: declared twice: \"x\""},
      {".func x;\n.const .u32 x;", "line 5: declared twice: \"x\""},
      {".const .u32 x;\n.func x;", "line 5: declared twice: \"x\""},
      {".shared .u32 x = 1;", "line 4: may not have a value: \"x\""},
      {".extern .global .u32 x = 1;", "line 4: may not have a value: \"x\""},
      {".global .u32 x = {1};", "line 4: expected a value, not \"{\""},
      {".global .u32 x[2] = 1;", "line 4: expected \"{\", not \"1\""},
      {".global .u32 x[2] = {1, 2,\n3};", "line 5: too many values for \"x\""},
      {".global .u32 x[2] = {{1}};", "line 4: too many braces in a value"},
      {".global .u32 x[2][2] = {1, {2}};", "line 4: a brace is not where an array begins"},
      {".global .u32 x[2][2] = {{1}, {2}, {3}};", "line 4: a brace is not where an array begins"},
      {".global .u32 x[2] = {1 2};", "line 4: expected \",\", not \"2\""},
      {".global .u8 x = 256;", "line 4: not a value of that type: \"256\""},
      {".global .s8 x = -129;", "line 4: not a value of that type: \"-129\""},
      {".global .u32 x = 0f00000000;", "line 4: not a value of that type: \"0f00000000\""},
      {".global .f32 x = 1;", "line 4: not a value of that type: \"1\""},
      {".global .f32 x = 0f0000;", "line 4: expected a value, not \"0f0000\""},
      {".global .u64 x = y;", "line 4: no variable is called \"y\""},
      {".global .u64 x = mask(y);", "line 4: no variable is called \"mask\""},
      {".func f; .global .u64 x = f;", "line 4: the address of a function is not supported: \"f\""},
      {".global .u32 x = x;", "line 4: an address needs 64 bits: \"x\""},
      {".global .b8 x[2][4294967296] = {{1}, {2}};", "line 4: more than 67108864 bytes of values"},
      {".entry k", "line 4: expected \"{\" or \";\", not the end of the text"},
      {".entry (.param .b32 x) k;", "line 4: expected a name, not \"(\""},
      {".entry k(.reg .b32 x);", "line 4: expected \".param\", not \".reg\""},
      {".entry k(.param .b8 x[]);", "line 4: a parameter without a size: \"x\""},
      {".entry k(.param .b8 x, .param .b8 x) { }", "line 4: declared twice: \"x\""},
      {".entry k() { }\n.entry k() { }", "line 5: declared twice: \"k\""},
      {".entry k();\n.func k() { }", "line 5: declared in two ways: \"k\""},
      {".entry k() .unknown 3 { }", "line 4: of a function: \".unknown\" is not supported"},
      {".entry k() .maxntid 0 { }", "line 4: a number of threads is from 1 to 4294967295, not \"0\""},
      {".entry k() .maxntid 1, 2, 3, 4 { }", "line 4: expected at most three sizes, not \"4\""},
      {".entry k() .maxntid 65536, 65536 { }", "line 4: too many threads in a block"},
      {".section x { \x01 }", "line 4: expected \"}\", not \"\\x01\""},
      {std::string("\0", 1), "line 4: expected a directive, not \"\\x00\""},
      {"\xff", "line 4: expected a directive, not \"\\xff\""},
      {".version 8.2", "line 4: at module scope: \".version\" is not supported"},
  };
  for (const auto& [text, message] : kCases) EXPECT_EQ(message_of(kPreamble + text), message) << text;

  EXPECT_EQ(message_of(""), "line 1: expected \".version\", not the end of the text");
  EXPECT_EQ(message_of(".version 8"), "line 1: expected a version, not \"8\"");
  EXPECT_EQ(message_of(".version 8.x"), "line 1: expected a version, not \"8.x\"");
  EXPECT_EQ(message_of(".version 8.0\n.address_size 64"),
            "line 2: expected \".target\", not \".address_size\"");
  EXPECT_EQ(message_of(".version 8.0\n.target sm_52\n.entry k;"),
            "line 3: expected \".address_size 64\", not \".entry\"");
  EXPECT_EQ(message_of(".version 8.0\n.target sm_52\n.address_size 32"),
            "line 3: expected addresses of 64 bits, not \"32\"");
}

TEST(PtxParser, SaysWhatIsWrongInAFunction) {
  const std::vector<std::pair<std::string, std::string>> kCases = {
      {"mov.u32 %r1 %r2;", "line 1: expected \";\", not \"%r2\""},
      {"\n\nmov.u32 %r1, %r99;", "line 3: nothing is called \"%r99\""},
      {"mov.u32 %r1,\n nobody;", "line 2: nothing is called \"nobody\""},
      {"mov.u32 %r1, ;", "line 1: expected an operand, not \";\""},
      {"mov.u32 %r1, 5x;", "line 1: expected a number, not \"5x\""},
      {"mov.u32 %r1, 08;", "line 1: expected a number, not \"08\""},
      {"mov.u32 %r1, 0x;", "line 1: expected a number, not \"0x\""},
      {"mov.u32 %r1, 18446744073709551616;", "line 1: expected a number, not \"18446744073709551616\""},
      {"mov.u32 %r1, -9223372036854775809;", "line 1: expected a number, not \"9223372036854775809\""},
      {"mov.u32 %r1, 0f3F80000;", "line 1: expected a number, not \"0f3F80000\""},
      {"mov.u32 %r1, -0f3F800000;", "line 1: expected a number, not \"0f3F800000\""},
      {"mov.u32 %r1, 1e999;", "line 1: expected a number, not \"1e999\""},
      {"mov.u32 %r1, (1+2);", "line 1: expected an operand, not \"(\""},
      {"mov.u32 %r1.x, 1;", "line 1: \".x\" of a register or variable is not supported"},
      {"x !5;", "line 1: expected a predicate, not \"5\""},
      {"x !v;", "line 1: not a register: \"!v\""},
      {"x {};", "line 1: expected an operand, not \"}\""},
      {"x {%r1, {%r2}};", "line 1: expected an operand, not \"{\""},
      {"x %r1|5;", "line 1: a pair is of two registers"},
      {"x [5;", "line 1: expected \"]\", not \";\""},
      {"x [%r1+%r2];", "line 1: expected an offset, not \"%r2\""},
      {"x [%tid.x];", "line 1: not an address: \"%tid\""},
      {"x [_];", "line 1: not an address: \"_\""},
      {"x [[5]];", "line 1: expected an address, not \"[\""},
      {"@%r1 ret;", "line 1: no predicate is called \"%r1\""},
      {"@%q ret;", "line 1: no predicate is called \"%q\""},
      {"@5 ret;", "line 1: expected a predicate, not \"5\""},
      {"@%p1 @%p1 ret;", "line 1: expected an instruction, not \"@\""},
      {"5;", "line 1: expected an instruction, not \"5\""},
      {"bra nowhere;", "line 1: no label is called \"nowhere\""},
      {"bra inner;\n{ inner: ret; }", "line 1: no label is called \"inner\""},
      {"l: ret;\nl: ret;", "line 2: a label that is there already: \"l\""},
      {"l: .branchtargets a, b;", "line 1: \".branchtargets\" is not supported"},
      {"l: .callprototype _ ();", "line 1: \".callprototype\" is not supported"},
      {"l: .calltargets f;", "line 1: \".calltargets\" is not supported"},
      {"call %rd1;", "line 1: a call by address is not supported: \"%rd1\""},
      {"call k, ();\ncall k, (%r1), p;", "line 2: expected \";\", not \",\""},
      {"call (%r1) k;", "line 1: expected \",\", not \"k\""},
      {"call;", "line 1: expected a function, not \";\""},
      {".reg .u33 x;", "line 1: expected the type of a register, not \".u33\""},
      {".reg .v4 .f32 x;", "line 1: expected the type of a register, not \".v4\""},
      {".reg .u32 x<0>;", "line 1: a number of registers is from 1 to 4194304, not \"0\""},
      {".reg .u32 x<4000000000>;", "line 1: a number of registers is from 1 to 4194304, not \"4000000000\""},
      {".reg .u32 x<4194304>;", "line 1: more than 4194304 registers in a module"},
      {".reg .u32 x;\n.reg .u64 x;", "line 2: declared twice: \"x\""},
      {".reg .u32 %r3;", "line 1: declared twice: \"%r3\""},
      {".reg .u32 %r<5>;", "line 1: declared twice: \"%r\""},
      {".reg .u32 v;", "line 1: declared twice: \"v\""},
      {".local .u32 v;", "line 1: declared twice: \"v\""},
      {".local .u32 w = 1;", "line 1: expected \";\", not \"=\""},
      {".shared .u32 w[];", "line 1: an array without a size: \"w\""},
      {".global .u32 w;", "line 1: in a function: \".global\" is not supported"},
      {".pragma \"used_bytes_mask x\";", "line 1: expected a mask, not \"\"used_bytes_mask x\"\""},
      {".pragma \"used_bytes_mask\";", "line 1: expected a mask, not \"\"used_bytes_mask\"\""},
      {"ret", "line 2: expected an operand, not \"}\""},
      {"{ ret;", "line 3: expected an instruction, not the end of the text"},
      {"{ .reg .u32 inner; }\nmov.u32 inner, 1;", "line 2: nothing is called \"inner\""},
      {"x " + std::string(100, 'n') + ";", "line 1: nothing is called \"" + std::string(60, 'n') + "...\""},
  };
  for (const auto& [body, message] : kCases) {
    // The line is counted from the first one of the body.
    const std::size_t colon = message.find(':');
    const auto line = kFirstBodyLine + static_cast<std::uint32_t>(std::stoul(message.substr(5, colon - 5)));
    EXPECT_EQ(message_of(in_function(kRegisters + "\n" + body)),
              "line " + std::to_string(line) + message.substr(colon))
        << body;
  }
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string result;
  result.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

TEST(PtxParser, BoundsHostileTexts) {
  EXPECT_EQ(message_of(in_function(repeated("{", 1'000'000))), "line 6: more than 64 open braces");
  EXPECT_EQ(body_of(repeated("{", 63) + "ret;" + repeated("}", 63)).instructions.size(), 1u);
  EXPECT_EQ(message_of(kPreamble + ".global .u8 x" + repeated("[1]", 100) + ";"),
            "line 4: too many dimensions");
  EXPECT_EQ(message_of(in_function("x " + repeated("{", 1'000'000))),
            "line 6: expected an operand, not \"{\"");
  EXPECT_EQ(message_of(in_function(repeated(".reg .b32 %r<4194304>; {", 2))),
            "line 6: more than 4194304 registers in a module");
  EXPECT_EQ(message_of(std::string(kMaxPtxBytes + 1, ' ')),
            "line 1: the text has 67108865 bytes; at most 67108864 are read");
  EXPECT_EQ(message_of(std::string(1'000'000, '\n')),
            "line 1000001: expected \".version\", not the end of the text");

  std::string labels;
  constexpr int kNumLabels = 100'000;
  for (int i = 0; i < kNumLabels; ++i) {
    labels += 'l' + std::to_string(i) + ":bra l" + std::to_string(kNumLabels - 1 - i) + ";";
  }
  const Function f = body_of(labels);
  ASSERT_EQ(f.instructions.size(), std::size_t{kNumLabels});
  EXPECT_EQ(f.instructions[0].operands[0].index, std::uint32_t{kNumLabels - 1});
  EXPECT_EQ(f.instructions[kNumLabels - 1].operands[0].index, 0u);
}

/// Every construct, in little.
const std::string kSmallModule = kPreamble + R"(.file 1 "a.cu"
.extern .func (.param .b32 r) f(.param .b64 .ptr .align 4 x) .noreturn;
.extern .shared .align 16 .b8 s[];
.global .u32 a[2][2] = {{1, -2}, {3}}, b = 4; /* c */
.const .f32 c[2] = {0f3F800000, 1.5};
.global .u64 d[3] = {generic(a)+4, b, 7};
.section .debug { .b8 1 }
.visible .entry k(.param .u64 p, .param .align 8 .b8 q[16]) .maxntid 32, 1, 1
{ // body
.reg .pred %p<3>; .reg .b32 %r<4>, t;
.local .align 8 .b8 l[8];
.loc 1 2 3
$L: ld.param.u32 %r1, [q+8];
@!%p1 bra $L;
{ .param .b32 p0; st.param.b32 [p0+0], -5; .param .b32 r0; call.uni (r0), f, (p0); }
.pragma "used_bytes_mask 0xff";
ld.global.v2.b32 {%r2, _}, [%r1+-4];
shfl.sync.up.b32 t|%p2, %r1, 0f3F800000, 0, %tid.x;
mov.u32 %r3, a+8;
bra end;
end: }
)";

TEST(PtxParser, JudgesEveryTruncation) {
  const Module whole = parsed(kSmallModule);
  ASSERT_EQ(whole.functions.size(), 2u);
  EXPECT_EQ(whole.functions[1].instructions.size(), 8u);
  std::size_t num_parsed = 0;
  for (std::size_t size = 0; size <= kSmallModule.size(); ++size) {
    const auto module = parse_ptx(kSmallModule.substr(0, size));
    num_parsed += module.has_value();
    if (!module) {
      EXPECT_TRUE(module.error().message.starts_with("line ")) << size;
    }
  }
  // Between the items of the module, or blanks and comments after them.
  EXPECT_GT(num_parsed, 8u);
  EXPECT_LT(num_parsed, 60u);
}

TEST(PtxParser, JudgesChangedBytes) {
  const std::uint64_t seed = 17;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  std::size_t num_parsed = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string text = kSmallModule;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t to = random() % text.size();
      text[to] = random() % 2 == 0 ? static_cast<char>(random()) : text[random() % text.size()];
    }
    const auto module = parse_ptx(text);
    num_parsed += module.has_value();
    if (!module) {
      EXPECT_TRUE(module.error().message.starts_with("line ")) << "seed " << seed << ", round " << round;
    }
  }
  EXPECT_GT(num_parsed, 100u);
  EXPECT_LT(num_parsed, 2'000u);
}

TEST(PtxParser, NamesOutliveTheParsedText) {
  std::optional<Module> copy;
  {
    std::string text = in_function(".reg .b32 %r<3>; mov.u32 %r1, %tid.x;");
    copy = parsed(text);
    text.assign(text.size(), 'x');
  }
  const Module moved = std::move(*copy);
  copy.reset();
  EXPECT_EQ(moved.functions.at(0).registers.at(0).name, "%r1");
  EXPECT_EQ(moved.functions[0].instructions.at(0).operands.at(1).name, "%tid.x");
}

}  // namespace
}  // namespace weightpress::ptxvm
