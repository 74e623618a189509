// Bits, shifts, comparisons and selections.
#include <array>

#include "ptxvm/lowering_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr Type kPredicate{TypeKind::kPredicate, 1};
constexpr Type kB32{TypeKind::kBits, 4};
constexpr Type kU32{TypeKind::kUnsigned, 4};

/// Types of and, or, xor and not.
bool is_logical(Type type) {
  return type.kind == TypeKind::kPredicate || (type.kind == TypeKind::kBits && type.bytes >= 2);
}

}  // namespace

void Lowering::lower_logic(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (!is_logical(type)) fail("this type is not supported");
  const Opcode opcode = instruction_->opcode == "and"  ? Opcode::kAndRR
                        : instruction_->opcode == "or" ? Opcode::kOrRR
                                                       : Opcode::kXorRR;
  emit_binary(opcode, type, type, type);
}

void Lowering::lower_not(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (!is_logical(type)) fail("this type is not supported");
  expect_operands(2);
  const std::uint32_t a = source(1, type);
  const std::uint32_t d = result(0, type);
  IrOp& op = emit(type.bytes == 1   ? Opcode::kNotPred
                  : type.bytes == 2 ? Opcode::kNot16
                  : type.bytes == 4 ? Opcode::kNot32
                                    : Opcode::kNot64);
  op.a = a;
  op.d = d;
}

void Lowering::lower_shift(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  const bool is_left = instruction_->opcode == "shl";
  if (type.bytes < 2 || type.kind == TypeKind::kFloat || (is_left && type.kind != TypeKind::kBits))
    fail("this type is not supported");
  static constexpr std::array kLeft = {Opcode::kShl16RR, Opcode::kShl32RR, Opcode::kShl64RR};
  static constexpr std::array kRight = {Opcode::kShrU16RR, Opcode::kShrU32RR, Opcode::kShrU64RR};
  static constexpr std::array kArithmetic = {Opcode::kShrS16RR, Opcode::kShrS32RR, Opcode::kShrS64RR};
  const std::size_t width = type.bytes == 2 ? 0 : type.bytes == 4 ? 1 : 2;
  const bool is_signed = type.kind == TypeKind::kSigned;
  emit_binary(is_left ? kLeft[width] : is_signed ? kArithmetic[width] : kRight[width], type, type, kU32);
}

void Lowering::lower_shf(Modifiers& modifiers) {
  const std::string_view side = modifiers.take_any({"l", "r"}), mode = modifiers.take_any({"wrap", "clamp"});
  if (side.empty() || mode.empty() || !modifiers.take("b32")) fail("the direction, mode or .b32 is missing");
  const bool is_left = side == "l";
  if (mode == "wrap") {
    emit_slots(is_left ? Opcode::kShfLeftWrap : Opcode::kShfRightWrap, kB32, 3);
  } else {
    emit_function(integer_ternary(is_left ? "shf.l.clamp" : "shf.r.clamp", kU32), kB32, 3);
  }
}

void Lowering::lower_lop3(Modifiers& modifiers) {
  if (!modifiers.take("b32")) fail(".b32 is missing");
  expect_operands(5);
  const std::uint32_t a = source(1, kB32), b = source(2, kB32), c = source(3, kB32);
  const auto truth = literal(operand(4), kB32);
  if (!truth || *truth > 255) fail("the table has to be a number below 256");
  const std::uint32_t d = result(0, kB32);
  IrOp& op = emit(Opcode::kCall);
  op.function = lop3;
  op.imm = static_cast<std::int64_t>(*truth);
  op.a = a;
  op.b = b;
  op.c = c;
  op.d = d;
}

void Lowering::lower_prmt(Modifiers& modifiers) {
  if (!modifiers.take("b32")) fail(".b32 is missing");
  const std::string_view mode = modifiers.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (mode.empty()) {
    emit_slots(Opcode::kPrmt, kB32, 3);
  } else {
    emit_function(prmt_mode(mode), kB32, 3);
  }
}

