// f32 and f64 as IEEE 754 and the PTX ISA have them. Only forms whose results are defined to the bit;
// rounding is to the nearest, but for conversions. Built without contraction of a * b + c.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ptxvm/lane_functions.h"
#include "ptxvm/lane_interpreter.h"

namespace weightpress::ptxvm {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <class F>
using BitsOf = std::conditional_t<sizeof(F) == 4, u32, u64>;

template <class F>
F flushed(F value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(F{0}, value) : value;
}

template <class F>
F operand(u64 slot, const MicroOp& op) {
  const F value = std::bit_cast<F>(static_cast<BitsOf<F>>(slot));
  return (op.bits & kFlushSubnormals) != 0 ? flushed(value) : value;
}

template <class F>
u64 result(F value, const MicroOp& op) {
  if ((op.bits & kFlushSubnormals) != 0) value = flushed(value);
  if ((op.bits & kSaturate) != 0) value = value > F{0} ? std::fmin(value, F{1}) : F{0};  // NaN too
  if (std::isnan(value))                                                                 // GPUs have one
    return sizeof(F) == 4 ? u64{0x7FFFFFFF} : u64{0x7FF8000000000000};
  return std::bit_cast<BitsOf<F>>(value);
}

template <class Do, class F>
bool unary(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = result<F>(Do::apply(operand<F>(frame[op.a], op)), op);
  return true;
}
template <class Do, class F>
bool binary(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = result<F>(Do::apply(operand<F>(frame[op.a], op), operand<F>(frame[op.b], op)), op);
  return true;
}
template <class F>
bool fused(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = result<F>(
      std::fma(operand<F>(frame[op.a], op), operand<F>(frame[op.b], op), operand<F>(frame[op.c], op)), op);
  return true;
}

struct Add {
  template <class F>
  static F apply(F a, F b) {
    return a + b;
  }
};
struct Sub {
  template <class F>
  static F apply(F a, F b) {
    return a - b;
  }
};
struct Mul {
  template <class F>
  static F apply(F a, F b) {
    return a * b;
  }
};
struct Div {
  template <class F>
  static F apply(F a, F b) {
    return a / b;
  }
};
struct Rcp {
  template <class F>
  static F apply(F a) {
    return F{1} / a;
  }
};
struct Sqrt {
  template <class F>
  static F apply(F a) {
    return std::sqrt(a);
  }
};

/// A number wins over NaN, and -0 is less than +0.
template <class F, bool kLeast>
bool extreme(Machine&, u64* frame, const MicroOp& op) {
  const F a = operand<F>(frame[op.a], op), b = operand<F>(frame[op.b], op);
  F value = a;
  if (std::isnan(a) || std::isnan(b)) {
    const bool lost = (op.bits & kPropagateNan) != 0;
    value = lost ? std::numeric_limits<F>::quiet_NaN() : std::isnan(a) ? b : a;
  } else if (a == b) {
    value = std::signbit(a) == kLeast ? a : b;
  } else {
    value = (a < b) == kLeast ? a : b;
  }
  frame[op.d] = result<F>(value, op);
  return true;
}

// These act on bits: NaN keeps its own.
template <class F>
constexpr BitsOf<F> kSignBit = BitsOf<F>{1} << (8 * sizeof(F) - 1);

template <class F, bool kNegate>
bool sign(Machine&, u64* frame, const MicroOp& op) {
  const auto bits = std::bit_cast<BitsOf<F>>(operand<F>(frame[op.a], op));
  frame[op.d] = kNegate ? bits ^ kSignBit<F> : bits & ~kSignBit<F>;
  return true;
}
template <class F>
bool copy_sign(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] =
      (frame[op.a] & kSignBit<F>) | (frame[op.b] & ~kSignBit<F> & std::numeric_limits<BitsOf<F>>::max());
  return true;
}

// ---- comparisons

template <class Do, class F>
bool compare(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = Do::apply(operand<F>(frame[op.a], op), operand<F>(frame[op.b], op)) ? 1 : 0;
  return true;
}

#define WP_PTX_COMPARISON(Name, expression) \
  struct Name {                             \
    template <class F>                      \
    static bool apply(F a, F b) {           \
      return expression;                    \
    }                                       \
  };
WP_PTX_COMPARISON(Eq, a == b)
WP_PTX_COMPARISON(Ne, a<b || a> b)
WP_PTX_COMPARISON(Lt, a < b)
WP_PTX_COMPARISON(Le, a <= b)
WP_PTX_COMPARISON(Gt, a > b)
WP_PTX_COMPARISON(Ge, a >= b)
WP_PTX_COMPARISON(Equ, !(a < b || a > b))
WP_PTX_COMPARISON(Neu, !(a == b))
WP_PTX_COMPARISON(Ltu, !(a >= b))
WP_PTX_COMPARISON(Leu, !(a > b))
WP_PTX_COMPARISON(Gtu, !(a <= b))
WP_PTX_COMPARISON(Geu, !(a < b))
WP_PTX_COMPARISON(Num, !std::isnan(a) && !std::isnan(b))
WP_PTX_COMPARISON(Nan, std::isnan(a) || std::isnan(b))
#undef WP_PTX_COMPARISON

