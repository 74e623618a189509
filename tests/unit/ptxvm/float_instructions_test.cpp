#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

using Function = std::function<Wide(const Wide*)>;

/// A float of either width as the double that it equals.
double value_of(const std::string& type, Wide bits) {
  return type == "f32" ? static_cast<double>(as_f32(bits)) : as_f64(bits);
}
bool sign_of(const std::string& type, Wide bits) {
  return (bits >> (type == "f32" ? 31 : 63) & 1) != 0;
}

Wide flushed(Wide bits) {
  return (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits;
}
Wide saturated(Wide bits) {
  const float value = as_f32(bits);
  return bits_of(value > 0 ? std::min(value, 1.0F) : 0.0F);  // NaN: 0
}

/// The same instruction with .ftz: subnormal sources and results are zeros of their sign.
Function with_ftz(const Function& exact, std::size_t num_sources) {
  return [exact, num_sources](const Wide* s) {
    Wide sources[4] = {};
    for (std::size_t i = 0; i < num_sources; ++i) sources[i] = flushed(s[i]);
    return flushed(exact(sources));
  };
}

/// Rows that the ISA leaves open: what .ftz makes of a result that rounding may have carried out of the
/// subnormal numbers, and which zero .sat makes of -0.
std::function<bool(const Wide*)> open_rows(const Function& function, bool saturates) {
  return [=](const Wide* s) {
    const Wide result = function(s) & 0xFFFFFFFF;
    return (result & 0x7FFFFFFF) == 0x00800000 || (saturates && result == 0x80000000);
  };
}

/// All of name, name.ftz, name.sat and name.ftz.sat.
void check_with_modifiers(const std::string& name, std::size_t num_sources, const Function& exact) {
  const std::vector<std::string> sources(num_sources, "f32");
  const Function ftz = with_ftz(exact, num_sources);
  check({name + ".f32", "f32", sources, exact});
  check({name + ".ftz.f32", "f32", sources, ftz, open_rows(ftz, false)});
  check({name + ".sat.f32", "f32", sources, [exact](const Wide* s) { return saturated(exact(s)); },
         open_rows(exact, true)});
  check({name + ".ftz.sat.f32", "f32", sources, [ftz](const Wide* s) { return saturated(ftz(s)); },
         open_rows(ftz, true)});
}

TEST(FloatInstructions, AddSubMul) {
  for (const std::string rounding : {"", ".rn"}) {
    check_with_modifiers("add" + rounding, 2,
                         [](const Wide* s) { return bits_of(as_f32(s[0]) + as_f32(s[1])); });
    check_with_modifiers("sub" + rounding, 2,
                         [](const Wide* s) { return bits_of(as_f32(s[0]) - as_f32(s[1])); });
    check_with_modifiers("mul" + rounding, 2,
                         [](const Wide* s) { return bits_of(as_f32(s[0]) * as_f32(s[1])); });
    check({"add" + rounding + ".f64", "f64", {"f64", "f64"}, [](const Wide* s) {
             return bits_of(as_f64(s[0]) + as_f64(s[1]));
           }});
    check({"sub" + rounding + ".f64", "f64", {"f64", "f64"}, [](const Wide* s) {
             return bits_of(as_f64(s[0]) - as_f64(s[1]));
           }});
    check({"mul" + rounding + ".f64", "f64", {"f64", "f64"}, [](const Wide* s) {
             return bits_of(as_f64(s[0]) * as_f64(s[1]));
           }});
  }
}

TEST(FloatInstructions, FmaAndMad) {
  for (const std::string name : {"fma.rn", "mad.rn"}) {
    check_with_modifiers(
        name, 3, [](const Wide* s) { return bits_of(std::fma(as_f32(s[0]), as_f32(s[1]), as_f32(s[2]))); });
    check({name + ".f64", "f64", {"f64", "f64", "f64"}, [](const Wide* s) {
             return bits_of(std::fma(as_f64(s[0]), as_f64(s[1]), as_f64(s[2])));
           }});
  }
}

TEST(FloatInstructions, DivRcpSqrt) {
  struct Row {
    std::string name;
    std::size_t num_sources;
    float (*narrow)(float a, float b);
    double (*wide)(double a, double b);
  };
  const std::vector<Row> table = {
      {"div.rn", 2, [](float a, float b) { return a / b; }, [](double a, double b) { return a / b; }},
      {"rcp.rn", 1, [](float a, float) { return 1 / a; }, [](double a, double) { return 1 / a; }},
      {"sqrt.rn", 1, [](float a, float) { return std::sqrt(a); },
       [](double a, double) { return std::sqrt(a); }}};
  for (const Row& row : table) {
    const Function narrow = [&row](const Wide* s) { return bits_of(row.narrow(as_f32(s[0]), as_f32(s[1]))); };
    const std::vector<std::string> sources(row.num_sources, "f32");
    const Function ftz = with_ftz(narrow, row.num_sources);
    check({row.name + ".f32", "f32", sources, narrow});
    check({row.name + ".ftz.f32", "f32", sources, ftz, open_rows(ftz, false)});
    check({row.name + ".f64", "f64", std::vector<std::string>(row.num_sources, "f64"),
           [&row](const Wide* s) { return bits_of(row.wide(as_f64(s[0]), as_f64(s[1]))); }});
  }
}

/// The one approximation that is taken, for nvcc divides 128-bit integers with it: the value nearest to the
/// truth.
TEST(FloatInstructions, RcpApprox) {
  const Function exact = [](const Wide* s) { return bits_of(1 / as_f32(s[0])); };
  const Function ftz = with_ftz(exact, 1);
  check({"rcp.approx.f32", "f32", {"f32"}, exact});
  check({"rcp.approx.ftz.f32", "f32", {"f32"}, ftz, open_rows(ftz, false)});
}

TEST(FloatInstructions, AbsNegCopysign) {
  for (const std::string type : {"f32", "f64"}) {
    const Wide sign = static_cast<Wide>(1) << (type == "f32" ? 31 : 63);
    check({"abs." + type, type, {type}, [=](const Wide* s) { return s[0] & ~sign; }});
    check({"neg." + type, type, {type}, [=](const Wide* s) { return s[0] ^ sign; }});
    // The first source gives the sign.
    check({"copysign." + type, type, {type, type}, [=](const Wide* s) {
             return (s[0] & sign) | (s[1] & ~sign);
           }});
  }
  check({"abs.ftz.f32", "f32", {"f32"}, [](const Wide* s) { return flushed(s[0]) & 0x7FFFFFFF; }});
  check({"neg.ftz.f32", "f32", {"f32"}, [](const Wide* s) { return flushed(s[0]) ^ 0x80000000; }});
}

/// Of a number and a NaN the number, and -0 is less than +0.
Wide lesser(const std::string& type, const Wide* s, bool greatest) {
  const double a = value_of(type, s[0]), b = value_of(type, s[1]);
  if (std::isnan(a)) return s[1];
  if (std::isnan(b)) return s[0];
  if (a == b) return sign_of(type, s[0]) != greatest ? s[0] : s[1];
  return (a < b) != greatest ? s[0] : s[1];
}

TEST(FloatInstructions, MinMax) {
  for (const bool greatest : {false, true}) {
    const std::string name = greatest ? "max" : "min";
    for (const std::string type : {"f32", "f64"})
      check(
          {name + "." + type, type, {type, type}, [=](const Wide* s) { return lesser(type, s, greatest); }});
    const Function narrow = [=](const Wide* s) { return lesser("f32", s, greatest); };
    const Function ftz = with_ftz(narrow, 2);
    const auto or_nan = [](const Function& function) -> Function {
      return [function](const Wide* s) -> Wide {
        if (std::isnan(as_f32(s[0])) || std::isnan(as_f32(s[1]))) return 0x7FFFFFFF;
        return function(s);
      };
    };
    check({name + ".ftz.f32", "f32", {"f32", "f32"}, ftz});
    check({name + ".NaN.f32", "f32", {"f32", "f32"}, or_nan(narrow)});
    check({name + ".ftz.NaN.f32", "f32", {"f32", "f32"}, or_nan(ftz)});
  }
}

TEST(FloatInstructions, Testp) {
  struct Row {
    std::string name;
    bool (*holds)(int category);
  };
  const std::vector<Row> table = {{"finite", [](int c) { return c != FP_NAN && c != FP_INFINITE; }},
                                  {"infinite", [](int c) { return c == FP_INFINITE; }},
                                  {"number", [](int c) { return c != FP_NAN; }},
                                  {"notanumber", [](int c) { return c == FP_NAN; }},
                                  {"normal", [](int c) { return c == FP_NORMAL; }},
                                  {"subnormal", [](int c) { return c == FP_SUBNORMAL; }}};
  for (const Row& row : table) {
    check({"testp." + row.name + ".f32", "pred", {"f32"}, [&row](const Wide* s) -> Wide {
             return row.holds(std::fpclassify(as_f32(s[0])));
           }});
    check({"testp." + row.name + ".f64", "pred", {"f64"}, [&row](const Wide* s) -> Wide {
             return row.holds(std::fpclassify(as_f64(s[0])));
           }});
  }
}

struct Comparison {
  std::string name;
  bool (*holds)(double a, double b);
};

bool unordered(double a, double b) {
  return std::isnan(a) || std::isnan(b);
}

const std::vector<Comparison> kComparisons = {
    {"eq", [](double a, double b) { return a == b; }},
    {"ne", [](double a, double b) { return a != b && !unordered(a, b); }},
    {"lt", [](double a, double b) { return a < b; }},
    {"le", [](double a, double b) { return a <= b; }},
    {"gt", [](double a, double b) { return a > b; }},
    {"ge", [](double a, double b) { return a >= b; }},
    {"equ", [](double a, double b) { return a == b || unordered(a, b); }},
    {"neu", [](double a, double b) { return a != b; }},
    {"ltu", [](double a, double b) { return !(a >= b); }},
    {"leu", [](double a, double b) { return !(a > b); }},
    {"gtu", [](double a, double b) { return !(a <= b); }},
    {"geu", [](double a, double b) { return !(a < b); }},
    {"num", [](double a, double b) { return !unordered(a, b); }},
    {"nan", [](double a, double b) { return unordered(a, b); }}};

TEST(FloatInstructions, SetpAndSet) {
  for (const Comparison& comparison : kComparisons) {
    for (const std::string type : {"f32", "f64"}) {
      const std::vector<Values> rows = columns({type, type}, kSeed, 500);
      const auto holds = [=](const Wide* s) {
        return comparison.holds(value_of(type, s[0]), value_of(type, s[1]));
      };
      check({"setp." + comparison.name + "." + type,
             "pred",
             {type, type},
             [=](const Wide* s) -> Wide { return holds(s); }},
            rows);
      check({"setp." + comparison.name + ".or." + type,
             "pred",
             {type, type, "pred"},
             [=](const Wide* s) -> Wide { return holds(s) || s[2] != 0; }},
            columns({type, type, "pred"}, kSeed, 100));
      for (const std::string result : {"u32", "s32", "f32"}) {
        const Wide all = result == "f32" ? bits_of(1.0F) : -1;
        check({"set." + comparison.name + "." + result + "." + type,
               result,
               {type, type},
               [=](const Wide* s) -> Wide { return holds(s) ? all : 0; }},
              rows);
      }
    }
    check({"setp." + comparison.name + ".ftz.f32", "pred", {"f32", "f32"}, [=](const Wide* s) -> Wide {
             return comparison.holds(value_of("f32", flushed(s[0])), value_of("f32", flushed(s[1])));
           }});
    check({"set." + comparison.name + ".ftz.s32.f32",
           "s32",
           {"f32", "f32"},
           [=](const Wide* s) -> Wide {
             return comparison.holds(value_of("f32", flushed(s[0])), value_of("f32", flushed(s[1]))) ? -1 : 0;
           }},
          columns({"f32", "f32"}, kSeed, 100));
  }
}

TEST(FloatInstructions, SetpGivesTheOppositeToo) {
  for (const std::string type : {"f32", "f64"}) {
    for (const Comparison& comparison : kComparisons) {
      const std::vector<Values> rows = columns({type, type}, kSeed, 100);
      const auto output = run(
          {{type, type}, {"pred", "pred"}, "  setp." + comparison.name + "." + type + " %d0|%d1, %a, %b;\n"},
          rows, rows[0].size());
      ASSERT_TRUE(output);
      for (std::size_t row = 0; row < rows[0].size(); ++row) {
        const Wide a = number({'b', 64}, rows[0][row]), b = number({'b', 64}, rows[1][row]);
        const bool holds = comparison.holds(value_of(type, a), value_of(type, b));
        ASSERT_EQ(output->results[0][row], holds)
            << comparison.name << " " << type << ", row " << row << ", seed " << kSeed;
        ASSERT_EQ(output->results[1][row], !holds)
            << comparison.name << " " << type << ", row " << row << ", seed " << kSeed;
      }
    }
  }
}

/// A branch right behind the comparison, which an interpreter may make one of.
TEST(FloatInstructions, SetpAndBranch) {
  for (const std::string type : {"f32", "f64"}) {
    const std::string constant = type == "f32" ? "0f3F800000" : "0d3FF0000000000000";
    for (const Comparison& comparison : kComparisons) {
      std::string body;
      for (const int form : {0, 1, 2, 3}) {
        const std::string d = "%d" + std::to_string(form), label = "$past" + std::to_string(form);
        body += "  mov.u32 " + d + ", 1;\n  setp." + comparison.name + "." + type + " %guard, %a, " +
                (form < 2 ? "%b" : constant) + ";\n  " + (form % 2 == 0 ? "@%guard" : "@!%guard") + " bra " +
                label + ";\n  mov.u32 " + d + ", 0;\n" + label + ":\n";
      }
      const std::vector<Values> rows = columns({type, type}, kSeed, 100);
      const auto output = run({{type, type}, std::vector<std::string>(4, "b32"), body}, rows, rows[0].size());
      ASSERT_TRUE(output);
      for (std::size_t row = 0; row < rows[0].size(); ++row) {
        const double a = value_of(type, number({'b', 64}, rows[0][row]));
        const bool holds = comparison.holds(a, value_of(type, number({'b', 64}, rows[1][row])));
        const bool expected[] = {holds, !holds, comparison.holds(a, 1.0), !comparison.holds(a, 1.0)};
        for (std::size_t i = 0; i < 4; ++i) {
          ASSERT_EQ(output->results[i][row], expected[i])
              << comparison.name << "." << type << ", %d" << i << ", row " << row << ", seed " << kSeed;
        }
      }
    }
  }
}

TEST(FloatInstructions, SlctFlushesItsThirdSource) {
  check({"slct.ftz.u32.f32", "u32", {"u32", "u32", "f32"}, [](const Wide* s) {
           return as_f32(flushed(s[2])) >= 0 ? s[0] : s[1];
         }});
}

/// Literals, which nvcc writes as hexadecimal bits and people as decimals.
TEST(FloatInstructions, Literals) {
  const auto output =
      run({{},
           {"f32", "f32", "f64", "f64", "f64", "f64"},
           "  mov.f32 %d0, 0f3FC00000;\n  mov.f32 %d1, 0F80000001;\n  mov.f64 %d2, 0d3FF8000000000000;\n"
           "  mov.f64 %d3, 1.5;\n  mov.f64 %d4, -2.5e-3;\n  mov.f64 %d5, 0D7FF0000000000000;\n"},
          {}, 1);
  ASSERT_TRUE(output);
  const std::vector<Values>& got = output->results;
  EXPECT_EQ(hex(got[0][0]), "0x3fc00000");
  EXPECT_EQ(hex(got[1][0]), "0x80000001");
  EXPECT_EQ(as_f64(got[2][0]), 1.5);
  EXPECT_EQ(as_f64(got[3][0]), 1.5);
  EXPECT_EQ(as_f64(got[4][0]), -2.5e-3);
  EXPECT_EQ(as_f64(got[5][0]), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
