#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

struct Atomic {
  std::string operation, type;
  std::function<Wide(Wide old, Wide b, Wide c)> updated;
  bool has_red = true;
};

std::vector<Atomic> atomics() {
  std::vector<Atomic> all;
  for (const std::string type : {"u32", "s32", "u64", "s64"}) {
    if (type != "s64") all.push_back({"add", type, [](Wide old, Wide b, Wide) { return old + b; }});
    all.push_back({"min", type, [](Wide old, Wide b, Wide) { return std::min(old, b); }});
    all.push_back({"max", type, [](Wide old, Wide b, Wide) { return std::max(old, b); }});
  }
  for (const std::string type : {"b32", "b64"}) {
    all.push_back({"and", type, [](Wide old, Wide b, Wide) { return old & b; }});
    all.push_back({"or", type, [](Wide old, Wide b, Wide) { return old | b; }});
    all.push_back({"xor", type, [](Wide old, Wide b, Wide) { return old ^ b; }});
    all.push_back({"exch", type, [](Wide, Wide b, Wide) { return b; }, false});
  }
  for (const std::string type : {"b16", "b32", "b64"})
    all.push_back({"cas", type, [](Wide old, Wide b, Wide c) { return old == b ? c : old; }, false});
  all.push_back({"inc", "u32", [](Wide old, Wide b, Wide) { return old >= b ? 0 : old + 1; }});
  all.push_back({"dec", "u32", [](Wide old, Wide b, Wide) { return old == 0 || old > b ? b : old - 1; }});
  all.push_back({"add", "f32", [](Wide old, Wide b, Wide) { return bits_of(as_f32(old) + as_f32(b)); }});
  all.push_back({"add", "f64", [](Wide old, Wide b, Wide) { return bits_of(as_f64(old) + as_f64(b)); }});
  return all;
}

const std::string kGlobalAddress = "  mul.wide.u32 %p, %i, 16;\n  add.s64 %p, %p, %x;\n";
const std::string kSharedAddress =
    "  .shared .align 8 .b8 tile[4096];\n  .reg .b64 %q;\n  mul.wide.u32 %p, %t, 16;\n  mov.u64 %q, tile;\n"
    "  add.s64 %p, %p, %q;\n";

bool same(ValueType type, std::uint64_t got, std::uint64_t expected) {
  if (type.kind == 'f' && (type.bits == 32 ? std::isnan(as_f32(expected)) : std::isnan(as_f64(expected))))
    return type.bits == 32 ? std::isnan(as_f32(got)) : std::isnan(as_f64(got));
  return got == expected;
}

void check_atomic(const Atomic& atomic, const std::string& prefix, const std::string& space,
                  const std::string& address) {
  const ValueType type = value_type(atomic.type);
  const bool is_cas = atomic.operation == "cas";
  const std::string place = space.substr(0, space.find(' ')), bits = ".b" + std::to_string(type.bits);
  const std::string name = prefix + place + "." + atomic.operation + "." + atomic.type;
  const std::string operands = is_cas ? ", [%p+8], %b, %c;\n" : ", [%p+8], %b;\n";
  const std::string start = "  st" + place + bits + " [%p+8], %a;\n", end = ", [%p+8];\n";
  Snippet snippet{std::vector<std::string>(3, atomic.type), std::vector<std::string>(6, atomic.type),
                  "  .reg .b64 %p;\n" + address + start + "  atom" + name + " %d0" + operands + "  ld" +
                      place + bits + " %d1" + end};
  // The destination as a source too; then without one.
  snippet.body += start + "  mov" + bits + " %d2, %b;\n  atom" + name + " %d2, [%p+8], %d2" +
                  (is_cas ? ", %c" : "") + ";\n  ld" + place + bits + " %d3" + end;
  const std::string red =
      atomic.has_red ? "  red" + name + operands.substr(1) : "  atom" + name + " _" + operands;
  snippet.body += start + red + "  ld" + place + bits + " %d4" + end;
  snippet.body += start + "  @%guard atom" + name + " _" + operands + "  ld" + place + bits + " %d5" + end;
  snippet.body = "  and.b32 %bit, %i, 1;\n  setp.eq.u32 %guard, %bit, 0;\n" + snippet.body;
  const std::vector<Values> rows = columns(snippet.sources, kSeed, 300);
  snippet.extra_bytes = rows[0].size() * 16;
  const auto output = run(snippet, rows, rows[0].size());
  ASSERT_TRUE(output);
  for (std::size_t row = 0; row < rows[0].size(); ++row) {
    Wide s[3];
    for (std::size_t i = 0; i < 3; ++i) s[i] = number(type, rows[i][row]);
    const std::uint64_t old = low_bits(type.bits, s[0]);
    const std::uint64_t updated = low_bits(type.bits, atomic.updated(s[0], s[1], s[2]));
    if (atomic.type == "f32") {  // subnormals may count as zeros
      const auto is_subnormal = [](Wide value) { return std::fpclassify(as_f32(value)) == FP_SUBNORMAL; };
      if (is_subnormal(s[0]) || is_subnormal(s[1]) || is_subnormal(updated)) continue;
    }
    const std::uint64_t expected[] = {old, updated, old, updated, updated, row % 2 == 0 ? updated : old};
    for (std::size_t i = 0; i < 6; ++i) {
      ASSERT_TRUE(same(type, output->results[i][row], expected[i]))
          << space << name << ", %d" << i << ": " << hex(old) << " with " << hex(low_bits(type.bits, s[1]))
          << " gives " << hex(output->results[i][row]) << ", expected " << hex(expected[i]) << "; seed "
          << kSeed << "\n"
          << snippet.body;
    }
  }
}