template <class Do, class F>
bool test(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = Do::apply(std::bit_cast<F>(static_cast<BitsOf<F>>(frame[op.a]))) ? 1 : 0;
  return true;
}

#define WP_PTX_PROPERTY(Name, expression) \
  struct Name {                           \
    template <class F>                    \
    static bool apply(F a) {              \
      return expression;                  \
    }                                     \
  };
WP_PTX_PROPERTY(Finite, std::isfinite(a))
WP_PTX_PROPERTY(Infinite, std::isinf(a))
WP_PTX_PROPERTY(Number, !std::isnan(a))
WP_PTX_PROPERTY(NotANumber, std::isnan(a))
WP_PTX_PROPERTY(Normal, std::isnormal(a))
WP_PTX_PROPERTY(Subnormal, std::fpclassify(a) == FP_SUBNORMAL)
#undef WP_PTX_PROPERTY

// ---- conversions

Rounding rounding_of(const MicroOp& op) {
  return static_cast<Rounding>(op.bits >> kRoundingShift & 3);
}

/// The nearest value, moved to the side that the rounding wants. exact: of the value itself, order(f) < 0 if
/// f is less.
template <class F, class Order>
F directed(F nearest, Rounding rounding, bool is_negative, Order order) {
  if (rounding == Rounding::kNearest) return nearest;
  const int side = order(nearest);
  const bool down = rounding == Rounding::kDown || (rounding == Rounding::kZero && !is_negative);
  if (down && side > 0) return std::nextafter(nearest, -std::numeric_limits<F>::infinity());
  if (!down && side < 0) return std::nextafter(nearest, std::numeric_limits<F>::infinity());
  return nearest;
}

template <class F, class I>
bool from_integer(Machine&, u64* frame, const MicroOp& op) {
  const I value = static_cast<I>(frame[op.a]);
  const F converted = directed(static_cast<F>(value), rounding_of(op), value < 0, [value](F f) {
    const auto whole = static_cast<Int128>(f);  // at most 2^64
    return whole < value ? -1 : whole > value ? 1 : 0;
  });
  frame[op.d] = result<F>(converted, op);
  return true;
}

template <class F>
F to_whole(F value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(value);
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    default:
      return std::ceil(value);
  }
}

template <class I, class F>
bool to_integer(Machine&, u64* frame, const MicroOp& op) {
  const F value = to_whole(operand<F>(frame[op.a], op), rounding_of(op));
  I converted = 0;
  // 2^bits is exact in both types, and so is its comparison.
  const F limit = std::ldexp(F{1}, std::numeric_limits<I>::digits);
  if (value >= limit) {
    converted = std::numeric_limits<I>::max();
  } else if (value < static_cast<F>(std::numeric_limits<I>::min())) {
    converted = std::numeric_limits<I>::min();
  } else if (!std::isnan(value)) {
    converted = static_cast<I>(value);
  }
  frame[op.d] = static_cast<std::make_unsigned_t<I>>(converted);
  return true;
}

template <class To, class From>
bool between_floats(Machine&, u64* frame, const MicroOp& op) {
  const From value = operand<From>(frame[op.a], op);
  const To converted = directed(static_cast<To>(value), rounding_of(op), std::signbit(value), [value](To f) {
    const auto back = static_cast<From>(f);
    return back < value ? -1 : back > value ? 1 : 0;
  });
  frame[op.d] = result<To>(converted, op);
  return true;
}

template <class F>
bool to_whole_float(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = result<F>(to_whole(operand<F>(frame[op.a], op), rounding_of(op)), op);
  return true;
}
template <class F>
bool same_float(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = result<F>(operand<F>(frame[op.a], op), op);
  return true;
}

