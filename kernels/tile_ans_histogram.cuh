// Counts the symbols of all lanes of elements in one read.
//
// Counters are [symbol][column] in shared memory, 32 columns as a warp has threads: those of lane l are the
// columns l, l + num_lanes, ... A thread takes its bytes in an order of its own, so that in each step the
// threads of a warp are at all lanes alike, and each at a column, and so a bank, of its own, whatever the
// data. The order is a turn of each element's bytes, which one byte permutation makes of four bytes.
#pragma once

#include <cstdint>

#include <cub/block/block_load.cuh>

#include "kernels/tile_ans_warp.cuh"

namespace weightpress::device {

/// One block of threads. Every one of them calls run() once.
template <class Kernel>
class TileAnsHistogram {
  static constexpr std::uint32_t kColumns = Kernel::kColumns;
  static constexpr std::uint32_t kRowBytes = kColumns * sizeof(std::uint32_t);
  static constexpr std::uint32_t kRowWords16 = kRowBytes / sizeof(uint4);
  static_assert(kRowBytes == 1u << 7 && kRowWords16 == 8 && Kernel::kThreads == tile_ans::kNumSymbols);

 public:
  struct alignas(16) Storage {
    std::uint32_t counts[tile_ans::kNumSymbols][kColumns];
  };
  static_assert(sizeof(Storage) <= Kernel::kMaxStaticSharedBytes);

  static __device__ void run(const typename Kernel::Parameters& parameters, Storage& storage) {
    uint4* const words16 = reinterpret_cast<uint4*>(storage.counts);
#pragma unroll
    for (std::uint32_t i = 0; i < kRowWords16; ++i) words16[i * Kernel::kThreads + threadIdx.x] = uint4{};
    __syncthreads();
    const std::uint64_t first = blockIdx.x * parameters.block_bytes;
    const std::uint64_t left = parameters.num_bytes - first;
    TileAnsHistogram(parameters.num_lanes, reinterpret_cast<char*>(storage.counts))
        .count(device_pointer<const std::uint8_t>(parameters.d_elements), first,
               left < parameters.block_bytes ? left : parameters.block_bytes);
    __syncthreads();
    add_up(parameters, words16);
  }

 private:
  __device__ TileAnsHistogram(std::uint32_t num_lanes, char* counts)
      : num_lanes_(num_lanes), turn_(threadIdx.x % num_lanes), counts_(counts) {
    // Byte i of a turned element is byte (i + turn) % num_lanes of it; those of two words are 0 to 7, 4 to 7
    // the second one's.
    selector_ = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i)
      selector_ |= (i / num_lanes * num_lanes + (i + turn_) % num_lanes) << (4 * i);
  }

  /// The offset of this thread's counters of a lane.
  __device__ std::uint32_t column(std::uint32_t lane) const {
    return (threadIdx.x % kColumns / num_lanes_ * num_lanes_ + lane % num_lanes_) * sizeof(std::uint32_t);
  }

  __device__ void count(const std::uint8_t* elements, std::uint64_t first, std::uint64_t num_bytes) const {
    // head: bytes before the first whole word of 16 bytes; the words; tail. Blocks begin at whole elements.
    const std::uint8_t* const bytes = elements + first;
    const std::uint64_t to_border =
        (sizeof(uint4) - reinterpret_cast<std::uintptr_t>(bytes) % sizeof(uint4)) % sizeof(uint4);
    const std::uint64_t head = to_border < num_bytes ? to_border : num_bytes;
    const std::uint64_t num_words = (num_bytes - head) / sizeof(uint4);
    const std::uint64_t tail_begin = head + num_words * sizeof(uint4);
    for (std::uint64_t i = threadIdx.x; i < head + (num_bytes - tail_begin); i += Kernel::kThreads) {
      const std::uint64_t at = i < head ? i : tail_begin + (i - head);
      add(std::uint32_t{bytes[at]} << 7, column(static_cast<std::uint32_t>(at % num_lanes_)));
    }

    std::uint32_t columns[8];  // of the bytes of eight, turned
#pragma unroll
    for (std::uint32_t i = 0; i < 8; ++i) columns[i] = column(static_cast<std::uint32_t>(head) + i + turn_);
    constexpr std::uint64_t kStepWords = std::uint64_t{Kernel::kThreads} * Kernel::kItems;
    const uint4* const words = reinterpret_cast<const uint4*>(bytes + head);
    std::uint64_t begin = 0;
    for (; num_words - begin >= kStepWords; begin += kStepWords) {
      uint4 items[Kernel::kItems];
      cub::LoadDirectStriped<Kernel::kThreads>(threadIdx.x, words + begin, items);
#pragma unroll
      for (std::uint32_t item = 0; item < Kernel::kItems; ++item) add(items[item], columns);
    }
    for (std::uint64_t i = begin + threadIdx.x; i < num_words; i += Kernel::kThreads)
      add(__ldg(words + i), columns);
  }

  __device__ void add(const uint4& word, const std::uint32_t (&columns)[8]) const {
    add_eight(word.x, word.y, columns);
    add_eight(word.z, word.w, columns);
  }
  __device__ void add_eight(std::uint32_t low, std::uint32_t high, const std::uint32_t (&columns)[8]) const {
    add_four(__byte_perm(low, high, selector_), columns);
    add_four(__byte_perm(high, low, selector_), columns + 4);
  }
  __device__ void add_four(std::uint32_t four, const std::uint32_t* columns) const {
    add(four << 7, columns[0]);
    add(four >> 1, columns[1]);
    add(four >> 9, columns[2]);
    add(four >> 17, columns[3]);
  }
  /// The symbol from bit 7 on is the offset of its row; other bits do not matter.
  __device__ void add(std::uint32_t symbol, std::uint32_t column) const {
    constexpr std::uint32_t kRowMask = (tile_ans::kNumSymbols - 1) * kRowBytes;
    atomicAdd(reinterpret_cast<std::uint32_t*>(counts_ + ((symbol & kRowMask) | column)), 1u);
  }

  /// A thread a symbol. Each goes through its row from another place on, so that eight of them use all banks.
  static __device__ void add_up(const typename Kernel::Parameters& parameters, const uint4* words16) {
    // By column % 8; odd threads take odd words where even ones take even ones.
    std::uint64_t sums[8] = {};
    const bool is_odd = threadIdx.x % 2 != 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kRowWords16; ++i) {
      const uint4 four = words16[threadIdx.x * kRowWords16 + (i ^ threadIdx.x % kRowWords16)];
      sums[i % 2 * 4 + 0] += four.x;
      sums[i % 2 * 4 + 1] += four.y;
      sums[i % 2 * 4 + 2] += four.z;
      sums[i % 2 * 4 + 3] += four.w;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint64_t even = is_odd ? sums[i + 4] : sums[i], odd = is_odd ? sums[i] : sums[i + 4];
      sums[i] = even;
      sums[i + 4] = odd;
    }
#pragma unroll
    for (std::uint32_t half = 4; half >= 1; half /= 2) {
      if (half < parameters.num_lanes) continue;
#pragma unroll
      for (std::uint32_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    auto* const counts = device_pointer<unsigned long long>(parameters.d_counts);
#pragma unroll
    for (std::uint32_t lane = 0; lane < tile_ans::kMaxLanes; ++lane) {
      if (lane < parameters.num_lanes && sums[lane] != 0)
        atomicAdd(counts + lane * tile_ans::kNumSymbols + threadIdx.x,
                  static_cast<unsigned long long>(sums[lane]));
    }
  }

  std::uint32_t num_lanes_, turn_, selector_ = 0;
  char* counts_;
};

}  // namespace weightpress::device
