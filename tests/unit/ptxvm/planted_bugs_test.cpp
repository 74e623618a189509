// One mistake each: it is found, named, and placed in its line, block and thread, whatever the order; and the
// same kernel without it is clean under all checks.
#include <algorithm>
#include <span>

#include <gtest/gtest.h>

#include "hand_written_ptx.h"
#include "ptxvm/launch.h"

namespace weightpress::ptxvm {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kBlocks = 4, kThreads = 64;
/// Who makes the mistake, where not all do: a number in the grid.
constexpr std::uint32_t kChosen = 2 * kThreads + 37;
constexpr std::uint32_t kWordsBytes = 260;

enum class Who : std::uint8_t { kChosenThread, kAnyThread };
enum class Found : std::uint8_t { kAlways, kWhenChecked };

/// The body of a kernel, with "@@" where the mistake or its repair goes. "// here" ends the lines that may be
/// named. It may use (see module_of): %tid in %r0, block in %r1, place in the grid in %r2; %p0 in the chosen
/// thread, %p1 in thread 0 of each block, %p2 in the first warp, %p3 in the lanes below 16, %p4 in block 2,
/// %p5 in none;
/// the addresses of 260 bytes (%rd0), of 256 that are read-only (%rd1), not initialised (%rd2), freed (%rd3);
/// 512 bytes of shared memory at %r3, the thread's own word there %r4; 32 bytes of local memory `own`; the
/// constant `table` of 64 bytes; the variable `cells` of 64 bytes.
struct Plant {
  const char* name;
  FaultKind kind;
  Who who;
  Found found;
  const char* mention;  ///< what else the message says
  const char* body;
  const char* wrong;
  const char* right;
};

constexpr FaultKind kBounds = FaultKind::kOutOfBounds, kAlign = FaultKind::kMisaligned,
                    kFresh = FaultKind::kUninitialised, kRace = FaultKind::kRace,
                    kBarrier = FaultKind::kBarrier, kWarp = FaultKind::kWarp, kEndless = FaultKind::kEndless,
                    kTrap = FaultKind::kTrap;
constexpr Who kOne = Who::kChosenThread, kAny = Who::kAnyThread;
constexpr Found kAlways = Found::kAlways, kChecked = Found::kWhenChecked;

const Plant kPlants[] = {
    // Out of bounds.
    {"global read past the end", kBounds, kOne, kAlways, "words",
     "@%p0 ld.global.u32 %r5, [%rd0+@@]; // here", "260", "256"},
    {"global read across the end", kBounds, kOne, kAlways, "words",
     "@%p0 ld.global.u64 %rd5, [%rd0+@@]; // here", "256", "248"},
    {"global vector read across the end", kBounds, kOne, kAlways, "words",
     "@%p0 ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd0+@@]; // here", "256", "240"},
    {"global byte past the end", kBounds, kOne, kAlways, "words", "@%p0 ld.global.u8 %h0, [%rd0+@@]; // here",
     "260", "259"},
    {"global write past the end", kBounds, kOne, kAlways, "words",
     "@%p0 st.global.u32 [%rd0+@@], %r0; // here", "260", "256"},
    {"global read before the begin", kBounds, kOne, kAlways, "", "@%p0 ld.global.u32 %r5, [%rd0+@@]; // here",
     "-4", "0"},
    {"global write before the begin", kBounds, kOne, kAlways, "",
     "@%p0 st.global.u16 [%rd0+@@], %h0; // here", "-2", "0"},
    {"global atomic past the end", kBounds, kOne, kAlways, "words",
     "@%p0 atom.global.add.u32 %r5, [%rd0+@@], 1; // here", "260", "256"},
    {"null pointer", kBounds, kOne, kAlways, "",
     "mov.u64 %rd5, @@;\n@%p0 ld.global.u32 %r5, [%rd5+16]; // here", "0", "%rd0"},
    {"number as a pointer", kBounds, kOne, kAlways, "",
     "mov.u64 %rd5, @@;\n@%p0 st.global.u32 [%rd5], %r5; // here", "0xFFFFFFFFFFFF0000", "%rd0"},
    {"generic null pointer", kBounds, kOne, kAlways, "",
     "mov.u64 %rd5, @@;\n@%p0 ld.u32 %r5, [%rd5]; // here", "0", "%rd0"},
    {"index that is negative", kBounds, kOne, kAlways, "",
     "selp.b32 %r5, @@, 1, %p0;\nmul.wide.s32 %rd5, %r5, 4;\nadd.s64 %rd5, %rd5, %rd0;\n"
     "ld.global.u32 %r6, [%rd5]; // here",
     "-1", "2"},
    {"shared read past the end", kBounds, kOne, kAlways, "",
     "st.shared.u32 [%r4+256], %r0;\n@%p0 ld.shared.u32 %r5, [%r4+@@]; // here", "512", "256"},
    {"shared write past the end", kBounds, kOne, kAlways, "", "@%p0 st.shared.u32 [%r3+@@], %r0; // here",
     "512", "508"},
    {"shared write across the end", kBounds, kOne, kAlways, "",
     "@%p0 st.shared.v2.u64 [buffer+@@], {%rd0, %rd1}; // here", "512", "496"},
    {"shared atomic past the end", kBounds, kOne, kAlways, "",
     "st.shared.u32 [%r4], 0;\nbar.sync 0;\n@%p0 atom.shared.or.b32 %r5, [%r4+@@], 1; // here", "512", "0"},
    {"shared memory by a generic pointer, past the end", kBounds, kOne, kAlways, "",
     "cvta.shared.u64 %rd5, %rd4;\n@%p0 st.u32 [%rd5+@@], %r0; // here", "512", "508"},
    {"local write past the end", kBounds, kOne, kAlways, "", "@%p0 st.local.u32 [own+@@], %r0; // here", "32",
     "28"},
    {"local read by an index past the end", kBounds, kOne, kAlways, "",
     "mov.u64 %rd5, own;\nst.local.u32 [%rd5+8], %r0;\nselp.b32 %r5, @@, 8, %p0;\ncvt.u64.u32 %rd6, %r5;\n"
     "add.s64 %rd5, %rd5, %rd6;\nld.local.u32 %r6, [%rd5]; // here",
     "64", "8"},
    {"constant read past the end", kBounds, kOne, kAlways, "", "@%p0 ld.const.u32 %r5, [table+@@]; // here",
     "64", "60"},
    {"variable of the module, past the end", kBounds, kOne, kAlways, "cells",
     "@%p0 st.global.u32 [cells+@@], %r0; // here", "64", "60"},
    {"write to read-only memory", kBounds, kOne, kAlways, "fixed", "@%p0 st.global.u32 [@@+4], %r0; // here",
     "%rd1", "%rd0"},
    {"atomic on read-only memory", kBounds, kOne, kAlways, "fixed",
     "@%p0 atom.global.max.u32 %r5, [@@+4], %r0; // here", "%rd1", "%rd0"},
    {"read after free", kBounds, kOne, kAlways, "", "@%p0 ld.global.u32 %r5, [@@+8]; // here", "%rd3",
     "%rd0"},
    {"write after free", kBounds, kOne, kAlways, "", "@%p0 st.global.u8 [@@], %h0; // here", "%rd3", "%rd0"},

    // Misaligned.
    {"global word", kAlign, kOne, kAlways, "", "@%p0 ld.global.u32 %r5, [%rd0+@@]; // here", "2", "4"},
    {"global half", kAlign, kOne, kAlways, "", "@%p0 st.global.u16 [%rd0+@@], %h0; // here", "1", "2"},
    {"global double word", kAlign, kOne, kAlways, "", "@%p0 ld.global.u64 %rd5, [%rd0+@@]; // here", "4",
     "8"},
    {"global vector", kAlign, kOne, kAlways, "",
     "@%p0 ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd0+@@]; // here", "8", "16"},
    {"global vector of halves", kAlign, kOne, kAlways, "",
     "@%p0 st.global.v2.u16 [%rd0+@@], {%h0, %h0}; // here", "2", "4"},
    {"global atomic", kAlign, kOne, kAlways, "", "@%p0 atom.global.add.u32 %r5, [%rd0+@@], 1; // here", "2",
     "4"},
    {"shared word", kAlign, kOne, kAlways, "", "@%p0 st.shared.u32 [%r4+@@], %r0; // here", "1", "4"},
    {"shared vector", kAlign, kOne, kAlways, "", "@%p0 st.shared.v2.u32 [%r3+@@], {%r0, %r1}; // here", "4",
     "8"},
    {"local double word", kAlign, kOne, kAlways, "", "@%p0 st.local.u64 [own+@@], %rd0; // here", "4", "8"},
    {"constant word", kAlign, kOne, kAlways, "", "@%p0 ld.const.u32 %r5, [table+@@]; // here", "6", "8"},
    {"generic word", kAlign, kOne, kAlways, "", "@%p0 ld.u32 %r5, [%rd0+@@]; // here", "1", "4"},

    // Races. Everything is initialised first, so that nothing else is wrong in any order.
    {"write, then read by another warp", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], 0;\nbar.sync 0;\nst.shared.u32 [%r4], %r0; // here\n@@\n"
     "xor.b32 %r5, %r4, 128;\nld.shared.u32 %r6, [%r5]; // here",
     "", "bar.sync 0;"},
    {"write, then read by another lane", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], 0;\nbar.sync 0;\nst.shared.u32 [%r4], %r0; // here\n@@\n"
     "xor.b32 %r5, %r4, 4;\nld.shared.u32 %r6, [%r5]; // here",
     "", "bar.warp.sync -1;"},
    {"a shuffle orders nothing", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], 0;\nbar.sync 0;\nst.shared.u32 [%r4], %r0; // here\n@@\n"
     "xor.b32 %r5, %r4, 4;\nld.shared.u32 %r6, [%r5]; // here",
     "shfl.sync.bfly.b32 %r7, %r0, 1, 31, -1;", "bar.warp.sync -1;"},
    {"bar.warp.sync of the other half", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], 0;\nbar.sync 0;\nst.shared.u32 [%r4], %r0; // here\nmov.u32 %r6, 0xFFFF;\n"
     "@!%p3 mov.u32 %r6, 0xFFFF0000;\nbar.warp.sync %r6;\nxor.b32 %r5, %r4, @@;\n"
     "ld.shared.u32 %r6, [%r5]; // here",
     "64", "32"},
    {"read, then write by another warp", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], %r0;\nbar.sync 0;\nxor.b32 %r5, %r4, 128;\nld.shared.u32 %r6, [%r5]; // here\n@@\n"
     "st.shared.u32 [%r4], %r6; // here",
     "", "bar.sync 0;"},
    {"read, then write by another lane", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], %r0;\nbar.warp.sync -1;\nxor.b32 %r5, %r4, 8;\nld.shared.u32 %r6, [%r5]; // "
     "here\n@@\n"
     "st.shared.u32 [%r4], %r6; // here",
     "", "bar.warp.sync -1;"},
    {"two writes", kRace, kAny, kChecked, "", "@@ st.shared.u32 [%r3], %r0; // here", "", "@%p1"},
    {"two writes of the same value", kRace, kAny, kChecked, "", "@@ st.shared.u32 [%r3], 1; // here", "@%p3",
     "@%p1"},
    {"writes of bytes", kRace, kAny, kChecked, "",
     "shr.u32 %r5, %r0, @@;\nadd.u32 %r5, %r5, %r3;\nst.shared.u8 [%r5], %h0; // here", "1", "0"},
    {"writes that overlap", kRace, kAny, kChecked, "", "shl.b32 %r5, %r0, 1;\nadd.u32 %r5, %r5, %r3;\n@@",
     "and.b32 %r5, %r5, -4;\nst.shared.u32 [%r5], %r0; // here", "st.shared.u16 [%r5], %h0; // here"},
    {"atomic, then plain read", kRace, kAny, kChecked, "",
     "@%p1 st.shared.u32 [%r3], 0;\nbar.sync 0;\natom.shared.add.u32 %r5, [%r3], 1; // here\n@@\n"
     "ld.shared.u32 %r6, [%r3]; // here",
     "", "bar.sync 0;"},
    {"clearing, then atomic", kRace, kAny, kChecked, "",
     "@%p1 st.shared.u32 [%r3], 5;\nbar.sync 0;\n@%p1 st.shared.u32 [%r3], 0; // here\n@@\n@%p1 bra END;\n"
     "atom.shared.add.u32 %r5, [%r3], 1; // here\nEND:\nbar.sync 0;",
     "", "bar.sync 0;"},
    {"a barrier of each warp alone", kRace, kAny, kChecked, "",
     "st.shared.u32 [%r4], 0;\nbar.sync 0;\nst.shared.u32 [%r4], %r0; // here\nshr.u32 %r6, %r0, 5;\n"
     "add.u32 %r6, %r6, 1;\n@@\nxor.b32 %r5, %r4, 128;\nld.shared.u32 %r7, [%r5]; // here",
     "bar.sync %r6, 32;", "bar.sync 3, 64;"},
    {"a race of one thread", kRace, kAny, kChecked, "",
     "@%p0 mov.u32 %r4, @@;\nst.shared.u32 [%r4], %r0; // here", "buffer", "buffer+504"},

    // Barriers.
    {"half of the warps", kBarrier, kAny, kChecked, "", "@@ bar.sync 0; // here", "@%p2", ""},
    {"half of the lanes", kBarrier, kAny, kChecked, "", "@@ bra END;\nbar.sync 0; // here\nEND:", "@%p3",
     "@%p5"},
    {"early return", kBarrier, kAny, kChecked, "", "@%p0 @@;\nbar.sync 0; // here", "ret", "mov.u32 %r5, 1"},
    {"two barriers that look alike", kBarrier, kAny, kChecked, "",
     "@%p2 bra ONE;\n@@\nbra END;\nONE:\nbar.sync 0; // here\nEND:\n", "bar.sync 0; // here", "bra ONE;"},
    {"one more round", kBarrier, kAny, kChecked, "",
     "mov.u32 %r5, 3;\n@%p0 mov.u32 %r5, @@;\nAGAIN:\nbar.sync 0; // here\nsub.u32 %r5, %r5, 1;\n"
     "setp.ne.u32 %p6, %r5, 0;\n@%p6 bra AGAIN;",
     "4", "3"},
    {"more threads than there are", kBarrier, kAny, kAlways, "", "bar.sync 1, @@; // here", "96", "64"},
    {"two barriers, each waiting for all", kBarrier, kAny, kAlways, "",
     "mov.u32 %r5, 1;\n@%p2 mov.u32 %r5, @@;\nbar.sync %r5, 64; // here", "2", "1"},
    {"consumers without producers", kBarrier, kAny, kAlways, "",
     "@%p2 bra PRODUCE;\nbar.sync 1, 64; // here\nbra END;\nPRODUCE:\n@@\nEND:", "", "bar.arrive 1, 64;"},

    // Warp operations; the other lanes wait elsewhere.
    {"shuffle without half of the lanes", kWarp, kAny, kAlways, "",
     "@!%p3 bra END;\nshfl.sync.idx.b32 %r5, %r0, 0, 31, @@; // here\nEND:\nbar.sync 0; // here",
     "0xFFFFFFFF", "0x0000FFFF"},
    {"lane that its mask lacks", kWarp, kAny, kAlways, "", "shfl.sync.idx.b32 %r5, %r0, 1, 31, @@; // here",
     "0xFFFFFFFE", "0xFFFFFFFF"},
    {"vote without a lane", kWarp, kAny, kAlways, "",
     "@%p0 bra @@;\nMOST:\nvote.sync.ballot.b32 %r6, %p1, -1; // here\nbra END;\nALONE:\n"
     "vote.sync.ballot.b32 %r6, %p1, 0x20; // here\nEND:\nbar.sync 0; // here",
     "ALONE", "MOST"},
    {"match without half of the lanes", kWarp, kAny, kAlways, "",
     "@%p3 bra END;\nmatch.any.sync.b32 %r5, %r0, @@; // here\nEND:\nbar.sync 0; // here", "0xFFFFFFFF",
     "0xFFFF0000"},
    {"bar.warp.sync without half of the lanes", kWarp, kAny, kAlways, "",
     "@%p3 bra END;\nbar.warp.sync @@; // here\nEND:\nbar.sync 0; // here", "0xFFFFFFFF", "0xFFFF0000"},
    {"two halves that wait for each other", kWarp, kAny, kAlways, "",
     "@%p3 bra ELSE;\nshfl.sync.idx.b32 %r5, %r0, 31, 31, @@; // here\nELSE:\nbar.warp.sync -1; // here",
     "0xFFFFFFFF", "0xFFFF0000"},

    // Not initialised.
    {"shared memory", kFresh, kOne, kChecked, "",
     "st.shared.u32 [%r4], %r0;\nbar.sync 0;\n@%p0 ld.shared.u32 %r5, [%r3+@@]; // here", "256", "252"},
    {"shared memory, part of a vector", kFresh, kOne, kChecked, "",
     "st.shared.u32 [%r4], %r0;\nbar.sync 0;\n@%p0 ld.shared.v2.u32 {%r5, %r6}, [%r3+@@]; // here", "256",
     "248"},
    {"shared memory that an earlier block wrote", kFresh, kOne, kChecked, "",
     "@@ st.shared.u32 [%r4], %r0;\n@%p0 ld.shared.u32 %r5, [%r4]; // here", "@!%p4", ""},
    {"shared counter", kFresh, kOne, kChecked, "",
     "@%p0 st.shared.u32 [%r4+@@], 0;\n@%p0 atom.shared.add.u32 %r5, [%r4], 1; // here", "4", "0"},
    {"global memory", kFresh, kOne, kChecked, "fresh",
     "@%p0 st.global.u32 [%rd2+@@], %r0;\n@%p0 ld.global.u32 %r5, [%rd2+44]; // here", "40", "44"},
    {"global memory, half of a word", kFresh, kOne, kChecked, "fresh",
     "@%p0 st.global.@@ [%rd2+40], 7;\n@%p0 ld.global.u32 %r5, [%rd2+40]; // here", "u16", "u32"},
    {"global vector", kFresh, kOne, kChecked, "fresh",
     "@%p0 st.global.v2.u32 [%rd2+64], {%r0, %r0};\n@%p0 st.global.v2.u32 [%rd2+@@], {%r0, %r0};\n"
     "@%p0 ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2+64]; // here",
     "80", "72"},
    {"global counter", kFresh, kOne, kChecked, "fresh",
     "@%p0 st.global.u32 [%rd2+@@], 0;\n@%p0 atom.global.add.u32 %r5, [%rd2], 1; // here", "4", "0"},

    // Endless.
    {"loop of one thread", kEndless, kOne, kAlways, "",
     "mov.u32 %r5, 100;\nAGAIN:\nsub.u32 %r5, %r5, 1; // here\nselp.b32 %r6, @@, %r5, %p0; // here\n"
     "setp.ne.u32 %p6, %r6, 0; // here\n@%p6 bra AGAIN; // here",
     "1", "%r5"},
    {"waiting for a flag that nobody sets", kEndless, kOne, kAlways, "",
     "@%p0 st.global.u32 [%rd0+@@], 1;\n@!%p0 bra END;\nAGAIN:\nld.volatile.global.u32 %r5, [%rd0+4]; // "
     "here\n"
     "setp.eq.u32 %p6, %r5, 0; // here\n@%p6 bra AGAIN; // here\nEND:",
     "8", "4"},
    {"each waits for the other", kEndless, kAny, kAlways, "",
     "setp.gt.u32 %p6, %r2, 1;\n@%p6 bra END;\nxor.b32 %r5, %r2, 1;\nmul.wide.u32 %rd5, %r5, 4;\n"
     "add.u64 %rd5, %rd5, %rd0;\nmul.wide.u32 %rd6, %r2, 4;\nadd.u64 %rd6, %rd6, %rd0;\n@@\nAGAIN:\n"
     "ld.volatile.global.u32 %r6, [%rd5]; // here\nsetp.eq.u32 %p7, %r6, 0; // here\n@%p7 bra AGAIN; // "
     "here\n"
     "st.volatile.global.u32 [%rd6], 1;\nEND:",
     "", "st.volatile.global.u32 [%rd6], 1;"},

    {"barriers without an end", kEndless, kAny, kAlways, "",
     "mov.u32 %r5, 10;\nAGAIN:\nbar.sync 0; // here\nsub.u32 %r5, %r5, @@;\nsetp.ne.u32 %p6, %r5, 0;\n"
     "@%p6 bra AGAIN;",
     "0", "1"},
    {"votes without an end", kEndless, kAny, kAlways, "",
     "mov.u32 %r5, 0;\nAGAIN:\nadd.u32 %r5, %r5, 1;\nsetp.ge.u32 %p6, %r5, %r9;\n@%p0 setp.eq.u32 %p6, %r5, "
     "@@;\n"
     "vote.sync.all.pred %p7, %p6, -1; // here\n@!%p7 bra AGAIN;",
     "0", "40"},

    // Traps.
    {"trap", kTrap, kOne, kAlways, "", "@%p0 @@; // here", "trap", "mov.u32 %r5, 1"},
    {"trap behind a branch", kTrap, kOne, kAlways, "",
     "setp.lt.u32 %p6, %r2, @@;\n@!%p0 bra END;\n@%p6 bra END;\ntrap; // here\nEND:", "100", "1000"},
};

