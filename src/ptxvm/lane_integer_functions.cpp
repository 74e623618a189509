#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "ptxvm/lane_functions.h"
#include "ptxvm/lane_interpreter.h"

namespace weightpress::ptxvm {
namespace {

using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <class T>
constexpr int kBits = 8 * static_cast<int>(sizeof(T));

/// A slot from a value: zero-extended from the type's width.
template <class T>
u64 slot(T value) {
  return static_cast<std::make_unsigned_t<T>>(value);
}

template <class F, class T>
bool unary(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = F::apply(static_cast<T>(frame[op.a]));
  return true;
}
template <class F, class T>
bool binary(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = F::apply(static_cast<T>(frame[op.a]), static_cast<T>(frame[op.b]));
  return true;
}
template <class F, class T>
bool ternary(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = F::apply(static_cast<T>(frame[op.a]), static_cast<T>(frame[op.b]), frame[op.c], frame[op.e]);
  return true;
}

#define WP_PTX_FOR_TYPES(shape, F)                                      \
  [](Type of) -> SlotFunction {                                         \
    const bool is_signed = of.kind == TypeKind::kSigned;                \
    switch (of.bytes) {                                                 \
      case 2:                                                           \
        return is_signed ? SlotFunction(shape<F, i16>) : shape<F, u16>; \
      case 4:                                                           \
        return is_signed ? SlotFunction(shape<F, i32>) : shape<F, u32>; \
      case 8:                                                           \
        return is_signed ? SlotFunction(shape<F, i64>) : shape<F, u64>; \
      default:                                                          \
        return nullptr;                                                 \
    }                                                                   \
  }

struct Abs {
  template <class T>
  static u64 apply(T a) {
    return slot<T>(static_cast<T>(std::is_signed_v<T> && a < 0 ? 0 - slot(a) : slot(a)));
  }
};
struct Neg {
  template <class T>
  static u64 apply(T a) {
    return slot<T>(static_cast<T>(0 - slot(a)));
  }
};
struct Cnot {
  template <class T>
  static u64 apply(T a) {
    return a == 0;
  }
};
struct Popc {
  template <class T>
  static u64 apply(T a) {
    return static_cast<u64>(std::popcount(slot(a)));
  }
};
struct Clz {
  template <class T>
  static u64 apply(T a) {
    return static_cast<u64>(std::countl_zero(static_cast<std::make_unsigned_t<T>>(a)));
  }
};
/// The highest bit that is not a sign bit; all ones if there is none.
template <bool kShiftAmount>
struct Bfind {
  template <class T>
  static u64 apply(T a) {
    if constexpr (std::is_signed_v<T>)
      if (a < 0) a = static_cast<T>(~a);
    const int bit = kBits<T> - 1 - std::countl_zero(static_cast<std::make_unsigned_t<T>>(a));
    if (bit < 0) return std::numeric_limits<u32>::max();
    return static_cast<u64>(kShiftAmount ? kBits<T> - 1 - bit : bit);
  }
};
struct Brev {
  template <class T>
  static u64 apply(T a) {
    u64 reversed = 0;
    for (int i = 0; i < kBits<T>; ++i) reversed |= (slot(a) >> i & 1) << (kBits<T> - 1 - i);
    return reversed;
  }
};

struct Div {
  template <class T>
  static u64 apply(T a, T b) {
    if (b == 0) return slot<T>(static_cast<T>(~T{0}));
    return slot<T>(static_cast<T>(static_cast<Int128>(a) / b));
  }
};
struct Rem {
  template <class T>
  static u64 apply(T a, T b) {
    return b == 0 ? slot(a) : slot<T>(static_cast<T>(static_cast<Int128>(a) % b));
  }
};
struct MulHi {
  template <class T>
  static u64 apply(T a, T b) {
    // The product of two u64 needs the unsigned type.
    using Wide = std::conditional_t<std::is_signed_v<T>, Int128, UInt128>;
    return slot<T>(static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> kBits<T>));
  }
};
template <class T>
T clamped(Int128 value) {
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): they are numbers
  constexpr Int128 kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  return static_cast<T>(std::clamp(value, kLeast, kMost));
}
struct AddSat {
  template <class T>
  static u64 apply(T a, T b) {
    return slot<T>(clamped<T>(static_cast<Int128>(a) + b));
  }
};
struct SubSat {
  template <class T>
  static u64 apply(T a, T b) {
    return slot<T>(clamped<T>(static_cast<Int128>(a) - b));
  }
};
/// The low b bits, the highest of them extended if the type is signed.
template <bool kWrap>
struct Szext {
  template <class T>
  static u64 apply(T a, T b) {
    const u32 bits = kWrap ? static_cast<u32>(b) & 31 : std::min<u32>(static_cast<u32>(b), 32);
    if (bits == 32) return slot(a);
    if (bits == 0) return 0;
    const u32 left = 32 - bits;
    return slot<T>(static_cast<T>(static_cast<T>(static_cast<u32>(a) << left) >> left));
  }
};
/// b ones from bit a on.
template <bool kWrap>
struct Bmsk {
  template <class T>
  static u64 apply(T a, T b) {
    const u64 first = kWrap ? a & 31 : std::min<u64>(slot(a), 32),
              bits = kWrap ? b & 31 : std::min<u64>(slot(b), 32);
    return static_cast<u32>(((u64{1} << bits) - 1) << first);
  }
};

