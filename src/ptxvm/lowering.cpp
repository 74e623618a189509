#include "ptxvm/lowering.h"

#include <algorithm>
#include <bit>

#include "ptxvm/lane_interpreter.h"
#include "ptxvm/lowering_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kMaxLocalBytes = 512 * 1024;
constexpr std::uint64_t kMaxParameterBytes = 32 * 1024;
constexpr std::uint64_t kMaxSharedBytes = std::uint64_t{1} << 31;

std::uint64_t round_up(std::uint64_t value, std::uint64_t align) {
  return (value + align - 1) / align * align;
}

std::uint64_t low_bits(std::uint64_t value, unsigned bits) {
  return bits >= 64 ? value : value & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace

// ---- modifiers

bool Modifiers::take(std::string_view name) {
  const auto found = std::ranges::find(rest_, name);
  if (found == rest_.end()) return false;
  rest_.erase(found);
  return true;
}

std::string_view Modifiers::take_any(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (take(name)) return name;
  return {};
}

void Modifiers::drop_prefixed(std::string_view prefix) {
  std::erase_if(rest_, [prefix](std::string_view name) { return name.starts_with(prefix); });
}

Type Modifiers::take_type() {
  if (rest_.empty()) return {};
  const Type type = parse_type(rest_.back());
  if (type.bytes != 0) rest_.pop_back();
  return type;
}

// ---- functions

void Lowering::fail(const std::string& problem) const {
  constexpr std::size_t kMostText = 120;
  std::string text(instruction_->text.substr(0, kMostText));
  for (char& c : text)
    if (c < ' ' || c > '~') c = ' ';
  throw LoweringError{"line " + std::to_string(instruction_->line) + ": '" + text + "': " + problem};
}

const Function& Lowering::callee_of(const Instruction& instruction) const {
  for (const Operand& operand : instruction.operands) {
    if (operand.kind != OperandKind::kFunction) continue;
    const Function* const callee = module_.find(operand.name);
    if (callee == nullptr) fail("there is no such function");
    return *callee;
  }
  fail("only calls of named functions are supported");
}

void Lowering::collect_functions(const Function& function, std::vector<const Function*>& found) const {
  found = {&function};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const Instruction& instruction : found[i]->instructions) {
      if (instruction.opcode != "call") continue;
      const_cast<Lowering*>(this)->instruction_ = &instruction;
      const Function& callee = callee_of(instruction);
      if (std::ranges::find(found, &callee) == found.end()) found.push_back(&callee);
    }
  }
}

void Lowering::lay_out_shared() {
  std::vector<const Function*> functions;
  collect_functions(kernel_, functions);
  std::vector<const Variable*> dynamic;
  const auto place = [&](const Variable& variable) {
    if (variable.space != Space::kShared || shared_places_.contains(&variable)) return;
    if (variable.bytes == 0 || variable.is_extern) {
      dynamic.push_back(&variable);
      layout_.shared_align = std::max<std::uint64_t>(layout_.shared_align, variable.align);
      shared_places_[&variable] = 0;
      return;
    }
    const std::uint64_t offset = round_up(layout_.static_shared_bytes, variable.align);
    shared_places_[&variable] = offset;
    if (variable.bytes > kMaxSharedBytes - std::min(offset, kMaxSharedBytes)) {
      throw LoweringError{"line " + std::to_string(variable.line) +
                          ": the shared variables take more than 2^31 bytes"};
    }
    layout_.static_shared_bytes = offset + variable.bytes;
  };
  const auto visit = [&](const Function& function, const Operand& operand) {
    if (operand.kind == OperandKind::kModuleVariable) place(module_.variables[operand.index]);
    if (operand.kind == OperandKind::kLocalVariable) place(function.variables[operand.index]);
  };
  for (const Function* function : functions) {
    for (const Instruction& instruction : function->instructions) {
      for (const Operand& operand : instruction.operands) {
        visit(*function, operand);
        for (const Operand& part : operand.parts) visit(*function, part);
      }
    }
  }
  const std::uint64_t begin = round_up(layout_.static_shared_bytes, layout_.shared_align);
  for (const Variable* variable : dynamic) shared_places_[variable] = begin;
}

std::uint64_t Lowering::new_local(std::uint64_t bytes, std::uint64_t align) {
  const std::uint64_t offset = round_up(layout_.local_bytes, align);
  if (bytes > kMaxLocalBytes || offset + bytes > kMaxLocalBytes)
    throw LoweringError{"line " + std::to_string(kernel_.line) + ": " + std::string(kernel_.name) +
                        " needs more than 512 KiB of local memory a thread"};
  layout_.local_bytes = offset + bytes;
  return offset;
}

