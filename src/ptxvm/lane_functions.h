// What lanes do without a handler of its own in lane_interpreter.cpp. Each gives a function for the type and
// modifiers of a PTX instruction, or nullptr if there is no such form. Slots: result d, operands a, b, c, as
// the PTX instruction has them.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptxvm/micro_ops.h"
#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

// ---- lane_integer_functions.cpp

/// abs, neg, cnot, clz, bfind, bfind.shiftamt, brev, popc; div, rem, mulhi, addsat, subsat; szext, bmsk with
/// .clamp or .wrap.
SlotFunction integer_unary(std::string_view name, Type type);
SlotFunction integer_binary(std::string_view name, Type type);
/// mad (16 bits), madhi, mad24, mul24 (c: 0), madwide (16 bits), sad, bfe, bfi (fourth operand e), shfl, shfr
/// (clamped).
SlotFunction integer_ternary(std::string_view name, Type type);
/// add, sub, madlo, madhi with a carry: in from slot e, out to slot d2. bits: kCarryIn, kCarryOut.
SlotFunction with_carry(std::string_view name, Type type);
constexpr std::uint32_t kCarryIn = 1, kCarryOut = 2;
/// imm: the table.
bool lop3(Machine& machine, std::uint64_t* frame, const MicroOp& op);
/// f4e, b4e, rc8, ecl, ecr, rc16.
SlotFunction prmt_mode(std::string_view mode);
/// dp4a.btype.atype. dp2a: bits: 0 lo, 1 hi.
SlotFunction dot_product(std::string_view name, Type a, Type b);
/// An integer a of type `from`, clamped to the range of `to`.
SlotFunction saturate(Type to, Type from);

// ---- lane_float_functions.cpp; bits: these
constexpr std::uint32_t kFlushSubnormals = 1, kSaturate = 2, kPropagateNan = 4;
/// How a value is rounded, from bit 4 of bits on.
enum class Rounding : std::uint8_t { kNearest, kZero, kDown, kUp };
constexpr int kRoundingShift = 4;

/// add, sub, mul, div, min, max, copysign; abs, neg, rcp, sqrt; fma.
SlotFunction float_function(std::string_view name, Type type);
/// eq ne lt le gt ge, equ neu ltu leu gtu geu, num nan: 0 or 1.
SlotFunction float_compare(std::string_view comparison, Type type);
/// finite, infinite, number, notanumber, normal, subnormal.
SlotFunction float_test(std::string_view property, Type type);
/// Conversions with a float on one side or both; `to_integral`: a float rounded to a whole number.
SlotFunction float_convert(Type to, Type from, bool to_integral);

// ---- lane_atomics.cpp

/// atom and red: the address is a + imm, operands b and c, the value before goes to d. bits: as for loads,
/// and the space.
SlotFunction atomic_function(std::string_view name, Type type);
constexpr int kAtomicSpaceShift = 24;
constexpr std::uint32_t kNoResult = 4;  ///< red

// ---- lane_system_functions.cpp

/// The special register's function, or nullptr.
SlotFunction special_register(std::string_view name);
bool is_in_space(Machine& machine, std::uint64_t* frame, const MicroOp& op);  ///< bits: Space; isspacep
bool trap(Machine& machine, std::uint64_t* frame, const MicroOp& op);
/// imm: where in local memory the four arguments of __assertfail lie that are told, 16 bits each.
bool fail_assertion(Machine& machine, std::uint64_t* frame, const MicroOp& op);
bool fence(Machine& machine, std::uint64_t* frame, const MicroOp& op);

}  // namespace weightpress::ptxvm
