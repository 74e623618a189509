// Moves, conversions, loads, stores and atomics.
#include <algorithm>
#include <array>

#include "ptxvm/lane_access.h"
#include "ptxvm/lowering_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr Type kPredicate{TypeKind::kPredicate, 1};
constexpr Type kB64{TypeKind::kBits, 8};

unsigned bits_of(Type type) {
  return 8U * type.bytes;
}

std::size_t log2_bytes(Type type) {
  return type.bytes == 1 ? 0 : type.bytes == 2 ? 1 : type.bytes == 4 ? 2 : 3;
}

/// Of the four opcodes Global, Shared, Local, Generic of a load or store.
Opcode in_space(Opcode global, Space space) {
  const int index = space == Space::kShared    ? 1
                    : space == Space::kLocal   ? 2
                    : space == Space::kGeneric ? 3
                                               : 0;
  return static_cast<Opcode>(static_cast<int>(global) + index);
}

Opcode load_opcode(Type type, Space space) {
  static constexpr std::array kUnsigned = {Opcode::kLoadGlobalU8, Opcode::kLoadGlobalU16,
                                           Opcode::kLoadGlobalU32, Opcode::kLoadGlobalU64};
  static constexpr std::array kSigned = {Opcode::kLoadGlobalS8, Opcode::kLoadGlobalS16,
                                         Opcode::kLoadGlobalS32, Opcode::kLoadGlobalU64};
  return in_space((type.kind == TypeKind::kSigned ? kSigned : kUnsigned)[log2_bytes(type)], space);
}

Opcode store_opcode(Type type, Space space) {
  static constexpr std::array kStores = {Opcode::kStoreGlobal8, Opcode::kStoreGlobal16,
                                         Opcode::kStoreGlobal32, Opcode::kStoreGlobal64};
  return in_space(kStores[log2_bytes(type)], space);
}

std::string_view take_space(Modifiers& modifiers) {
  return modifiers.take_any(
      {"global", "shared", "shared::cta", "local", "const", "param", "param::entry", "param::func"});
}

Space space_of(std::string_view name) {
  if (name == "global") return Space::kGlobal;
  if (name.starts_with("shared")) return Space::kShared;
  if (name == "local") return Space::kLocal;
  if (name == "const") return Space::kConst;
  return name.starts_with("param") ? Space::kParam : Space::kGeneric;
}

}  // namespace

// ---- moves

void Lowering::lower_mov(Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  if (type.bytes == 0 || (type.bytes == 1 && type.kind != TypeKind::kPredicate))
    fail("this type is not supported");
  expect_operands(2);
  if (operand(0).kind == OperandKind::kVector) return unpack(type);
  if (operand(1).kind == OperandKind::kVector) return pack(type);
  const std::uint32_t d = result(0, type);
  if (const auto number = literal(operand(1), type)) {
    IrOp& op = emit(Opcode::kMovImm);
    op.d = d;
    op.imm = static_cast<std::int64_t>(*number);
    return;
  }
  if (operand(1).kind == OperandKind::kSpecial) {
    const SlotFunction read = special_register(operand(1).name);
    if (read == nullptr) fail("the special register " + std::string(operand(1).name) + " is not known");
    IrOp& op = emit(Opcode::kCall);
    op.function = read;
    op.d = d;
    return;
  }
  const std::uint32_t a = source(1, type);
  IrOp& op = emit(Opcode::kMov);
  op.a = a;
  op.d = d;
}

void Lowering::pack(Type type) {
  const std::vector<Operand>& parts = operand(1).parts;
  const unsigned part_bytes = parts.empty() ? 0 : type.bytes / static_cast<unsigned>(parts.size());
  if (part_bytes == 0 || part_bytes * parts.size() != type.bytes) fail("the parts do not make up the type");
  const Type part_type{TypeKind::kBits, static_cast<std::uint8_t>(part_bytes)};
  std::uint32_t sum = source(parts[0], part_type, part_bytes == 1);
  if (part_bytes == 1) {
    const std::uint32_t byte = new_register();
    emit_mask(byte, sum, 8);
    sum = byte;
  }
  const std::uint32_t d = result(0, type);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::uint32_t part = source(parts[i], part_type, part_bytes == 1);
    if (part_bytes == 1) {
      const std::uint32_t byte = new_register();
      emit_mask(byte, part, 8);
      part = byte;
    }
    const std::uint32_t shifted = new_register(), joined = i + 1 == parts.size() ? d : new_register();
    IrOp& shift = emit(Opcode::kShl64RR);
    shift.b_is_imm = true;
    shift.imm = static_cast<std::int64_t>(8 * part_bytes * i);
    shift.a = part;
    shift.d = shifted;
    IrOp& join = emit(Opcode::kOrRR);
    join.a = sum;
    join.b = shifted;
    join.d = joined;
    sum = joined;
  }
  if (parts.size() == 1) emit_mask(d, sum, 64);
}

