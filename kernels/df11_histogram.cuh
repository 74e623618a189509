// Counts exponents, one histogram a segment.
//
// Counters are [symbol][lane] in shared memory: the lanes of a warp never meet in an address or a bank,
// whatever the data, though the commonest exponent of trained weights is one in four. The warps of a block
// share them, so additions are atomic. An exponent stands at bits 7 to 14 of its word, so that those bits, in
// place, are already the offset of its row.
#pragma once

#include <cstdint>

#include <cub/block/block_load.cuh>

#include "format/bf16_fields.h"
#include "kernels/df11_policy.h"

namespace weightpress::device {

/// One block of threads. Every one of them calls run() once.
template <class Kernel>
class SegmentHistogram {
  static constexpr std::uint32_t kRowBytes = kLanes * sizeof(std::uint32_t);
  static constexpr std::uint32_t kRowWords16 = kRowBytes / sizeof(uint4);
  static constexpr std::uint32_t kWordWeights = sizeof(uint4) / sizeof(std::uint16_t);
  static_assert(kRowBytes == 1u << 7, "an exponent's bits in place are the offset of its row");
  static_assert(Kernel::kThreads == df11::kNumSymbols);

 public:
  struct alignas(16) Storage {
    std::uint32_t counts[df11::kNumSymbols][kLanes];
  };
  static_assert(sizeof(Storage) <= Kernel::kMaxStaticSharedBytes);

  static __device__ void run(const typename Kernel::Parameters& parameters, Storage& storage) {
    uint4* const words16 = reinterpret_cast<uint4*>(storage.counts);
#pragma unroll
    for (std::uint32_t i = 0; i < kRowWords16; ++i) words16[i * Kernel::kThreads + threadIdx.x] = uint4{};
    __syncthreads();

    const std::uint64_t segment = blockIdx.x;
    const std::uint64_t first = segment * parameters.segment_weights;
    const std::uint64_t left = parameters.num_weights - first;
    count(reinterpret_cast<const std::uint16_t*>(parameters.d_weights) + first,
          left < parameters.segment_weights ? left : parameters.segment_weights,
          &storage.counts[0][threadIdx.x % kLanes]);
    __syncthreads();

    // A thread a symbol. Each begins its row in another place, so that eight of them use all banks.
    std::uint32_t sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kRowWords16; ++i) {
      const uint4 four = words16[threadIdx.x * kRowWords16 + (i + threadIdx.x) % kRowWords16];
      sum += four.x + four.y + four.z + four.w;
    }
    reinterpret_cast<std::uint32_t*>(parameters.d_histograms)[segment * df11::kNumSymbols + threadIdx.x] =
        sum;
    if (parameters.d_unit_histogram != 0 && sum != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(parameters.d_unit_histogram) + threadIdx.x, sum);
  }

 private:
  /// column: the lane's counters.
  static __device__ void count(const std::uint16_t* weights, std::uint64_t num_weights,
                               std::uint32_t* column) {
    // head: weights before the first whole word of 16 bytes; the words; tail.
    const std::uint32_t misaligned = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(weights) %
                                                                sizeof(uint4) / sizeof(std::uint16_t));
    const std::uint64_t to_border = (kWordWeights - misaligned) % kWordWeights;
    const std::uint64_t head = to_border < num_weights ? to_border : num_weights;
    const std::uint64_t num_words = (num_weights - head) / kWordWeights;
    const std::uint64_t tail_begin = head + num_words * kWordWeights;
    for (std::uint64_t i = threadIdx.x; i < head + (num_weights - tail_begin); i += Kernel::kThreads)
      add(weights[i < head ? i : tail_begin + (i - head)], column);

    constexpr std::uint64_t kTileWords = std::uint64_t{Kernel::kThreads} * Kernel::kItems;
    const uint4* const words = reinterpret_cast<const uint4*>(weights + head);
    std::uint64_t begin = 0;
    for (; num_words - begin >= kTileWords; begin += kTileWords) {
      uint4 items[Kernel::kItems];
      cub::LoadDirectStriped<Kernel::kThreads>(threadIdx.x, words + begin, items);
#pragma unroll
      for (std::uint32_t item = 0; item < Kernel::kItems; ++item) add(items[item], column);
    }
    // The read-only path, or the compiler would load each word's parts apart, since counters change in
    // between.
    for (std::uint64_t i = begin + threadIdx.x; i < num_words; i += Kernel::kThreads)
      add(__ldg(words + i), column);
  }

  static __device__ void add(const uint4& weights, std::uint32_t* column) {
    add_pair(weights.x, column);
    add_pair(weights.y, column);
    add_pair(weights.z, column);
    add_pair(weights.w, column);
  }
  static __device__ void add_pair(std::uint32_t pair, std::uint32_t* column) {
    add(pair, column);
    add(pair >> 16, column);
  }
  static __device__ void add(std::uint32_t weight, std::uint32_t* column) {
    constexpr std::uint32_t kExponentBits = (df11::kNumSymbols - 1) * kRowBytes;
    atomicAdd(reinterpret_cast<std::uint32_t*>(reinterpret_cast<char*>(column) + (weight & kExponentBits)),
              1u);
  }
};

}  // namespace weightpress::device