std::string module_of(const Plant& plant, bool wrong) {
  std::string body = plant.body;
  const std::size_t at = body.find("@@");
  EXPECT_NE(at, std::string::npos) << plant.name;
  body.replace(at, 2, wrong ? plant.wrong : plant.right);
  return testing::ptx_module(R"(
.const .align 8 .b8 table[64];
.global .align 8 .b8 cells[64];
.visible .entry planted(.param .u64 words, .param .u64 fixed, .param .u64 fresh, .param .u64 freed)
{
.reg .pred %p<8>;
.reg .b16 %h<2>;
.reg .b32 %r<10>;
.reg .b64 %rd<8>;
.shared .align 512 .b8 buffer[512];
.local .align 16 .b8 own[32];
ld.param.u64 %rd0, [words];
ld.param.u64 %rd1, [fixed];
ld.param.u64 %rd2, [fresh];
ld.param.u64 %rd3, [freed];
mov.u64 %rd4, buffer;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, 64, %r0;
mov.u32 %r3, buffer;
mad.lo.u32 %r4, %r0, 4, %r3;
setp.eq.u32 %p0, %r2, 165;
setp.eq.u32 %p1, %r0, 0;
setp.lt.u32 %p2, %r0, 32;
and.b32 %r9, %r0, 31;
setp.lt.u32 %p3, %r9, 16;
setp.eq.u32 %p4, %r1, 2;
setp.eq.u32 %p5, %r1, 1000;
mov.u16 %h0, 3;
mov.u32 %r5, 0;
)" + body + "\nret;\n}\n");
}
static_assert(kChosen == 165);