void Lowering::unpack(Type type) {
  const std::vector<Operand>& parts = operand(0).parts;
  const unsigned part_bytes = parts.empty() ? 0 : type.bytes / static_cast<unsigned>(parts.size());
  if (part_bytes == 0 || part_bytes * parts.size() != type.bytes) fail("the parts do not make up the type");
  const Type part_type{TypeKind::kBits, static_cast<std::uint8_t>(part_bytes)};
  // One of the parts may be what is unpacked.
  const std::uint32_t from = source(1, type), whole = new_register();
  emit_mask(whole, from, 64);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == OperandKind::kNothing) continue;
    const std::uint32_t d = result(parts[i], part_type, part_bytes == 1);
    IrOp& op = emit(Opcode::kBfeU64Const);
    op.a = whole;
    op.d = d;
    op.bits = static_cast<std::uint32_t>(8 * part_bytes * i);
    op.imm = part_bytes == 8 ? -1 : static_cast<std::int64_t>((std::uint64_t{1} << 8 * part_bytes) - 1);
  }
}

// ---- conversions

void Lowering::lower_cvt(Modifiers& modifiers) {
  const Type from = modifiers.take_type(), to = modifiers.take_type();
  if (from.bytes == 0 || to.bytes == 0 || from.kind == TypeKind::kBits || to.kind == TypeKind::kBits ||
      from.kind == TypeKind::kPredicate || to.kind == TypeKind::kPredicate) {
    fail("the types are not supported");
  }
  expect_operands(2);
  const bool saturates = modifiers.take("sat");
  const std::uint32_t a = source(1, from, true);
  const std::uint32_t d = result(0, to, true);
  const unsigned d_bits = operand(0).kind == OperandKind::kRegister ? register_bits(operand(0)) : bits_of(to);
  const bool extends_sign = to.kind == TypeKind::kSigned && d_bits > bits_of(to);
  const bool from_float = from.kind == TypeKind::kFloat, to_float = to.kind == TypeKind::kFloat;
  if (from_float || to_float) {
    const std::string_view name = modifiers.take_any({"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"});
    const bool is_integral = name.size() == 3;
    if (is_integral != (!name.empty() && from_float && (!to_float || from == to)))
      fail("the rounding does not fit the types");
    const bool needs_rounding =
        (from_float && !to_float) || (!from_float && to_float) || (to.bytes < from.bytes);
    if (needs_rounding && name.empty()) fail("the rounding is missing");
    const Rounding rounding = name.starts_with("rz")   ? Rounding::kZero
                              : name.starts_with("rm") ? Rounding::kDown
                              : name.starts_with("rp") ? Rounding::kUp
                                                       : Rounding::kNearest;
    std::uint32_t bits = static_cast<std::uint32_t>(rounding) << kRoundingShift;
    if (modifiers.take("ftz")) bits |= kFlushSubnormals;
    if (saturates && to_float) bits |= kSaturate;
    const SlotFunction function = float_convert(to, from, is_integral);
    if (function == nullptr) fail("the types are not supported");
    IrOp& op = emit(Opcode::kCall);
    op.function = function;
    op.bits = bits;
    op.a = a;
    op.d = d;
    if (extends_sign) emit_sign_extend(d, d, bits_of(to), d_bits);
    return;
  }
  if (saturates) {
    IrOp& op = emit(Opcode::kCall);
    op.function = saturate(to, from);
    op.a = a;
    op.d = d;
    if (extends_sign) emit_sign_extend(d, d, bits_of(to), d_bits);
    return;
  }
  if (bits_of(to) <= bits_of(from)) {
    if (extends_sign) return emit_sign_extend(d, a, bits_of(to), d_bits);
    return emit_mask(d, a, bits_of(to));
  }
  if (from.kind != TypeKind::kSigned) return emit_mask(d, a, bits_of(from));
  emit_sign_extend(d, a, bits_of(from), extends_sign ? d_bits : bits_of(to));
}

