// Executes the operations of one lane until it has to meet others, ends, or does what it must not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ptxvm/launch.h"
#include "ptxvm/micro_ops.h"
#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

class AccessLog;
class SharedShadow;

/// Shared and local memory begin at this address of their own space, so that 0 points to nothing.
constexpr std::uint64_t kWindowBase = 1024;

/// What the fast path needs of an allocation.
struct AllocationBounds {
  std::uint8_t* bytes = nullptr;
  std::uint64_t readable_bytes = 0, writable_bytes = 0;
};

struct PendingFault {
  FaultKind kind = FaultKind::kTrap;
  std::string what;  ///< a clause without the place
};

/// What the lanes of one host thread see. The block's runner changes it from lane to lane.
struct Machine {
  // Of the launch.
  const AllocationBounds* allocations = nullptr;
  std::uint64_t num_allocations = 0;
  const Memory::Allocation* const* details = nullptr;  ///< of each allocation
  const std::uint8_t* parameters = nullptr;
  std::uint64_t parameter_bytes = 0;
  Dim3 grid, block_size;
  std::uint64_t static_shared_bytes = 0, dynamic_shared_bytes = 0;

  // Of the block.
  std::uint8_t* shared = nullptr;
  std::uint64_t shared_bytes = 0;
  std::uint8_t* shared_marks = nullptr;  ///< a byte each, not 0 once it is written; nullptr: not asked for
  SharedShadow* shadow = nullptr;        ///< nullptr: no race check
  AccessLog* log = nullptr;              ///< nullptr: no counters
  bool checks_initialised = false;
  Dim3 block;

  // Of the lane.
  std::uint8_t* local = nullptr;
  std::uint64_t local_bytes = 0;
  std::uint32_t thread = 0;  ///< in the block, x first
  Dim3 thread_index;

  const MicroOp* first_op = nullptr;  ///< of the kernel
  std::uint64_t* edges = nullptr;     ///< [basic blocks]: how often a branch led, or did not lead, there
  std::uint64_t branches_left = 0;    ///< backward ones, before the lane has to give way
  std::optional<PendingFault> fault;
};

enum class Stop : std::uint8_t {
  kMeet,  ///< pc is behind the operation
  kExit,
  kSlice,  ///< branches_left is used up; pc is where to go on
  kFault   ///< pc is at the operation; Machine::fault says what
};

/// Two kinds of handlers: kChecked heeds shared_marks, checks_initialised, shadow and log.
enum class Handlers : std::uint8_t { kFast, kChecked };

/// Gives every operation its handler.
void link_handlers(std::vector<MicroOp>& ops, Handlers handlers, const std::vector<Opcode>& opcodes);

Stop run_lane(Handlers handlers, Machine& machine, std::uint64_t* frame, const MicroOp*& pc);

}  // namespace weightpress::ptxvm
