#include "ptxvm/program.h"

#include <optional>
#include <utility>

#include "ptxvm/register_packing.h"

namespace weightpress::ptxvm {
namespace {

/// The six handlers of a comparison: as a result, as a branch if, as a branch unless (micro_ops.h).
bool is_comparison(Opcode opcode) {
  return opcode >= Opcode::kSetEqU16RR && opcode <= Opcode::kBrUnlessGeS64RI;
}

/// Whether operation i is a comparison that only the branch after it needs.
bool makes_one_branch(const Intermediate& code, const BasicBlocks& blocks, const Packing& packing,
                      std::size_t i) {
  if (i + 1 >= code.ops.size() || packing.live_out.empty() || !is_comparison(code.ops[i].opcode))
    return false;
  const IrOp& branch = code.ops[i + 1];
  if ((branch.opcode != Opcode::kBrIf && branch.opcode != Opcode::kBrUnless) || branch.a != code.ops[i].d)
    return false;
  const std::uint32_t block = blocks.block_of[i];
  return blocks.block_of[i + 1] == block && !packing.live_out[block][code.ops[i].d];
}

}  // namespace

std::uint64_t Program::lane_instructions(const std::vector<std::uint64_t>& edges,
                                         std::uint64_t num_lanes) const {
  std::uint64_t sum = 0, entered = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const bool from_before = b > 0 && blocks[b - 1].runs_into_next;
    entered = edges[b] + (b == 0 ? num_lanes : 0) + (from_before ? entered : 0);
    sum += entered * blocks[b].num_instructions;
  }
  return sum;
}

Program make_program(LoweredKernel kernel) {
  const Intermediate& code = kernel.code;
  const BasicBlocks blocks = find_blocks(code.ops);
  const Packing packing = pack_registers(code, blocks);
  Program program;
  program.num_slots = packing.num_slots;
  for (const Constant& constant : code.constants)
    if (packing.slot_of[constant.reg] != 0 || packing.live_out.empty())
      program.constants.emplace_back(packing.slot_of[constant.reg], constant.value);
  for (const BasicBlock& block : blocks.blocks) {
    Program::Block& made = program.blocks.emplace_back();
    for (std::uint32_t i = block.begin; i < block.end; ++i)
      made.num_instructions += code.ops[i].is_counted ? 1 : 0;
    made.runs_into_next = !ends_block(code.ops[block.end - 1].opcode);
  }

  std::vector<std::uint32_t> place(code.ops.size());  // in the program
  std::vector<bool> is_fused(code.ops.size());        // with the next one
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < code.ops.size(); ++i) {
    place[i] = next;
    is_fused[i] = makes_one_branch(code, blocks, packing, i);
    if (!is_fused[i]) ++next;
  }
  std::vector<Opcode> opcodes;
  const auto slot = [&](std::uint32_t reg) { return reg == kNoRegister ? 0 : packing.slot_of[reg]; };
  for (std::size_t i = 0; i < code.ops.size(); ++i) {
    const IrOp& op = code.ops[i];
    const IrOp& branch = is_fused[i] ? code.ops[i + 1] : op;
    int opcode = static_cast<int>(op.opcode) + (op.b_is_imm ? 1 : 0);
    if (is_fused[i]) opcode += branch.opcode == Opcode::kBrIf ? 2 : 4;
    MicroOp made;
    made.d = slot(op.d);
    made.d2 = slot(op.d2);
    made.a = slot(op.a);
    made.b = slot(op.b);
    made.c = slot(op.c);
    made.e = slot(op.e);
    made.imm = op.imm;
    made.bits = op.bits;
    made.function = op.function;
    if (branch.target != kNoTarget) {
      made.target =
          static_cast<std::int32_t>(place[branch.target]) - static_cast<std::int32_t>(program.fast.size());
      made.taken = blocks.block_of[branch.target];
      const std::size_t after = i + (is_fused[i] ? 2 : 1);
      made.not_taken = after < code.ops.size() ? blocks.block_of[after] : 0;
    }
    opcodes.push_back(static_cast<Opcode>(opcode));
    program.fast.push_back(made);
    program.source_of.push_back(op.source);
    if (is_fused[i]) ++i;
  }
  program.checked = program.fast;
  link_handlers(program.fast, Handlers::kFast, opcodes);
  link_handlers(program.checked, Handlers::kChecked, opcodes);
  program.sources = std::move(kernel.code.sources);
  program.layout = std::move(kernel.layout);
  return program;
}

}  // namespace weightpress::ptxvm