LaunchOptions checked(std::uint64_t seed, int num_threads) {
  LaunchOptions options;
  options.seed = seed;
  options.num_threads = num_threads;
  options.check_initialised = options.check_races = options.check_barriers = true;
  options.max_branches = 50'000;
  options.max_meetings = 5'000;
  return options;
}

/// Memory of its own for each run, so that nothing is initialised by an earlier one.
Result<LaunchReport> run_planted(const std::string& ptx, const LaunchOptions& options) {
  Memory memory;
  auto module = LoadedModule::load(ptx, memory);
  if (!module.has_value()) return Unexpected(module.error());
  const auto allocated = [&](const char* name, std::uint64_t bytes, bool uninitialised = false) {
    AllocationOptions allocation;
    allocation.name = name;
    allocation.starts_uninitialised = uninitialised;
    return memory.allocate(bytes, allocation);
  };
  const Bytes fixed(256, 1);
  AllocationOptions read_only;
  read_only.name = "fixed";
  read_only.read_only = true;
  const std::uint64_t parameters[] = {allocated("words", kWordsBytes),
                                      memory.adopt(std::span<const std::uint8_t>(fixed), read_only),
                                      allocated("fresh", 256, true), allocated("freed", 256)};
  EXPECT_TRUE(memory.free(parameters[3]));
  LaunchConfig config;
  config.grid.x = kBlocks;
  config.block.x = kThreads;
  return launch(**module, "planted", config, std::span<const std::uint64_t>(parameters), memory, options);
}

