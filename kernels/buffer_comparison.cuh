// Compares two buffers byte by byte: how many differ, and the first that does.
//
// Memory bound: 16 bytes a load, where the buffers allow it, and kItems loads of each buffer under way in
// every thread. Equal words, nearly all of them, cost three xors and ors each; bytes are looked at one by one
// only in a word that differs.
#pragma once

#include <cstdint>

#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>

#include "kernels/compare_policy.h"

namespace weightpress::device {

/// One block of threads. Every one of them calls run() once.
template <class Kernel>
class BufferComparison {
  struct Differences {
    std::uint64_t count = 0;
    std::uint64_t first = Kernel::Result::kNone;
  };
  struct Merge {
    __device__ Differences operator()(const Differences& x, const Differences& y) const {
      return {x.count + y.count, x.first < y.first ? x.first : y.first};
    }
  };
  using Reduce = cub::BlockReduce<Differences, Kernel::kThreads>;

 public:
  using Storage = typename Reduce::TempStorage;
  static_assert(sizeof(Storage) <= Kernel::kMaxStaticSharedBytes);

  static __device__ void run(const std::uint8_t* a, const std::uint8_t* b, std::uint64_t bytes,
                             typename Kernel::Result* result, Storage& storage) {
    Differences found;
    const auto misalignment = [](const std::uint8_t* address) {
      return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) % Kernel::kWordBytes);
    };
    if (misalignment(a) == misalignment(b)) {
      // head: bytes before the first whole word; the words; tail: bytes after the last.
      const std::uint64_t to_border = (Kernel::kWordBytes - misalignment(a)) % Kernel::kWordBytes;
      const std::uint64_t head = to_border < bytes ? to_border : bytes;
      const std::uint64_t num_words = (bytes - head) / Kernel::kWordBytes;
      const std::uint64_t tail_begin = head + num_words * Kernel::kWordBytes;
      compare_words(a + head, b + head, num_words, head, found);
      if (blockIdx.x == 0) {  // fewer than 32 bytes
        for (std::uint64_t i = threadIdx.x; i < head + (bytes - tail_begin); i += Kernel::kThreads) {
          const std::uint64_t offset = i < head ? i : tail_begin + (i - head);
          compare_byte(a[offset], b[offset], offset, found);
        }
      }
    } else {
      // Neighbouring lanes take neighbouring bytes.
      const std::uint64_t stride = std::uint64_t{gridDim.x} * Kernel::kThreads;
      for (std::uint64_t offset = std::uint64_t{blockIdx.x} * Kernel::kThreads + threadIdx.x; offset < bytes;
           offset += stride)
        compare_byte(a[offset], b[offset], offset, found);
    }

    const Differences of_block = Reduce(storage).Reduce(found, Merge{});
    if (threadIdx.x == 0 && of_block.count != 0) {
      using Word = unsigned long long;  // what atomics take
      static_assert(sizeof(Word) == sizeof(std::uint64_t));
      atomicAdd(reinterpret_cast<Word*>(&result->num_different), static_cast<Word>(of_block.count));
      atomicMin(reinterpret_cast<Word*>(&result->first_different), static_cast<Word>(of_block.first));
    }
  }

 private:
  static __device__ void compare_byte(std::uint8_t a, std::uint8_t b, std::uint64_t offset,
                                      Differences& found) {
    if (a == b) return;
    ++found.count;
    if (offset < found.first) found.first = offset;
  }

  /// a, b: aligned to words. offset_bytes: of the first word.
  static __device__ void compare_words(const std::uint8_t* a, const std::uint8_t* b, std::uint64_t num_words,
                                       std::uint64_t offset_bytes, Differences& found) {
    static_assert(sizeof(uint4) == Kernel::kWordBytes);
    constexpr std::uint64_t kTileWords = std::uint64_t{Kernel::kThreads} * Kernel::kItems;
    const uint4* const a_words = reinterpret_cast<const uint4*>(a);
    const uint4* const b_words = reinterpret_cast<const uint4*>(b);
    const std::uint64_t stride = std::uint64_t{gridDim.x} * kTileWords;
    for (std::uint64_t begin = std::uint64_t{blockIdx.x} * kTileWords; begin < num_words; begin += stride) {
      uint4 a_items[Kernel::kItems], b_items[Kernel::kItems];
      if (num_words - begin >= kTileWords) {
        cub::LoadDirectStriped<Kernel::kThreads>(threadIdx.x, a_words + begin, a_items);
        cub::LoadDirectStriped<Kernel::kThreads>(threadIdx.x, b_words + begin, b_items);
      } else {
        // What is past the end is equal.
        const int num_valid = static_cast<int>(num_words - begin);
        cub::LoadDirectStriped<Kernel::kThreads>(threadIdx.x, a_words + begin, a_items, num_valid, uint4{});
        cub::LoadDirectStriped<Kernel::kThreads>(threadIdx.x, b_words + begin, b_items, num_valid, uint4{});
      }
#pragma unroll
      for (std::uint32_t item = 0; item < Kernel::kItems; ++item) {
        const uint4 x = {a_items[item].x ^ b_items[item].x, a_items[item].y ^ b_items[item].y,
                         a_items[item].z ^ b_items[item].z, a_items[item].w ^ b_items[item].w};
        if ((x.x | x.y | x.z | x.w) == 0) continue;
        const std::uint64_t word = begin + item * Kernel::kThreads + threadIdx.x;
        const std::uint64_t offset = offset_bytes + word * Kernel::kWordBytes;
        // From the last part to the first, so that the lowest offset of the word stands at the end.
        std::uint64_t first = 0;
        count_bytes(x.w, offset + 12, first, found.count);
        count_bytes(x.z, offset + 8, first, found.count);
        count_bytes(x.y, offset + 4, first, found.count);
        count_bytes(x.x, offset, first, found.count);
        if (first < found.first) found.first = first;
      }
    }
  }

  /// difference: four bytes, not 0 where they differ. Sets `first` only if one does.
  static __device__ void count_bytes(std::uint32_t difference, std::uint64_t offset, std::uint64_t& first,
                                     std::uint64_t& count) {
    if (difference == 0) return;
    // The highest bit of a byte, if any of its bits is set.
    const std::uint32_t marks = (((difference & 0x7f7f'7f7fu) + 0x7f7f'7f7fu) | difference) & 0x8080'8080u;
    count += static_cast<std::uint32_t>(__popc(marks));
    first = offset + static_cast<std::uint32_t>(__ffs(static_cast<int>(marks)) - 1) / 8;
  }
};

}  // namespace weightpress::device
