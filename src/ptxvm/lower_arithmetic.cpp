// Arithmetic on integers and floats.
#include "ptxvm/lowering_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr Type kPredicate{TypeKind::kPredicate, 1};

bool is_integer(Type type) {
  return (type.kind == TypeKind::kUnsigned || type.kind == TypeKind::kSigned) && type.bytes >= 2;
}
bool is_float(Type type) {
  return type.kind == TypeKind::kFloat && type.bytes >= 4;
}

/// Of the opcodes for 16, 32 and 64 bits, which lie one after the other.
Opcode of_width(Opcode b16, Opcode b32, Opcode b64, Type type) {
  return type.bytes == 2 ? b16 : type.bytes == 4 ? b32 : b64;
}
#define WP_PTX_OF_WIDTH(name, type) \
  of_width(Opcode::k##name##16RR, Opcode::k##name##32RR, Opcode::k##name##64RR, type)

}  // namespace

void Lowering::lower_carry(std::string_view name, Type type, bool in, bool out) {
  if (instance_->carry == kNoRegister) instance_->carry = new_register();
  const std::size_t num_sources = name.starts_with("mad") ? 3 : 2;
  if (type.kind == TypeKind::kBits) type.kind = TypeKind::kUnsigned;
  emit_function(with_carry(name, type), type, num_sources, (in ? kCarryIn : 0) | (out ? kCarryOut : 0));
  IrOp& op = out_.ops.back();
  if (in) op.e = instance_->carry;
  if (out) op.d2 = instance_->carry;
}

void Lowering::lower_add(Modifiers& modifiers) {
  const std::string_view opcode = instruction_->opcode;
  const std::string_view name = opcode.substr(0, 3);
  const Type type = modifiers.take_type();
  const bool in = opcode.size() == 4, out = modifiers.take("cc");
  if (in || out) return lower_carry(name, type, in, out);
  if (is_float(type)) {
    const std::uint32_t bits = take_float_bits(modifiers, type);
    return emit_function(float_function(name, type), type, 2, bits);
  }
  if (!is_integer(type)) fail("this type is not supported");
  if (modifiers.take("sat")) {
    if (type != Type{TypeKind::kSigned, 4}) fail("only .s32 can be saturated");
    return emit_function(integer_binary(name == "add" ? "addsat" : "subsat", type), type, 2);
  }
  emit_binary(name == "add" ? WP_PTX_OF_WIDTH(Add, type) : WP_PTX_OF_WIDTH(Sub, type), type, type, type);
}

void Lowering::lower_mul(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (is_float(type)) {
    const std::uint32_t bits = take_float_bits(modifiers, type);
    return emit_function(float_function("mul", type), type, 2, bits);
  }
  if (!is_integer(type)) fail("this type is not supported");
  const bool is_signed = type.kind == TypeKind::kSigned;
  const std::string_view part = modifiers.take_any({"lo", "hi", "wide"});
  if (part == "lo") return emit_binary(WP_PTX_OF_WIDTH(Mul, type), type, type, type);
  if (part == "hi") {
    if (type.bytes == 2) return emit_function(integer_binary("mulhi", type), type, 2);
    const Opcode high = type.bytes == 4 ? (is_signed ? Opcode::kMulHiS32RR : Opcode::kMulHiU32RR)
                                        : (is_signed ? Opcode::kMulHiS64RR : Opcode::kMulHiU64RR);
    return emit_binary(high, type, type, type);
  }
  if (part.empty() || type.bytes == 8) fail(".lo, .hi or .wide is missing, or the type is too wide");
  const Opcode wide = type.bytes == 2 ? (is_signed ? Opcode::kMulWideS16RR : Opcode::kMulWideU16RR)
                                      : (is_signed ? Opcode::kMulWideS32RR : Opcode::kMulWideU32RR);
  emit_binary(wide, {type.kind, static_cast<std::uint8_t>(2 * type.bytes)}, type, type);
}

void Lowering::lower_mad(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (is_float(type)) return lower_fma(modifiers);
  if (!is_integer(type)) fail("this type is not supported");
  const std::string_view part = modifiers.take_any({"lo", "hi", "wide"});
  const bool in = instruction_->opcode == "madc", out = modifiers.take("cc");
  if (in || out) {
    if (part != "lo" && part != "hi") fail("only .lo and .hi have a carry");
    return lower_carry(part == "lo" ? "madlo" : "madhi", type, in, out);
  }
  if (part == "hi") {
    const bool saturates = modifiers.take("sat");
    if (saturates && type != Type{TypeKind::kSigned, 4}) fail("only .s32 can be saturated");
    return emit_function(integer_ternary(saturates ? "madhi.sat" : "madhi", type), type, 3);
  }
  if (part == "lo" && type.bytes == 2) return emit_function(integer_ternary("mad", type), type, 3);
  if (part.empty() || (part == "wide" && type.bytes == 8))
    fail(".lo, .hi or .wide is missing, or the type is too wide");
  const bool is_wide = part == "wide";
  const Type sum{type.kind, static_cast<std::uint8_t>(is_wide ? 2 * type.bytes : type.bytes)};
  expect_operands(4);
  const std::uint32_t a = source(1, type), b = source(2, type), c = source(3, sum);
  const std::uint32_t d = result(0, sum);
  const bool is_signed = type.kind == TypeKind::kSigned;
  IrOp& op = emit(is_wide && type.bytes == 2 ? Opcode::kCall
                  : is_wide                  ? (is_signed ? Opcode::kMadWideS32 : Opcode::kMadWideU32)
                  : type.bytes == 4          ? Opcode::kMad32
                                             : Opcode::kMad64);
  if (op.opcode == Opcode::kCall) op.function = integer_ternary("madwide", type);
  op.a = a;
  op.b = b;
  op.c = c;
  op.d = d;
}

