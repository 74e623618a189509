// Registers to slots: registers that are never needed at the same time share one, so that a block's frames
// stay in cache.
#pragma once

#include <cstdint>
#include <vector>

#include "ptxvm/intermediate.h"

namespace weightpress::ptxvm {

/// A run of operations that is entered at its first and left after its last.
struct BasicBlock {
  std::uint32_t begin = 0, end = 0;
};

struct BasicBlocks {
  std::vector<BasicBlock> blocks;       ///< in order, without gaps
  std::vector<std::uint32_t> block_of;  ///< of each operation
};

BasicBlocks find_blocks(const std::vector<IrOp>& ops);

struct Packing {
  std::uint32_t num_slots = 0;
  std::vector<std::uint32_t> slot_of;  ///< of each register; those that nothing uses share slot 0
  /// By block and register: whether its value at the block's end is needed later.
  std::vector<std::vector<bool>> live_out;
};

/// Liveness by the usual data flow, then linear scan (Poletto and Sarkar 1999) with as many slots as it
/// takes. Constants keep theirs. Where blocks times registers is too many, each register has a slot of its
/// own, and live_out is empty.
Packing pack_registers(const Intermediate& code, const BasicBlocks& blocks);

}  // namespace weightpress::ptxvm
