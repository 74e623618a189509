// The loop over operations: each handler jumps to the next one's (labels as values, of GCC and clang). State:
// `op`, the operation; `slots`, the lane's frame. A handler reads its operands before it writes its result,
// which may be one of them.
#include "ptxvm/lane_interpreter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>

#include "ptxvm/lane_access.h"

#pragma GCC diagnostic ignored "-Wpedantic"
#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-label-as-value"
#endif

namespace weightpress::ptxvm {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

constexpr uint64_t kOffsetMask = (uint64_t{1} << kAllocationShift) - 1;
constexpr auto kNumOpcodes = static_cast<std::size_t>(Opcode::kNumOpcodes);
using Labels = std::array<const void*, kNumOpcodes>;

template <class T>
T load_relaxed(const uint8_t* from) {
  return __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_RELAXED);
}
template <class T>
void store_relaxed(uint8_t* to, T value) {
  __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELAXED);
}

template <class T>
T load_any(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// machine == nullptr: only gives the labels.
template <bool kChecked>
Stop run(Machine* machine, uint64_t* slots, const MicroOp** pc, Labels* labels) {
  static const void* const kTable[] = {
#define WP_PTX_LABEL(name, ...) &&l_##name##RR, &&l_##name##RI,
      WP_PTX_BINARY(WP_PTX_LABEL) WP_PTX_SHIFTS(WP_PTX_LABEL)
#undef WP_PTX_LABEL
#define WP_PTX_LABEL(name, ...)                                                                         \
  &&l_Set##name##RR, &&l_Set##name##RI, &&l_BrIf##name##RR, &&l_BrIf##name##RI, &&l_BrUnless##name##RR, \
      &&l_BrUnless##name##RI,
          WP_PTX_COMPARE(WP_PTX_LABEL)
#undef WP_PTX_LABEL
#define WP_PTX_LABEL(name, ...) \
  &&l_LoadGlobal##name, &&l_LoadShared##name, &&l_LoadLocal##name, &&l_LoadGeneric##name,
              WP_PTX_LOADS(WP_PTX_LABEL)
#undef WP_PTX_LABEL
#define WP_PTX_LABEL(name, ...) \
  &&l_StoreGlobal##name, &&l_StoreShared##name, &&l_StoreLocal##name, &&l_StoreGeneric##name,
                  WP_PTX_STORES(WP_PTX_LABEL)
#undef WP_PTX_LABEL
#define WP_PTX_LABEL(name) &&l_##name,
                      WP_PTX_OTHERS(WP_PTX_LABEL)
#undef WP_PTX_LABEL
  };
  static_assert(sizeof kTable / sizeof kTable[0] == kNumOpcodes);
  if (machine == nullptr) {
    std::copy(std::begin(kTable), std::end(kTable), labels->begin());
    return Stop::kExit;
  }

  const MicroOp* op = *pc;
  uint64_t* const edges = machine->edges;
  uint64_t branches_left = machine->branches_left;
  const AllocationBounds* const allocations = machine->allocations;
  const uint64_t num_allocations = machine->num_allocations;
  uint8_t* const shared = machine->shared;
  const uint64_t shared_bytes = machine->shared_bytes;
  uint8_t* const local = machine->local;
  const uint64_t local_bytes = machine->local_bytes;

#define WP_PTX_GO goto * op->handler
#define WP_PTX_NEXT \
  do {              \
    ++op;           \
    WP_PTX_GO;      \
  } while (0)
#define WP_PTX_TAKE                                           \
  do {                                                        \
    ++edges[op->taken];                                       \
    const int32_t distance = op->target;                      \
    op += distance;                                           \
    if (distance <= 0 && --branches_left == 0) goto give_way; \
    WP_PTX_GO;                                                \
  } while (0)
#define WP_PTX_FALL_THROUGH \
  do {                      \
    ++edges[op->not_taken]; \
    WP_PTX_NEXT;            \
  } while (0)

  WP_PTX_GO;

#define WP_PTX_HANDLER(name, T, U, value)                                       \
  l_##name##RR : {                                                              \
    const T a = static_cast<T>(slots[op->a]), b = static_cast<T>(slots[op->b]); \
    slots[op->d] = static_cast<U>(value);                                       \
  }                                                                             \
  WP_PTX_NEXT;                                                                  \
  l_##name##RI : {                                                              \
    const T a = static_cast<T>(slots[op->a]), b = static_cast<T>(op->imm);      \
    slots[op->d] = static_cast<U>(value);                                       \
  }                                                                             \
  WP_PTX_NEXT;
  WP_PTX_BINARY(WP_PTX_HANDLER)