template <class F>
SlotFunction from_type(Type from) {
  const bool is_signed = from.kind == TypeKind::kSigned;
  switch (from.bytes) {
    case 1:
      return is_signed ? SlotFunction(from_integer<F, std::int8_t>) : from_integer<F, std::uint8_t>;
    case 2:
      return is_signed ? SlotFunction(from_integer<F, std::int16_t>) : from_integer<F, std::uint16_t>;
    case 4:
      return is_signed ? SlotFunction(from_integer<F, std::int32_t>) : from_integer<F, std::uint32_t>;
    case 8:
      return is_signed ? SlotFunction(from_integer<F, std::int64_t>) : from_integer<F, std::uint64_t>;
    default:
      return nullptr;
  }
}
template <class F>
SlotFunction to_type(Type to) {
  const bool is_signed = to.kind == TypeKind::kSigned;
  switch (to.bytes) {
    case 1:
      return is_signed ? SlotFunction(to_integer<std::int8_t, F>) : to_integer<std::uint8_t, F>;
    case 2:
      return is_signed ? SlotFunction(to_integer<std::int16_t, F>) : to_integer<std::uint16_t, F>;
    case 4:
      return is_signed ? SlotFunction(to_integer<std::int32_t, F>) : to_integer<std::uint32_t, F>;
    case 8:
      return is_signed ? SlotFunction(to_integer<std::int64_t, F>) : to_integer<std::uint64_t, F>;
    default:
      return nullptr;
  }
}

bool is_float(Type type) {
  return type.kind == TypeKind::kFloat && (type.bytes == 4 || type.bytes == 8);
}

struct Named {
  std::string_view name;
  SlotFunction of_f32, of_f64;
};

template <std::size_t kCount>
SlotFunction look_up(const Named (&table)[kCount], std::string_view name, Type type) {
  if (!is_float(type)) return nullptr;
  for (const Named& entry : table)
    if (entry.name == name) return type.bytes == 4 ? entry.of_f32 : entry.of_f64;
  return nullptr;
}

}  // namespace

SlotFunction float_function(std::string_view name, Type type) {
  static constexpr Named kTable[] = {
      {"add", binary<Add, float>, binary<Add, double>},
      {"sub", binary<Sub, float>, binary<Sub, double>},
      {"mul", binary<Mul, float>, binary<Mul, double>},
      {"div", binary<Div, float>, binary<Div, double>},
      {"min", extreme<float, true>, extreme<double, true>},
      {"max", extreme<float, false>, extreme<double, false>},
      {"copysign", copy_sign<float>, copy_sign<double>},
      {"abs", sign<float, false>, sign<double, false>},
      {"neg", sign<float, true>, sign<double, true>},
      {"rcp", unary<Rcp, float>, unary<Rcp, double>},
      {"sqrt", unary<Sqrt, float>, unary<Sqrt, double>},
      {"fma", fused<float>, fused<double>},
  };
  return look_up(kTable, name, type);
}

SlotFunction float_compare(std::string_view comparison, Type type) {
  static constexpr Named kTable[] = {
      {"eq", compare<Eq, float>, compare<Eq, double>},    {"ne", compare<Ne, float>, compare<Ne, double>},
      {"lt", compare<Lt, float>, compare<Lt, double>},    {"le", compare<Le, float>, compare<Le, double>},
      {"gt", compare<Gt, float>, compare<Gt, double>},    {"ge", compare<Ge, float>, compare<Ge, double>},
      {"equ", compare<Equ, float>, compare<Equ, double>}, {"neu", compare<Neu, float>, compare<Neu, double>},
      {"ltu", compare<Ltu, float>, compare<Ltu, double>}, {"leu", compare<Leu, float>, compare<Leu, double>},
      {"gtu", compare<Gtu, float>, compare<Gtu, double>}, {"geu", compare<Geu, float>, compare<Geu, double>},
      {"num", compare<Num, float>, compare<Num, double>}, {"nan", compare<Nan, float>, compare<Nan, double>},
  };
  return look_up(kTable, comparison, type);
}

SlotFunction float_test(std::string_view property, Type type) {
  static constexpr Named kTable[] = {
      {"finite", test<Finite, float>, test<Finite, double>},
      {"infinite", test<Infinite, float>, test<Infinite, double>},
      {"number", test<Number, float>, test<Number, double>},
      {"notanumber", test<NotANumber, float>, test<NotANumber, double>},
      {"normal", test<Normal, float>, test<Normal, double>},
      {"subnormal", test<Subnormal, float>, test<Subnormal, double>},
  };
  return look_up(kTable, property, type);
}

SlotFunction float_convert(Type to, Type from, bool to_integral) {
  if (is_float(to) && is_float(from)) {
    if (to.bytes == from.bytes) {
      if (to_integral) return to.bytes == 4 ? to_whole_float<float> : to_whole_float<double>;
      return to.bytes == 4 ? same_float<float> : same_float<double>;
    }
    return to.bytes == 4 ? between_floats<float, double> : between_floats<double, float>;
  }
  if (is_float(to) && from.kind != TypeKind::kFloat)
    return to.bytes == 4 ? from_type<float>(from) : from_type<double>(from);
  if (is_float(from) && to.kind != TypeKind::kFloat)
    return from.bytes == 4 ? to_type<float>(to) : to_type<double>(to);
  return nullptr;
}

}  // namespace weightpress::ptxvm
