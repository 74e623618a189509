// Kernels for tests of the PTX interpreter: atomics, and blocks and warps that wait for each other.
#include <cstdint>

namespace {

using Word = unsigned long long;

constexpr unsigned kCells = 8;

__device__ unsigned place() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

/// 8 arrays of kCells words.
template <class T, class Signed>
__device__ void update(T* cells, T value) {
  T* cell = cells + value % kCells;
  atomicAdd(cell, value);
  atomicMin(cell += kCells, value);
  atomicMax(cell += kCells, value);
  atomicOr(cell += kCells, value);
  atomicAnd(cell += kCells, value | 7);
  atomicXor(cell += kCells, value);
  atomicMin(reinterpret_cast<Signed*>(cell += kCells), static_cast<Signed>(value));
  atomicMax(reinterpret_cast<Signed*>(cell += kCells), static_cast<Signed>(value));
}

/// Multiplies the cell by an odd number; CUDA has no atomic for that.
template <class T>
__device__ void multiply(T* cell, T factor) {
  T seen = atomicCAS(cell, T{0}, T{0}), expected;
  do {
    expected = seen;
    seen = atomicCAS(cell, expected, static_cast<T>(expected * factor));
  } while (seen != expected);
}

/// Inclusive sums over all blocks in one pass (decoupled look-back). state: by tile, 0 nothing, 1 and the
/// tile's sum, 2 and the sum of all up to it, in bits 32 and up.
__device__ void look_back(const std::uint32_t* in, std::uint32_t n, std::uint32_t tile, Word* state,
                          std::uint32_t* out) {
  __shared__ std::uint32_t warp_sums[4], shared_before;
  const std::uint32_t at = tile * 128 + threadIdx.x;
  std::uint32_t sum = at < n ? in[at] : 0;
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint32_t lower = __shfl_up_sync(~0u, sum, step);
    if (threadIdx.x % 32 >= step) sum += lower;
  }
  if (threadIdx.x % 32 == 31) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  for (unsigned warp = 0; warp < threadIdx.x / 32; ++warp) sum += warp_sums[warp];
  if (threadIdx.x == 127) {
    volatile Word* flags = state;
    std::uint32_t before = 0;
    if (tile > 0) {
      flags[tile] = Word{1} << 32 | sum;
      for (std::uint32_t earlier = tile - 1;; --earlier) {
        Word seen;
        do seen = flags[earlier];
        while (seen >> 32 == 0);
        before += static_cast<std::uint32_t>(seen);
        if (seen >> 32 == 2) break;
      }
    }
    flags[tile] = Word{2} << 32 | static_cast<std::uint32_t>(before + sum);
    shared_before = before;
  }
  __syncthreads();
  if (at < n) out[at] = shared_before + sum;
}

}  // namespace

extern "C" __global__ void atomic_global(const Word* in, std::uint32_t n, std::uint32_t* narrow, Word* wide) {
  if (place() >= n) return;
  update<std::uint32_t, int>(narrow, static_cast<std::uint32_t>(in[place()]));
  update<Word, long long>(wide, in[place()]);
}

/// The same in shared memory, one block, the state loaded and stored.
extern "C" __global__ void atomic_shared(const Word* in, std::uint32_t n, std::uint32_t* narrow, Word* wide) {
  __shared__ std::uint32_t narrow_cells[8 * kCells];
  __shared__ Word wide_cells[8 * kCells];
  for (unsigned i = threadIdx.x; i < 8 * kCells; i += blockDim.x) {
    narrow_cells[i] = narrow[i];
    wide_cells[i] = wide[i];
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
    update<std::uint32_t, int>(narrow_cells, static_cast<std::uint32_t>(in[i]));
    update<Word, long long>(wide_cells, in[i]);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 8 * kCells; i += blockDim.x) {
    narrow[i] = narrow_cells[i];
    wide[i] = wide_cells[i];
  }
}

/// One block. The values that were exchanged out, and the last that stayed, are all that went in: their sums.
extern "C" __global__ void atomic_exchange(const std::uint32_t* in, std::uint32_t n, Word* sums) {
  __shared__ std::uint32_t narrow;
  __shared__ Word wide;
  __shared__ Word narrow_sum, wide_sum;
  if (threadIdx.x == 0) narrow = 0, wide = 0, narrow_sum = 0, wide_sum = 0;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&narrow_sum, static_cast<Word>(atomicExch(&narrow, in[i])));
    atomicAdd(&wide_sum, atomicExch(&wide, static_cast<Word>(in[i]) << 20));
    atomicAdd(&sums[2], static_cast<Word>(atomicExch(reinterpret_cast<unsigned*>(&sums[3]), in[i])));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    sums[0] = narrow_sum + narrow;
    sums[1] = wide_sum + wide;
    sums[2] += sums[3];
    sums[3] = 0;
  }
}

