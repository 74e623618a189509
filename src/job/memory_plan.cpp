#include "job/memory_plan.h"

#include <algorithm>

#include "format/df11_constants.h"
#include "format/histogram.h"
#include "job/parallel_io.h"
#include "job/size_option.h"

namespace weightpress::job {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// docs/benchmarking.md, "Tuned constants": as fast as larger ones, and each of many threads has its segments.
constexpr std::uint64_t kPreferredSlabWeights = 4 * kMiB;
constexpr std::uint64_t kSlabWeightsPerThread = kMiB / 2;
constexpr std::uint64_t kMaxSlabWeights = 64 * kMiB;
constexpr std::uint64_t kMostChunks = 64, kFewestChunks = 8;

// A slab's weight: the weight itself, its sign and mantissa, at most a byte of code (UnitCompressor cuts
// slabs so), of gaps a thirteenth of that; a sixteenth more for growth; of its segment's histogram 1/64.
constexpr std::uint64_t slab_bytes(std::uint64_t slab_weights) {
  return slab_weights * 2 + slab_weights * 2 * 17 / 16 + slab_weights / 8;
}

// A chunk in the decoder: its bits, and for each of at most 32,768 weights the sign and mantissa and, where a
// slab carried weights on, the weight itself.
constexpr std::uint64_t chunk_bytes() {
  return (df11::kChunkBytes + 3 * df11::kChunkBits + 512) * 17 / 16;
}

// Two pieces in transit, half of one while F32 is cast, and what a stack and the allocator's own arena take.
constexpr std::uint64_t kThreadBytes = 2 * kTransferPieceBytes + kTransferPieceBytes / 2 + 384 * 1024;

// Code and data of libraries that were not touched yet, and blocks that the allocator keeps.
constexpr std::uint64_t kUnforeseenBytes = 8 * kMiB;

// What is promised is a little more than what is planned with. A fourteenth covers the difference between
// "128M" in powers of 1024 and in powers of 1000, which is how some tools will check.
constexpr std::uint64_t usable_bytes(std::uint64_t ram_bytes) {
  return ram_bytes - ram_bytes / 14;
}

std::uint64_t ram_for(std::uint64_t needed_bytes) {
  return needed_bytes + needed_bytes / 13 + 1;
}

struct Choice {
  int num_threads;
  std::uint64_t slab_weights;
  std::uint64_t slab_chunks;
};

std::uint64_t bytes_of(const MemoryRequest& request, const Choice& choice) {
  const std::uint64_t segments = df11::num_segments(request.longest_unit_weights,
                                                    df11::segment_weights_for(request.longest_unit_weights));
  return std::max(request.peak_bytes, request.resident_bytes + request.lists_bytes + kUnforeseenBytes +
                                          segments * sizeof(df11::SegmentHistogram) +
                                          static_cast<std::uint64_t>(choice.num_threads) * kThreadBytes +
                                          slab_bytes(choice.slab_weights) +
                                          (request.decodes ? choice.slab_chunks * chunk_bytes() : 0));
}

}  // namespace

Result<MemoryPlan> plan_memory(const MemoryRequest& request) {
  const std::uint64_t segment = df11::segment_weights_for(request.longest_unit_weights);
  const std::uint64_t longest = df11::num_segments(request.longest_unit_weights, segment) * segment;
  const auto rounded = [&](std::uint64_t slab_weights) {
    return std::clamp(df11::num_segments(slab_weights, segment) * segment, segment,
                      std::max(longest, segment));
  };
  const auto threads = static_cast<std::uint64_t>(request.num_threads);
  Choice choice{request.num_threads,
                rounded(std::clamp(threads * kSlabWeightsPerThread, kPreferredSlabWeights, kMaxSlabWeights)),
                std::max(kMostChunks, std::min<std::uint64_t>(4 * threads, 256))};
  const std::uint64_t usable = usable_bytes(request.ram_bytes);
  // Buffers shrink before threads are given up.
  while (bytes_of(request, choice) > usable) {
    if (choice.slab_chunks > kFewestChunks) {
      choice.slab_chunks = std::max(choice.slab_chunks / 2, kFewestChunks);
    } else if (choice.slab_weights > rounded(threads * segment * 4)) {
      choice.slab_weights = std::max(rounded(choice.slab_weights / 2), rounded(threads * segment * 4));
    } else if (choice.num_threads > 1) {
      choice.num_threads = (choice.num_threads + 1) / 2;
      choice.slab_weights = std::min(choice.slab_weights,
                                     rounded(static_cast<std::uint64_t>(choice.num_threads) * segment * 4));
    } else if (choice.slab_weights > rounded(segment)) {
      choice.slab_weights = rounded(segment);
    } else {
      const std::uint64_t smallest = ram_for(bytes_of(request, choice)) + kMiB;  // runs differ a little
      return Unexpected(ErrorCode::kOutOfMemory,
                        "the memory that may be used (" + std::to_string(request.ram_bytes) +
                            " bytes) is too little for this model: the smallest value that works is --ram " +
                            format_size(smallest));
    }
  }
  MemoryPlan plan{.ram_bytes = request.ram_bytes,
                  .needed_bytes = bytes_of(request, choice),
                  .num_threads = choice.num_threads,
                  .slab_weights = choice.slab_weights,
                  .slab_chunks = choice.slab_chunks};
  std::uint64_t left = usable - plan.needed_bytes;
  if (request.holds_many_units) {
    // A histogram saves reading and counting 64 times its size.
    const std::uint64_t wanted = request.held_weights / df11::kDefaultSegmentWeights * 1024 + kMiB;
    plan.histogram_bytes = std::min(wanted, left / 2);
    left -= plan.histogram_bytes;
  }
  if (request.held_weights == 0) return plan;
  constexpr std::uint64_t kHugePageBytes = 2 * kMiB;
  plan.held_bytes =
      std::min(left, request.held_weights * 2 + kHugePageBytes) / kHugePageBytes * kHugePageBytes;
  return plan;
}

}  // namespace weightpress::job
