// Mistakes as people make them, for tests of the PTX interpreter: each kernel once wrong, once right.
#include <cassert>
#include <cstdint>

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

namespace {

constexpr unsigned kThreads = 128;

__device__ unsigned place() {
  return blockIdx.x * kThreads + threadIdx.x;
}

/// Two collectives use the same storage; between them belongs a barrier.
template <bool kRight>
__device__ void storage_used_twice(const int* in, int* out) {
  using Scan = cub::BlockScan<int, kThreads>;
  using Reduce = cub::BlockReduce<int, kThreads>;
  __shared__ union {
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
  } storage;
  int value = in[place()];
  Scan(storage.scan).InclusiveSum(value, value);
  if (kRight) __syncthreads();
  const int sum = Reduce(storage.reduce).Sum(value);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

/// A tree of sums whose last steps run in one warp, and still need __syncwarp.
template <bool kRight>
__device__ void last_warp_alone(const int* in, int* out) {
  __shared__ int sums[kThreads];
  sums[threadIdx.x] = in[place()];
  __syncthreads();
  for (unsigned half = kThreads / 2; half >= 32; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x >= 32) return;
  for (unsigned half = 16; half > 0; half /= 2) {
    const int other = sums[threadIdx.x + half];
    if (kRight) __syncwarp();
    sums[threadIdx.x] += other;
    if (kRight) __syncwarp();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

/// The last thread looks one word too far.
template <bool kRight>
__device__ void neighbour_sum(const int* in, unsigned n, int* out) {
  const unsigned at = place();
  if (at >= n) return;
  const bool has_next = kRight ? at + 1 < n : at < n;
  out[at] = in[at] + (has_next ? in[at + 1] : 0);
}

/// Threads without work leave before a barrier that counts them.
template <bool kRight>
__device__ void early_return(const int* in, unsigned n, int* out) {
  __shared__ int words[kThreads];
  if (!kRight && place() >= n) return;
  words[threadIdx.x] = place() < n ? in[place()] : 0;
  __syncthreads();
  if (place() < n) out[place()] = words[threadIdx.x / 2];
}

/// A shuffle of the whole warp in a branch that only some lanes take, while the others wait at a barrier.
template <bool kRight>
__device__ void shuffle_in_branch(const int* in, int* out) {
  const int value = in[place()];
  const unsigned mask = kRight ? __ballot_sync(~0u, value % 2 == 1) : ~0u;
  int first = 0;
  if (value % 2 == 1) first = __shfl_sync(mask, value, __ffs(mask) - 1);
  __syncthreads();
  out[place()] = first;
}

/// Bins that somebody has to clear first.
template <bool kRight>
__device__ void bins_not_cleared(const int* in, int* out) {
  __shared__ int bins[16];
  if (kRight && threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[in[place()] & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], kRight ? bins[threadIdx.x] : bins[in[place()] & 15]);
}

/// A search without an end for values that are not there.
template <bool kRight>
__device__ void search(const int* in, unsigned n, int* out) {
  unsigned at = 0;
  const int wanted = place() == 200 ? -1 : in[place() % n];
  while (in[at] != wanted) {
    at = (at + 1) % n;
    if (kRight && at == 0) break;
  }
  out[place()] = static_cast<int>(at);
}

}  // namespace

#define BOTH(name, parameters, arguments)                                          \
  extern "C" __global__ void __launch_bounds__(kThreads) name##_wrong parameters { \
    name<false> arguments;                                                         \
  }                                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads) name##_right parameters { \
    name<true> arguments;                                                          \
  }

BOTH(storage_used_twice, (const int* in, unsigned, int* out), (in, out))
BOTH(last_warp_alone, (const int* in, unsigned, int* out), (in, out))
BOTH(neighbour_sum, (const int* in, unsigned n, int* out), (in, n, out))
BOTH(early_return, (const int* in, unsigned n, int* out), (in, n, out))
BOTH(shuffle_in_branch, (const int* in, unsigned, int* out), (in, out))
BOTH(bins_not_cleared, (const int* in, unsigned, int* out), (in, out))
BOTH(search, (const int* in, unsigned n, int* out), (in, n, out))

extern "C" __global__ void __launch_bounds__(kThreads) assertion(const int* in, unsigned limit, int* out) {
  assert(in[place()] < static_cast<int>(limit));
  out[place()] = in[place()];
}