TEST(PlantedBugs, AreFoundAndNamed) {
  for (const Plant& plant : kPlants) {
    const std::string ptx = module_of(plant, true);
    const auto lines = testing::lines_with(ptx, "// here");
    ASSERT_FALSE(lines.empty()) << plant.name;
    for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u, 5u})
      for (const int num_threads : {1, 3}) {
        SCOPED_TRACE(std::string(plant.name) + ", order " + std::to_string(seed) + ", " +
                     std::to_string(num_threads) + " host threads");
        const auto report = run_planted(ptx, checked(seed, num_threads));
        if (!report.has_value()) {
          ADD_FAILURE() << report.error().message;
          continue;
        }
        if (!report->fault.has_value()) {
          ADD_FAILURE() << "nothing is found";
          continue;
        }
        const Fault& fault = *report->fault;
        EXPECT_EQ(fault.kind, plant.kind) << fault_name(fault.kind) << ": " << fault.message;
        EXPECT_TRUE(std::find(lines.begin(), lines.end(), fault.line) != lines.end())
            << "line " << fault.line << ": " << testing::line_of(ptx, fault.line) << "\n"
            << fault.message;
        EXPECT_NE(fault.message.find(plant.mention), std::string::npos) << fault.message;
        EXPECT_EQ(fault.block.x, fault.block_number);
        EXPECT_LT(fault.block_number, kBlocks);
        EXPECT_LT(fault.thread.x, kThreads);
        EXPECT_EQ(fault.block.y + fault.block.z + fault.thread.y + fault.thread.z, 0u);
        if (plant.who == Who::kChosenThread) {
          EXPECT_EQ(fault.block.x * kThreads + fault.thread.x, kChosen) << fault.message;
        }
      }
  }
}