void Lowering::place_variables(Instance& instance, const std::vector<std::uint64_t>& arguments) {
  const Function& function = *instance.function;
  for (std::size_t v = 0; v < function.variables.size(); ++v) {
    const Variable& variable = function.variables[v];
    if (v < arguments.size()) {
      instance.places.push_back(arguments[v]);
    } else if (variable.space == Space::kShared) {
      const auto place = shared_places_.find(&variable);
      instance.places.push_back(place == shared_places_.end() ? 0 : place->second);
    } else {
      instance.places.push_back(new_local(variable.bytes, variable.align));
    }
  }
}

void Lowering::expand(Instance& instance) {
  const Function& function = *instance.function;
  instance.first_register = out_.num_registers;
  out_.num_registers += static_cast<std::uint32_t>(function.registers.size());
  Instance* const outer_instance = instance_;
  const Instruction* const outer_instruction = instruction_;
  instance_ = &instance;
  for (const Instruction& instruction : function.instructions) {
    instance.starts.push_back(static_cast<std::uint32_t>(out_.ops.size()));
    lower_instruction(instruction);
    if (out_.ops.size() > kMaxKernelOps || out_.num_registers > 8 * kMaxKernelOps)
      fail("the kernel is too long, with the functions that it calls");
  }
  const auto end = static_cast<std::uint32_t>(out_.ops.size());
  instance.starts.push_back(end);
  for (const auto& [op, to] : instance.jumps) out_.ops[op].target = instance.starts[to];
  for (const std::uint32_t op : instance.returns) out_.ops[op].target = end;
  instance_ = outer_instance;
  instruction_ = outer_instruction;
}

LoweredKernel Lowering::run() {
  lay_out_shared();
  std::vector<std::uint64_t> parameters;
  for (std::uint32_t p = 0; p < kernel_.num_parameters; ++p) {
    const Variable& variable = kernel_.variables[p];
    const std::uint64_t offset = round_up(layout_.parameter_bytes, variable.align);
    if (variable.bytes > kMaxParameterBytes || offset + variable.bytes > kMaxParameterBytes)
      throw LoweringError{"line " + std::to_string(kernel_.line) +
                          ": the kernel's parameters take more than 32 KiB"};
    parameters.push_back(offset);
    layout_.parameter_offsets.push_back(static_cast<std::uint32_t>(offset));
    layout_.parameter_bytes = static_cast<std::uint32_t>(offset + variable.bytes);
  }
  Instance instance;
  instance.function = &kernel_;
  place_variables(instance, parameters);
  expand(instance);
  const auto exit = static_cast<std::uint32_t>(out_.ops.size());
  IrOp last;
  last.opcode = Opcode::kExit;
  last.is_counted = false;
  last.source = static_cast<std::uint32_t>(out_.sources.size());
  out_.sources.push_back({kernel_.line, "the end of the kernel"});
  out_.ops.push_back(last);
  for (const std::uint32_t op : exits_) out_.ops[op].target = exit;
  return {std::move(out_), std::move(layout_)};
}

Result<LoweredKernel> lower_kernel(const Module& module, const Function& kernel,
                                   const std::vector<std::uint64_t>& module_addresses) {
  try {
    return Lowering(module, kernel, module_addresses).run();
  } catch (const LoweringError& error) {
    return Unexpected(ErrorCode::kCorruptFile, error.message);
  }
}

// ---- instructions

