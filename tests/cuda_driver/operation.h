// A thing that was put into a stream: what it does to memory, what it waits for, how long it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda.h>

#include "ptxvm/launch.h"

namespace weightpress::cuda_driver {

/// Of a device. An engine does one operation at a time; kNone: the operation takes no time; kHost: a thread
/// of the host waits, or runs a host function.
enum class Engine : std::uint8_t { kNone, kCopyIn, kCopyOut, kCompute, kHost };

enum class OperationState : std::uint8_t { kPending, kRunning, kDone, kCancelled };

struct Failure {
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::string message;
};

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;

struct Operation : std::enable_shared_from_this<Operation> {
  // What it is.
  const char* kind = "";
  std::string name;  ///< of a kernel
  std::uint64_t context = 0;
  std::uint32_t device = 0;
  std::uint64_t stream = 0;  ///< 0: the legacy default stream
  Engine engine = Engine::kNone;
  std::uint64_t bytes = 0;
  bool is_pinned = false;
  std::uint64_t duration_ns = 0;  ///< of a kernel: known once it ran

  /// What it does to memory; empty: nothing. Runs once all that it waits for is done.
  std::function<std::optional<Failure>(Operation&)> run;
  bool unlocks = false;                 ///< run() is the program's: it is called without the driver's lock
  bool touches_program_memory = false;  ///< registered by the program, which may be gone at exit

  // Kept by Scheduler.
  std::uint64_t sequence = 0;
  OperationState state = OperationState::kPending;
  std::vector<OperationPtr> waits_for;  ///< empty once its time is known
  OperationPtr after_host;  ///< the last wait of the thread that enqueued it; counts for the time only
  std::vector<Operation*> waited_for_by;
  std::uint32_t num_unmet = 0;
  std::uint64_t wanted_by = 0;  ///< number of the call to Scheduler::force() that needs it
  std::uint32_t num_queries = 0;
  bool is_timed = false;
  std::uint64_t start_ns = 0, end_ns = 0;
  std::optional<ptxvm::Counters> counters;
  std::string failure;
  bool is_abandoned = false;  ///< the process ended before it ran

  bool is_over() const { return state == OperationState::kDone || state == OperationState::kCancelled; }
};

}  // namespace weightpress::cuda_driver
