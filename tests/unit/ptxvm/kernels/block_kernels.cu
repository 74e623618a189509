// Kernels for tests of the PTX interpreter: CUB's block primitives, each on tiles of one block.
#include <cstdint>

#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

namespace {

constexpr int kThreads = 128;
constexpr int kItems = 4;
constexpr std::uint32_t kTile = kThreads * kItems;

struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

__device__ int items_of_tile(std::uint32_t n) {
  const std::uint32_t begin = blockIdx.x * kTile;
  return static_cast<int>(n - begin < kTile ? n - begin : kTile);
}

template <cub::BlockScanAlgorithm kAlgorithm>
__device__ void exclusive_sums(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out,
                               std::uint32_t* totals) {
  using Load = cub::BlockLoad<std::uint32_t, kThreads, kItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<std::uint32_t, kThreads, kItems, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<std::uint32_t, kThreads, kAlgorithm>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } storage;
  const int valid = items_of_tile(n);
  std::uint32_t items[kItems];
  Load(storage.load).Load(in + blockIdx.x * kTile, items, valid, 0u);
  __syncthreads();
  std::uint32_t total;
  Scan(storage.scan).ExclusiveSum(items, items, total);
  __syncthreads();
  Store(storage.store).Store(out + blockIdx.x * kTile, items, valid);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

/// Adds to each item its place in the thread's arrangement, so that a wrong arrangement shows.
template <cub::BlockLoadAlgorithm kLoad, cub::BlockStoreAlgorithm kStore>
__device__ void copy_tile(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  using Load = cub::BlockLoad<std::uint32_t, kThreads, kItems, kLoad>;
  using Store = cub::BlockStore<std::uint32_t, kThreads, kItems, kStore>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } storage;
  const int valid = items_of_tile(n);
  std::uint32_t items[kItems];
  if (valid == kTile)
    Load(storage.load).Load(in + blockIdx.x * kTile, items);
  else
    Load(storage.load).Load(in + blockIdx.x * kTile, items, valid, 0u);
  for (int i = 0; i < kItems; ++i) items[i] += threadIdx.x * 1000 + i;
  __syncthreads();
  if (valid == kTile)
    Store(storage.store).Store(out + blockIdx.x * kTile, items);
  else
    Store(storage.store).Store(out + blockIdx.x * kTile, items, valid);
}

