// Where segments start in the bitstream: the dot products of histograms and code lengths, summed up.
#pragma once

#include <cstdint>

#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>

#include "format/bf16_fields.h"
#include "kernels/df11_policy.h"

namespace weightpress::device {

/// The lowest segment counts.
inline __device__ void report_changed_source(std::uint64_t d_status, std::uint64_t segment) {
  atomicMin(reinterpret_cast<unsigned long long*>(d_status),
            static_cast<unsigned long long>(segment << 8 | EncodeStatusWord::kSourceChanged));
}

/// One block of threads. Every one of them calls run() once.
template <class Kernel>
class SegmentBits {
 public:
  static __device__ void run(const typename Kernel::Parameters& parameters) {
    const std::uint64_t segment = std::uint64_t{blockIdx.x} * Kernel::kSegmentsOfBlock + threadIdx.x / kLanes;
    if (segment >= parameters.num_segments) return;  // a whole warp
    const std::uint32_t lane = threadIdx.x % kLanes;
    const auto* const tables = reinterpret_cast<const EncodeTables*>(parameters.d_tables);
    const auto* const counts =
        reinterpret_cast<const uint4*>(parameters.d_histograms) + segment * (df11::kNumSymbols / 4);
    const auto* const lengths = reinterpret_cast<const uchar4*>(tables->lengths);

    std::uint64_t sum = 0;
#pragma unroll
    for (std::uint32_t i = lane; i < df11::kNumSymbols / 4; i += kLanes) {
      const uint4 count = counts[i];
      const uchar4 length = lengths[i];
      sum += std::uint64_t{count.x} * length.x + std::uint64_t{count.y} * length.y +
             std::uint64_t{count.z} * length.z + std::uint64_t{count.w} * length.w;
    }
    typename cub::WarpReduce<std::uint64_t>::TempStorage storage;  // empty: shuffles
    const std::uint64_t bits = cub::WarpReduce<std::uint64_t>(storage).Sum(sum);
    if (lane != 0) return;
    reinterpret_cast<std::uint64_t*>(parameters.d_bits)[segment] = bits;
    if (parameters.d_weights == 0) return;
    // Weights that are not those that were counted: the offsets mean nothing then.
    std::uint64_t end = (segment + 1) * parameters.segment_weights;
    if (end > parameters.num_weights) end = parameters.num_weights;
    const std::uint16_t last = reinterpret_cast<const std::uint16_t*>(parameters.d_weights)[end - 1];
    const std::uint32_t length = tables->lengths[df11::exponent_of(last)];
    if (length == 0 || length > bits) report_changed_source(parameters.d_status, 0);
  }
};

/// The one block of threads. Every one of them calls run() once.
template <class Kernel>
class SegmentOffsets {
  using Scan = cub::BlockScan<std::uint64_t, Kernel::kThreads>;

 public:
  using Storage = typename Scan::TempStorage;
  static_assert(sizeof(Storage) <= Kernel::kMaxStaticSharedBytes);

  static __device__ void run(const typename Kernel::Parameters& parameters, Storage& storage) {
    auto* const bits = reinterpret_cast<std::uint64_t*>(parameters.d_bits);
    constexpr std::uint64_t kStep = std::uint64_t{Kernel::kThreads} * Kernel::kItems;
    std::uint64_t before = parameters.first_bit;
    for (std::uint64_t begin = 0; begin < parameters.num_segments; begin += kStep) {
      const std::uint64_t first = begin + threadIdx.x * Kernel::kItems;
      std::uint64_t items[Kernel::kItems];
#pragma unroll
      for (std::uint32_t i = 0; i < Kernel::kItems; ++i)
        items[i] = first + i < parameters.num_segments ? bits[first + i] : 0;
      std::uint64_t sum = 0;
      Scan(storage).ExclusiveSum(items, items, sum);
#pragma unroll
      for (std::uint32_t i = 0; i < Kernel::kItems; ++i)
        if (first + i < parameters.num_segments) bits[first + i] = before + items[i];
      before += sum;
      __syncthreads();
    }
    if (threadIdx.x != 0) return;
    bits[parameters.num_segments] = before;
    if (parameters.expected_end == 0) return;
    const std::uint16_t last = *reinterpret_cast<const std::uint16_t*>(parameters.d_last_weight);
    const std::uint32_t length =
        reinterpret_cast<const EncodeTables*>(parameters.d_tables)->lengths[df11::exponent_of(last)];
    if (before != parameters.expected_end || length != parameters.expected_last_length)
      report_changed_source(parameters.d_status, parameters.num_segments - 1);
  }
};

}  // namespace weightpress::device