void Lowering::lower_fma(Modifiers& modifiers) {
  Type type = modifiers.take_type();
  if (type.bytes == 0) type = parse_type(type_name());  // lower_mad() has taken it
  if (!is_float(type)) fail("this type is not supported");
  if (!modifiers.take("rn")) fail("only .rn is supported, and has to be said");
  const std::uint32_t bits = take_float_bits(modifiers, type);
  emit_function(float_function("fma", type), type, 3, bits);
}

void Lowering::lower_mul24(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (!is_integer(type) || type.bytes != 4) fail("this type is not supported");
  const std::string_view part = modifiers.take_any({"lo", "hi"});
  if (part.empty()) fail(".lo or .hi is missing");
  const bool is_mad = instruction_->opcode == "mad24";
  const SlotFunction function = integer_ternary(part == "lo" ? "mad24.lo" : "mad24.hi", type);
  emit_function(function, type, is_mad ? 3 : 2);
  if (!is_mad) out_.ops.back().c = constant(0);
}

void Lowering::lower_div(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  const bool is_div = instruction_->opcode == "div";
  if (is_div && is_float(type)) {
    // .approx and .full have results that only the hardware knows.
    if (!modifiers.take("rn")) fail("only .rn is supported: the results of approximations are not defined");
    const std::uint32_t bits = take_float_bits(modifiers, type);
    return emit_function(float_function("div", type), type, 2, bits);
  }
  if (!is_integer(type)) fail("this type is not supported");
  const bool is_signed = type.kind == TypeKind::kSigned;
  if (type.bytes == 2) return emit_function(integer_binary(instruction_->opcode, type), type, 2);
  const Opcode div = type.bytes == 4 ? (is_signed ? Opcode::kDivS32RR : Opcode::kDivU32RR)
                                     : (is_signed ? Opcode::kDivS64RR : Opcode::kDivU64RR);
  const Opcode rem = type.bytes == 4 ? (is_signed ? Opcode::kRemS32RR : Opcode::kRemU32RR)
                                     : (is_signed ? Opcode::kRemS64RR : Opcode::kRemU64RR);
  emit_binary(is_div ? div : rem, type, type, type);
}

/// rcp and sqrt. nvcc divides 128-bit integers by way of rcp.approx.f32, and corrects what it gives: the
/// value nearest to the truth is within what the PTX ISA allows it to be.
void Lowering::lower_rcp(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  const bool is_approximate_rcp =
      instruction_->opcode == "rcp" && type == Type{TypeKind::kFloat, 4} && modifiers.take("approx");
  if (!is_float(type) || (!is_approximate_rcp && !modifiers.take("rn")))
    fail("only .rn is supported: the results of approximations are not defined");
  const std::uint32_t bits = take_float_bits(modifiers, type);
  emit_function(float_function(instruction_->opcode, type), type, 1, bits);
}

void Lowering::lower_minmax(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  const bool is_min = instruction_->opcode == "min";
  if (is_float(type)) {
    std::uint32_t bits = modifiers.take("ftz") ? kFlushSubnormals : 0;
    if (modifiers.take("NaN")) bits |= kPropagateNan;
    return emit_function(float_function(instruction_->opcode, type), type, 2, bits);
  }
  if (!is_integer(type)) fail("this type is not supported");
  if (type.kind == TypeKind::kSigned)
    return emit_binary(is_min ? WP_PTX_OF_WIDTH(MinS, type) : WP_PTX_OF_WIDTH(MaxS, type), type, type, type);
  emit_binary(is_min ? WP_PTX_OF_WIDTH(MinU, type) : WP_PTX_OF_WIDTH(MaxU, type), type, type, type);
}