#undef WP_PTX_HANDLER
#define WP_PTX_HANDLER(name, T, U, value)                   \
  l_##name##RR : {                                          \
    const T a = static_cast<T>(slots[op->a]);               \
    const uint32_t b = static_cast<uint32_t>(slots[op->b]); \
    slots[op->d] = static_cast<U>(value);                   \
  }                                                         \
  WP_PTX_NEXT;                                              \
  l_##name##RI : {                                          \
    const T a = static_cast<T>(slots[op->a]);               \
    const uint32_t b = static_cast<uint32_t>(op->imm);      \
    slots[op->d] = static_cast<U>(value);                   \
  }                                                         \
  WP_PTX_NEXT;
  WP_PTX_SHIFTS(WP_PTX_HANDLER)
#undef WP_PTX_HANDLER

#define WP_PTX_HANDLER(name, T, compares)                                                                   \
  l_Set##name##RR : slots[op->d] = static_cast<T>(slots[op->a]) compares static_cast<T>(slots[op->b]);      \
  WP_PTX_NEXT;                                                                                              \
  l_Set##name##RI : slots[op->d] = static_cast<T>(slots[op->a]) compares static_cast<T>(op->imm);           \
  WP_PTX_NEXT;                                                                                              \
  l_BrIf##name##RR : if (static_cast<T>(slots[op->a]) compares static_cast<T>(slots[op->b])) WP_PTX_TAKE;   \
  WP_PTX_FALL_THROUGH;                                                                                      \
  l_BrIf##name##RI : if (static_cast<T>(slots[op->a]) compares static_cast<T>(op->imm)) WP_PTX_TAKE;        \
  WP_PTX_FALL_THROUGH;                                                                                      \
  l_BrUnless##name##RR : if (!(static_cast<T>(slots[op->a]) compares static_cast<T>(slots[op->b])))         \
                             WP_PTX_TAKE;                                                                   \
  WP_PTX_FALL_THROUGH;                                                                                      \
  l_BrUnless##name##RI : if (!(static_cast<T>(slots[op->a]) compares static_cast<T>(op->imm))) WP_PTX_TAKE; \
  WP_PTX_FALL_THROUGH;
  WP_PTX_COMPARE(WP_PTX_HANDLER)
#undef WP_PTX_HANDLER

// Where the bytes are: `from` or `to`, nullptr if locate() has to say. Then the access, and what is to be
// noted of it.
#define WP_PTX_GLOBAL(T, bound)                                                                             \
  const uint64_t address = slots[op->a] + static_cast<uint64_t>(op->imm);                                   \
  const uint64_t number = (address >> kAllocationShift) - kFirstAllocation, offset = address & kOffsetMask; \
  uint8_t* place = nullptr;                                                                                 \
  if (number < num_allocations && offset + sizeof(T) <= allocations[number].bound &&                        \
      offset % sizeof(T) == 0) [[likely]]                                                                   \
  place = allocations[number].bytes + offset
#define WP_PTX_WINDOW(T, window, window_bytes)                                                           \
  const uint64_t address = slots[op->a] + static_cast<uint64_t>(op->imm);                                \
  const uint64_t offset = address - kWindowBase;                                                         \
  uint8_t* place = nullptr;                                                                              \
  if (offset < window_bytes && sizeof(T) <= window_bytes - offset && offset % sizeof(T) == 0) [[likely]] \
  place = window + offset
#define WP_PTX_FIND(space, T, type)                                      \
  if (place == nullptr) [[unlikely]] {                                   \
    place = locate(*machine, space, address, sizeof(T), type, op->bits); \
    if (place == nullptr) goto fault;                                    \
  }                                                                      \
  if (kChecked && !note_access(*machine, *op, space, address, sizeof(T), type)) goto fault

#define WP_PTX_HANDLER(name, T, U)                                                \
  l_LoadGlobal##name : {                                                          \
    WP_PTX_GLOBAL(T, readable_bytes);                                             \
    WP_PTX_FIND(Space::kGlobal, T, AccessType::kLoad);                            \
    slots[op->d] = static_cast<uint64_t>(static_cast<T>(load_relaxed<U>(place))); \
  }                                                                               \
  WP_PTX_NEXT;                                                                    \
  l_LoadShared##name : {                                                          \
    WP_PTX_WINDOW(T, shared, shared_bytes);                                       \
    WP_PTX_FIND(Space::kShared, T, AccessType::kLoad);                            \
    slots[op->d] = static_cast<uint64_t>(load_any<T>(place));                     \
  }                                                                               \
  WP_PTX_NEXT;                                                                    \
  l_LoadLocal##name : {                                                           \
    WP_PTX_WINDOW(T, local, local_bytes);                                         \
    WP_PTX_FIND(Space::kLocal, T, AccessType::kLoad);                             \
    slots[op->d] = static_cast<uint64_t>(load_any<T>(place));                     \
  }                                                                               \
  WP_PTX_NEXT;                                                                    \
  l_LoadGeneric##name : {                                                         \
    WP_PTX_GLOBAL(T, readable_bytes);                                             \
    WP_PTX_FIND(Space::kGeneric, T, AccessType::kLoad);                           \
    slots[op->d] = static_cast<uint64_t>(static_cast<T>(load_relaxed<U>(place))); \
  }                                                                               \
  WP_PTX_NEXT;
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): a slot holds a number with its sign
  WP_PTX_LOADS(WP_PTX_HANDLER)
