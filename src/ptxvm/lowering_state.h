// The state of lower_kernel(), shared by the files lower_*.cpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptxvm/lane_functions.h"
#include "ptxvm/lowering.h"
#include "ptxvm/meetings.h"

namespace weightpress::ptxvm {

/// Leaves lower_kernel() as its error.
struct LoweringError {
  std::string message;
};

/// An instruction's modifiers, taken one after the other; what is left over is not known.
class Modifiers {
 public:
  explicit Modifiers(const std::vector<std::string_view>& names) : rest_(names) {}

  bool take(std::string_view name);
  /// The first of the names that is there, or "".
  std::string_view take_any(std::initializer_list<std::string_view> names);
  /// All that begin so.
  void drop_prefixed(std::string_view prefix);
  /// The last one, if it is a type; else bytes is 0.
  Type take_type();
  bool empty() const { return rest_.empty(); }
  std::string_view first() const { return rest_.front(); }

 private:
  std::vector<std::string_view> rest_;
};

class Lowering {
 public:
  Lowering(const Module& module, const Function& kernel, const std::vector<std::uint64_t>& module_addresses)
      : module_(module), kernel_(kernel), module_addresses_(module_addresses) {}

  LoweredKernel run();

 private:
  /// A function, once for the kernel and once for each of its calls.
  struct Instance {
    const Function* function = nullptr;
    const Instance* caller = nullptr;
    std::uint32_t first_register = 0;
    std::vector<std::uint64_t> places;                           ///< of its variables, in their spaces
    std::vector<std::uint32_t> starts;                           ///< of its instructions: the first operation
    std::vector<std::pair<std::uint32_t, std::uint32_t>> jumps;  ///< operation, instruction that it leads to
    std::vector<std::uint32_t> returns;                          ///< operations that lead to its end
    std::uint32_t carry = kNoRegister;                           ///< CC.CF
  };
  struct Address {
    std::uint32_t base = kNoRegister;
    std::int64_t offset = 0;
    bool is_narrow = false;
  };
  using Lower = void (Lowering::*)(Modifiers&);

  // lowering.cpp: functions, names, operands
  void lay_out_shared();
  void collect_functions(const Function& function, std::vector<const Function*>& found) const;
  const Function& callee_of(const Instruction& instruction) const;
  void expand(Instance& instance);
  void place_variables(Instance& instance, const std::vector<std::uint64_t>& arguments);
  void lower_instruction(const Instruction& instruction);
  std::uint64_t new_local(std::uint64_t bytes, std::uint64_t align);
  static const std::unordered_map<std::string_view, Lower>& table();

  [[noreturn]] void fail(const std::string& problem) const;
  void expect_operands(std::size_t least, std::size_t most) const;
  void expect_operands(std::size_t count) const { expect_operands(count, count); }
  const Operand& operand(std::size_t index) const { return instruction_->operands[index]; }
  bool has_operand(std::size_t index) const { return index < instruction_->operands.size(); }
  const Register& declared(const Operand& reg) const;

  IrOp& emit(Opcode opcode);
  std::uint32_t new_register() { return out_.num_registers++; }
  std::uint32_t constant(std::uint64_t value);
  std::uint32_t register_of(const Operand& operand) const;
  /// A register to write: its width is the type's, or more if wider. "_" gives one that nobody reads.
  std::uint32_t result(std::size_t index, Type type, bool or_wider = false);
  std::uint32_t result(const Operand& operand, Type type, bool or_wider = false);
  /// A register to read, also for constants, addresses and "!%p".
  std::uint32_t source(std::size_t index, Type type, bool or_wider = false);
  std::uint32_t source(const Operand& operand, Type type, bool or_wider = false);
  std::optional<std::uint64_t> literal(const Operand& operand, Type type) const;
  std::optional<std::uint64_t> address_of(const Operand& operand) const;
  /// space: that of the instruction, and so of the variable if it names one.
  Address address(std::size_t index, Space space);
  std::uint8_t register_bits(const Operand& operand) const;
  std::string_view type_name() const;

