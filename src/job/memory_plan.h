// What a run does with the memory that it may use: how much of a unit is in work at once, how many threads
// work, how many weights stay in memory between planning and encoding.
//
// --ram is a promise for the whole process, so everything is counted: what is resident already (program,
// headers), what lists of units and tensors will still grow to, each thread's own buffers, the buffers of a
// slab, those of the decoder in safe mode, and only then weights that need not be read twice.
#pragma once

#include <cstdint>
#include <string>

#include "format/result.h"

namespace weightpress::job {

struct MemoryRequest {
  std::uint64_t ram_bytes = 0;       ///< the promise
  std::uint64_t peak_bytes = 0;      ///< of the process so far
  std::uint64_t resident_bytes = 0;  ///< of the process now
  std::uint64_t lists_bytes = 0;     ///< what lists of units, tensors and texts may still take
  int num_threads = 1;
  std::uint64_t longest_unit_weights = 0;
  std::uint64_t held_weights = 0;  ///< how many it is of use to hold: of the longest unit, or of all
  bool holds_many_units = false;   ///< histograms of all units are of use between planning and encoding
  bool decodes = false;            ///< safe mode
};

struct MemoryPlan {
  std::uint64_t ram_bytes = 0;
  std::uint64_t needed_bytes = 0;  ///< with this plan, but for what is held
  int num_threads = 1;             ///< at most those asked for
  std::uint64_t slab_weights = 0;
  std::uint64_t slab_chunks = 0;  ///< of the decoder
  std::uint64_t held_bytes = 0;   ///< of weights
  /// Of segment histograms that are kept from the plan of a unit to its encoding.
  std::uint64_t histogram_bytes = 0;
};

/// kOutOfMemory, with the smallest value that works, if there is no plan.
Result<MemoryPlan> plan_memory(const MemoryRequest& request);

}  // namespace weightpress::job