TEST(AtomicInstructions, EveryOperationTypeAndSpace) {
  const std::vector<std::pair<std::string, std::string>> places = {
      {".global", kGlobalAddress},
      {".shared", kSharedAddress},
      {" generic, global: ", kGlobalAddress},
      {" generic, shared: ", kSharedAddress + "  cvta.shared.u64 %p, %p;\n"}};
  for (const Atomic& atomic : atomics())
    for (const auto& [space, address] : places) check_atomic(atomic, "", space, address);
}

TEST(AtomicInstructions, OrdersAndScopes) {
  for (const Atomic& atomic : atomics()) {
    for (const std::string scope : {".cta", ".gpu", ".sys"}) {
      check_atomic(atomic, ".relaxed" + scope, ".global", kGlobalAddress);
      if (atomic.operation != "add") continue;
      check_atomic(atomic, scope, ".global", kGlobalAddress);
      check_atomic(atomic, ".release" + scope, ".shared", kSharedAddress);
      if (atomic.type == "u64") {
        check_atomic({"cas", "b64", [](Wide old, Wide b, Wide c) { return old == b ? c : old; }, false},
                     ".acq_rel" + scope, ".global", kGlobalAddress);
        check_atomic({"exch", "b32", [](Wide, Wide b, Wide) { return b; }, false}, ".acquire" + scope,
                     ".global", kGlobalAddress);
      }
    }
  }
}

template <class T>
T at(const std::vector<std::uint8_t>& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, &bytes[offset], sizeof value);
  return value;
}

/// A loop of compare and swap that adds %amount.
std::string cas_loop(const std::string& bits, const std::string& place, const std::string& amount,
                     const std::string& label) {
  const std::string type = ".b" + bits, old = "%old" + bits, wanted = "%wanted" + bits,
                    found = "%found" + bits;
  return "  .reg " + type + " " + old + ", " + wanted + ", " + found + ";\n  ld.global" + type + " " + old +
         ", [" + place + "];\n" + label + ":\n  add.u" + bits + " " + wanted + ", " + old + ", " + amount +
         ";\n  atom.global.cas" + type + " " + found + ", [" + place + "], " + old + ", " + wanted +
         ";\n  setp.ne.b" + bits + " %guard, " + found + ", " + old + ";\n  mov.b" + bits + " " + old + ", " +
         found + ";\n  @%guard bra " + label + ";\n";
}

