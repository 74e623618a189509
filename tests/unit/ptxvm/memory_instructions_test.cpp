#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

/// How to get at 32 bytes of one's own.
struct Place {
  std::string name;
  std::string suffix;   ///< of ld and st: ".shared", "" for generic addresses
  std::string address;  ///< instructions that leave the address in %p
  std::string module_scope = "";
};

const std::string kSharedAddress =
    "  .shared .align 16 .b8 tile[8192];\n  mov.u64 %p, tile;\n  mul.wide.u32 %q, %t, 32;\n  add.s64 %p, %p, "
    "%q;\n";
const std::string kLocalAddress =
    "  .local .align 16 .b8 stack[64];\n  mov.u64 %p, stack;\n  add.s64 %p, %p, 16;\n";
const std::string kGlobalAddress = "  mul.wide.u32 %q, %i, 32;\n  add.s64 %p, %x, %q;\n";

const std::vector<Place> kPlaces = {
    {"global", ".global", kGlobalAddress},
    {"shared", ".shared", kSharedAddress},
    {"shared, 32-bit address", ".shared",
     "  .shared .align 16 .b8 tile[8192];\n  .reg .b32 %p;\n  mov.u32 %p, tile;\n  shl.b32 %bit, %t, 5;\n"
     "  add.s32 %p, %p, %bit;\n"},
    {"shared of the module", ".shared",
     "  mov.u64 %p, tile;\n  mul.wide.u32 %q, %t, 32;\n  add.s64 %p, %p, %q;\n",
     ".shared .align 16 .b8 tile[8192];\n"},
    {"local", ".local", kLocalAddress},
    {"generic, global", "", kGlobalAddress},
    {"generic, shared", "", kSharedAddress + "  cvta.shared.u64 %p, %p;\n"},
    {"generic, local", "", kLocalAddress + "  cvta.local.u64 %p, %p;\n"},
    {"global again", ".global", kGlobalAddress + "  cvta.global.u64 %p, %p;\n  cvta.to.global.u64 %p, %p;\n"},
    {"shared again", ".shared", kSharedAddress + "  cvta.shared.u64 %p, %p;\n  cvta.to.shared.u64 %p, %p;\n"},
    {"local again", ".local", kLocalAddress + "  cvta.local.u64 %p, %p;\n  cvta.to.local.u64 %p, %p;\n"}};

/// A body around lines that use %p; all in a scope of its own.
std::string at(const Place& place, const std::string& lines) {
  const bool has_own = place.address.find(".reg .b32 %p;") != std::string::npos;
  return "  {\n  .reg .b64 %q" + std::string(has_own ? "" : ", %p") + ";\n" + place.address + lines + "  }\n";
}

const std::vector<std::string> kTypes = {"b8",  "u8",  "s8",  "b16", "u16", "s16", "b32",
                                         "u32", "s32", "f32", "b64", "u64", "s64", "f64"};

/// Bytes of a type go to memory from every register that is wide enough, and come back extended.
TEST(MemoryInstructions, LoadsAndStoresOfEveryTypeAndSpace) {
  constexpr std::uint64_t kBefore = 0x8877'6655'4433'2211;
  constexpr std::size_t kRows = 600;
  Random random(kSeed);
  const std::vector<Values> rows = {random_values("b64", kRows, random)};
  for (const Place& place : kPlaces) {
    Snippet snippet{{"b64"}, {}, "", place.module_scope};
    snippet.extra_bytes = kRows * 32;
    std::string lines =
        "  .reg .b16 %a16;\n  .reg .b32 %a32, %high;\n  mov.b64 {%a32, %high}, %a;\n  cvt.u16.u64 %a16, "
        "%a;\n";
    std::vector<std::uint64_t (*)(ValueType, std::uint64_t)> expected;
    std::vector<ValueType> types;
    for (const std::string& type : kTypes) {
      const ValueType value = value_type(type);
      for (const int width : {16, 32, 64}) {
        if (width < value.bits || (value.kind == 'f' && width != value.bits)) continue;
        const std::string source = width == 64 ? "%a" : "%a" + std::to_string(width);
        const std::size_t next = snippet.results.size();
        lines += "  st" + place.suffix + ".u64 [%p+8], " +
                 std::to_string(static_cast<std::int64_t>(kBefore)) + ";\n  st" + place.suffix + "." + type +
                 " [%p+8], " + source + ";\n  ld" + place.suffix + "." + type + " %d" + std::to_string(next) +
                 ", [%p+8];\n  ld" + place.suffix + ".b64 %d" + std::to_string(next + 1) + ", [%p+8];\n";
        snippet.results.push_back("b" + std::to_string(width));
        snippet.results.push_back("b64");
        types.insert(types.end(), 2, value);
      }
    }
    snippet.body = at(place, lines);
    const auto output = run(snippet, rows, kRows);
    ASSERT_TRUE(output) << place.name;
    for (std::size_t i = 0; i < types.size(); i += 2) {
      const ValueType width = value_type(snippet.results[i]);
      for (std::size_t row = 0; row < kRows; ++row) {
        const std::uint64_t stored = low_bits(types[i].bits, static_cast<Wide>(rows[0][row]));
        ASSERT_EQ(hex(output->results[i][row]), hex(low_bits(width.bits, number(types[i], rows[0][row]))))
            << place.name << ": " << types[i].kind << types[i].bits << " into " << width.bits << " bits";
        ASSERT_EQ(hex(output->results[i + 1][row]), hex((kBefore & ~low_bits(types[i].bits, -1)) | stored))
            << place.name << ": " << types[i].kind << types[i].bits << " from " << width.bits << " bits";
      }
    }
  }
}

