// The PTX parser on arbitrary bytes: it must judge, not crash; what it accepts must hold together, and what
// it refuses must say where.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ptxvm/ptx_parser.h"

using namespace weightpress::ptxvm;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

struct Checker {
  const Module& module;
  const Function& function;

  bool is_inside(std::string_view part) const {
    const std::string& text = *module.text;
    return part.empty() ||
           (part.data() >= text.data() && part.data() + part.size() <= text.data() + text.size());
  }

  void check(const Operand& operand, int depth = 0) const {
    require(depth <= 2 && is_inside(operand.name));
    switch (operand.kind) {
      case OperandKind::kRegister:
        require(operand.index < function.registers.size());
        break;
      case OperandKind::kLocalVariable:
        require(operand.index < function.variables.size());
        break;
      case OperandKind::kModuleVariable:
        require(operand.index < module.variables.size());
        break;
      case OperandKind::kLabel:
        require(operand.index <= function.instructions.size() && function.is_label[operand.index]);
        break;
      case OperandKind::kFunction:
        require(module.find(operand.name) != nullptr);
        break;
      case OperandKind::kSpecial:
        require(!operand.name.empty());
        break;
      case OperandKind::kVector:
        require(!operand.parts.empty());
        break;
      case OperandKind::kPair:
        require(operand.parts.size() == 2);
        break;
      case OperandKind::kAddress:
        require(operand.parts.size() == 1);
        break;
      default:
        break;
    }
    for (const Operand& part : operand.parts) check(part, depth + 1);
  }

  void check(const Variable& variable) const {
    require(!variable.name.empty() && is_inside(variable.name));
    require(variable.align > 0 && variable.align <= 1024 && (variable.align & (variable.align - 1)) == 0);
    require(variable.initial.size() <= variable.bytes && (variable.bytes > 0 || variable.is_extern));
    for (const Variable::Address& address : variable.addresses) {
      require(address.variable < module.variables.size() &&
              address.offset_bytes + 8 <= variable.initial.size());
    }
  }

  void check() const {
    require(!function.name.empty() && is_inside(function.name));
    require(std::uint64_t{function.num_results} + function.num_parameters <= function.variables.size());
    require(function.is_label.size() == function.instructions.size() + 1);
    for (const Register& r : function.registers)
      require(r.type.bytes > 0 && is_inside(r.name) && !r.name.empty());
    for (const Variable& variable : function.variables) check(variable);
    const auto num_lines = static_cast<std::uint32_t>(std::ranges::count(*module.text, '\n') + 1);
    std::uint32_t line = 1;
    for (const Instruction& instruction : function.instructions) {
      require(instruction.line >= line && instruction.line <= num_lines);
      line = instruction.line;
      require(!instruction.opcode.empty() && is_inside(instruction.text));
      require(instruction.text.find(instruction.opcode) != std::string_view::npos);
      if (instruction.guard != -1) {
        const auto guard = static_cast<std::uint32_t>(instruction.guard);
        require(guard < function.registers.size() &&
                function.registers[guard].type.kind == TypeKind::kPredicate);
      }
      for (const Operand& operand : instruction.operands) check(operand);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto module = parse_ptx(std::string(reinterpret_cast<const char*>(data), size));
  if (!module) {
    const std::string& message = module.error().message;
    require(module.error().code == weightpress::ErrorCode::kCorruptFile && message.starts_with("line "));
    require(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
    return 0;
  }
  for (const Function& function : module->functions) Checker{*module, function}.check();
  const Function none;
  for (const Variable& variable : module->variables) Checker{*module, none}.check(variable);
  return 0;
}