TEST(PlantedBugs, MessagesHoldTheLineAndItsText) {
  for (const Plant& plant : kPlants) {
    SCOPED_TRACE(plant.name);
    const std::string ptx = module_of(plant, true);
    const auto report = run_planted(ptx, checked(0, 1));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    ASSERT_TRUE(report->fault.has_value());
    const Fault& fault = *report->fault;
    EXPECT_NE(fault.message.find("line " + std::to_string(fault.line)), std::string::npos) << fault.message;
    const std::string_view line = testing::line_of(ptx, fault.line);
    const std::size_t begin = line.find_first_not_of(' ');
    const std::string_view text = line.substr(begin, line.find(';') - begin);
    EXPECT_NE(fault.message.find(text), std::string::npos) << fault.message << "\nwithout: " << text;
  }
}

TEST(PlantedBugs, AreGoneAfterRepair) {
  for (const Plant& plant : kPlants) {
    const std::string ptx = module_of(plant, false);
    for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u, 5u})
      for (const int num_threads : {1, 3}) {
        SCOPED_TRACE(std::string(plant.name) + ", order " + std::to_string(seed) + ", " +
                     std::to_string(num_threads) + " host threads");
        const auto report = run_planted(ptx, checked(seed, num_threads));
        ASSERT_TRUE(report.has_value()) << report.error().message;
        EXPECT_FALSE(report->fault.has_value()) << fault_name(report->fault->kind) << ", line "
                                                << report->fault->line << ": " << report->fault->message;
      }
  }
}

