#include "job/tile_ans_memory.h"

#include <algorithm>

#include "job/parallel_io.h"
#include "job/size_option.h"

namespace weightpress::job {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSlabBytesPerThread = 16 * kMiB;
constexpr std::uint64_t kPreferredSlabBytes = 64 * kMiB, kMaxSlabBytes = 512 * kMiB;

// A piece in transit, and what a stack and the allocator's own arena take.
constexpr std::uint64_t kThreadBytes = 2 * kTransferPieceBytes + 384 * 1024;
// Code and data of libraries that were not touched yet, tables of lanes, blocks that the allocator keeps.
constexpr std::uint64_t kUnforeseenBytes = 8 * kMiB;

// As job/memory_plan.cpp: "128M" may be meant in powers of 1000.
constexpr std::uint64_t usable_bytes(std::uint64_t ram_bytes) {
  return ram_bytes - ram_bytes / 14;
}
constexpr std::uint64_t ram_for(std::uint64_t needed_bytes) {
  return needed_bytes + needed_bytes / 13 + 1;
}

}  // namespace

Result<TileAnsMemoryPlan> plan_tile_ans_memory(const TileAnsMemoryRequest& request) {
  TileAnsMemoryPlan plan{.num_threads = request.num_threads};
  const auto fixed_bytes = [&] {
    return request.resident_bytes + request.lists_bytes + kUnforeseenBytes +
           static_cast<std::uint64_t>(plan.num_threads) * kThreadBytes;
  };
  const std::uint64_t usable = usable_bytes(request.ram_bytes);
  while (plan.num_threads > 1 && fixed_bytes() + request.least_slab_bytes > usable)
    plan.num_threads = (plan.num_threads + 1) / 2;
  if (const std::uint64_t least = std::max(request.peak_bytes, fixed_bytes() + request.least_slab_bytes);
      least > usable) {
    return Unexpected(ErrorCode::kOutOfMemory,
                      "the memory that may be used (" + std::to_string(request.ram_bytes) +
                          " bytes) is too little for this model: the smallest value that works is --ram " +
                          format_size(ram_for(least) + kMiB));
  }
  const std::uint64_t wanted = std::clamp(static_cast<std::uint64_t>(plan.num_threads) * kSlabBytesPerThread,
                                          kPreferredSlabBytes, kMaxSlabBytes);
  plan.slab_bytes =
      std::min({std::max(wanted, request.least_slab_bytes), request.most_slab_bytes, usable - fixed_bytes()});
  plan.needed_bytes = std::max(request.peak_bytes, fixed_bytes() + plan.slab_bytes);
  return plan;
}

}  // namespace weightpress::job