template <cub::BlockHistogramAlgorithm kAlgorithm>
__device__ void count_bytes(const std::uint8_t* in, std::uint32_t* counts) {
  using Histogram = cub::BlockHistogram<std::uint8_t, kThreads, kItems, 256, kAlgorithm>;
  __shared__ typename Histogram::TempStorage storage;
  __shared__ std::uint32_t bins[256];
  std::uint8_t items[kItems];
  for (int i = 0; i < kItems; ++i) items[i] = in[blockIdx.x * kTile + threadIdx.x * kItems + i];
  Histogram(storage).Histogram(items, bins);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += kThreads) atomicAdd(&counts[i], bins[i]);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    block_scan_warps(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out, std::uint32_t* totals) {
  exclusive_sums<cub::BLOCK_SCAN_WARP_SCANS>(in, n, out, totals);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_scan_raking(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out, std::uint32_t* totals) {
  exclusive_sums<cub::BLOCK_SCAN_RAKING>(in, n, out, totals);
}

/// Inclusive, of the largest so far; in tiles of 96.
extern "C" __global__ void __launch_bounds__(96)
    block_scan_largest(const long long* in, std::uint32_t n, long long* out) {
  using Scan = cub::BlockScan<long long, 96>;
  __shared__ typename Scan::TempStorage storage;
  const std::uint32_t at = blockIdx.x * 96 + threadIdx.x;
  long long value = at < n ? in[at] : INT64_MIN;
  Scan(storage).InclusiveScan(value, value, Larger());
  if (at < n) out[at] = value;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_reduce(const std::uint32_t* in, std::uint32_t n, unsigned long long* sums, int* largest) {
  using Sum = cub::BlockReduce<unsigned long long, kThreads, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  using Max = cub::BlockReduce<int, kThreads, cub::BLOCK_REDUCE_RAKING>;
  __shared__ typename Sum::TempStorage sum_storage;
  __shared__ typename Max::TempStorage max_storage;
  const std::uint32_t begin = blockIdx.x * kThreads;
  const int valid = n - begin < kThreads ? n - begin : kThreads;
  const std::uint32_t value = threadIdx.x < valid ? in[begin + threadIdx.x] : 0;
  const unsigned long long sum = Sum(sum_storage).Sum(static_cast<unsigned long long>(value) * value, valid);
  const int max = Max(max_storage).Reduce(static_cast<int>(value), Larger(), valid);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    largest[blockIdx.x] = max;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_copy_direct(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  copy_tile<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(in, n, out);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_copy_striped(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  copy_tile<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(in, n, out);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_copy_vectorize(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  copy_tile<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(in, n, out);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_copy_transpose(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  copy_tile<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED>(in, n, out);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_copy_warp_transpose(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  copy_tile<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(in, n, out);
}

/// By bits [begin_bit, end_bit) of the keys; the sort is stable.
extern "C" __global__ void __launch_bounds__(kThreads)
    block_sort_pairs(const std::uint32_t* in, int begin_bit, int end_bit, std::uint32_t* keys,
                     std::uint16_t* values) {
  using Sort = cub::BlockRadixSort<std::uint32_t, kThreads, kItems, std::uint16_t>;
  __shared__ typename Sort::TempStorage storage;
  std::uint32_t key[kItems];
  std::uint16_t value[kItems];
  const std::uint32_t at = blockIdx.x * kTile + threadIdx.x * kItems;
  for (int i = 0; i < kItems; ++i) {
    key[i] = in[at + i];
    value[i] = static_cast<std::uint16_t>(threadIdx.x * kItems + i);
  }
  Sort(storage).Sort(key, value, begin_bit, end_bit);
  for (int i = 0; i < kItems; ++i) {
    keys[at + i] = key[i];
    values[at + i] = value[i];
  }
}

/// Signed 64-bit keys, the largest first, 3 a thread.
extern "C" __global__ void __launch_bounds__(64) block_sort_descending(const long long* in, long long* out) {
  using Sort = cub::BlockRadixSort<long long, 64, 3>;
  __shared__ typename Sort::TempStorage storage;
  long long key[3];
  for (int i = 0; i < 3; ++i) key[i] = in[blockIdx.x * 192 + threadIdx.x * 3 + i];
  Sort(storage).SortDescendingBlockedToStriped(key);
  for (int i = 0; i < 3; ++i) out[blockIdx.x * 192 + i * 64 + threadIdx.x] = key[i];
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_discontinuity(const std::uint32_t* in, std::uint32_t* heads, std::uint32_t* tails) {
  using Discontinuity = cub::BlockDiscontinuity<std::uint32_t, kThreads>;
  __shared__ typename Discontinuity::TempStorage storage;
  const std::uint32_t at = blockIdx.x * kTile + threadIdx.x * kItems;
  std::uint32_t items[kItems], head[kItems], tail[kItems];
  for (int i = 0; i < kItems; ++i) items[i] = in[at + i];
  struct Differ {
    __device__ bool operator()(std::uint32_t a, std::uint32_t b) const { return a != b; }
  };
  Discontinuity(storage).FlagHeadsAndTails(head, tail, items, Differ());
  for (int i = 0; i < kItems; ++i) {
    heads[at + i] = head[i];
    tails[at + i] = tail[i];
  }
}

/// 128 runs a block, one block. offsets: of each item in its run.
extern "C" __global__ void __launch_bounds__(64)
    block_run_length_decode(const std::uint32_t* values, const std::uint32_t* lengths, std::uint32_t* out,
                            std::uint32_t* offsets) {
  using Decode = cub::BlockRunLengthDecode<std::uint32_t, 64, 2, 4>;
  __shared__ typename Decode::TempStorage storage;
  std::uint32_t value[2], length[2], total = 0;
  for (int i = 0; i < 2; ++i) {
    value[i] = values[threadIdx.x * 2 + i];
    length[i] = lengths[threadIdx.x * 2 + i];
  }
  Decode decode(storage, value, length, total);
  for (std::uint32_t begin = 0; begin < total; begin += 256) {
    std::uint32_t items[4], relative[4];
    decode.RunLengthDecode(items, relative, begin);
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t at = begin + threadIdx.x * 4 + i;
      if (at < total) {
        out[at] = items[i];
        offsets[at] = relative[i];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_histogram_atomic(const std::uint8_t* in, std::uint32_t* counts) {
  count_bytes<cub::BLOCK_HISTO_ATOMIC>(in, counts);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    block_histogram_sort(const std::uint8_t* in, std::uint32_t* counts) {
  count_bytes<cub::BLOCK_HISTO_SORT>(in, counts);
}

/// ranks: a permutation of a tile's places.
extern "C" __global__ void __launch_bounds__(kThreads)
    block_exchange(const unsigned long long* in, const std::uint32_t* ranks, unsigned long long* blocked,
                   unsigned long long* scattered) {
  using Exchange = cub::BlockExchange<unsigned long long, kThreads, kItems>;
  __shared__ typename Exchange::TempStorage storage;
  const std::uint32_t tile = blockIdx.x * kTile;
  unsigned long long items[kItems], moved[kItems];
  int rank[kItems];
  for (int i = 0; i < kItems; ++i) {
    items[i] = in[tile + i * kThreads + threadIdx.x];
    rank[i] = static_cast<int>(ranks[tile + threadIdx.x * kItems + i]);
  }
  Exchange(storage).StripedToBlocked(items, moved);
  for (int i = 0; i < kItems; ++i) blocked[tile + threadIdx.x * kItems + i] = moved[i];
  __syncthreads();
  Exchange(storage).ScatterToStriped(moved, items, rank);
  for (int i = 0; i < kItems; ++i) scattered[tile + i * kThreads + threadIdx.x] = items[i];
}