TEST(PlantedBugs, ChecksThatAreOffFindNothing) {
  for (const Plant& plant : kPlants) {
    SCOPED_TRACE(plant.name);
    LaunchOptions options;
    options.max_branches = 50'000;
    options.max_meetings = 5'000;
    const auto report = run_planted(module_of(plant, true), options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->fault.has_value(), plant.found == Found::kAlways);
    // And each check alone finds its own kind.
    if (plant.found == Found::kAlways) continue;
    options.check_races = plant.kind == kRace;
    options.check_barriers = plant.kind == kBarrier;
    options.check_initialised = plant.kind == kFresh;
    const auto alone = run_planted(module_of(plant, true), options);
    ASSERT_TRUE(alone.has_value());
    ASSERT_TRUE(alone->fault.has_value());
    EXPECT_EQ(alone->fault->kind, plant.kind);
  }
}

TEST(PlantedBugs, ReadsInTheSlackAreCountedAndNoMore) {
  const std::string ptx = testing::ptx_module(R"(
.visible .entry slack(.param .u64 in, .param .u64 out, .param .u32 at)
{
.reg .b32 %r<4>;
.reg .b16 %h<2>;
.reg .b64 %rd<6>;
ld.param.u64 %rd0, [in];
ld.param.u64 %rd1, [out];
ld.param.u32 %r0, [at];
cvt.u64.u32 %rd2, %r0;
add.u64 %rd0, %rd0, %rd2;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3;
ld.global.u32 %r2, [%rd0]; // here
st.global.u32 [%rd1], %r2;
ret;
}
.visible .entry overwrite(.param .u64 in)
{
.reg .b64 %rd<2>;
ld.param.u64 %rd0, [in];
st.global.u32 [%rd0+8], 1; // here
ret;
}
)");
  Memory memory;
  const auto module = LoadedModule::load(ptx, memory);
  ASSERT_TRUE(module.has_value()) << module.error().message;
  AllocationOptions options;
  options.name = "short";
  options.slack_bytes = 6;
  options.slack_value = 0xA5;
  const std::uint64_t in = memory.allocate(10, options), out = memory.allocate(20);
  ASSERT_TRUE(memory.write(in, Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  LaunchConfig config;
  config.block.x = 5;
  struct Read {
    std::uint32_t at;
    std::uint32_t value;
    bool is_in_slack;
  };
  std::uint64_t slack_reads = 0;
  for (const Read& read :
       {Read{4, 0x08070605, false}, Read{8, 0xA5A50A09, true}, Read{12, 0xA5A5A5A5, true}}) {
    const std::uint64_t parameters[] = {in, out, read.at};
    const auto report =
        launch(**module, "slack", config, std::span<const std::uint64_t>(parameters), memory, checked(0, 1));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_FALSE(report->fault.has_value()) << report->fault->message;
    Bytes bytes(20);
    ASSERT_TRUE(memory.read(out, bytes));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      EXPECT_EQ(bytes[i], (read.value >> (8 * (i % 4))) & 0xFF) << read.at << ", byte " << i;
    if (read.is_in_slack) slack_reads += 5;
    EXPECT_EQ(memory.slack_reads(in), slack_reads) << read.at;
  }
  EXPECT_EQ(memory.slack_reads(out), 0u);

  const std::uint64_t too_far[] = {in, out, 16};
  const auto past =
      launch(**module, "slack", config, std::span<const std::uint64_t>(too_far), memory, checked(0, 1));
  ASSERT_TRUE(past.has_value());
  ASSERT_TRUE(past->fault.has_value());
  EXPECT_EQ(past->fault->kind, kBounds);
  EXPECT_NE(past->fault->message.find("short"), std::string::npos) << past->fault->message;
  config.block.x = 1;
  const std::uint64_t only[] = {in};
  const auto written =
      launch(**module, "overwrite", config, std::span<const std::uint64_t>(only), memory, checked(0, 1));
  ASSERT_TRUE(written.has_value());
  ASSERT_TRUE(written->fault.has_value()) << "slack is for reads";
  EXPECT_EQ(written->fault->kind, kBounds);
}

/// What a driver refuses before anything runs.
TEST(PlantedBugs, LaunchesThatNoDriverTakesAreErrors) {
  const std::string ptx = testing::ptx_module(R"(
.visible .entry plain(.param .u64 out, .param .u32 n)
{
.reg .b32 %r<2>;
.shared .align 4 .b8 words[1024];
mov.u32 %r0, words;
ret;
}
.visible .entry bounded()
.maxntid 64, 2, 1
{
ret;
}
)");
  Memory memory;
  const auto module = LoadedModule::load(ptx, memory);
  ASSERT_TRUE(module.has_value()) << module.error().message;
  const auto error_of = [&](const char* kernel, LaunchConfig config, std::size_t num_parameters) {
    const std::vector<std::uint64_t> parameters(num_parameters);
    const auto report =
        launch(**module, kernel, config, std::span<const std::uint64_t>(parameters), memory, {});
    if (report.has_value()) return std::string();
    EXPECT_EQ(report.error().code, ErrorCode::kUsage);
    EXPECT_FALSE(report.error().message.empty());
    return report.error().message;
  };
  const auto config = [](Dim3 grid, Dim3 block, std::uint64_t dynamic_bytes = 0) {
    LaunchConfig result;
    result.grid = grid;
    result.block = block;
    result.dynamic_shared_bytes = dynamic_bytes;
    return result;
  };
  const LaunchConfig good = config({1, 1, 1}, {32, 1, 1});
  EXPECT_EQ(error_of("plain", good, 2), "");
  EXPECT_NE(error_of("nowhere", good, 2), "");
  EXPECT_NE(error_of("plain", good, 1), "");
  EXPECT_NE(error_of("plain", good, 3), "");

  EXPECT_EQ(error_of("plain", config({1, 1, 1}, {1024, 1, 1}), 2), "");
  EXPECT_EQ(error_of("plain", config({1, 1, 1}, {4, 4, 64}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 1}, {1025, 1, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 1}, {32, 33, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 1}, {1, 1, 65}), 2), "") << "z is at most 64";
  EXPECT_NE(error_of("plain", config({1, 1, 1}, {0, 1, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 1}, {1, 0, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({0, 1, 1}, {1, 1, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 0}, {1, 1, 1}), 2), "");
  EXPECT_EQ(error_of("plain", config({1, 65'535, 1}, {1, 1, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 65'536, 1}, {1, 1, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 65'536}, {1, 1, 1}), 2), "");
  EXPECT_NE(error_of("plain", config({0x80000000, 1, 1}, {1, 1, 1}), 2), "");

  EXPECT_EQ(error_of("bounded", config({1, 1, 1}, {128, 1, 1}), 0), "") << "the product counts";
  EXPECT_NE(error_of("bounded", config({1, 1, 1}, {129, 1, 1}), 0), "");

  EXPECT_EQ(error_of("plain", config({1, 1, 1}, {1, 1, 1}, 47 * 1024), 2), "");
  EXPECT_NE(error_of("plain", config({1, 1, 1}, {1, 1, 1}, 47 * 1024 + 1), 2), "");
  LaunchConfig larger = config({1, 1, 1}, {1, 1, 1}, 90 * 1024);
  EXPECT_NE(error_of("plain", larger, 2), "");
  larger.max_shared_bytes = 91 * 1024;
  EXPECT_EQ(error_of("plain", larger, 2), "");
}

}  // namespace
}  // namespace weightpress::ptxvm