#undef WP_PTX_HANDLER
#define WP_PTX_HANDLER(name, T)                          \
  l_StoreGlobal##name : {                                \
    WP_PTX_GLOBAL(T, writable_bytes);                    \
    WP_PTX_FIND(Space::kGlobal, T, AccessType::kStore);  \
    store_relaxed(place, static_cast<T>(slots[op->b]));  \
  }                                                      \
  WP_PTX_NEXT;                                           \
  l_StoreShared##name : {                                \
    WP_PTX_WINDOW(T, shared, shared_bytes);              \
    WP_PTX_FIND(Space::kShared, T, AccessType::kStore);  \
    const T value = static_cast<T>(slots[op->b]);        \
    std::memcpy(place, &value, sizeof value);            \
  }                                                      \
  WP_PTX_NEXT;                                           \
  l_StoreLocal##name : {                                 \
    WP_PTX_WINDOW(T, local, local_bytes);                \
    WP_PTX_FIND(Space::kLocal, T, AccessType::kStore);   \
    const T value = static_cast<T>(slots[op->b]);        \
    std::memcpy(place, &value, sizeof value);            \
  }                                                      \
  WP_PTX_NEXT;                                           \
  l_StoreGeneric##name : {                               \
    WP_PTX_GLOBAL(T, writable_bytes);                    \
    WP_PTX_FIND(Space::kGeneric, T, AccessType::kStore); \
    store_relaxed(place, static_cast<T>(slots[op->b]));  \
  }                                                      \
  WP_PTX_NEXT;
  WP_PTX_STORES(WP_PTX_HANDLER)
#undef WP_PTX_HANDLER

#define WP_PTX_HANDLER(name, T)                                                  \
  l_LoadParam##name : slots[op->d] = load_any<T>(machine->parameters + op->imm); \
  WP_PTX_NEXT;
  WP_PTX_HANDLER(8, uint8_t)
  WP_PTX_HANDLER(16, uint16_t)
  WP_PTX_HANDLER(32, uint32_t)
  WP_PTX_HANDLER(64, uint64_t)
#undef WP_PTX_HANDLER

l_Mov:
  slots[op->d] = slots[op->a];
  WP_PTX_NEXT;
l_MovImm:
  slots[op->d] = static_cast<uint64_t>(op->imm);
  WP_PTX_NEXT;
l_Mask:
  slots[op->d] = slots[op->a] & static_cast<uint64_t>(op->imm);
  WP_PTX_NEXT;
l_SignExtend:
  slots[op->d] =
      static_cast<uint64_t>(static_cast<int64_t>(slots[op->a] << op->imm) >> op->imm) << op->bits >> op->bits;
  WP_PTX_NEXT;
l_Mad32:
  slots[op->d] = static_cast<uint32_t>(slots[op->a] * slots[op->b] + slots[op->c]);
  WP_PTX_NEXT;
l_Mad64:
  slots[op->d] = slots[op->a] * slots[op->b] + slots[op->c];
  WP_PTX_NEXT;
l_MadWideU32:
  slots[op->d] =
      uint64_t{static_cast<uint32_t>(slots[op->a])} * static_cast<uint32_t>(slots[op->b]) + slots[op->c];
  WP_PTX_NEXT;
l_MadWideS32:
  slots[op->d] = static_cast<uint64_t>(int64_t{static_cast<int32_t>(slots[op->a])} *
                                       static_cast<int32_t>(slots[op->b])) +
                 slots[op->c];
  WP_PTX_NEXT;
l_Not16:
  slots[op->d] = static_cast<uint16_t>(~slots[op->a]);
  WP_PTX_NEXT;
l_Not32:
  slots[op->d] = static_cast<uint32_t>(~slots[op->a]);
  WP_PTX_NEXT;
l_Not64:
  slots[op->d] = ~slots[op->a];
  WP_PTX_NEXT;
l_NotPred:
  slots[op->d] = slots[op->a] ^ 1;
  WP_PTX_NEXT;