// ---- comparisons

std::string_view Lowering::take_comparison(Modifiers& modifiers) {
  const std::string_view name =
      modifiers.take_any({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu",
                          "leu", "gtu", "geu", "num", "nan"});
  if (name.empty()) fail("the comparison is missing or not known");
  return name;
}

/// Of operands 1 and 2, into d.
std::uint32_t Lowering::emit_comparison(std::string_view comparison, Type type, std::uint32_t d,
                                        std::uint32_t bits) {
  if (type.kind == TypeKind::kFloat) {
    const SlotFunction function = float_compare(comparison, type);
    if (function == nullptr) fail("the comparison does not fit the type");
    const std::uint32_t a = source(1, type), b = source(2, type);
    IrOp& op = emit(Opcode::kCall);
    op.function = function;
    op.bits = bits;
    op.a = a;
    op.b = b;
    op.d = d;
    return d;
  }
  struct Named {
    std::string_view name;
    int index;  // eq, ne, lt, le, gt, ge
    bool unsigned_only, any_type;
  };
  static constexpr Named kNames[] = {
      {"eq", 0, false, true},  {"ne", 1, false, true},  {"lt", 2, false, false}, {"le", 3, false, false},
      {"gt", 4, false, false}, {"ge", 5, false, false}, {"lo", 2, true, false},  {"ls", 3, true, false},
      {"hi", 4, true, false},  {"hs", 5, true, false}};
  const Named* named = nullptr;
  for (const Named& entry : kNames)
    if (entry.name == comparison) named = &entry;
  const bool is_signed = type.kind == TypeKind::kSigned, is_bits = type.kind == TypeKind::kBits;
  if (named == nullptr || type.bytes < 2 || (is_bits && !named->any_type) ||
      (is_signed && named->unsigned_only))
    fail("the comparison does not fit the type");
  static constexpr std::array kFirst = {Opcode::kSetEqU16RR, Opcode::kSetEqS16RR, Opcode::kSetEqU32RR,
                                        Opcode::kSetEqS32RR, Opcode::kSetEqU64RR, Opcode::kSetEqS64RR};
  const std::size_t width = type.bytes == 2 ? 0 : type.bytes == 4 ? 2 : 4;
  // Six handlers a comparison, see micro_ops.h.
  const auto opcode =
      static_cast<Opcode>(static_cast<int>(kFirst[width + (is_signed ? 1 : 0)]) + 6 * named->index);
  const std::uint32_t a = source(1, type);
  const auto number = literal(operand(2), type);
  const std::uint32_t b = number ? kNoRegister : source(2, type);
  IrOp& op = emit(opcode);
  op.a = a;
  op.b = b;
  op.d = d;
  if (number) {
    op.b_is_imm = true;
    op.imm = static_cast<std::int64_t>(*number);
  }
  return d;
}

void Lowering::lower_setp(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (type.bytes == 0) fail("the type is missing or not known");
  const std::string_view comparison = take_comparison(modifiers);
  const std::string_view combination = modifiers.take_any({"and", "or", "xor"});
  const std::uint32_t bits = modifiers.take("ftz") ? kFlushSubnormals : 0;
  expect_operands(combination.empty() ? 3 : 4);
  const bool has_pair = operand(0).kind == OperandKind::kPair;
  if (!has_pair && combination.empty()) {
    emit_comparison(comparison, type, result(0, kPredicate), bits);
    return;
  }
  const std::uint32_t other = combination.empty() ? kNoRegister : source(3, kPredicate);
  const std::uint32_t compared = emit_comparison(comparison, type, new_register(), bits);
  const std::uint32_t inverse = new_register();
  const std::uint32_t p = has_pair ? result(operand(0).parts[0], kPredicate) : result(0, kPredicate);
  const std::uint32_t q = has_pair ? result(operand(0).parts[1], kPredicate) : kNoRegister;
  const auto combine = [&](std::uint32_t d, std::uint32_t value) {
    IrOp& op = emit(combination.empty()    ? Opcode::kMov
                    : combination == "and" ? Opcode::kAndRR
                    : combination == "or"  ? Opcode::kOrRR
                                           : Opcode::kXorRR);
    op.d = d;
    op.a = value;
    op.b = other;
  };
  IrOp& invert = emit(Opcode::kNotPred);
  invert.a = compared;
  invert.d = inverse;
  // Both results are ready before one of them, which may be `other`, is written.
  const std::uint32_t second = new_register();
  if (q != kNoRegister) combine(second, inverse);
  combine(p, compared);
  if (q == kNoRegister) return;
  IrOp& move = emit(Opcode::kMov);
  move.d = q;
  move.a = second;
}

