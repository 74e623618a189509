// Instructions that do not exist, make no sense, or are out of scope: errors when a module is loaded, with
// line and text.
#include <algorithm>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

const std::string kRegisters =
    "  .reg .pred %p<4>;\n  .reg .b16 %h<4>;\n  .reg .b32 %r<6>;\n  .reg .b64 %l<4>;\n  .reg .f32 %f<4>;\n  "
    ".reg .f64 %g<4>;\n"
    "  .shared .align 8 .b8 tile[64];\n";

/// No assembler takes these.
const std::vector<std::string> kSenseless = {
    // Opcodes, types and modifiers that there are not.
    "frobnicate.u32 %r0, %r1", "add %r0, %r1, %r2", "add.u7 %r0, %r1, %r2", "add.foo.u32 %r0, %r1, %r2",
    "add.u32.u32 %r0, %r1, %r2", "add.b32 %r0, %r1, %r2", "add.sat.u32 %r0, %r1, %r2",
    "add.wide.u32 %l0, %r1, %r2", "mul.u32 %r0, %r1, %r2", "mul.wide.u64 %l0, %l1, %l2",
    "mul.lo.hi.u32 %r0, %r1, %r2", "mad.u32 %r0, %r1, %r2, %r3", "div.b32 %r0, %r1, %r2", "abs.u32 %r0, %r1",
    "neg.u32 %r0, %r1", "min.b32 %r0, %r1, %r2", "sad.f32 %f0, %f1, %f2, %f3", "popc.u32 %r0, %r1",
    "clz.b16 %r0, %h1", "bfind.b32 %r0, %r1", "brev.u32 %r0, %r1", "bfe.b32 %r0, %r1, %r2, %r3",
    "bfi.u32 %r0, %r1, %r2, %r3, %r4", "bmsk.b32 %r0, %r1, %r2", "dp4a.u32 %r0, %r1, %r2, %r3",
    "and.u32 %r0, %r1, %r2", "not.s32 %r0, %r1", "shl.u32 %r0, %r1, %r2", "shr.f32 %f0, %f1, %r2",
    "shf.l.b32 %r0, %r1, %r2, %r3", "shf.wrap.b32 %r0, %r1, %r2, %r3", "shf.l.wrap.b64 %l0, %l1, %l2, %r3",
    "prmt.b32.xyz %r0, %r1, %r2, %r3", "lop3.b64 %l0, %l1, %l2, %l3, 1", "setp.u32 %p0, %r1, %r2",
    "setp.lt.b32 %p0, %r1, %r2", "setp.lo.s32 %p0, %r1, %r2", "setp.equ.s32 %p0, %r1, %r2",
    "setp.lt.nor.u32 %p0, %r1, %r2, %p3", "set.lt.u16.u32 %h0, %r1, %r2", "selp.pred %p0, %p1, %p2, %p3",
    "slct.u32.u32 %r0, %r1, %r2, %r3", "mov %r0, %r1", "cvt.u32 %r0, %r1", "cvt.s32.f32 %r0, %f1",
    "cvt.rn.s32.f32 %r0, %f1", "cvt.f32.s32 %f0, %r1", "cvt.f32.f64 %f0, %g1", "cvt.rni.f32.s32 %f0, %r1",
    "cvt.b32.u32 %r0, %r1", "fma.f32 %f0, %f1, %f2, %f3", "div.f32 %f0, %f1, %f2", "rcp.f32 %f0, %f1",
    "sqrt.f64 %g0, %g1", "add.sat.f64 %g0, %g1, %g2", "add.ftz.f64 %g0, %g1, %g2", "add.cc.u16 %h0, %h1, %h2",
    "ld.global %r0, [%l1]", "ld.foo.u32 %r0, [%l1]", "ld.global.v3.u32 {%r0, %r1, %r2}, [%l1]",
    "ld.global.u33 %r0, [%l1]", "ld.global.pred %p0, [%l1]", "st.const.u32 [%l1], %r0",
    "st.global.nc.u32 [%l1], %r0", "ld.global.wb.u32 %r0, [%l1]", "cvta.u32 %l0, %l1",
    "atom.global.add.f16 %h0, [%l1], %h2", "atom.global.sub.u32 %r0, [%l1], %r2",
    "atom.global.inc.s32 %r0, [%l1], %r2", "atom.global.cas.f32 %f0, [%l1], %f2, %f3",
    "atom.local.add.u32 %r0, [%l1], %r2", "atom.global.and.f32 %f0, [%l1], %f2",
    "red.global.cas.b32 [%l1], %r2, %r3", "shfl.sync.b32 %r0, %r1, 1, 31, -1",
    "shfl.sync.up.b64 %l0, %l1, 1, 31, -1", "vote.sync.all.b32 %r0, %p1, -1", "match.sync.b32 %r0, %r1, -1",
    "redux.sync.add.b32 %r0, %r1, -1", "bar.foo 0", "membar.foo", "fence.foo.cta",
    // Operands: too few, too many, of the wrong kind or size.
    "add.u32 %r0, %r1", "add.u32 %r0, %r1, %r2, %r3", "neg.s32 %r0", "mov.u32 %r0", "mov.u32 %r0, %r1, %r2",
    "add.u32 5, %r1, %r2", "add.u32 %r0, %h1, %r2", "add.u32 %l0, %r1, %r2", "add.u64 %l0, %l1, %r2",
    "add.f32 %f0, %g1, %f2", "add.u32 %r0, %f1, %r2", "add.u32 %r0, %p1, %r2", "mul.wide.u32 %r0, %r1, %r2",
    "and.pred %p0, %r1, %p2", "setp.eq.u32 %r0, %r1, %r2", "selp.u32 %r0, %r1, %r2, %r3", "popc.b64 %l0, %l1",
    "ld.global.u32 %h0, [%l1]", "ld.global.u64 %r0, [%l1]", "ld.global.u32 %r0, %l1",
    "ld.global.v2.u32 {%r0, %r1, %r2}, [%l1]", "ld.global.v2.u32 %r0, [%l1]",
    "ld.global.u32 {%r0, %r1}, [%l1]", "st.global.u32 %l1, %r0", "st.global.u32 [%l1]",
    "st.global.v2.u32 [%l1], {%r0}", "lop3.b32 %r0, %r1, %r2, %r3", "lop3.b32 %r0, %r1, %r2, %r3, %r4",
    "mov.b64 {%r0, %r1, %r2}, %l1", "mov.b32 {%r0, %r1}, %r2", "mov.b64 %l0, {%h0, %h1}",
    "shfl.sync.up.b32 %r0, %r1, 1, 31", "vote.sync.all.pred %p0, %r1, -1",
    "atom.global.cas.b32 %r0, [%l1], %r2", "atom.global.add.u32 %r0, [%l1], %r2, %r3, %r4",
    "red.global.add.u32 %r0, [%l1], %r2", "bar.sync", "bar.sync 16", "bar.sync 0, 32, 3", "bar.arrive 0",
    "bar.red.popc.u32 %r0, 0", "isspacep.global %r0, %l1", "bra", "bra %r0", "bra 5", "trap 1",
    "setp.lt.and.u32 %p0, %r1, %r2",
    // Names that are not such.
    "mov.u32 %r0, %tid.q", "mov.u32 %tid.x, %r1", "ld.global.u32 %r0, [tile]", "ld.shared.u32 %r0, [count]"};