struct MadLo {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    return slot<T>(static_cast<T>(slot(a) * slot(b) + c));
  }
};
struct MadWide {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    return static_cast<u32>(static_cast<u64>(static_cast<i64>(a) * static_cast<i64>(b)) + c);
  }
};
struct MadHi {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    return slot<T>(static_cast<T>(MulHi::apply(a, b) + c));
  }
};
struct MadHiSat {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    return slot<T>(clamped<T>(static_cast<Int128>(static_cast<T>(MulHi::apply(a, b))) + static_cast<T>(c)));
  }
};
template <int kShift>
struct Mad24 {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    const auto low24 = [](T value) {
      return static_cast<i64>(static_cast<T>(static_cast<T>(static_cast<u32>(value) << 8) >> 8));
    };
    return static_cast<u32>(static_cast<u64>(low24(a) * low24(b) >> kShift) + c);
  }
};
struct Sad {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    const u64 difference = a < b ? slot(b) - slot(a) : slot(a) - slot(b);
    return slot<T>(static_cast<T>(difference + c));
  }
};
struct Bfe {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    constexpr u32 kLast = kBits<T> - 1;
    const u32 first = static_cast<u32>(b) & 255, bits = c & 255;
    const u64 value = slot(a);
    u64 sign = 0;
    if (std::is_signed_v<T> && bits != 0) sign = value >> std::min(first + bits - 1, kLast) & 1;
    u64 result = 0;
    for (u32 i = 0; i <= kLast; ++i) {
      const u64 bit = i < bits && first + i <= kLast ? value >> (first + i) & 1 : sign;
      result |= bit << i;
    }
    return result;
  }
};
struct Bfi {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64 e) {
    const u32 first = c & 255, bits = e & 255;
    u64 result = slot(b);
    for (u32 i = 0; i < bits && first + i < kBits<T>; ++i)
      result = (result & ~(u64{1} << (first + i))) | (slot(a) >> i & 1) << (first + i);
    return result;
  }
};
struct ShfLeftClamp {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    const u64 both = (slot(b) << 32) | slot(a), amount = std::min<u64>(c & 0xFFFFFFFF, 32);
    return amount == 32 ? slot(a) : both << amount >> 32;
  }
};
struct ShfRightClamp {
  template <class T>
  static u64 apply(T a, T b, u64 c, u64) {
    const u64 both = (slot(b) << 32) | slot(a);
    return static_cast<u32>(both >> std::min<u64>(c & 0xFFFFFFFF, 32));
  }
};

// ---- carries

template <class T>
UInt128 wide(u64 value) {
  return static_cast<T>(value);
}

/// Subtraction adds the complement, and its flag is the carry of that: 1 if nothing was borrowed. The PTX ISA
/// calls it the borrow; nvcc's division of 128-bit integers, which reads it by addc, is right only so.
template <class T, bool kSubtract>
bool add_with_carry(Machine&, u64* frame, const MicroOp& op) {
  const UInt128 carry = (op.bits & kCarryIn) != 0 ? frame[op.e] & 1 : kSubtract ? 1 : 0;
  const u64 b = kSubtract ? ~frame[op.b] : frame[op.b];
  const UInt128 sum = wide<T>(frame[op.a]) + wide<T>(b) + carry;
  if ((op.bits & kCarryOut) != 0) frame[op.d2] = static_cast<u64>(sum >> kBits<T>) & 1;
  frame[op.d] = static_cast<T>(sum);
  return true;
}

template <class T, bool kHigh>  // T: signed or not matters for the high half only
bool mad_with_carry(Machine&, u64* frame, const MicroOp& op) {
  using U = std::make_unsigned_t<T>;
  const u64 product = kHigh ? MulHi::apply(static_cast<T>(frame[op.a]), static_cast<T>(frame[op.b]))
                            : slot(static_cast<U>(frame[op.a] * frame[op.b]));
  const UInt128 carry = (op.bits & kCarryIn) != 0 ? frame[op.e] & 1 : 0;
  const UInt128 sum = wide<U>(product) + wide<U>(frame[op.c]) + carry;
  if ((op.bits & kCarryOut) != 0) frame[op.d2] = static_cast<u64>(sum >> kBits<T>) & 1;
  frame[op.d] = static_cast<U>(sum);
  return true;
}