TEST(AtomicInstructions, ManyLanesBlocksAndThreadsOnOneAddress) {
  constexpr std::uint32_t kLanes = 16'384;
  for (const int threads : {1, 4}) {
    Snippet snippet{{}, {"b32", "b32", "b32"}, ""};
    snippet.body =
        "  .reg .b64 %wide;\n  .reg .b32 %one, %negative;\n  cvt.u64.u32 %wide, %i;\n  and.b32 %bit, %i, "
        "31;\n"
        "  mov.u32 %one, 1;\n  shl.b32 %one, %one, %bit;\n  neg.s32 %negative, %i;\n"
        "  atom.global.add.u32 %d0, [%x], 1;\n  red.global.add.u64 [%x+8], %wide;\n  red.global.max.u32 "
        "[%x+16], %i;\n"
        "  red.global.min.s32 [%x+20], %negative;\n  red.global.or.b32 [%x+24], %one;\n  red.global.xor.b32 "
        "[%x+28], %i;\n"
        "  atom.global.inc.u32 %d1, [%x+32], 999;\n  red.global.dec.u32 [%x+36], 999;\n  add.u32 %bit, %i, "
        "1;\n"
        "  atom.global.exch.b32 %d2, [%x+40], %bit;\n  red.global.add.f32 [%x+60], 0f3F800000;\n"
        "  red.global.add.f64 [%x+64], 0d3FE0000000000000;\n" +
        cas_loop("64", "%x+48", "%wide", "$again") + cas_loop("16", "%x+56", "3", "$once_more");
    snippet.extra_bytes = 72;
    snippet.options = {.seed = 5, .num_threads = threads};
    const auto output = run(snippet, {}, kLanes);
    ASSERT_TRUE(output);
    const std::vector<std::uint8_t>& memory = output->extra;
    const std::uint64_t sum = std::uint64_t{kLanes} * (kLanes - 1) / 2;
    EXPECT_EQ(at<std::uint32_t>(memory, 0), kLanes);
    EXPECT_EQ(at<std::uint64_t>(memory, 8), sum);
    EXPECT_EQ(at<std::uint32_t>(memory, 16), kLanes - 1);
    EXPECT_EQ(at<std::int32_t>(memory, 20), 1 - static_cast<std::int32_t>(kLanes));
    EXPECT_EQ(at<std::uint32_t>(memory, 24), 0xFFFFFFFFu);
    EXPECT_EQ(at<std::uint32_t>(memory, 28), 0u);
    EXPECT_EQ(at<std::uint32_t>(memory, 32), kLanes % 1000);
    EXPECT_EQ(at<std::uint32_t>(memory, 36), (1000 - kLanes % 1000) % 1000);
    EXPECT_EQ(at<std::uint64_t>(memory, 48), sum);
    EXPECT_EQ(at<std::uint16_t>(memory, 56), 3 * kLanes);
    EXPECT_EQ(at<float>(memory, 60), static_cast<float>(kLanes));
    EXPECT_EQ(at<double>(memory, 64), kLanes * 0.5);

    Values order(kLanes);
    std::iota(order.begin(), order.end(), 0);
    Values drawn = output->results[0];
    std::sort(drawn.begin(), drawn.end());
    EXPECT_EQ(drawn, order);
    for (std::uint64_t& value : order) value %= 1000;
    std::sort(order.begin(), order.end());
    Values wrapped = output->results[1];
    std::sort(wrapped.begin(), wrapped.end());
    EXPECT_EQ(wrapped, order);
    // What was exchanged out, and what is left, is each lane's value once and the 0 of the beginning.
    Values passed_on = output->results[2];
    passed_on.push_back(at<std::uint32_t>(memory, 40));
    std::sort(passed_on.begin(), passed_on.end());
    for (std::size_t i = 0; i <= kLanes; ++i) ASSERT_EQ(passed_on[i], i);
  }
}

TEST(AtomicInstructions, LanesOfABlockOnOneSharedAddress) {
  Snippet snippet{{}, {"b32", "b64"}, ""};
  snippet.body =
      "  .shared .b64 sum;\n  .shared .b32 lanes;\n  .reg .b64 %wide;\n  setp.eq.u32 %guard, %t, 0;\n"
      "  @%guard st.shared.u32 [lanes], 0;\n  @%guard st.shared.u64 [sum], 0;\n  bar.sync 0;\n  cvt.u64.u32 "
      "%wide, %i;\n"
      "  red.shared.add.u32 [lanes], 1;\n  atom.shared.add.u64 %wide, [sum], %wide;\n  bar.sync 0;\n"
      "  ld.shared.u32 %d0, [lanes];\n  ld.shared.u64 %d1, [sum];\n";
  snippet.options = {.seed = 9, .num_threads = 3, .check_races = true};
  const auto output = run(snippet, {}, 4096);
  ASSERT_TRUE(output);
  for (std::size_t i = 0; i < 4096; ++i) {
    const std::uint64_t first = i / 256 * 256;
    ASSERT_EQ(output->results[0][i], 256u);
    ASSERT_EQ(output->results[1][i], 256 * first + 255 * 128);
  }
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