struct UnknownName {
  std::string line, name;
};
const std::vector<UnknownName> kUnknownNames = {{"add.u32 %nobody, %r1, %r2", "%nobody"},
                                                {"add.u32 %r0, %nobody, %r2", "%nobody"},
                                                {"bra $nowhere", "$nowhere"},
                                                {"mov.u32 %r0, %nothing", "%nothing"},
                                                {"ld.global.u32 %r0, [nowhere]", "nowhere"},
                                                {"@%r0 add.u32 %r0, %r1, %r2", "%r0"},
                                                {"@%nobody add.u32 %r0, %r1, %r2", "%nobody"},
                                                {"call nobody", "nobody"},
                                                {"call.uni (%r0), nobody, (%r1)", "nobody"}};

/// These are PTX, but not of the kernels that are run here.
const std::vector<std::string> kOutOfScope = {
    // Their results are not defined to the bit.
    "div.approx.f32 %f0, %f1, %f2",
    "div.full.f32 %f0, %f1, %f2",
    "rcp.approx.ftz.f64 %g0, %g1",
    "sqrt.approx.f32 %f0, %f1",
    "rsqrt.approx.f32 %f0, %f1",
    "rsqrt.approx.f64 %g0, %g1",
    "ex2.approx.f32 %f0, %f1",
    "ex2.approx.ftz.f32 %f0, %f1",
    "lg2.approx.f32 %f0, %f1",
    "sin.approx.f32 %f0, %f1",
    "cos.approx.f32 %f0, %f1",
    "tanh.approx.f32 %f0, %f1",
    "ex2.approx.f16 %h0, %h1",
    "fma.rn.f16 %h0, %h1, %h2, %h3",
    "add.f16x2 %r0, %r1, %r2",
    "cp.async.ca.shared.global [%r0], [%l1], 16",
    "mbarrier.init.shared.b64 [%r0], 1",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1]",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
    "{%f0,%f1,%f2,%f3}",
    "griddepcontrol.wait",
    "vadd.s32.s32.s32 %r0, %r1, %r2",
    "brkpt",
    "mov.u32 %r0, %envreg3",
    "mov.u32 %r0, %pm0"};