void Lowering::lower_cvta(Modifiers& modifiers) {
  const bool is_to = modifiers.take("to");
  const std::string_view name = take_space(modifiers);
  if (name.empty() || !modifiers.take("u64")) fail("the space or .u64 is missing");
  expect_operands(2);
  const Space space = space_of(name);
  const std::uint64_t window = space == Space::kShared  ? kSharedWindow
                               : space == Space::kLocal ? kLocalWindow
                                                        : 0;
  const std::uint32_t a = source(1, kB64);
  const std::uint32_t d = result(0, kB64);
  IrOp& op = emit(window == 0 ? Opcode::kMov : is_to ? Opcode::kSub64RR : Opcode::kAdd64RR);
  op.a = a;
  op.d = d;
  if (window == 0) return;
  op.b_is_imm = true;
  op.imm = static_cast<std::int64_t>(window);
}

void Lowering::lower_isspacep(Modifiers& modifiers) {
  const std::string_view name = take_space(modifiers);
  if (name.empty()) fail("the space is missing or not supported");
  expect_operands(2);
  const std::uint32_t a = source(1, kB64);
  const std::uint32_t d = result(0, kPredicate);
  IrOp& op = emit(Opcode::kCall);
  op.function = is_in_space;
  op.bits = static_cast<std::uint32_t>(space_of(name));
  op.a = a;
  op.d = d;
}

// ---- memory