// ---- bytes

template <class F>
bool prmt(Machine&, u64* frame, const MicroOp& op) {
  const u64 both = (frame[op.a] & 0xFFFFFFFF) | frame[op.b] << 32;
  const u32 selector = frame[op.c] & 3;
  u64 value = 0;
  for (u32 i = 0; i < 4; ++i) value |= (both >> 8 * (F::source(selector, i) & 7) & 255) << 8 * i;
  frame[op.d] = value;
  return true;
}
struct ForwardFour {
  static u32 source(u32 selector, u32 i) { return selector + i; }
};
struct BackwardFour {
  static u32 source(u32 selector, u32 i) { return selector + 8 - i; }
};
struct ReplicateByte {
  static u32 source(u32 selector, u32) { return selector; }
};
struct EdgeClampLeft {
  static u32 source(u32 selector, u32 i) { return std::max(selector, i); }
};
struct EdgeClampRight {
  static u32 source(u32 selector, u32 i) { return std::min(selector, i); }
};
struct ReplicateHalf {
  static u32 source(u32 selector, u32 i) { return (selector & 1) * 2 + (i & 1); }
};

template <bool kSigned>
i64 byte_of(u64 value, u32 index) {
  const auto byte = static_cast<std::uint8_t>(value >> 8 * index);
  return kSigned ? i64{static_cast<std::int8_t>(byte)} : i64{byte};
}
template <bool kSigned>
i64 half_of(u64 value, u32 index) {
  const auto half = static_cast<u16>(value >> 16 * index);
  return kSigned ? i64{static_cast<i16>(half)} : i64{half};
}

template <bool kSignedA, bool kSignedB>
bool dp4a(Machine&, u64* frame, const MicroOp& op) {
  u64 sum = frame[op.c];
  for (u32 i = 0; i < 4; ++i)
    sum += static_cast<u64>(byte_of<kSignedA>(frame[op.a], i) * byte_of<kSignedB>(frame[op.b], i));
  frame[op.d] = static_cast<u32>(sum);
  return true;
}
template <bool kSignedA, bool kSignedB>
bool dp2a(Machine&, u64* frame, const MicroOp& op) {
  u64 sum = frame[op.c];
  for (u32 i = 0; i < 2; ++i)
    sum += static_cast<u64>(half_of<kSignedA>(frame[op.a], i) *
                            byte_of<kSignedB>(frame[op.b], i + 2 * (op.bits & 1)));
  frame[op.d] = static_cast<u32>(sum);
  return true;
}

template <class To, class From>
bool saturating(Machine&, u64* frame, const MicroOp& op) {
  frame[op.d] = slot<To>(clamped<To>(static_cast<From>(frame[op.a])));
  return true;
}
template <class From>
SlotFunction saturate_from(Type to) {
  const bool is_signed = to.kind == TypeKind::kSigned;
  switch (to.bytes) {
    case 1:
      return is_signed ? SlotFunction(saturating<std::int8_t, From>) : saturating<std::uint8_t, From>;
    case 2:
      return is_signed ? SlotFunction(saturating<i16, From>) : saturating<u16, From>;
    case 4:
      return is_signed ? SlotFunction(saturating<i32, From>) : saturating<u32, From>;
    case 8:
      return is_signed ? SlotFunction(saturating<i64, From>) : saturating<u64, From>;
    default:
      return nullptr;
  }
}

struct Named {
  std::string_view name;
  SlotFunction (*of_type)(Type);
};

template <std::size_t kCount>
SlotFunction look_up(const Named (&table)[kCount], std::string_view name, Type type) {
  for (const Named& entry : table)
    if (entry.name == name) return entry.of_type(type);
  return nullptr;
}

}  // namespace

SlotFunction integer_unary(std::string_view name, Type type) {
  static constexpr Named kTable[] = {
      {"abs", WP_PTX_FOR_TYPES(unary, Abs)},
      {"neg", WP_PTX_FOR_TYPES(unary, Neg)},
      {"cnot", WP_PTX_FOR_TYPES(unary, Cnot)},
      {"popc", WP_PTX_FOR_TYPES(unary, Popc)},
      {"clz", WP_PTX_FOR_TYPES(unary, Clz)},
      {"bfind", WP_PTX_FOR_TYPES(unary, Bfind<false>)},
      {"bfind.shiftamt", WP_PTX_FOR_TYPES(unary, Bfind<true>)},
      {"brev", WP_PTX_FOR_TYPES(unary, Brev)},
  };
  return look_up(kTable, name, type);
}

