// What a compression to Tile-ANS does with the memory that it may use (--ram): how many threads work, how
// large slabs are.
#pragma once

#include <cstdint>

#include "format/result.h"

namespace weightpress::job {

struct TileAnsMemoryRequest {
  std::uint64_t ram_bytes = 0;       ///< the promise
  std::uint64_t peak_bytes = 0;      ///< of the process so far
  std::uint64_t resident_bytes = 0;  ///< of the process now
  std::uint64_t lists_bytes = 0;     ///< what lists of tensors and texts may still take
  int num_threads = 1;
  std::uint64_t least_slab_bytes = 0;  ///< one tile of each tensor, with all that belongs to it
  std::uint64_t most_slab_bytes = 0;   ///< the largest tensor whole; not less than the least
};

struct TileAnsMemoryPlan {
  std::uint64_t needed_bytes = 0;
  int num_threads = 1;           ///< at most those asked for
  std::uint64_t slab_bytes = 0;  ///< of TileAnsSlabMemory
};

/// kOutOfMemory, with the smallest value that works, if there is no plan.
Result<TileAnsMemoryPlan> plan_tile_ans_memory(const TileAnsMemoryRequest& request);

}  // namespace weightpress::job