  /// d and operands a, b as the instruction has them; b as an immediate where it is one.
  void emit_binary(Opcode rr, Type d_type, Type a_type, Type b_type);
  IrOp& emit_slots(Opcode opcode, Type type, std::size_t num_sources);
  void emit_function(SlotFunction function, Type type, std::size_t num_sources, std::uint32_t bits = 0);
  void emit_mask(std::uint32_t d, std::uint32_t a, unsigned bits);
  void emit_sign_extend(std::uint32_t d, std::uint32_t a, unsigned from_bits, unsigned to_bits);
  std::uint32_t take_float_bits(Modifiers& modifiers, Type type);

  // lower_control.cpp
  void lower_bra(Modifiers& modifiers);
  void lower_call(Modifiers& modifiers);
  void lower_ret(Modifiers& modifiers);
  void lower_exit(Modifiers& modifiers);
  void lower_trap(Modifiers& modifiers);
  void lower_nothing(Modifiers& modifiers);
  void lower_fence(Modifiers& modifiers);
  void lower_bar(Modifiers& modifiers);
  void lower_shfl(Modifiers& modifiers);
  void lower_vote(Modifiers& modifiers);
  void lower_match(Modifiers& modifiers);
  void lower_redux(Modifiers& modifiers);
  void lower_elect(Modifiers& modifiers);
  void lower_activemask(Modifiers& modifiers);
  IrOp& emit_meeting(MeetingKind kind, std::uint32_t flags = 0);
  void emit_jump(Opcode opcode, std::uint32_t guard);
  std::optional<std::uint32_t> guard_of_jump(Opcode& opcode);

  // lower_arithmetic.cpp
  void lower_add(Modifiers& modifiers);
  void lower_mul(Modifiers& modifiers);
  void lower_mad(Modifiers& modifiers);
  void lower_fma(Modifiers& modifiers);
  void lower_mul24(Modifiers& modifiers);
  void lower_div(Modifiers& modifiers);
  void lower_rcp(Modifiers& modifiers);
  void lower_minmax(Modifiers& modifiers);
  void lower_unary(Modifiers& modifiers);
  void lower_sad(Modifiers& modifiers);
  void lower_bfe(Modifiers& modifiers);
  void lower_bfi(Modifiers& modifiers);
  void lower_bmsk(Modifiers& modifiers);
  void lower_dot(Modifiers& modifiers);
  void lower_carry(std::string_view name, Type type, bool in, bool out);
  void lower_testp(Modifiers& modifiers);
  void lower_copysign(Modifiers& modifiers);

  // lower_logic.cpp
  void lower_logic(Modifiers& modifiers);
  void lower_not(Modifiers& modifiers);
  void lower_shift(Modifiers& modifiers);
  void lower_shf(Modifiers& modifiers);
  void lower_lop3(Modifiers& modifiers);
  void lower_prmt(Modifiers& modifiers);
  void lower_setp(Modifiers& modifiers);
  void lower_set(Modifiers& modifiers);
  void lower_selp(Modifiers& modifiers);
  void lower_slct(Modifiers& modifiers);
  std::uint32_t emit_comparison(std::string_view comparison, Type type, std::uint32_t d, std::uint32_t bits);
  std::string_view take_comparison(Modifiers& modifiers);

  // lower_memory.cpp
  void lower_mov(Modifiers& modifiers);
  void lower_cvt(Modifiers& modifiers);
  void lower_cvta(Modifiers& modifiers);
  void lower_isspacep(Modifiers& modifiers);
  void lower_ld(Modifiers& modifiers);
  void lower_st(Modifiers& modifiers);
  void lower_atom(Modifiers& modifiers);
  struct Access {
    Space space = Space::kGeneric;
    Type type;
    unsigned lanes = 1;
    bool acquires = false, releases = false;
  };
  Access take_access(Modifiers& modifiers, bool is_store);
  bool is_variable(std::size_t index) const;
  Address parameter_address(std::size_t index, Access& access);
  void load_parameter(const Access& access, const std::vector<Operand>& results);
  void pack(Type type);
  void unpack(Type type);

  const Module& module_;
  const Function& kernel_;
  const std::vector<std::uint64_t>& module_addresses_;

  Intermediate out_;
  KernelLayout layout_;
  std::unordered_map<std::uint64_t, std::uint32_t> constants_;
  std::unordered_map<const Variable*, std::uint64_t> shared_places_;
  std::vector<std::uint32_t> exits_;  // operations that lead to the kernel's end

  Instance* instance_ = nullptr;
  const Instruction* instruction_ = nullptr;
  bool is_first_op_ = true;  // of the instruction
};

}  // namespace weightpress::ptxvm