const std::unordered_map<std::string_view, Lowering::Lower>& Lowering::table() {
  using L = Lowering;
  static const std::unordered_map<std::string_view, Lower> kTable = {
      {"bra", &L::lower_bra},
      {"call", &L::lower_call},
      {"ret", &L::lower_ret},
      {"exit", &L::lower_exit},
      {"trap", &L::lower_trap},
      {"nanosleep", &L::lower_nothing},
      {"prefetch", &L::lower_nothing},
      {"prefetchu", &L::lower_nothing},
      {"discard", &L::lower_nothing},
      {"pmevent", &L::lower_nothing},
      {"membar", &L::lower_fence},
      {"fence", &L::lower_fence},
      {"bar", &L::lower_bar},
      {"barrier", &L::lower_bar},
      {"shfl", &L::lower_shfl},
      {"vote", &L::lower_vote},
      {"match", &L::lower_match},
      {"redux", &L::lower_redux},
      {"elect", &L::lower_elect},
      {"activemask", &L::lower_activemask},
      {"add", &L::lower_add},
      {"sub", &L::lower_add},
      {"addc", &L::lower_add},
      {"subc", &L::lower_add},
      {"mul", &L::lower_mul},
      {"mad", &L::lower_mad},
      {"madc", &L::lower_mad},
      {"fma", &L::lower_fma},
      {"mul24", &L::lower_mul24},
      {"mad24", &L::lower_mul24},
      {"div", &L::lower_div},
      {"rem", &L::lower_div},
      {"rcp", &L::lower_rcp},
      {"sqrt", &L::lower_rcp},
      {"min", &L::lower_minmax},
      {"max", &L::lower_minmax},
      {"abs", &L::lower_unary},
      {"neg", &L::lower_unary},
      {"cnot", &L::lower_unary},
      {"popc", &L::lower_unary},
      {"clz", &L::lower_unary},
      {"bfind", &L::lower_unary},
      {"brev", &L::lower_unary},
      {"sad", &L::lower_sad},
      {"bfe", &L::lower_bfe},
      {"bfi", &L::lower_bfi},
      {"bmsk", &L::lower_bmsk},
      {"szext", &L::lower_bmsk},
      {"dp4a", &L::lower_dot},
      {"dp2a", &L::lower_dot},
      {"testp", &L::lower_testp},
      {"copysign", &L::lower_copysign},
      {"and", &L::lower_logic},
      {"or", &L::lower_logic},
      {"xor", &L::lower_logic},
      {"not", &L::lower_not},
      {"shl", &L::lower_shift},
      {"shr", &L::lower_shift},
      {"shf", &L::lower_shf},
      {"lop3", &L::lower_lop3},
      {"prmt", &L::lower_prmt},
      {"setp", &L::lower_setp},
      {"set", &L::lower_set},
      {"selp", &L::lower_selp},
      {"slct", &L::lower_slct},
      {"mov", &L::lower_mov},
      {"cvt", &L::lower_cvt},
      {"cvta", &L::lower_cvta},
      {"isspacep", &L::lower_isspacep},
      {"ld", &L::lower_ld},
      {"ldu", &L::lower_ld},
      {"st", &L::lower_st},
      {"atom", &L::lower_atom},
      {"red", &L::lower_atom},
  };
  return kTable;
}

void Lowering::lower_instruction(const Instruction& instruction) {
  instruction_ = &instruction;
  is_first_op_ = true;
  out_.sources.push_back({instruction.line, instruction.text});
  const auto found = table().find(instruction.opcode);
  if (found == table().end()) fail("this instruction is not known");
  const bool jumps =
      instruction.opcode == "bra" || instruction.opcode == "ret" || instruction.opcode == "exit";
  std::optional<std::uint32_t> skip;
  if (instruction.guard >= 0 && !jumps) {
    skip = static_cast<std::uint32_t>(out_.ops.size());
    emit(instruction.guard_negated ? Opcode::kBrIf : Opcode::kBrUnless).a =
        instance_->first_register + static_cast<std::uint32_t>(instruction.guard);
  }
  Modifiers modifiers(instruction.modifiers);
  (this->*found->second)(modifiers);
  if (!modifiers.empty()) fail("." + std::string(modifiers.first()) + " is not known here");
  if (skip) out_.ops[*skip].target = static_cast<std::uint32_t>(out_.ops.size());
}

void Lowering::expect_operands(std::size_t least, std::size_t most) const {
  const std::size_t count = instruction_->operands.size();
  if (count < least || count > most) fail("it has " + std::to_string(count) + " operands");
}

IrOp& Lowering::emit(Opcode opcode) {
  IrOp op;
  op.opcode = opcode;
  op.is_counted = std::exchange(is_first_op_, false);
  op.source = static_cast<std::uint32_t>(out_.sources.size() - 1);
  out_.ops.push_back(op);
  return out_.ops.back();
}

// ---- operands

const Register& Lowering::declared(const Operand& reg) const {
  return instance_->function->registers[reg.index];
}

std::uint32_t Lowering::register_of(const Operand& operand) const {
  return instance_->first_register + operand.index;
}

std::uint8_t Lowering::register_bits(const Operand& operand) const {
  return static_cast<std::uint8_t>(8 * declared(operand).type.bytes);
}