TEST(MemoryInstructions, Vectors) {
  struct Row {
    std::string type;
    int count;
  };
  const std::vector<Row> table = {{"b8", 2},  {"u8", 4},  {"s8", 4},  {"b16", 2}, {"u16", 4},
                                  {"s16", 2}, {"b32", 2}, {"u32", 4}, {"s32", 4}, {"f32", 2},
                                  {"f32", 4}, {"b64", 2}, {"u64", 2}, {"f64", 2}};
  constexpr std::size_t kRows = 300;
  Random random(kSeed);
  for (const Place& place : kPlaces) {
    for (const Row& row : table) {
      const ValueType type = value_type(row.type);
      const std::string width = "b" + std::to_string(std::max(type.bits, 16));
      const std::vector<std::string> names = {"%a", "%b", "%c", "%e"};
      std::string sources, results;
      std::vector<Values> rows;
      for (int i = 0; i < row.count; ++i) {
        sources += (i == 0 ? "" : ", ") + names[static_cast<std::size_t>(i)];
        results += (i == 0 ? "%d" : ", %d") + std::to_string(i);
        rows.push_back(random_values(width, kRows, random));
      }
      const std::string vector = ".v" + std::to_string(row.count) + "." + row.type;
      Snippet snippet{std::vector<std::string>(rows.size(), width),
                      std::vector<std::string>(rows.size(), width), "", place.module_scope};
      snippet.extra_bytes = kRows * 32;
      snippet.body = at(place, "  st" + place.suffix + vector + " [%p], {" + sources + "};\n  ld" +
                                   place.suffix + vector + " {" + results + "}, [%p];\n");
      const auto output = run(snippet, rows, kRows);
      ASSERT_TRUE(output) << place.name;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t element = 0; element < kRows; ++element) {
          ASSERT_EQ(hex(output->results[i][element]),
                    hex(low_bits(std::max(type.bits, 16), number(type, rows[i][element]))))
              << place.name << ": " << vector << ", part " << i;
          if (place.name != "global") continue;
          std::uint64_t stored = 0;
          const std::size_t bytes = static_cast<std::size_t>(type.bits) / 8;
          std::memcpy(&stored, &output->extra[element * 32 + i * bytes], bytes);
          ASSERT_EQ(stored, low_bits(type.bits, static_cast<Wide>(rows[i][element])))
              << vector << ", part " << i;
        }
      }
    }
  }
}

/// The parts of a vector may go to the register that holds the address, and nowhere.
TEST(MemoryInstructions, VectorsOverwriteTheirAddress) {
  const auto output =
      run({{},
           {"b64", "b64", "b32"},
           "  .reg .b64 %p;\n  st.global.v2.u64 [%x], {5, 6};\n  st.global.v4.u32 [%x+16], {1, 2, 3, 4};\n"
           "  mov.u64 %p, %x;\n  ld.global.v2.u64 {%p, %d0}, [%p];\n  mov.u64 %d1, %p;\n"
           "  ld.global.v4.u32 {_, _, %d2, _}, [%x+16];\n",
           "",
           256,
           {},
           32},
          {}, 1);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->results[0][0], 6u);
  EXPECT_EQ(output->results[1][0], 5u);
  EXPECT_EQ(output->results[2][0], 3u);
}

