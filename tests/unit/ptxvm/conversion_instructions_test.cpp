#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ptxvm/instruction_test.h"

namespace weightpress::ptxvm::instructions {
namespace {

const std::vector<std::string> kIntegers = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"};
const std::vector<std::string> kRoundings = {"rn", "rz", "rm", "rp"};

std::string register_of(const std::string& type) {
  return "b" + std::to_string(std::max(value_type(type).bits, 16));
}

Wide smallest(ValueType type) {
  return type.kind == 's' ? -(static_cast<Wide>(1) << (type.bits - 1)) : 0;
}
Wide largest(ValueType type) {
  return (static_cast<Wide>(1) << (type.bits - (type.kind == 's' ? 1 : 0))) - 1;
}

/// From registers that are as wide as their types or wider, which is allowed for cvt: the result is extended.
TEST(ConversionInstructions, IntegerToInteger) {
  for (const std::string& to : kIntegers) {
    for (const std::string& from : kIntegers) {
      const ValueType result = value_type(to), source = value_type(from);
      const auto cut = [=](const Wide* s) {
        return number(result, static_cast<std::uint64_t>(number(source, static_cast<std::uint64_t>(s[0]))));
      };
      const auto clamped = [=](const Wide* s) {
        return std::clamp(number(source, static_cast<std::uint64_t>(s[0])), smallest(result),
                          largest(result));
      };
      const std::string name = to + "." + from;
      check({"cvt." + name, register_of(to), {from}, cut});
      // .sat is for what can go out of range.
      const bool saturates = smallest(source) < smallest(result) || largest(source) > largest(result);
      if (saturates) check({"cvt.sat." + name, register_of(to), {from}, clamped});
      for (const std::string wide : {"b32", "b64"}) {
        if (value_type(wide).bits <= std::max(result.bits, source.bits)) continue;
        const std::vector<Values> rows = columns({wide}, kSeed, 200);
        check({"cvt." + name, wide, {register_of(from)}, cut, nullptr, false}, rows);
        check({"cvt." + name, register_of(to), {wide}, cut, nullptr, false}, rows);
        if (saturates) check({"cvt.sat." + name, wide, {wide}, clamped, nullptr, false}, rows);
      }
    }
  }
}

/// Whether a magnitude moves away from zero, given what is cut off as a part of one unit: below, at or above
/// one half.
bool rounds_up(const std::string& rounding, bool negative, bool odd, int half_compared, bool exact) {
  if (exact || rounding[1] == 'z') return false;
  if (rounding[1] == 'm') return negative;
  if (rounding[1] == 'p') return !negative;
  return half_compared > 0 || (half_compared == 0 && odd);
}

/// A magnitude without its low bits, rounded.
UnsignedWide shifted(UnsignedWide magnitude, int shift, const std::string& rounding, bool negative) {
  if (shift <= 0) return magnitude << -shift;
  if (shift > 126) return rounds_up(rounding, negative, false, -1, magnitude == 0) ? 1 : 0;
  const UnsignedWide kept = magnitude >> shift, rest = magnitude - (kept << shift);
  const UnsignedWide half = static_cast<UnsignedWide>(1) << (shift - 1);
  const int compared = rest < half ? -1 : rest > half ? 1 : 0;
  return kept + (rounds_up(rounding, negative, (kept & 1) != 0, compared, rest == 0) ? 1 : 0);
}

double to_float(Wide value, int digits, const std::string& rounding) {
  const bool negative = value < 0;
  const auto magnitude = static_cast<UnsignedWide>(negative ? -value : value);
  int bits = 0;
  while (bits < 128 && magnitude >> bits != 0) ++bits;
  const int shift = std::max(0, bits - digits);
  const auto kept = static_cast<std::uint64_t>(shifted(magnitude, shift, rounding, negative));
  const double result = std::ldexp(static_cast<double>(kept), shift);
  return negative ? -result : result;
}

TEST(ConversionInstructions, IntegerToFloat) {
  for (const std::string& from : kIntegers) {
    for (const std::string& rounding : kRoundings) {
      check({"cvt." + rounding + ".f32." + from, "f32", {from}, [rounding](const Wide* s) {
               return bits_of(static_cast<float>(to_float(s[0], 24, rounding)));
             }});
      check({"cvt." + rounding + ".f64." + from, "f64", {from}, [rounding](const Wide* s) {
               return bits_of(to_float(s[0], 53, rounding));
             }});
    }
  }
}

Wide to_integer(double value, ValueType type, const std::string& rounding) {
  if (std::isnan(value)) return 0;
  if (std::abs(value) > 0x1p70) return value < 0 ? smallest(type) : largest(type);
  int exponent = 0;
  const auto digits = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const bool negative = digits < 0;
  const UnsignedWide magnitude = static_cast<std::uint64_t>(negative ? -digits : digits);
  const auto rounded = static_cast<Wide>(shifted(magnitude, 53 - exponent, rounding, negative));
  return std::clamp(negative ? -rounded : rounded, smallest(type), largest(type));
}

float without_subnormals(Wide bits) {
  const float value = as_f32(bits);
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

TEST(ConversionInstructions, FloatToInteger) {
  for (const std::string& to : kIntegers) {
    const ValueType type = value_type(to);
    for (const std::string& rounding : kRoundings) {
      const std::string name = "cvt." + rounding + "i.";
      check({name + to + ".f32", register_of(to), {"f32"}, [=](const Wide* s) {
               return to_integer(static_cast<double>(as_f32(s[0])), type, rounding);
             }});
      check({name + "ftz." + to + ".f32", register_of(to), {"f32"}, [=](const Wide* s) {
               return to_integer(static_cast<double>(without_subnormals(s[0])), type, rounding);
             }});
      check({name + to + ".f64", register_of(to), {"f64"}, [=](const Wide* s) {
               return to_integer(as_f64(s[0]), type, rounding);
             }});
    }
    check({"cvt.rzi.sat." + to + ".f32", register_of(to), {"f32"}, [=](const Wide* s) {
             return to_integer(static_cast<double>(as_f32(s[0])), type, "rz");
           }});
  }
}

TEST(ConversionInstructions, FloatToIntegralFloat) {
  struct Row {
    std::string rounding;
    double (*function)(double);
  };
  const std::vector<Row> table = {{"rni", [](double x) { return std::nearbyint(x); }},
                                  {"rzi", [](double x) { return std::trunc(x); }},
                                  {"rmi", [](double x) { return std::floor(x); }},
                                  {"rpi", [](double x) { return std::ceil(x); }}};
  for (const Row& row : table) {
    const auto narrow = [&row](float value) {
      return static_cast<float>(row.function(static_cast<double>(value)));
    };
    check({"cvt." + row.rounding + ".f32.f32", "f32", {"f32"}, [=](const Wide* s) {
             return bits_of(narrow(as_f32(s[0])));
           }});
    check({"cvt." + row.rounding + ".ftz.f32.f32", "f32", {"f32"}, [=](const Wide* s) {
             return bits_of(narrow(without_subnormals(s[0])));
           }});
    check({"cvt." + row.rounding + ".f64.f64", "f64", {"f64"}, [&row](const Wide* s) {
             return bits_of(row.function(as_f64(s[0])));
           }});
  }
}

/// What .sat makes of -0 is open.
bool is_negative_zero(float value) {
  return value == 0 && std::signbit(value);
}
float saturated(float value) {
  return value > 0 ? std::min(value, 1.0F) : 0.0F;
}

TEST(ConversionInstructions, FloatToFloat) {
  check({"cvt.f64.f32", "f64", {"f32"}, [](const Wide* s) {
           return bits_of(static_cast<double>(as_f32(s[0])));
         }});
  check({"cvt.ftz.f64.f32", "f64", {"f32"}, [](const Wide* s) {
           return bits_of(static_cast<double>(without_subnormals(s[0])));
         }});
  check({"cvt.rn.f32.f64", "f32", {"f64"}, [](const Wide* s) {
           return bits_of(static_cast<float>(as_f64(s[0])));
         }});
  check({"cvt.rn.ftz.f32.f64",
         "f32",
         {"f64"},
         [](const Wide* s) { return bits_of(without_subnormals(bits_of(static_cast<float>(as_f64(s[0]))))); },
         [](const Wide* s) { return std::abs(static_cast<float>(as_f64(s[0]))) == 0x1p-126F; }});
  check({"cvt.rn.sat.f32.f64",
         "f32",
         {"f64"},
         [](const Wide* s) { return bits_of(saturated(static_cast<float>(as_f64(s[0])))); },
         [](const Wide* s) { return is_negative_zero(static_cast<float>(as_f64(s[0]))); }});
  const auto is_open = [](const Wide* s) { return is_negative_zero(without_subnormals(s[0])); };
  check({"cvt.sat.f32.f32",
         "f32",
         {"f32"},
         [](const Wide* s) { return bits_of(saturated(as_f32(s[0]))); },
         is_open});
  check({"cvt.ftz.f32.f32", "f32", {"f32"}, [](const Wide* s) { return bits_of(without_subnormals(s[0])); }});
  check({"cvt.ftz.sat.f32.f32",
         "f32",
         {"f32"},
         [](const Wide* s) { return bits_of(saturated(without_subnormals(s[0]))); },
         is_open});
}

}  // namespace
}  // namespace weightpress::ptxvm::instructions