void Lowering::lower_set(Modifiers& modifiers) {
  const Type type = modifiers.take_type(), d_type = modifiers.take_type();
  if (type.bytes == 0 || d_type.bytes != 4 || d_type.kind == TypeKind::kBits)
    fail("the types are not supported");
  const std::string_view comparison = take_comparison(modifiers);
  const std::string_view combination = modifiers.take_any({"and", "or", "xor"});
  const std::uint32_t bits = modifiers.take("ftz") ? kFlushSubnormals : 0;
  expect_operands(combination.empty() ? 3 : 4);
  const std::uint32_t other = combination.empty() ? kNoRegister : source(3, kPredicate);
  std::uint32_t truth = emit_comparison(comparison, type, new_register(), bits);
  if (!combination.empty()) {
    const std::uint32_t combined = new_register();
    IrOp& op = emit(combination == "and"  ? Opcode::kAndRR
                    : combination == "or" ? Opcode::kOrRR
                                          : Opcode::kXorRR);
    op.d = combined;
    op.a = truth;
    op.b = other;
    truth = combined;
  }
  const std::uint32_t yes = constant(d_type.kind == TypeKind::kFloat ? 0x3F800000 : 0xFFFFFFFF),
                      no = constant(0);
  const std::uint32_t d = result(0, d_type);
  IrOp& op = emit(Opcode::kSelect);
  op.a = yes;
  op.b = no;
  op.c = truth;
  op.d = d;
}

void Lowering::lower_selp(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (type.bytes < 2) fail("this type is not supported");
  expect_operands(4);
  const std::uint32_t a = source(1, type), b = source(2, type), c = source(3, kPredicate);
  const std::uint32_t d = result(0, type);
  IrOp& op = emit(Opcode::kSelect);
  op.a = a;
  op.b = b;
  op.c = c;
  op.d = d;
}

/// d = c >= 0 ? a : b
void Lowering::lower_slct(Modifiers& modifiers) {
  const Type c_type = modifiers.take_type(), type = modifiers.take_type();
  const bool is_float = c_type == Type{TypeKind::kFloat, 4};
  if (type.bytes < 2 || (!is_float && c_type != Type{TypeKind::kSigned, 4}))
    fail("the types are not supported");
  const std::uint32_t bits = modifiers.take("ftz") ? kFlushSubnormals : 0;
  expect_operands(4);
  const std::uint32_t a = source(1, type), b = source(2, type), c = source(3, c_type);
  const std::uint32_t d = result(0, type), truth = new_register();
  const std::uint32_t zero = constant(0);
  IrOp& compare = emit(is_float ? Opcode::kCall : Opcode::kSetGeS32RR);
  compare.d = truth;
  compare.a = c;
  compare.b = zero;
  if (is_float) {
    compare.function = float_compare("ge", c_type);
    compare.bits = bits;
  }
  IrOp& op = emit(Opcode::kSelect);
  op.a = a;
  op.b = b;
  op.c = truth;
  op.d = d;
}

}  // namespace weightpress::ptxvm