void Lowering::lower_unary(Modifiers& modifiers) {
  const std::string_view name = instruction_->opcode;
  const Type type = modifiers.take_type();
  const bool keeps_sign = name == "abs" || name == "neg";
  if (keeps_sign && is_float(type)) {
    const std::uint32_t bits = modifiers.take("ftz") ? kFlushSubnormals : 0;
    return emit_function(float_function(name, type), type, 1, bits);
  }
  const bool is_bits = name == "cnot" || name == "popc" || name == "clz" || name == "brev";
  const bool is_wide = type.bytes == 4 || type.bytes == 8;
  if (keeps_sign ? type.kind != TypeKind::kSigned || type.bytes < 2
      : is_bits  ? type.kind != TypeKind::kBits || !(is_wide || (name == "cnot" && type.bytes == 2))
                 : !is_integer(type) || !is_wide) {
    fail("this type is not supported");
  }
  expect_operands(2);
  const bool counts = name == "popc" || name == "clz" || name == "bfind";
  const std::uint32_t a = source(1, type);
  const std::uint32_t d = result(0, counts ? Type{TypeKind::kUnsigned, 4} : type);
  const bool is_32 = type.bytes == 4;
  const Opcode opcode = name == "popc"                     ? (is_32 ? Opcode::kPopc32 : Opcode::kPopc64)
                        : name == "neg" && type.bytes != 2 ? (is_32 ? Opcode::kNeg32 : Opcode::kNeg64)
                                                           : Opcode::kCall;
  const bool is_shift = name == "bfind" && modifiers.take("shiftamt");
  IrOp& op = emit(opcode);
  op.a = a;
  op.d = d;
  if (opcode == Opcode::kCall) op.function = integer_unary(is_shift ? "bfind.shiftamt" : name, type);
}

void Lowering::lower_sad(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (!is_integer(type)) fail("this type is not supported");
  emit_function(integer_ternary("sad", type), type, 3);
}

void Lowering::lower_bfe(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (!is_integer(type) || type.bytes == 2) fail("this type is not supported");
  constexpr Type kU32{TypeKind::kUnsigned, 4};
  expect_operands(4);
  const auto first = literal(operand(2), kU32), length = literal(operand(3), kU32);
  const std::uint32_t a = source(1, type);
  const bool is_unsigned = type.kind == TypeKind::kUnsigned;
  if (is_unsigned && first && length && (*first & 255) < 8U * type.bytes) {
    const unsigned bits = *length & 255;
    const std::uint32_t d = result(0, type);
    IrOp& op = emit(Opcode::kBfeU64Const);
    op.a = a;
    op.d = d;
    op.bits = *first & 255;
    op.imm = bits > 63 ? -1 : static_cast<std::int64_t>((std::uint64_t{1} << bits) - 1);
    return;
  }
  const std::uint32_t b = source(2, kU32), c = source(3, kU32);
  const std::uint32_t d = result(0, type);
  IrOp& op = emit(!is_unsigned ? Opcode::kCall : type.bytes == 4 ? Opcode::kBfeU32 : Opcode::kBfeU64);
  if (!is_unsigned) op.function = integer_ternary("bfe", type);
  op.a = a;
  op.b = b;
  op.c = c;
  op.d = d;
}

void Lowering::lower_bfi(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (type.kind != TypeKind::kBits || type.bytes < 4) fail("this type is not supported");
  constexpr Type kU32{TypeKind::kUnsigned, 4};
  expect_operands(5);
  const std::uint32_t a = source(1, type), b = source(2, type), c = source(3, kU32), e = source(4, kU32);
  const std::uint32_t d = result(0, type);
  IrOp& op = emit(type.bytes == 4 ? Opcode::kBfi32 : Opcode::kCall);
  if (type.bytes == 8) op.function = integer_ternary("bfi", {TypeKind::kUnsigned, 8});
  op.a = a;
  op.b = b;
  op.c = c;
  op.e = e;
  op.d = d;
}

/// bmsk and szext.
void Lowering::lower_bmsk(Modifiers& modifiers) {
  Type type = modifiers.take_type();
  const bool is_bmsk = instruction_->opcode == "bmsk";
  const std::string_view mode = modifiers.take_any({"clamp", "wrap"});
  if (mode.empty() || type.bytes != 4 || (type.kind == TypeKind::kBits) != is_bmsk)
    fail("the mode or type is not supported");
  if (is_bmsk) type.kind = TypeKind::kUnsigned;
  const std::string name = std::string(instruction_->opcode) + "." + std::string(mode);
  emit_function(integer_binary(name, type), type, 2);
}

void Lowering::lower_dot(Modifiers& modifiers) {
  const Type b = modifiers.take_type(), a = modifiers.take_type();
  if (!is_integer(a) || !is_integer(b) || a.bytes != 4 || b.bytes != 4) fail("the types are not supported");
  std::uint32_t high = 0;
  if (instruction_->opcode == "dp2a") {
    const std::string_view half = modifiers.take_any({"lo", "hi"});
    if (half.empty()) fail(".lo or .hi is missing");
    high = half == "hi" ? 1 : 0;
  }
  emit_function(dot_product(instruction_->opcode, a, b), a, 3, high);
}

void Lowering::lower_testp(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  const std::string_view property =
      modifiers.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const SlotFunction function = float_test(property, type);
  if (function == nullptr) fail("the property or type is not known");
  expect_operands(2);
  const std::uint32_t a = source(1, type);
  const std::uint32_t d = result(0, kPredicate);
  IrOp& op = emit(Opcode::kCall);
  op.function = function;
  op.a = a;
  op.d = d;
}

void Lowering::lower_copysign(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  emit_function(float_function("copysign", type), type, 2);
}

}  // namespace weightpress::ptxvm
