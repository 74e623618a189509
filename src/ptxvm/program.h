// A kernel that is ready to run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ptxvm/intermediate.h"
#include "ptxvm/lane_interpreter.h"
#include "ptxvm/lowering.h"

namespace weightpress::ptxvm {

struct Program {
  std::vector<MicroOp> fast, checked;    ///< the same operations, for each kind of handlers
  std::vector<std::uint32_t> source_of;  ///< of each operation, into sources
  std::vector<SourceLine> sources;
  std::uint32_t num_slots = 0;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> constants;  ///< slot, value: set before a lane begins
  KernelLayout layout;

  struct Block {
    std::uint32_t num_instructions = 0;  ///< PTX instructions
    bool runs_into_next = false;         ///< without a branch
  };
  std::vector<Block> blocks;

  const std::vector<MicroOp>& ops(Handlers handlers) const {
    return handlers == Handlers::kFast ? fast : checked;
  }
  /// From how often each block was entered by a branch, and how many lanes began.
  std::uint64_t lane_instructions(const std::vector<std::uint64_t>& edges, std::uint64_t num_lanes) const;
};

Program make_program(LoweredKernel kernel);

}  // namespace weightpress::ptxvm
