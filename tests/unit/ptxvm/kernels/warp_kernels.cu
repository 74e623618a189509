// Kernels for tests of the PTX interpreter: what the lanes of a warp do together.
#include <cstdint>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

namespace {

constexpr unsigned kAll = ~0u;

__device__ unsigned place() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ unsigned lane_number() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

__device__ unsigned lanes_below() {
  unsigned lanes;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
  return lanes;
}

}  // namespace

/// Blocks of 128. sums: inclusive over the warp; groups: exclusive over groups of 8, of the largest;
/// warp_totals by warp; runs: at each flagged lane and lane 0, the sum up to the next flagged one.
extern "C" __global__ void __launch_bounds__(128)
    warp_scan_reduce(const int* in, const std::uint8_t* flags, int* sums, int* groups, int* warp_totals,
                     int* runs) {
  using Scan = cub::WarpScan<int>;
  using GroupScan = cub::WarpScan<int, 8>;
  using Reduce = cub::WarpReduce<int>;
  __shared__ typename Scan::TempStorage scan_storage[4];
  __shared__ typename GroupScan::TempStorage group_storage[16];
  __shared__ typename Reduce::TempStorage reduce_storage[4];
  const int warp = threadIdx.x / 32;
  const int value = in[place()];
  int sum, group;
  Scan(scan_storage[warp]).InclusiveSum(value, sum);
  sums[place()] = sum;
  struct Larger {
    __device__ int operator()(int a, int b) const { return a < b ? b : a; }
  };
  GroupScan(group_storage[threadIdx.x / 8]).ExclusiveScan(value, group, -7, Larger());
  groups[place()] = group;
  const int total = Reduce(reduce_storage[warp]).Sum(value);
  if (threadIdx.x % 32 == 0) warp_totals[place() / 32] = total;
  __syncwarp();
  const int flag = flags[place()];
  const int run = Reduce(reduce_storage[warp]).HeadSegmentedSum(value, flag);
  if (flag != 0 || threadIdx.x % 32 == 0) runs[place()] = run;
}

/// 10 results a lane. delta below 32.
extern "C" __global__ void warp_shuffles(const std::uint32_t* in, unsigned delta, unsigned long long* out) {
  const std::uint32_t value = in[place()];
  const unsigned long long wide = value * 0x100000001ull + (1ull << 40);
  const double real = static_cast<double>(value) * 0.5;
  unsigned long long* result = out + place() * 10;
  result[0] = __shfl_up_sync(kAll, value, delta);
  result[1] = __shfl_up_sync(kAll, value, delta, 8);
  result[2] = __shfl_down_sync(kAll, value, delta);
  result[3] = __shfl_down_sync(kAll, value, delta, 16);
  result[4] = __shfl_xor_sync(kAll, value, delta);
  result[5] = __shfl_xor_sync(kAll, value, delta, 4);
  result[6] = __shfl_sync(kAll, value, value >> 7);
  result[7] = __shfl_sync(kAll, value, value >> 7, 8);
  result[8] = __shfl_down_sync(kAll, wide, delta);
  result[9] = __double_as_longlong(__shfl_sync(kAll, real, delta));
}

/// Only the lanes with an odd value take part in the second half; 2 results a lane.
extern "C" __global__ void warp_partial_shuffles(const std::uint32_t* in, std::uint32_t* out) {
  const std::uint32_t value = in[place()];
  const unsigned odd = __ballot_sync(kAll, value & 1);
  std::uint32_t first = 0, sum = 0;
  if (value & 1) {
    first = __shfl_sync(odd, value, __ffs(odd) - 1);
    for (unsigned rest = odd; rest != 0; rest &= rest - 1) sum += __shfl_sync(odd, value, __ffs(rest) - 1);
  } else {
    first = __shfl_sync(~odd, value, 31 - __clz(~odd));
  }
  out[place() * 2] = first;
  out[place() * 2 + 1] = sum;
}

/// 6 results a lane.
extern "C" __global__ void warp_votes(const std::uint32_t* in, std::uint32_t limit, std::uint32_t* out) {
  const std::uint32_t value = in[place()];
  std::uint32_t* result = out + place() * 6;
  result[0] = __ballot_sync(kAll, value < limit);
  result[1] = __any_sync(kAll, value == limit);
  result[2] = __all_sync(kAll, value <= limit);
  const unsigned odd = __ballot_sync(kAll, value & 1);
  result[3] = __popc(odd & lanes_below());
  if (value & 1) {
    result[4] = __ballot_sync(odd, value & 2);
    result[5] = __all_sync(odd, value & 4) * 2 + __any_sync(odd, value & 8);
  } else {
    result[4] = __ballot_sync(~odd, value & 4);
    result[5] = __any_sync(~odd, value & 2) * 2 + __all_sync(~odd, value & 8);
  }
}