Lowering::Access Lowering::take_access(Modifiers& modifiers, bool is_store) {
  Access access;
  access.type = modifiers.take_type();
  if (access.type.bytes == 0 || access.type.kind == TypeKind::kPredicate)
    fail("the type is missing or not supported");
  const std::string_view order =
      modifiers.take_any({"volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "mmio"});
  access.acquires = order == "acquire" || order == "acq_rel";
  access.releases = order == "release" || order == "acq_rel";
  modifiers.take_any({"cta", "cluster", "gpu", "sys"});
  access.space = space_of(take_space(modifiers));
  const std::string_view vector = modifiers.take_any({"v2", "v4"});
  access.lanes = vector.empty() ? 1 : vector == "v2" ? 2 : 4;
  if (access.lanes * access.type.bytes > 32) fail("the vector is too long");
  // What caches should do changes no result.
  if (is_store) {
    modifiers.take_any({"wb", "cg", "cs", "wt"});
  } else {
    modifiers.take_any({"ca", "cg", "cs", "lu", "cv"});
  }
  modifiers.drop_prefixed("L1::");
  modifiers.drop_prefixed("L2::");
  return access;
}

bool Lowering::is_variable(std::size_t index) const {
  return has_operand(index) && operand(index).kind == OperandKind::kAddress &&
         operand(index).parts[0].kind == OperandKind::kLocalVariable;
}

/// Of a function's parameter or result, which lies in local memory; an address in a register is generic.
Lowering::Address Lowering::parameter_address(std::size_t index, Access& access) {
  Address place = address(index, Space::kParam);
  access.space = is_variable(index) ? Space::kLocal : Space::kGeneric;
  if (access.space == Space::kLocal) place.offset -= static_cast<std::int64_t>(kLocalWindow);
  return place;
}

/// From the kernel's parameters, whose places are known.
void Lowering::load_parameter(const Access& access, const std::vector<Operand>& results) {
  const Operand& brackets = operand(1);
  const std::uint64_t first = instance_->places[brackets.parts[0].index] +
                              static_cast<std::uint64_t>(brackets.parts[0].integer) +
                              static_cast<std::uint64_t>(brackets.integer);
  const std::uint64_t bytes = access.type.bytes * std::uint64_t{access.lanes};
  if (first > layout_.parameter_bytes || bytes > layout_.parameter_bytes - first || first % bytes != 0)
    fail("the address lies outside the parameters, or between two values");
  static constexpr std::array kLoads = {Opcode::kLoadParam8, Opcode::kLoadParam16, Opcode::kLoadParam32,
                                        Opcode::kLoadParam64};
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::uint32_t d = result(results[i], access.type, true);
    IrOp& op = emit(kLoads[log2_bytes(access.type)]);
    op.d = d;
    op.imm = static_cast<std::int64_t>(first + i * access.type.bytes);
    const unsigned d_bits = results[i].kind == OperandKind::kRegister ? register_bits(results[i]) : 64;
    if (access.type.kind == TypeKind::kSigned && d_bits > bits_of(access.type))
      emit_sign_extend(d, d, bits_of(access.type), d_bits);
  }
}

void Lowering::lower_ld(Modifiers& modifiers) {
  const bool is_constant = modifiers.take("nc");
  Access access = take_access(modifiers, false);
  if (is_constant && access.space != Space::kGlobal) fail(".nc belongs to .global");
  expect_operands(2);
  std::vector<Operand> results = {operand(0)};
  if (operand(0).kind == OperandKind::kVector) results = operand(0).parts;
  if (results.size() != access.lanes) fail("the number of results is not that of the vector");
  const bool of_kernel = access.space == Space::kParam && is_variable(1) && instance_->caller == nullptr &&
                         operand(1).parts[0].index < kernel_.num_parameters;
  if (of_kernel) return load_parameter(access, results);
  Address from = access.space == Space::kParam ? parameter_address(1, access) : address(1, access.space);
  const unsigned bytes = access.type.bytes * access.lanes;
  if (access.lanes > 1) {
    // One of the results may be the address.
    const std::uint32_t base = new_register();
    emit_mask(base, from.base, 64);
    from.base = base;
    IrOp& check = emit(Opcode::kCall);
    check.function = check_vector;
    check.a = base;
    check.imm = from.offset;
    check.bits = vector_info(access.space, bytes, AccessType::kLoad);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::uint32_t d = result(results[i], access.type, true);
    const unsigned d_bits = results[i].kind == OperandKind::kRegister ? register_bits(results[i]) : 64;
    IrOp& op = emit(load_opcode(access.type, access.space));
    op.a = from.base;
    op.d = d;
    op.imm = from.offset + static_cast<std::int64_t>(i * access.type.bytes);
    const auto used =
        static_cast<std::uint32_t>(instruction_->used_bytes_mask >> i * access.type.bytes) & 0xFF;
    // Constants are read-only allocations, whose reads are not counted.
    const bool is_counted = access.lanes == 1 && access.space != Space::kConst;
    op.bits =
        (used << kUsedBytesShift) | (is_counted ? 0 : kPartOfVector) | (from.is_narrow ? kNarrowAddress : 0);
    // Signed loads extend to 64 bits.
    if (access.type.kind == TypeKind::kSigned && d_bits < 64) emit_mask(d, d, d_bits);
  }
  if (access.acquires) emit(Opcode::kCall).function = fence;
}

void Lowering::lower_st(Modifiers& modifiers) {
  Access access = take_access(modifiers, true);
  if (access.space == Space::kConst) fail("constants cannot be written");
  expect_operands(2);
  std::vector<Operand> values = {operand(1)};
  if (operand(1).kind == OperandKind::kVector) values = operand(1).parts;
  if (values.size() != access.lanes) fail("the number of values is not that of the vector");
  if (access.releases) emit(Opcode::kCall).function = fence;
  const Address to = access.space == Space::kParam ? parameter_address(0, access) : address(0, access.space);
  std::vector<std::uint32_t> sources;
  for (const Operand& value : values) sources.push_back(source(value, access.type, true));
  if (access.lanes > 1) {
    IrOp& check = emit(Opcode::kCall);
    check.function = check_vector;
    check.a = to.base;
    check.imm = to.offset;
    check.bits = vector_info(access.space, access.type.bytes * access.lanes, AccessType::kStore);
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    IrOp& op = emit(store_opcode(access.type, access.space));
    op.a = to.base;
    op.b = sources[i];
    op.imm = to.offset + static_cast<std::int64_t>(i * access.type.bytes);
    op.bits = kAllBytesUsed | (access.lanes > 1 ? kPartOfVector : 0) | (to.is_narrow ? kNarrowAddress : 0);
  }
}

void Lowering::lower_atom(Modifiers& modifiers) {
  const bool is_red = instruction_->opcode == "red";
  const std::string_view name =
      modifiers.take_any({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  modifiers.take("noftz");
  const Access access = take_access(modifiers, true);
  const SlotFunction function = atomic_function(name, access.type);
  const bool has_atomics =
      access.space == Space::kGeneric || access.space == Space::kGlobal || access.space == Space::kShared;
  if (function == nullptr || access.lanes > 1 || !has_atomics)
    fail("this operation and type are not supported");
  const bool has_two = name == "cas";
  if (is_red && (has_two || name == "exch")) fail("red has no such operation");
  const std::size_t first = is_red ? 0 : 1;
  expect_operands(first + (has_two ? 3 : 2));
  const Address at = address(first, access.space);
  const std::uint32_t b = source(first + 1, access.type);
  const std::uint32_t c = has_two ? source(first + 2, access.type) : kNoRegister;
  const bool has_result = !is_red && operand(0).kind != OperandKind::kNothing;
  const std::uint32_t d = has_result ? result(0, access.type) : kNoRegister;
  IrOp& op = emit(Opcode::kCall);
  op.function = function;
  op.a = at.base;
  op.imm = at.offset;
  op.b = b;
  op.c = c;
  op.d = d;
  op.bits = kAllBytesUsed | (at.is_narrow ? kNarrowAddress : 0) | (has_result ? 0 : kNoResult) |
            static_cast<std::uint32_t>(access.space) << kAtomicSpaceShift;
}

}  // namespace weightpress::ptxvm