std::string_view Lowering::type_name() const {
  return instruction_->modifiers.empty() ? "" : instruction_->modifiers.back();
}

std::uint32_t Lowering::constant(std::uint64_t value) {
  const auto [entry, is_new] = constants_.try_emplace(value, out_.num_registers);
  if (is_new) out_.constants.push_back({new_register(), value});
  return entry->second;
}

std::uint32_t Lowering::result(std::size_t index, Type type, bool or_wider) {
  return result(operand(index), type, or_wider);
}

std::uint32_t Lowering::result(const Operand& target, Type type, bool or_wider) {
  if (target.kind == OperandKind::kNothing) return new_register();
  if (target.kind != OperandKind::kRegister || target.negated) fail("a result has to be a register");
  const Type own = declared(target).type;
  const auto is_integer = [](Type of) {
    return of.kind == TypeKind::kUnsigned || of.kind == TypeKind::kSigned;
  };
  const bool mixes = (own.kind == TypeKind::kFloat && is_integer(type)) ||
                     (type.kind == TypeKind::kFloat && is_integer(own));
  if (mixes) fail("the register " + std::string(declared(target).name) + " has a type that does not fit");
  const bool fits = (own.kind == TypeKind::kPredicate) == (type.kind == TypeKind::kPredicate) &&
                    (own.bytes == type.bytes || (or_wider && own.bytes > type.bytes));
  if (!fits) fail("the register " + std::string(declared(target).name) + " has another size than the type");
  return register_of(target);
}

std::optional<std::uint64_t> Lowering::literal(const Operand& value, Type type) const {
  const unsigned bits = 8U * type.bytes;
  switch (value.kind) {
    case OperandKind::kInteger:
      if (type.kind == TypeKind::kFloat) fail("a floating-point operand cannot be an integer");
      if (type.kind == TypeKind::kPredicate) return value.integer & 1;
      return low_bits(static_cast<std::uint64_t>(value.integer), bits);
    case OperandKind::kFloat32:
      if (type.bytes != 4) fail("the literal has another size than the type");
      return low_bits(static_cast<std::uint64_t>(value.integer), 32);
    case OperandKind::kFloat64:
      if (type == Type{TypeKind::kFloat, 4})
        return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(value.integer)));
      if (type.bytes != 8) fail("the literal has another size than the type");
      return static_cast<std::uint64_t>(value.integer);
    default:
      return std::nullopt;
  }
}

/// Of a variable, in its own space; parameters as generic addresses.
std::optional<std::uint64_t> Lowering::address_of(const Operand& value) const {
  const auto added = static_cast<std::uint64_t>(value.integer);
  const auto in_shared = [&](const Variable& variable) {
    return kWindowBase + shared_places_.at(&variable) + added;
  };
  if (value.kind == OperandKind::kModuleVariable) {
    const Variable& variable = module_.variables[value.index];
    if (variable.space == Space::kShared) return in_shared(variable);
    return module_addresses_[value.index] + added;
  }
  if (value.kind != OperandKind::kLocalVariable) return std::nullopt;
  const Variable& variable = instance_->function->variables[value.index];
  if (variable.space == Space::kShared) return in_shared(variable);
  const std::uint64_t place = instance_->places[value.index] + added;
  if (variable.space != Space::kParam) return kWindowBase + place;
  const bool is_kernels = instance_->caller == nullptr && value.index < kernel_.num_parameters;
  return is_kernels ? kParamWindow + place : kLocalWindow + kWindowBase + place;
}

std::uint32_t Lowering::source(std::size_t index, Type type, bool or_wider) {
  if (!has_operand(index)) fail("an operand is missing");
  return source(operand(index), type, or_wider);
}

std::uint32_t Lowering::source(const Operand& value, Type type, bool or_wider) {
  if (const auto number = literal(value, type)) return constant(*number);
  if (const auto place = address_of(value)) {
    if (type.bytes < 4) fail("an address needs 32 or 64 bits");
    return constant(low_bits(*place, 8U * type.bytes));
  }
  if (value.kind == OperandKind::kSpecial) {
    const SlotFunction read = special_register(value.name);
    if (read == nullptr) fail("the special register " + std::string(value.name) + " is not known");
    const std::uint32_t into = new_register();
    IrOp& op = emit(Opcode::kCall);
    op.function = read;
    op.d = into;
    return into;
  }
  if (value.kind != OperandKind::kRegister) fail("an operand is of a kind that does not belong here");
  const std::uint32_t reg =
      result(value.negated ? Operand{.kind = value.kind, .index = value.index} : value, type, or_wider);
  if (!value.negated) return reg;
  if (type.kind != TypeKind::kPredicate) fail("only predicates can be negated with '!'");
  const std::uint32_t into = new_register();
  IrOp& op = emit(Opcode::kNotPred);
  op.a = reg;
  op.d = into;
  return into;
}

