// Between a PTX function and the operations that lanes execute: one operation with any number of registers,
// still in the order of the text, calls replaced by the called functions' bodies.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "ptxvm/micro_ops.h"

namespace weightpress::ptxvm {

constexpr std::uint32_t kNoRegister = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kNoTarget = std::numeric_limits<std::uint32_t>::max();

struct IrOp {
  Opcode opcode = Opcode::kMov;
  bool b_is_imm = false;   ///< of an opcode that has RR and RI: imm is the second operand
  bool is_counted = true;  ///< the PTX instruction's own operation; others were needed besides
  std::uint32_t d = kNoRegister, d2 = kNoRegister;
  std::uint32_t a = kNoRegister, b = kNoRegister, c = kNoRegister, e = kNoRegister;
  std::int64_t imm = 0;
  std::uint32_t bits = 0;
  std::uint32_t target = kNoTarget;  ///< of a branch: an operation; may be their number
  std::uint32_t source = 0;          ///< into Intermediate::sources
  SlotFunction function = nullptr;
};

/// The PTX instruction that an operation stands for.
struct SourceLine {
  std::uint32_t line = 0;
  std::string_view text;
};

struct Constant {
  std::uint32_t reg = 0;
  std::uint64_t value = 0;
};

struct Intermediate {
  std::vector<IrOp> ops;  ///< the last one is an exit or a branch
  std::uint32_t num_registers = 0;
  std::vector<Constant> constants;  ///< registers that nothing writes
  std::vector<SourceLine> sources;
};

inline bool is_branch(Opcode opcode) {
  return opcode == Opcode::kBra || opcode == Opcode::kBrIf || opcode == Opcode::kBrUnless;
}
inline bool ends_block(Opcode opcode) {
  return is_branch(opcode) || opcode == Opcode::kExit;
}

}  // namespace weightpress::ptxvm