std::string module_of(const std::string& line, const std::string& scope = "") {
  return module_text(kRegisters + "  " + line + ";\n", scope);
}

/// Of the first place of a text, from 1.
std::size_t line_of(const std::string& text, const std::string& part) {
  const std::size_t place = text.find(part);
  EXPECT_NE(place, std::string::npos);
  return static_cast<std::size_t>(
             std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n')) +
         1;
}

/// The message names the line, and holds `part`.
void expect_refused(const std::string& line, const std::string& part) {
  const std::string text = module_of(line), message = load_error(text);
  const std::string start = "line " + std::to_string(line_of(text, "  " + line + ";")) + ": ";
  EXPECT_EQ(message.substr(0, start.size()), start) << line << "\n" << message;
  EXPECT_NE(message.find(part), std::string::npos) << line << "\n" << message;
}

TEST(BadInstructions, AreRefusedWithLineAndText) {
  for (const std::string& line : kSenseless) expect_refused(line, line);
}

TEST(BadInstructions, UnknownNamesAreTold) {
  for (const UnknownName& unknown : kUnknownNames) expect_refused(unknown.line, unknown.name);
}

TEST(BadInstructions, OutOfScopeIsRefusedWithLineAndText) {
  for (const std::string& line : kOutOfScope) expect_refused(line, line);
}

TEST(BadInstructions, GoodOnesOfTheSameRegistersLoad) {
  for (const std::string line :
       {"add.u32 %r0, %r1, %r2", "add.f64 %g0, %g1, %g2", "setp.lt.and.u32 %p0, %r1, %r2, %p3",
        "ld.global.v2.u32 {%r0, %r1}, [%l1]", "bar.sync 15", "lop3.b32 %r0, %r1, %r2, %r3, 255",
        "ld.shared.u32 %r0, [tile]"}) {
    Memory memory;
    const auto module = LoadedModule::load(module_of(line), memory);
    EXPECT_TRUE(module) << line << "\n" << module.error().message;
  }
}

TEST(BadInstructions, TablesOfBranchTargets) {
  const std::string message = load_error(module_text(
      "  rem.u32 %bit, %i, 3;\n$one:\n$table: .branchtargets $one, $end;\n  brx.idx %bit, $table;\n"));
  EXPECT_NE(message.find("branchtargets"), std::string::npos) << message;
}

std::string function(const std::string& name, const std::string& body) {
  return ".func " + name + "()\n{\n" + body + "  ret;\n}\n";
}

TEST(BadInstructions, RecursionIsRefused) {
  const std::string itself = function("one", "  call one;\n");
  const std::string each_other =
      ".func two();\n" + function("one", "  call.uni two;\n") + function("two", "  call.uni one;\n");
  for (const std::string& scope : {itself, each_other}) {
    const std::string message = load_error(module_of("call.uni one", scope));
    EXPECT_EQ(message.substr(0, 5), "line ") << message;
    EXPECT_NE(message.find("one"), std::string::npos) << message;
  }
}

TEST(BadInstructions, FunctionsWithoutABodyAreRefused) {
  for (const std::string declaration :
       {".extern .func outside()\n;\n", ".func outside();\n",
        ".extern .func (.param .b32 result) outside\n(\n  .param .b64 format,\n  .param .b64 list\n)\n;\n"}) {
    const std::string message = load_error(
        module_of(declaration.find("list") == std::string::npos
                      ? "call.uni outside"
                      : "{ .param .b64 a; .param .b64 b; .param .b32 c; call.uni (c), outside, (a, b); }",
                  declaration));
    EXPECT_NE(message.find("outside"), std::string::npos) << message;
  }
}

TEST(BadInstructions, ArgumentsMustFitTheFunction) {
  const std::string scope = ".func (.param .b32 result) one(.param .b32 value)\n{\n  ret;\n}\n";
  for (const std::string call :
       {"call.uni one", "call.uni one, (a)", "call.uni (c), one", "call.uni (c), one, (a, a)",
        "call.uni (c, c), one, (a)", "call.uni (c), one, (wide)", "call.uni (wide), one, (a)",
        "call.uni (c), k, (a)"}) {
    const std::string message =
        load_error(module_of("{ .param .b32 a; .param .b32 c; .param .b64 wide; " + call + "; }", scope));
    EXPECT_EQ(message.substr(0, 5), "line ") << call << "\n" << message;
    EXPECT_NE(message.find(call), std::string::npos) << call << "\n" << message;
  }
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
