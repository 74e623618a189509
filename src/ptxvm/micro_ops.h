// What a lane executes: compact operations on the slots of its frame, made once from PTX instructions.
//
// A slot holds a register's value in 64 bits, zero-extended from the register's width (predicates: 0 or 1;
// floats: their bits). Frequent operations have handlers of their own in lane_interpreter.cpp, by operand
// types and kinds; all others go through a function. Lists below: name, type of the operands, type that the
// result is cut to, result from a and b.
#pragma once

#include <cstdint>

namespace weightpress::ptxvm {

// Second operand: a slot (RR), or the immediate (RI).
#define WP_PTX_BINARY_OF_WIDTH(B, w, U, S)           \
  B(Add##w, U, U, static_cast<std::uint64_t>(a) + b) \
  B(Sub##w, U, U, static_cast<std::uint64_t>(a) - b) \
  B(Mul##w, U, U, static_cast<std::uint64_t>(a) * b) \
  B(MinU##w, U, U, a < b ? a : b)                    \
  B(MaxU##w, U, U, a > b ? a : b)                    \
  B(MinS##w, S, U, a < b ? a : b)                    \
  B(MaxS##w, S, U, a > b ? a : b)

#define WP_PTX_BINARY(B)                                                           \
  WP_PTX_BINARY_OF_WIDTH(B, 16, std::uint16_t, std::int16_t)                       \
  WP_PTX_BINARY_OF_WIDTH(B, 32, std::uint32_t, std::int32_t)                       \
  WP_PTX_BINARY_OF_WIDTH(B, 64, std::uint64_t, std::int64_t)                       \
  B(And, std::uint64_t, std::uint64_t, a& b)                                       \
  B(Or, std::uint64_t, std::uint64_t, a | b)                                       \
  B(Xor, std::uint64_t, std::uint64_t, a ^ b)                                      \
  B(MulWideU16, std::uint16_t, std::uint32_t, std::uint32_t{a} * b)                \
  B(MulWideS16, std::int16_t, std::uint32_t, std::int32_t{a} * b)                  \
  B(MulWideU32, std::uint32_t, std::uint64_t, std::uint64_t{a} * b)                \
  B(MulWideS32, std::int32_t, std::uint64_t, std::int64_t{a} * b)                  \
  B(MulHiU32, std::uint32_t, std::uint32_t, (std::uint64_t{a} * b) >> 32)          \
  B(MulHiS32, std::int32_t, std::uint32_t, (std::int64_t{a} * b) >> 32)            \
  B(MulHiU64, std::uint64_t, std::uint64_t, (static_cast<UInt128>(a) * b) >> 64)   \
  B(MulHiS64, std::int64_t, std::uint64_t, (static_cast<Int128>(a) * b) >> 64)     \
  /* Division by zero gives all ones, as GPUs do; the least value by -1 wraps. */  \
  B(DivU32, std::uint32_t, std::uint32_t, b == 0 ? ~0U : a / b)                    \
  B(DivS32, std::int32_t, std::uint32_t, b == 0 ? -1 : std::int64_t{a} / b)        \
  B(DivU64, std::uint64_t, std::uint64_t, b == 0 ? ~std::uint64_t{0} : a / b)      \
  B(DivS64, std::int64_t, std::uint64_t, b == 0 ? -1 : static_cast<Int128>(a) / b) \
  B(RemU32, std::uint32_t, std::uint32_t, b == 0 ? a : a % b)                      \
  B(RemS32, std::int32_t, std::uint32_t, b == 0 ? a : std::int64_t{a} % b)         \
  B(RemU64, std::uint64_t, std::uint64_t, b == 0 ? a : a % b)                      \
  B(RemS64, std::int64_t, std::uint64_t, b == 0 ? a : static_cast<Int128>(a) % b)

// Amounts are 32 bits, and clamp.
#define WP_PTX_SHIFTS(B)                                                     \
  B(Shl16, std::uint16_t, std::uint16_t, b > 15 ? 0 : std::uint32_t{a} << b) \
  B(Shl32, std::uint32_t, std::uint32_t, b > 31 ? 0 : a << b)                \
  B(Shl64, std::uint64_t, std::uint64_t, b > 63 ? 0 : a << b)                \
  B(ShrU16, std::uint16_t, std::uint16_t, b > 15 ? 0 : a >> b)               \
  B(ShrU32, std::uint32_t, std::uint32_t, b > 31 ? 0 : a >> b)               \
  B(ShrU64, std::uint64_t, std::uint64_t, b > 63 ? 0 : a >> b)               \
  B(ShrS16, std::int16_t, std::uint16_t, a >> (b > 15 ? 15 : b))             \
  B(ShrS32, std::int32_t, std::uint32_t, a >> (b > 31 ? 31 : b))             \
  B(ShrS64, std::int64_t, std::uint64_t, a >> (b > 63 ? 63 : b))

// Each as a result (Set), as a branch (BrIf) and as a branch if not (BrUnless), RR and RI: six handlers in
// this order.
#define WP_PTX_COMPARE_OF_TYPE(C, suffix, T) \
  C(Eq##suffix, T, ==)                       \
  C(Ne##suffix, T, !=) C(Lt##suffix, T, <) C(Le##suffix, T, <=) C(Gt##suffix, T, >) C(Ge##suffix, T, >=)
#define WP_PTX_COMPARE(C)                       \
  WP_PTX_COMPARE_OF_TYPE(C, U16, std::uint16_t) \
  WP_PTX_COMPARE_OF_TYPE(C, S16, std::int16_t)  \
  WP_PTX_COMPARE_OF_TYPE(C, U32, std::uint32_t) \
  WP_PTX_COMPARE_OF_TYPE(C, S32, std::int32_t)  \
  WP_PTX_COMPARE_OF_TYPE(C, U64, std::uint64_t) \
  WP_PTX_COMPARE_OF_TYPE(C, S64, std::int64_t)

// Type in memory, and unsigned type of its size. Address: slot a + imm. Loads extend to 64 bits.
#define WP_PTX_LOADS(M)                \
  M(U8, std::uint8_t, std::uint8_t)    \
  M(U16, std::uint16_t, std::uint16_t) \
  M(U32, std::uint32_t, std::uint32_t) \
  M(U64, std::uint64_t, std::uint64_t) \
  M(S8, std::int8_t, std::uint8_t)     \
  M(S16, std::int16_t, std::uint16_t)  \
  M(S32, std::int32_t, std::uint32_t)
// Value: slot b.
#define WP_PTX_STORES(M) M(8, std::uint8_t) M(16, std::uint16_t) M(32, std::uint32_t) M(64, std::uint64_t)

// Mov: d = a. MovImm: d = imm. Mask: d = a & imm. SignExtend: d = a << imm >> imm, signed, then cut to the
// low 64 - bits bits. Mad: d = a * b + c. Select: d = c ? a : b. BfeU64Const: d = a >> bits & imm. Bfi32: a
// into b at c, e bits. Prmt: its default mode. BrIf, BrUnless: predicate a. Call: function(machine, frame,
// op). Meet: a barrier or warp operation, where the block's runner goes on. LoadParam: byte imm of the
// kernel's parameters.
#define WP_PTX_OTHERS(X) \
  X(Mov)                 \
  X(MovImm)              \
  X(Mask)                \
  X(SignExtend)          \
  X(Mad32)               \
  X(Mad64)               \
  X(MadWideU32)          \
  X(MadWideS32)          \
  X(Not16)               \
  X(Not32)               \
  X(Not64)               \
  X(NotPred)             \
  X(Neg32)               \
  X(Neg64)               \
  X(Select)              \
  X(BfeU32)              \
  X(BfeU64)              \
  X(BfeU64Const)         \
  X(Bfi32)               \
  X(Prmt)                \
  X(ShfLeftWrap)         \
  X(ShfRightWrap)        \
  X(Popc32)              \
  X(Popc64)              \
  X(Bra)                 \
  X(BrIf)                \
  X(BrUnless)            \
  X(Call)                \
  X(Meet)                \
  X(Exit)                \
  X(LoadParam8) X(LoadParam16) X(LoadParam32) X(LoadParam64)

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

enum class Opcode : std::uint16_t {
#define WP_PTX_OPCODE(name, ...) k##name##RR, k##name##RI,
  WP_PTX_BINARY(WP_PTX_OPCODE) WP_PTX_SHIFTS(WP_PTX_OPCODE)
#undef WP_PTX_OPCODE
#define WP_PTX_OPCODE(name, ...) \
  kSet##name##RR, kSet##name##RI, kBrIf##name##RR, kBrIf##name##RI, kBrUnless##name##RR, kBrUnless##name##RI,
      WP_PTX_COMPARE(WP_PTX_OPCODE)
#undef WP_PTX_OPCODE
#define WP_PTX_OPCODE(name, ...) kLoadGlobal##name, kLoadShared##name, kLoadLocal##name, kLoadGeneric##name,
          WP_PTX_LOADS(WP_PTX_OPCODE)
#undef WP_PTX_OPCODE
#define WP_PTX_OPCODE(name, ...) \
  kStoreGlobal##name, kStoreShared##name, kStoreLocal##name, kStoreGeneric##name,
              WP_PTX_STORES(WP_PTX_OPCODE)
#undef WP_PTX_OPCODE
#define WP_PTX_OPCODE(name) k##name,
                  WP_PTX_OTHERS(WP_PTX_OPCODE)
#undef WP_PTX_OPCODE
                      kNumOpcodes
};

struct MicroOp;
struct Machine;  // lane_interpreter.h

/// Does what has no handler. Returns false after a fault, which it has put into the machine.
using SlotFunction = bool (*)(Machine& machine, std::uint64_t* frame, const MicroOp& op);

struct MicroOp {
  const void* handler = nullptr;                            ///< a label in lane_interpreter.cpp
  std::uint32_t d = 0, a = 0, b = 0, c = 0, e = 0, d2 = 0;  ///< slots
  std::int64_t imm = 0;
  std::int32_t target = 0;                 ///< of a branch: how many operations further
  std::uint32_t taken = 0, not_taken = 0;  ///< basic blocks that are entered
  std::uint32_t bits = 0;                  ///< what functions want to know besides
  SlotFunction function = nullptr;
};
static_assert(sizeof(void*) != 8 || sizeof(MicroOp) == 64, "a line of the cache");

}  // namespace weightpress::ptxvm