l_Neg32:
  slots[op->d] = static_cast<uint32_t>(0 - slots[op->a]);
  WP_PTX_NEXT;
l_Neg64:
  slots[op->d] = 0 - slots[op->a];
  WP_PTX_NEXT;
l_Select:
  slots[op->d] = slots[op->c] != 0 ? slots[op->a] : slots[op->b];
  WP_PTX_NEXT;
l_BfeU32: {
  const uint32_t first = slots[op->b] & 255, bits = slots[op->c] & 255;
  const uint64_t value = first > 31 ? 0 : slots[op->a] >> first;
  slots[op->d] = bits > 31 ? value : value & ((uint64_t{1} << bits) - 1);
}
  WP_PTX_NEXT;
l_BfeU64: {
  const uint32_t first = slots[op->b] & 255, bits = slots[op->c] & 255;
  const uint64_t value = first > 63 ? 0 : slots[op->a] >> first;
  slots[op->d] = bits > 63 ? value : value & ((uint64_t{1} << bits) - 1);
}
  WP_PTX_NEXT;
l_BfeU64Const:
  slots[op->d] = slots[op->a] >> op->bits & static_cast<uint64_t>(op->imm);
  WP_PTX_NEXT;
l_Bfi32: {
  const uint32_t first = slots[op->c] & 255, bits = slots[op->e] & 255;
  const uint64_t mask =
      first > 31 ? 0 : static_cast<uint32_t>(((uint64_t{1} << (bits > 32 ? 32 : bits)) - 1) << first);
  slots[op->d] = (slots[op->b] & ~mask & 0xFFFFFFFF) | (first > 31 ? 0 : slots[op->a] << first & mask);
}
  WP_PTX_NEXT;
l_Prmt: {
  const uint64_t both = static_cast<uint32_t>(slots[op->a]) | slots[op->b] << 32;
  const auto selectors = static_cast<uint32_t>(slots[op->c]);
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> (4 * i) & 15;
    uint32_t byte = both >> (8 * (selector & 7)) & 255;
    if (selector & 8) byte = byte & 128 ? 255 : 0;
    value |= byte << (8 * i);
  }
  slots[op->d] = value;
}
  WP_PTX_NEXT;
l_ShfLeftWrap: {
  const uint64_t both = static_cast<uint32_t>(slots[op->a]) | slots[op->b] << 32;
  slots[op->d] = static_cast<uint32_t>(both << (slots[op->c] & 31) >> 32);
}
  WP_PTX_NEXT;
l_ShfRightWrap: {
  const uint64_t both = static_cast<uint32_t>(slots[op->a]) | slots[op->b] << 32;
  slots[op->d] = static_cast<uint32_t>(both >> (slots[op->c] & 31));
}
  WP_PTX_NEXT;
l_Popc32:
l_Popc64:
  slots[op->d] = static_cast<uint64_t>(std::popcount(slots[op->a]));
  WP_PTX_NEXT;
l_Bra:
  WP_PTX_TAKE;
l_BrIf:
  if (slots[op->a] != 0) WP_PTX_TAKE;
  WP_PTX_FALL_THROUGH;
l_BrUnless:
  if (slots[op->a] == 0) WP_PTX_TAKE;
  WP_PTX_FALL_THROUGH;
l_Call:
  if (!op->function(*machine, slots, *op)) goto fault;
  WP_PTX_NEXT;
l_Meet:
  machine->branches_left = branches_left;
  *pc = op + 1;
  return Stop::kMeet;
l_Exit:
  machine->branches_left = branches_left;
  *pc = op;
  return Stop::kExit;

give_way:
  machine->branches_left = 0;
  *pc = op;
  return Stop::kSlice;
fault:
  *pc = op;
  return Stop::kFault;
}

Labels labels_of(Handlers handlers) {
  Labels labels{};
  if (handlers == Handlers::kFast) {
    run<false>(nullptr, nullptr, nullptr, &labels);
  } else {
    run<true>(nullptr, nullptr, nullptr, &labels);
  }
  return labels;
}

}  // namespace

void link_handlers(std::vector<MicroOp>& ops, Handlers handlers, const std::vector<Opcode>& opcodes) {
  const Labels labels = labels_of(handlers);
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].handler = labels[static_cast<std::size_t>(opcodes[i])];
}

Stop run_lane(Handlers handlers, Machine& machine, uint64_t* frame, const MicroOp*& pc) {
  return handlers == Handlers::kFast ? run<false>(&machine, frame, &pc, nullptr)
                                     : run<true>(&machine, frame, &pc, nullptr);
}

}  // namespace weightpress::ptxvm