/// Where caches and orders are named, the value is the same.
TEST(MemoryInstructions, CacheOperatorsAndOrders) {
  const std::vector<std::string> loads = {"ld.global.ca",
                                          "ld.global.cg",
                                          "ld.global.cs",
                                          "ld.global.lu",
                                          "ld.global.cv",
                                          "ld.global.nc",
                                          "ld.ca",
                                          "ld.cg",
                                          "ld.global.L1::evict_normal",
                                          "ld.global.L1::evict_unchanged",
                                          "ld.global.L1::evict_first",
                                          "ld.global.L1::evict_last",
                                          "ld.global.L1::no_allocate",
                                          "ld.global.nc.L1::no_allocate",
                                          "ld.global.L2::64B",
                                          "ld.global.L2::128B",
                                          "ld.global.L2::256B",
                                          "ld.global.nc.L1::no_allocate.L2::128B",
                                          "ld.global.nc.cg",
                                          "ld.volatile.global",
                                          "ld.volatile",
                                          "ld.weak.global",
                                          "ld.weak",
                                          "ld.relaxed.cta.global",
                                          "ld.relaxed.gpu.global",
                                          "ld.relaxed.sys.global",
                                          "ld.relaxed.gpu",
                                          "ld.acquire.cta.global",
                                          "ld.acquire.gpu.global",
                                          "ld.acquire.sys.global",
                                          "ld.acquire.sys",
                                          "ld.relaxed.cluster.global",
                                          "ldu.global",
                                          "ldu"};
  const std::vector<std::string> stores = {"st.global.wb",
                                           "st.global.cg",
                                           "st.global.cs",
                                           "st.global.wt",
                                           "st.wb",
                                           "st.global.L1::no_allocate",
                                           "st.global.L1::evict_first",
                                           "st.global.L1::evict_last",
                                           "st.volatile.global",
                                           "st.volatile",
                                           "st.weak.global",
                                           "st.weak",
                                           "st.relaxed.cta.global",
                                           "st.relaxed.gpu.global",
                                           "st.relaxed.sys.global",
                                           "st.relaxed.gpu",
                                           "st.release.cta.global",
                                           "st.release.gpu.global",
                                           "st.release.sys.global",
                                           "st.release.sys"};
  for (const std::string type : {"u32", "s32", "b64", "f32"}) {
    const bool is_wide = type == "b64";
    Snippet snippet{{is_wide ? "b64" : "b32"}, {}, ""};
    const std::string pointer = "  .reg .b64 %p;\n  mul.wide.u32 %p, %i, 8;\n  add.s64 %p, %p, %x;\n";
    snippet.body = pointer + "  st.global." + type + " [%p], %a;\n";
    for (const std::string& load : loads) {
      snippet.body += "  " + load + "." + type + " %d" + std::to_string(snippet.results.size()) + ", [%p];\n";
      snippet.results.push_back(snippet.sources[0]);
    }
    for (const std::string& store : stores) {
      snippet.body += "  st.global.u64 [%p], 0;\n  " + store + "." + type + " [%p], %a;\n  ld.global." +
                      type + " %d" + std::to_string(snippet.results.size()) + ", [%p];\n";
      snippet.results.push_back(snippet.sources[0]);
    }
    constexpr std::size_t kRows = 40;
    snippet.extra_bytes = kRows * 8;
    Random random(kSeed);
    const std::vector<Values> rows = {random_values(snippet.sources[0], kRows, random)};
    const auto output = run(snippet, rows, kRows);
    ASSERT_TRUE(output);
    for (std::size_t i = 0; i < snippet.results.size(); ++i) {
      for (std::size_t row = 0; row < kRows; ++row) {
        ASSERT_EQ(output->results[i][row], low_bits(is_wide ? 64 : 32, static_cast<Wide>(rows[0][row])))
            << (i < loads.size() ? loads[i] : stores[i - loads.size()]) << "." << type;
      }
    }
  }
}