/// 5 results a lane.
extern "C" __global__ void warp_match(const std::uint32_t* in, std::uint32_t* out) {
  const std::uint32_t value = in[place()];
  std::uint32_t* result = out + place() * 5;
  result[0] = __match_any_sync(kAll, value);
  result[1] = __match_any_sync(kAll, static_cast<unsigned long long>(value >> 1) << 33);
  int same;
  result[2] = __match_all_sync(kAll, value >> 2, &same);
  result[2] ^= same << 1;
  const unsigned odd = __ballot_sync(kAll, value & 1);
  if (value & 1) {
    result[3] = __match_any_sync(odd, value & 6);
    result[4] = __match_all_sync(odd, static_cast<unsigned long long>(value & 2), &same);
  } else {
    result[3] = __match_any_sync(~odd, value & 2);
    result[4] = __match_all_sync(~odd, value & 4, &same);
  }
}

/// Appends the values that are a multiple of 3, with one atomic for the lanes that are there together. Which
/// lanes those are is not fixed, so neither is the order of the output.
extern "C" __global__ void warp_aggregated_append(const std::uint32_t* in, std::uint32_t n,
                                                  std::uint32_t* count, std::uint32_t* taken) {
  if (place() >= n || in[place()] % 3 != 0) return;
  const unsigned here = __activemask();
  const int leader = __ffs(here) - 1;
  std::uint32_t base = 0;
  if (lane_number() == static_cast<unsigned>(leader)) base = atomicAdd(count, __popc(here));
  base = __shfl_sync(here, base, leader);
  atomicAdd(&taken[base + __popc(here & lanes_below())], 1);
}

/// Transposes 8 x 4 words of each warp through shared memory; only __syncwarp stands between.
extern "C" __global__ void __launch_bounds__(64)
    warp_transpose(const std::uint32_t* in, unsigned rounds, std::uint32_t* out) {
  __shared__ std::uint32_t words[64];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x - lane;
  std::uint32_t value = in[place()];
  for (unsigned round = 0; round < rounds; ++round) {
    words[threadIdx.x] = value;
    __syncwarp();
    value = words[warp + lane % 4 * 8 + lane / 4] + round;
    __syncwarp();
  }
  out[place()] = value;
}

/// Cooperative groups: tiles of 8 lanes. 5 results a lane.
extern "C" __global__ void warp_tiles(const int* in, int* out) {
  namespace cg = cooperative_groups;
  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
  const int value = in[place()];
  int* result = out + place() * 5;
  result[0] = tile.shfl_down(value, 3);
  result[1] = cg::reduce(tile, value, cg::plus<int>());
  result[2] = static_cast<int>(tile.ballot(value > 0));
  result[3] = tile.any(value == 5) ? static_cast<int>(tile.thread_rank()) : -1;
  block.sync();
  if (tile.meta_group_rank() % 2 == 0) {
    result[4] = tile.shfl(value, 7) + tile.meta_group_rank();
  } else {
    tile.sync();
    result[4] = tile.shfl_xor(value, 1);
  }
}

#if __CUDA_ARCH__ >= 800
/// 8 results a lane; the last two only among lanes of one parity.
extern "C" __global__ void warp_redux(const std::uint32_t* in, std::uint32_t* out) {
  const std::uint32_t value = in[place()];
  std::uint32_t* result = out + place() * 8;
  result[0] = __reduce_add_sync(kAll, value);
  result[1] = __reduce_min_sync(kAll, value);
  result[2] = static_cast<std::uint32_t>(__reduce_max_sync(kAll, static_cast<int>(value)));
  result[3] = __reduce_and_sync(kAll, value | 0xFFFF);
  result[4] = __reduce_or_sync(kAll, value & 0xFF00FF);
  result[5] = __reduce_xor_sync(kAll, value);
  const unsigned odd = __ballot_sync(kAll, value & 1);
  if (value & 1) {
    result[6] = __reduce_max_sync(odd, value);
    result[7] = __reduce_add_sync(odd, static_cast<int>(value));
  } else {
    result[6] = __reduce_min_sync(~odd, static_cast<int>(value));
    result[7] = __reduce_xor_sync(~odd, value);
  }
}
#endif