Lowering::Address Lowering::address(std::size_t index, Space space) {
  if (!has_operand(index) || operand(index).kind != OperandKind::kAddress)
    fail("an address in brackets is missing");
  const Operand& brackets = operand(index);
  const Operand& base = brackets.parts.front();
  if (const auto place = address_of(base)) {
    const Variable& variable = base.kind == OperandKind::kModuleVariable
                                   ? module_.variables[base.index]
                                   : instance_->function->variables[base.index];
    if (space != variable.space && space != Space::kGeneric)
      fail(std::string(variable.name) + " lies in another space than the instruction names");
    return {constant(0), static_cast<std::int64_t>(*place + static_cast<std::uint64_t>(brackets.integer)),
            false};
  }
  if (base.kind == OperandKind::kInteger)
    return {constant(0),
            static_cast<std::int64_t>(static_cast<std::uint64_t>(base.integer) +
                                      static_cast<std::uint64_t>(brackets.integer)),
            false};
  if (base.kind != OperandKind::kRegister || base.negated)
    fail("the address is no register, variable or number");
  const unsigned bits = register_bits(base);
  if (declared(base).type.kind == TypeKind::kPredicate || bits < 32) fail("an address needs 32 or 64 bits");
  return {register_of(base), brackets.integer, bits == 32};
}

// ---- operations of all kinds of instructions

void Lowering::emit_binary(Opcode rr, Type d_type, Type a_type, Type b_type) {
  expect_operands(3);
  const std::uint32_t a = source(1, a_type);
  const auto number = literal(operand(2), b_type);
  const std::uint32_t b = number ? kNoRegister : source(2, b_type);
  const std::uint32_t d = result(0, d_type);
  IrOp& op = emit(rr);
  op.a = a;
  op.d = d;
  op.b = b;
  if (number) {
    op.b_is_imm = true;
    op.imm = static_cast<std::int64_t>(*number);
  }
}

void Lowering::emit_function(SlotFunction function, Type type, std::size_t num_sources, std::uint32_t bits) {
  if (function == nullptr) fail("this type is not known here");
  IrOp& op = emit_slots(Opcode::kCall, type, num_sources);
  op.function = function;
  op.bits = bits;
}

/// d, and as many of a, b and c, all of one type.
IrOp& Lowering::emit_slots(Opcode opcode, Type type, std::size_t num_sources) {
  expect_operands(num_sources + 1);
  std::uint32_t sources[3] = {kNoRegister, kNoRegister, kNoRegister};
  for (std::size_t i = 0; i < num_sources; ++i) sources[i] = source(i + 1, type);
  const std::uint32_t d = result(0, type);
  IrOp& op = emit(opcode);
  op.d = d;
  op.a = sources[0];
  op.b = sources[1];
  op.c = sources[2];
  return op;
}

void Lowering::emit_mask(std::uint32_t d, std::uint32_t a, unsigned bits) {
  IrOp& op = emit(bits >= 64 ? Opcode::kMov : Opcode::kMask);
  op.d = d;
  op.a = a;
  op.imm = bits >= 64 ? 0 : static_cast<std::int64_t>((std::uint64_t{1} << bits) - 1);
}

/// From the low from_bits, to to_bits of the slot.
void Lowering::emit_sign_extend(std::uint32_t d, std::uint32_t a, unsigned from_bits, unsigned to_bits) {
  IrOp& op = emit(Opcode::kSignExtend);
  op.d = d;
  op.a = a;
  op.imm = 64 - static_cast<std::int64_t>(from_bits);
  op.bits = 64 - to_bits;
}

std::uint32_t Lowering::take_float_bits(Modifiers& modifiers, Type type) {
  std::uint32_t bits = 0;
  modifiers.take("rn");
  if (type.bytes != 4) return bits;
  if (modifiers.take("ftz")) bits |= kFlushSubnormals;
  if (modifiers.take("sat")) bits |= kSaturate;
  return bits;
}

}  // namespace weightpress::ptxvm