TEST(MemoryInstructions, VectorsWithCacheOperatorsAndOrders) {
  const auto output = run(
      {{},
       {"b32", "b32", "b32", "b64", "b32", "f32"},
       "  .shared .align 16 .b8 tile[32];\n  .reg .b32 %r<4>;\n  .reg .b64 %l<2>;\n  .reg .f32 %f<4>;\n"
       "  st.global.cs.v4.u32 [%x], {1, 2, 3, 4};\n  ld.global.nc.v4.u32 {%r0, %r1, %r2, %d0}, [%x];\n"
       "  ld.global.nc.L1::no_allocate.v2.s32 {%d1, %r0}, [%x+8];\n  st.volatile.global.v2.u32 [%x+16], {5, "
       "6};\n"
       "  ld.volatile.global.v2.u32 {%r0, %d2}, [%x+16];\n  st.relaxed.gpu.global.v2.b64 [%x+16], {7, 8};\n"
       "  ld.relaxed.gpu.global.v2.b64 {%l0, %d3}, [%x+16];\n  st.volatile.shared.v2.u32 [tile+8], {9, 10};\n"
       "  ld.volatile.shared.v2.u32 {%r0, %d4}, [tile+8];\n  ld.global.ca.v4.f32 {%f0, %d5, %f2, %f3}, "
       "[%x];\n",
       "",
       256,
       {},
       32},
      {}, 1);
  ASSERT_TRUE(output);
  const std::uint64_t expected[] = {4, 3, 6, 8, 10, 2};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(output->results[i][0], expected[i]) << i;
}

TEST(MemoryInstructions, SharedAndLocalOrders) {
  const auto output =
      run({{"b32"},
           {"b32", "b32", "b32", "b32", "b32"},
           "  .shared .b32 cell[256];\n  .local .b32 spot[2];\n  .reg .b32 %p;\n  mov.u32 %p, cell;\n"
           "  shl.b32 %bit, %t, 2;\n  add.s32 %p, %p, %bit;\n  st.volatile.shared.u32 [%p], %a;\n"
           "  ld.volatile.shared.u32 %d0, [%p];\n  st.relaxed.cta.shared.u32 [%p], %d0;\n"
           "  ld.relaxed.cta.shared.u32 %d1, [%p];\n  st.release.cta.shared.u32 [%p], %d1;\n"
           "  ld.acquire.cta.shared.u32 %d2, [%p];\n  st.local.cg.u32 [spot+4], %d2;\n"
           "  ld.local.cg.u32 %d3, [spot+4];\n  st.shared::cta.u32 [%p], %d3;\n  ld.shared::cta.u32 %d4, "
           "[%p];\n"},
          {{7, 8, 9}}, 3);
  ASSERT_TRUE(output);
  for (const Values& column : output->results) EXPECT_EQ(column, (Values{7, 8, 9}));
}

TEST(MemoryInstructions, AddressesOfVariables) {
  const std::string scope =
      ".global .align 8 .b32 table[8] = {10, 11, 12, 13, -14, 0x0F, 16};\n"
      ".const .align 4 .b8 small[12] = {1, 2, 3, 4, 255, 255, 255, 255, 9};\n"
      ".global .u64 pointer = generic(table)+8;\n.global .align 8 .u64 pointers[2] = {table, table+16};\n"
      ".global .f32 one = 0f3F800000;\n.global .f64 halves[2] = {0d3FE0000000000000, 1.5};\n.global .s16 "
      "negative = -2;\n"
      ".visible .global .align 4 .u32 zero;\n.shared .align 8 .b8 tile[64];\n";
  const auto output = run(
      {{},
       {"b32", "b32", "b32", "b32", "b32", "b32", "b64", "b32", "b32", "b64", "f32", "f64", "b32", "b32",
        "b32", "b32", "b32"},
       "  .reg .b64 %p, %q;\n  .reg .b32 %s;\n"
       "  ld.global.u32 %d0, [table];\n  ld.global.u32 %d1, [table+16];\n"
       "  mov.u64 %p, table;\n  ld.global.u32 %d2, [%p+24];\n  add.s64 %p, %p, 28;\n  ld.global.u32 %d3, "
       "[%p+-16];\n"
       "  mov.u64 %p, small;\n  ld.const.s8 %d4, [%p+5];\n  ld.const.u32 %d5, [small+4];\n"
       "  ld.const.b64 %d6, [small];\n"
       "  ld.global.u64 %q, [pointer];\n  ld.u32 %d7, [%q+4];\n"
       "  ld.global.u64 %q, [pointers+8];\n  ld.global.s32 %d8, [%q];\n"
       "  mov.u64 %p, table;\n  ld.global.u64 %q, [pointers];\n  sub.s64 %d9, %q, %p;\n"
       "  ld.global.f32 %d10, [one];\n  ld.global.f64 %d11, [halves+8];\n  ld.global.s16 %d12, [negative];\n"
       "  st.shared.u32 [tile+60], 77;\n  mov.u32 %s, tile;\n  ld.shared.u32 %d13, [%s+60];\n"
       "  mov.u64 %p, tile;\n  cvta.shared.u64 %p, %p;\n  ld.u32 %d14, [%p+60];\n"
       "  mov.u64 %p, small;\n  cvta.const.u64 %p, %p;\n  ld.u32 %d15, [%p];\n  cvta.to.const.u64 %p, %p;\n"
       "  ld.const.u8 %d16, [%p+8];\n",
       scope},
      {}, 1);
  ASSERT_TRUE(output);
  const auto got = [&output](std::size_t i) { return output->results[i][0]; };
  EXPECT_EQ(got(0), 10u);
  EXPECT_EQ(got(1), 0xFFFFFFF2u);
  EXPECT_EQ(got(2), 16u);
  EXPECT_EQ(got(3), 13u);
  EXPECT_EQ(got(4), 0xFFFFFFFFu);
  EXPECT_EQ(got(5), 0xFFFFFFFFu);
  EXPECT_EQ(got(6), 0xFFFFFFFF04030201u);
  EXPECT_EQ(got(7), 13u);
  EXPECT_EQ(got(8), 0xFFFFFFF2u);
  EXPECT_EQ(got(9), 0u);
  EXPECT_EQ(as_f32(got(10)), 1.0F);
  EXPECT_EQ(as_f64(got(11)), 1.5);
  EXPECT_EQ(got(12), 0xFFFFFFFEu);
  EXPECT_EQ(got(13), 77u);
  EXPECT_EQ(got(14), 77u);
  EXPECT_EQ(got(15), 0x04030201u);
  EXPECT_EQ(got(16), 9u);
}