extern "C" __global__ void atomic_cas(const std::uint32_t* in, std::uint32_t n, std::uint32_t* narrow,
                                      Word* wide, unsigned short* half) {
  __shared__ std::uint32_t shared_cell;
  __shared__ Word shared_wide;
  if (threadIdx.x == 0) shared_cell = 1, shared_wide = 1;
  __syncthreads();
  if (place() < n) {
    const std::uint32_t factor = in[place()] | 1;
    multiply<std::uint32_t>(&narrow[factor % kCells], factor);
    multiply<Word>(&wide[factor % kCells], factor * 0x100000001ull);
    multiply<unsigned short>(&half[factor % kCells], static_cast<unsigned short>(factor));
    multiply<std::uint32_t>(&shared_cell, factor);
    multiply<Word>(&shared_wide, factor * 0x300000001ull);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    multiply<std::uint32_t>(&narrow[kCells], shared_cell);
    multiply<Word>(&wide[kCells], shared_wide);
  }
}

/// Small whole numbers, so that the order of the additions makes no difference.
extern "C" __global__ void atomic_float_add(const std::uint32_t* in, std::uint32_t n, float* narrow,
                                            double* wide) {
  __shared__ float shared_narrow;
  __shared__ double shared_wide;
  if (threadIdx.x == 0) shared_narrow = 0, shared_wide = 0;
  __syncthreads();
  if (place() < n) {
    const int value = static_cast<int>(in[place()] % 2001) - 1000;
    atomicAdd(&narrow[in[place()] % kCells], static_cast<float>(value));
    atomicAdd(&wide[in[place()] % kCells], value * 0.25);
    atomicAdd(&shared_narrow, static_cast<float>(value));
    atomicAdd(&shared_wide, value * 0.5);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(&narrow[kCells], shared_narrow);
    atomicAdd(&wide[kCells], shared_wide);
  }
}

/// Every number below the count is taken once; inc and dec run around at their limits.
extern "C" __global__ void atomic_tickets(std::uint32_t n, std::uint32_t* counters, std::uint32_t* taken) {
  if (place() >= n) return;
  atomicAdd(&taken[atomicAdd(&counters[0], 1u)], 1u);
  atomicAdd(&taken[n + atomicInc(&counters[1], n - 1)], 1u);
  atomicAdd(&taken[2 * n + atomicDec(&counters[2], n - 1)], 1u);
  atomicSub(&counters[3], 3u);
  atomicAdd_block(&counters[4], 1u);
  atomicAdd_system(&counters[5], 1u);
}

/// Bytes counted in shared memory by the block, then added to the sums of all.
extern "C" __global__ void atomic_histogram(const std::uint8_t* in, std::uint32_t n, std::uint32_t* counts) {
  __shared__ std::uint32_t bins[256];
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (unsigned i = place(); i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1u);
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
    if (bins[i] != 0) atomicAdd(&counts[i], bins[i]);
}

/// Blocks take their tiles in the order in which they begin, so that they only wait for ones that are
/// running.
extern "C" __global__ void __launch_bounds__(128)
    look_back_by_ticket(const std::uint32_t* in, std::uint32_t n, std::uint32_t* next_tile, Word* state,
                        std::uint32_t* out) {
  __shared__ std::uint32_t tile;
  if (threadIdx.x == 0) tile = atomicAdd(next_tile, 1u);
  __syncthreads();
  look_back(in, n, tile, state, out);
}

/// Blocks wait for those of lower numbers, which a GPU begins before them.
extern "C" __global__ void __launch_bounds__(128)
    look_back_by_number(const std::uint32_t* in, std::uint32_t n, Word* state, std::uint32_t* out) {
  look_back(in, n, blockIdx.x, state, out);
}

/// Each warp adds to one word that a lock guards, while its lanes meet inside the lock: so others have to
/// wait for it. sums[0]: what the lock guards, without atomics; sums[1]: how often it was taken.
extern "C" __global__ void spin_lock(const std::uint32_t* in, std::uint32_t* lock, volatile Word* sums) {
  const std::uint32_t value = in[place()];
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x % 32 == 0) {
      while (atomicCAS(lock, 0u, 1u) != 0) {
      }
      __threadfence();
    }
    __syncwarp();
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t other = __shfl_sync(~0u, value, lane);
      if (threadIdx.x % 32 == 0) sums[0] = sums[0] * 1 + other;
    }
    if (threadIdx.x % 32 == 0) {
      sums[1] = sums[1] + 1;
      __threadfence();
      atomicExch(lock, 0u);
    }
    __syncwarp();
  }
}

/// The warps of a block take turns, the last one first, and then the other way round.
extern "C" __global__ void warp_turns(volatile std::uint32_t* turn, volatile std::uint32_t* order) {
  const std::uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) {
    const std::uint32_t first = warps - 1 - warp, second = warps + warp;
    while (turn[0] != first) {
    }
    order[first] = warp;
    __threadfence();
    turn[0] = first + 1;
    while (turn[0] != second) {
    }
    order[second] = warp;
    __threadfence();
    turn[0] = second + 1;
  }
}