SlotFunction integer_binary(std::string_view name, Type type) {
  static constexpr Named kTable[] = {
      {"div", WP_PTX_FOR_TYPES(binary, Div)},
      {"rem", WP_PTX_FOR_TYPES(binary, Rem)},
      {"mulhi", WP_PTX_FOR_TYPES(binary, MulHi)},
      {"addsat", WP_PTX_FOR_TYPES(binary, AddSat)},
      {"subsat", WP_PTX_FOR_TYPES(binary, SubSat)},
      {"szext.clamp", WP_PTX_FOR_TYPES(binary, Szext<false>)},
      {"szext.wrap", WP_PTX_FOR_TYPES(binary, Szext<true>)},
      {"bmsk.clamp", WP_PTX_FOR_TYPES(binary, Bmsk<false>)},
      {"bmsk.wrap", WP_PTX_FOR_TYPES(binary, Bmsk<true>)},
  };
  return look_up(kTable, name, type);
}

SlotFunction integer_ternary(std::string_view name, Type type) {
  static constexpr Named kTable[] = {
      {"mad", WP_PTX_FOR_TYPES(ternary, MadLo)},
      {"madwide", WP_PTX_FOR_TYPES(ternary, MadWide)},
      {"madhi", WP_PTX_FOR_TYPES(ternary, MadHi)},
      {"madhi.sat", WP_PTX_FOR_TYPES(ternary, MadHiSat)},
      {"mad24.lo", WP_PTX_FOR_TYPES(ternary, Mad24<0>)},
      {"mad24.hi", WP_PTX_FOR_TYPES(ternary, Mad24<16>)},
      {"sad", WP_PTX_FOR_TYPES(ternary, Sad)},
      {"bfe", WP_PTX_FOR_TYPES(ternary, Bfe)},
      {"bfi", WP_PTX_FOR_TYPES(ternary, Bfi)},
      {"shf.l.clamp", WP_PTX_FOR_TYPES(ternary, ShfLeftClamp)},
      {"shf.r.clamp", WP_PTX_FOR_TYPES(ternary, ShfRightClamp)},
  };
  return look_up(kTable, name, type);
}

SlotFunction with_carry(std::string_view name, Type type) {
  const bool is_signed = type.kind == TypeKind::kSigned, is_64 = type.bytes == 8;
  if (type.bytes != 4 && !is_64) return nullptr;
  if (name == "add") return is_64 ? add_with_carry<u64, false> : add_with_carry<u32, false>;
  if (name == "sub") return is_64 ? add_with_carry<u64, true> : add_with_carry<u32, true>;
  if (name == "madlo") return is_64 ? mad_with_carry<u64, false> : mad_with_carry<u32, false>;
  if (name != "madhi") return nullptr;
  if (is_signed) return is_64 ? mad_with_carry<i64, true> : mad_with_carry<i32, true>;
  return is_64 ? mad_with_carry<u64, true> : mad_with_carry<u32, true>;
}

bool lop3(Machine&, u64* frame, const MicroOp& op) {
  const u64 a = frame[op.a], b = frame[op.b], c = frame[op.c];
  u64 result = 0;
  for (u32 i = 0; i < 8; ++i) {
    if ((op.imm >> i & 1) == 0) continue;
    result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  frame[op.d] = static_cast<u32>(result);
  return true;
}

SlotFunction prmt_mode(std::string_view mode) {
  if (mode == "f4e") return prmt<ForwardFour>;
  if (mode == "b4e") return prmt<BackwardFour>;
  if (mode == "rc8") return prmt<ReplicateByte>;
  if (mode == "ecl") return prmt<EdgeClampLeft>;
  if (mode == "ecr") return prmt<EdgeClampRight>;
  if (mode == "rc16") return prmt<ReplicateHalf>;
  return nullptr;
}

SlotFunction dot_product(std::string_view name, Type a, Type b) {
  const bool a_signed = a.kind == TypeKind::kSigned, b_signed = b.kind == TypeKind::kSigned;
  if (name == "dp4a") {
    if (a_signed) return b_signed ? dp4a<true, true> : dp4a<true, false>;
    return b_signed ? dp4a<false, true> : dp4a<false, false>;
  }
  if (a_signed) return b_signed ? dp2a<true, true> : dp2a<true, false>;
  return b_signed ? dp2a<false, true> : dp2a<false, false>;
}

SlotFunction saturate(Type to, Type from) {
  const bool is_signed = from.kind == TypeKind::kSigned;
  switch (from.bytes) {
    case 1:
      return is_signed ? saturate_from<std::int8_t>(to) : saturate_from<std::uint8_t>(to);
    case 2:
      return is_signed ? saturate_from<i16>(to) : saturate_from<u16>(to);
    case 4:
      return is_signed ? saturate_from<i32>(to) : saturate_from<u32>(to);
    case 8:
      return is_signed ? saturate_from<i64>(to) : saturate_from<u64>(to);
    default:
      return nullptr;
  }
}

}  // namespace weightpress::ptxvm