TEST(MemoryInstructions, Isspacep) {
  const std::string scope = ".const .align 4 .b32 fixed[1] = {1};\n";
  const std::vector<std::string> spaces = {"global", "shared", "local", "const"};
  Snippet snippet{{}, std::vector<std::string>(16, "pred"), "", scope};
  snippet.extra_bytes = 32;
  snippet.body =
      "  .shared .b32 cell;\n  .local .b32 spot;\n  .reg .b64 %p0, %p1, %p2, %p3;\n  mov.u64 %p0, %x;\n"
      "  mov.u64 %p1, cell;\n  cvta.shared.u64 %p1, %p1;\n  mov.u64 %p2, spot;\n  cvta.local.u64 %p2, %p2;\n"
      "  mov.u64 %p3, fixed;\n  cvta.const.u64 %p3, %p3;\n";
  for (std::size_t i = 0; i < 16; ++i) {
    snippet.body +=
        "  isspacep." + spaces[i % 4] + " %d" + std::to_string(i) + ", %p" + std::to_string(i / 4) + ";\n";
  }
  const auto output = run(snippet, {}, 1);
  ASSERT_TRUE(output);
  for (std::size_t i = 0; i < 16; ++i) {
    const bool is_global_constant = i == 12;  // constants lie in global memory here
    EXPECT_EQ(output->results[i][0], i % 4 == i / 4 || is_global_constant)
        << spaces[i / 4] << " asked for " << spaces[i % 4];
  }
}

TEST(MemoryInstructions, PrefetchDoesNothing) {
  const auto output =
      run({{},
           {"b32"},
           "  st.global.u32 [%x], 7;\n  prefetch.global.L1 [%x];\n  prefetch.global.L2 [%x+4];\n"
           "  prefetch.L1 [%x];\n  prefetch.L2 [%x];\n  prefetchu.L1 [%x];\n"
           "  prefetch.global.L2::evict_last [%x];\n  prefetch.global.L2::evict_normal [%x];\n"
           "  ld.global.u32 %d0, [%x];\n",
           "",
           256,
           {},
           8},
          {}, 1);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->results[0][0], 7u);
}

TEST(MemoryInstructions, GuardedAccessesDoNotHappen) {
  const auto output = run({{},
                           {"b32"},
                           "  .reg .b64 %p;\n  mov.u64 %p, 0;\n  setp.eq.u32 %guard, %i, 1;\n  mov.u32 %d0, "
                           "5;\n  @%guard ld.global.u32 %d0, [%p];\n"
                           "  @!%guard st.global.u32 [%x], 3;\n  @%guard st.global.u32 [%p], 4;\n"
                           "  @%guard atom.global.add.u32 %d0, [%p], 4;\n",
                           "",
                           256,
                           {},
                           8},
                          {}, 1);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->results[0][0], 5u);
  EXPECT_EQ(output->extra[0], 3);
}

