// atom and red. Lanes of several blocks run on several host threads at once: so all are atomic on the host
// too.
#include <bit>
#include <cstring>

#include "ptxvm/lane_access.h"
#include "ptxvm/lane_functions.h"

namespace weightpress::ptxvm {
namespace {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <class U>
U* place_of(Machine& machine, const u64* frame, const MicroOp& op) {
  const u64 address = frame[op.a] + static_cast<u64>(op.imm);
  const auto space = static_cast<Space>(op.bits >> kAtomicSpaceShift);
  std::uint8_t* const place = locate(machine, space, address, sizeof(U), AccessType::kAtomic, op.bits);
  const bool is_checked = machine.shared_marks != nullptr || machine.checks_initialised ||
                          machine.shadow != nullptr || machine.log != nullptr;
  if (place == nullptr ||
      (is_checked && !note_access(machine, op, space, address, sizeof(U), AccessType::kAtomic)))
    return nullptr;
  return reinterpret_cast<U*>(place);
}

/// U: the bits in memory; Do::apply(before, b, c) gives those after.
template <class Do, class U>
bool update(Machine& machine, u64* frame, const MicroOp& op) {
  U* const place = place_of<U>(machine, frame, op);
  if (place == nullptr) return false;
  const U b = static_cast<U>(frame[op.b]), c = static_cast<U>(frame[op.c]);
  U before = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(place, &before, static_cast<U>(Do::apply(before, b, c)), true,
                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  if ((op.bits & kNoResult) == 0) frame[op.d] = before;
  return true;
}

#define WP_PTX_UPDATE(Name, expression)  \
  struct Name {                          \
    template <class U>                   \
    static U apply(U before, U b, U c) { \
      static_cast<void>(c);              \
      return static_cast<U>(expression); \
    }                                    \
  };
WP_PTX_UPDATE(Add, before + b)
WP_PTX_UPDATE(Min, b < before ? b : before)
WP_PTX_UPDATE(Max, b > before ? b : before)
WP_PTX_UPDATE(And, before& b)
WP_PTX_UPDATE(Or, before | b)
WP_PTX_UPDATE(Xor, before ^ b)
WP_PTX_UPDATE(Exchange, (static_cast<void>(before), b))
WP_PTX_UPDATE(CompareAndSwap, before == b ? c : before)
WP_PTX_UPDATE(Increment, before >= b ? 0 : before + 1)
WP_PTX_UPDATE(Decrement, before == 0 || before > b ? b : before - 1)
#undef WP_PTX_UPDATE

template <class Do, class S>
struct Signed {
  template <class U>
  static U apply(U before, U b, U c) {
    return static_cast<U>(Do::apply(static_cast<S>(before), static_cast<S>(b), static_cast<S>(c)));
  }
};
template <class F>
struct AddFloat {
  template <class U>
  static U apply(U before, U b, U) {
    return std::bit_cast<U>(std::bit_cast<F>(before) + std::bit_cast<F>(b));
  }
};

struct Named {
  std::string_view name;
  Type type;
  SlotFunction function;
};

constexpr Type kB16{TypeKind::kBits, 2}, kB32{TypeKind::kBits, 4}, kB64{TypeKind::kBits, 8};
constexpr Type kU32{TypeKind::kUnsigned, 4}, kU64{TypeKind::kUnsigned, 8}, kS32{TypeKind::kSigned, 4},
    kS64{TypeKind::kSigned, 8}, kF32{TypeKind::kFloat, 4}, kF64{TypeKind::kFloat, 8};

constexpr Named kTable[] = {
    {"add", kU32, update<Add, u32>},
    {"add", kS32, update<Add, u32>},
    {"add", kU64, update<Add, u64>},
    {"add", kS64, update<Add, u64>},
    {"add", kF32, update<AddFloat<float>, u32>},
    {"add", kF64, update<AddFloat<double>, u64>},
    {"min", kU32, update<Min, u32>},
    {"min", kS32, update<Signed<Min, i32>, u32>},
    {"min", kU64, update<Min, u64>},
    {"min", kS64, update<Signed<Min, i64>, u64>},
    {"max", kU32, update<Max, u32>},
    {"max", kS32, update<Signed<Max, i32>, u32>},
    {"max", kU64, update<Max, u64>},
    {"max", kS64, update<Signed<Max, i64>, u64>},
    {"and", kB32, update<And, u32>},
    {"and", kB64, update<And, u64>},
    {"or", kB32, update<Or, u32>},
    {"or", kB64, update<Or, u64>},
    {"xor", kB32, update<Xor, u32>},
    {"xor", kB64, update<Xor, u64>},
    {"exch", kB32, update<Exchange, u32>},
    {"exch", kB64, update<Exchange, u64>},
    {"cas", kB16, update<CompareAndSwap, u16>},
    {"cas", kB32, update<CompareAndSwap, u32>},
    {"cas", kB64, update<CompareAndSwap, u64>},
    {"inc", kU32, update<Increment, u32>},
    {"dec", kU32, update<Decrement, u32>},
};

}  // namespace

SlotFunction atomic_function(std::string_view name, Type type) {
  for (const Named& entry : kTable)
    if (entry.name == name && entry.type == type) return entry.function;
  return nullptr;
}

}  // namespace weightpress::ptxvm