/// A kernel's parameters as bytes: by value, as structures, by address.
TEST(MemoryInstructions, KernelParameters) {
  const std::string text =
      ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(\n  .param .u8 first,\n"
      "  .param .align 8 .b8 structure[24],\n  .param .f32 third,\n  .param .u64 .ptr .global .align 8 "
      "out\n)\n{\n"
      "  .reg .b32 %r<10>;\n  .reg .b16 %h<4>;\n  .reg .f32 %f<2>;\n  .reg .b64 %o, %p;\n"
      "  ld.param.u64 %o, [out];\n  cvta.to.global.u64 %o, %o;\n  ld.param.u8 %h1, [first];\n  ld.param.s8 "
      "%r1, [first];\n"
      "  ld.param.u32 %r2, [structure+4];\n  ld.param.v2.u32 {%r3, %r4}, [structure+8];\n  mov.b64 %p, "
      "structure;\n"
      "  ld.param.s16 %r5, [%p+16];\n  ld.param.f32 %f1, [third];\n  st.global.u16 [%o], %h1;\n  "
      "st.global.u32 [%o+4], %r1;\n"
      "  st.global.u32 [%o+8], %r2;\n  st.global.u32 [%o+12], %r3;\n  st.global.u32 [%o+16], %r4;\n"
      "  st.global.u32 [%o+20], %r5;\n  st.global.f32 [%o+24], %f1;\n  ret;\n}\n";
  Memory memory;
  const auto module = LoadedModule::load(text, memory);
  ASSERT_TRUE(module) << module.error().message;
  const KernelInfo* info = (*module)->find_kernel("k");
  ASSERT_NE(info, nullptr);
  ASSERT_EQ(info->parameters.size(), 4u);
  const std::uint32_t offsets[] = {0, 8, 32, 40}, sizes[] = {1, 24, 4, 8};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(info->parameters[i].offset_bytes, offsets[i]);
    EXPECT_EQ(info->parameters[i].size_bytes, sizes[i]);
  }
  ASSERT_EQ(info->parameter_bytes, 48u);
  const std::uint64_t out = memory.allocate(28);
  std::vector<std::uint8_t> parameters(48);
  parameters[0] = 0xFE;
  for (std::size_t i = 0; i < 24; ++i) parameters[8 + i] = static_cast<std::uint8_t>(0x80 + i);
  const float third = 2.5F;
  std::memcpy(&parameters[32], &third, 4);
  std::memcpy(&parameters[40], &out, 8);
  const auto report = launch(**module, "k", {{1}, {1}}, std::span<const std::uint8_t>(parameters), memory);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_FALSE(report->fault) << report->fault->message;
  std::uint32_t got[7];
  ASSERT_TRUE(memory.read(out, {reinterpret_cast<std::uint8_t*>(got), sizeof got}));
  EXPECT_EQ(got[0], 0xFEu);
  EXPECT_EQ(hex(got[1]), "0xfffffffe");
  EXPECT_EQ(hex(got[2]), "0x87868584");
  EXPECT_EQ(hex(got[3]), "0x8b8a8988");
  EXPECT_EQ(hex(got[4]), "0x8f8e8d8c");
  EXPECT_EQ(hex(got[5]), "0xffff9190");
  EXPECT_EQ(as_f32(got[6]), 2.5F);
}

TEST(MemoryInstructions, ModuleVariablesAreThereForTheHost) {
  Memory memory;
  const auto module = LoadedModule::load(
      module_text(
          "  ld.global.u32 %bit, [table+4];\n  add.u32 %bit, %bit, 1;\n  st.global.u32 [table+4], %bit;\n",
          ".visible .global .align 4 .u32 table[3] = {1, 2};\n"),
      memory);
  ASSERT_TRUE(module) << module.error().message;
  const auto table = (*module)->find_variable("table");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->size_bytes, 12u);
  EXPECT_FALSE((*module)->find_variable("tab"));
  std::uint32_t values[3];
  const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(values), sizeof values);
  ASSERT_TRUE(memory.read(table->address, bytes));
  EXPECT_EQ(values[0], 1u);
  EXPECT_EQ(values[1], 2u);
  EXPECT_EQ(values[2], 0u);
  const std::uint64_t parameters[] = {0, 0, 0, 1};
  const auto report = launch(**module, "k", {{1}, {1}}, std::span<const std::uint64_t>(parameters), memory);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_FALSE(report->fault) << report->fault->message;
  ASSERT_TRUE(memory.read(table->address, bytes));
  EXPECT_EQ(values[1], 3u);
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
