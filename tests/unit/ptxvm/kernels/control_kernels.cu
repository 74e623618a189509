// Kernels for tests of the PTX interpreter: branches, calls, the kinds of memory, barriers.
#include <cstdint>

namespace {

using Word = unsigned long long;

__device__ unsigned place() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

struct Small {
  int a;
  long long b;
};

struct Large {
  short a;
  std::uint8_t bytes[5];
  double c;
  std::uint32_t words[4];
};

__device__ __noinline__ Small combine(int factor, Small value) {
  return Small{factor + value.a, value.b * factor};
}

__device__ __noinline__ Large turn(Large value, unsigned by) {
  Large result = value;
  result.a = static_cast<short>(value.a + value.bytes[by % 5]);
  for (unsigned i = 0; i < 4; ++i) result.words[i] = value.words[(i + by) % 4];
  result.c = value.c * 2;
  return result;
}

__device__ __noinline__ void add_to(int* where, int value) {
  *where += value;
}

__device__ __noinline__ float scaled(float value) {
  return value * 3.0f + 1.0f;
}

__device__ __noinline__ int outer(int value, int* seen) {
  add_to(seen, value);
  return combine(value, Small{1, 2}).a;
}

__constant__ std::uint16_t squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};

struct Entry {
  std::uint8_t key;
  std::uint32_t value;
};
__constant__ Entry entries[4] = {{7, 70}, {8, 80}, {9, 90}, {10, 0xFFFFFFFF}};

__device__ const std::uint32_t small_table[3] = {5, 6, 7};
__device__ const std::uint32_t large_table[5] = {50, 60, 70, 80, 90};
__device__ const std::uint32_t* const tables[3] = {small_table, large_table, large_table + 2};

}  // namespace

__device__ Word total = 5;
__device__ std::uint32_t visits[4];

/// Steps until 1 is reached (Collatz), at most `limit`; and a sum with two ways out of a double loop.
extern "C" __global__ void divergent_loops(const std::uint32_t* in, std::uint32_t n, std::uint32_t limit,
                                           std::uint32_t* steps, std::uint32_t* sums) {
  if (place() >= n) return;
  std::uint32_t value = in[place()] % 1000 + 1, count = 0;
  while (value != 1) {
    if (count == limit) break;
    value = value % 2 == 0 ? value / 2 : value * 3 + 1;
    ++count;
  }
  steps[place()] = count;
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < in[place()] % 9; ++i) {
    if (i == 4) continue;
    for (std::uint32_t j = i;; j += 3) {
      if ((j ^ in[place()]) % 5 == 0) break;
      sum += j;
      if (sum > 40) goto full;
    }
    sum += 100 * i;
  }
full:
  sums[place()] = sum;
}

extern "C" __global__ void switches(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  if (place() >= n) return;
  const std::uint32_t value = in[place()];
  std::uint32_t result = 1;
  switch (value % 13) {
    case 0:
      result = value * 3;
      break;
    case 1:
      result = value / 3;
      break;
    case 2:
      result += value;
    case 3:
      result += 9;
      break;
    case 4:
      result = ~value;
      break;
    case 5:
      result = value >> 5;
      break;
    case 6:
      result = value << 7;
      break;
    case 7:
      result = value ^ 0xABCDEF;
      break;
    case 8:
    case 9:
      result = __popc(value);
      break;
    case 11:
      result = value - 11;
      break;
    default:
      result = 1000;
      break;
  }
  switch (value >> 28) {
    case 1:
      result ^= 0x10;
      break;
    case 7:
      result *= 7;
      break;
    case 15:
      result += 15;
      break;
  }
  out[place()] = result;
}

extern "C" __global__ void local_arrays(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  if (place() >= n) return;
  std::uint32_t counts[16];
  std::uint8_t order[16];
  for (unsigned i = 0; i < 16; ++i) {
    counts[i] = i;
    order[i] = static_cast<std::uint8_t>(i);
  }
  std::uint32_t value = in[place()];
  for (unsigned step = 0; step < 24; ++step) {
    ++counts[value % 16];
    const std::uint8_t other = order[value % 16];
    order[value % 16] = order[step % 16];
    order[step % 16] = other;
    value = value * 1664525 + 1013904223;
    value ^= value >> 15;
  }
  std::uint32_t hash = 0;
  for (unsigned i = 0; i < 16; ++i) hash = hash * 31 + counts[order[i]];
  out[place()] = hash;
}

/// 6 results a thread.
extern "C" __global__ void calls(const int* in, std::uint32_t n, long long* out) {
  if (place() >= n) return;
  const int value = in[place()];
  long long* result = out + place() * 6;
  const Small small = combine(value % 100, Small{value % 7, value});
  result[0] = small.a;
  result[1] = small.b;
  Large large{static_cast<short>(value), {1, 2, 3, 4, 5}, value * 0.5, {10, 20, 30, 40}};
  large = turn(large, static_cast<unsigned>(value) % 4);
  if (value & 1) large = turn(large, 1);
  result[2] = large.a;
  result[3] = large.words[0] * 1000 + large.words[3] + static_cast<long long>(large.c);
  int seen = 3;
  const int sum = outer(value % 50, &seen);
  result[4] = sum + seen;
  result[5] = static_cast<long long>(scaled(static_cast<float>(value % 1000)));
}

/// The pointer is to shared, local or global memory, as the value says. One block of 64.
extern "C" __global__ void __launch_bounds__(64)
    generic_pointers(const std::uint32_t* in, int* global, int* out) {
  __shared__ int shared[64];
  int local[2] = {1000, 2000};
  const unsigned thread = threadIdx.x;
  shared[thread] = static_cast<int>(thread);
  __syncthreads();
  const std::uint32_t value = in[thread];
  int* where = value % 3 == 0   ? &shared[(thread + 1) % 64]
               : value % 3 == 1 ? &global[(thread + 1) % 64]
                                : &local[value % 2];
  add_to(where, static_cast<int>(value % 100));
  where[0] += 5;
  if (value % 3 != 2) atomicAdd(where, 7);
  const bool is_shared = __isShared(where), is_local = __isLocal(where), is_global = __isGlobal(where);
  __syncthreads();
  out[thread] = shared[thread] * 10 + local[0] + local[1] + is_shared + 2 * is_local + 4 * is_global;
}

extern "C" __global__ void constant_tables(const std::uint32_t* in, std::uint32_t n, std::uint32_t* out) {
  if (place() >= n) return;
  const std::uint32_t value = in[place()];
  std::uint32_t found = 1;
  for (const Entry& entry : entries)
    if (entry.key == value % 12) found = entry.value;
  out[place() * 3] = squares[value % 16];
  out[place() * 3 + 1] = found;
  out[place() * 3 + 2] = tables[value % 3][value / 3 % 3];
}

/// Adds to the module's variables `total` and `visits`.
extern "C" __global__ void device_variables(const std::uint32_t* in, std::uint32_t n, Word* first_total) {
  if (place() >= n) return;
  if (n == 1) *first_total = total;
  atomicAdd(&total, static_cast<Word>(in[place()]));
  atomicAdd(&visits[in[place()] % 4], 1u);
}

/// Reverses each block's words; the shared memory's size comes with the launch.
extern "C" __global__ void dynamic_shared(const std::uint32_t* in, std::uint32_t* out) {
  extern __shared__ std::uint32_t words[];
  std::uint8_t* bytes = reinterpret_cast<std::uint8_t*>(words + blockDim.x);
  words[threadIdx.x] = in[place()];
  bytes[threadIdx.x] = static_cast<std::uint8_t>(in[place()] >> 8);
  __syncthreads();
  const unsigned other = blockDim.x - 1 - threadIdx.x;
  out[place()] = words[other] * 2 + bytes[threadIdx.x ^ (blockDim.x > 1 ? 1 : 0)];
}

extern "C" __global__ void __launch_bounds__(64)
    volatile_words(volatile std::uint32_t* words, std::uint32_t n) {
  volatile __shared__ std::uint32_t shared[64];
  if (place() < n) words[place()] = words[place()] + 1;
  shared[threadIdx.x] = threadIdx.x;
  __syncwarp();
  shared[threadIdx.x] = shared[threadIdx.x] + 1;
  if (place() < n) words[place()] = words[place()] * shared[threadIdx.x];
}

/// 3 results a block and round.
extern "C" __global__ void counted_barriers(const std::uint32_t* in, std::uint32_t rounds, int* out) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::uint32_t value = in[place()] >> round;
    const int count = __syncthreads_count(value & 1);
    const int all = __syncthreads_and(value % 8 != 0);
    const int any = __syncthreads_or(value % 64 == 5);
    if (threadIdx.x == blockDim.x - 1) {
      int* result = out + (blockIdx.x * rounds + round) * 3;
      result[0] = count;
      result[1] = all != 0;
      result[2] = any != 0;
    }
  }
}

/// Two halves of 64 threads, each with a barrier of its own, in a different number of rounds; then all meet.
extern "C" __global__ void __launch_bounds__(128)
    named_barriers(const std::uint32_t* in, std::uint32_t* out) {
  __shared__ std::uint32_t words[128];
  const unsigned half = threadIdx.x / 64, rounds = half == 0 ? 3 : 6;
  words[threadIdx.x] = in[place()];
  for (unsigned round = 0; round < rounds; ++round) {
    asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
    const std::uint32_t next = words[half * 64 + (threadIdx.x + 1) % 64] + round;
    asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
    words[threadIdx.x] = next;
  }
  __syncthreads();
  out[place()] = words[threadIdx.x ^ 64];
}

/// Two warps fill a buffer and do not wait; two others wait for it and use it.
extern "C" __global__ void __launch_bounds__(128)
    producers_consumers(const std::uint32_t* in, std::uint32_t rounds, std::uint32_t* out) {
  __shared__ std::uint32_t words[64];
  for (std::uint32_t round = 0; round < rounds; ++round) {
    if (threadIdx.x < 64) {
      if (round > 0) asm volatile("bar.sync 2, 128;" ::: "memory");
      words[threadIdx.x] = in[round * 64 + threadIdx.x] + 1;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      out[round * 64 + threadIdx.x - 64] = words[127 - threadIdx.x] * 3;
      if (round + 1 < rounds) asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}

extern "C" __global__ void __launch_bounds__(64)
    vector_loads(const uint4* in, uint4* out, ushort2* halves, double2* reals) {
  __shared__ uint4 shared[64];
  const uint4 value = in[place()];
  shared[threadIdx.x] = make_uint4(value.w, value.z, value.y, value.x);
  __syncthreads();
  const uchar4 bytes = *reinterpret_cast<const uchar4*>(&in[place()].z);
  const longlong2 wide = *reinterpret_cast<const longlong2*>(&in[place()]);
  const uint4 turned = shared[threadIdx.x ^ 1];
  out[place()] = make_uint4(turned.x + bytes.x, turned.y + bytes.y, turned.z + bytes.z, turned.w + bytes.w);
  halves[place()] =
      make_ushort2(static_cast<unsigned short>(value.x), static_cast<unsigned short>(value.x >> 16));
  reals[place()] = make_double2(static_cast<double>(wide.x >> 20), static_cast<double>(wide.y >> 20));
}

/// What a thread knows of its place: 12 results.
extern "C" __global__ void places(std::uint32_t* out) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  std::uint32_t* result = out + (block * blockDim.x * blockDim.y * blockDim.z + thread) * 12;
  result[0] = threadIdx.x, result[1] = threadIdx.y, result[2] = threadIdx.z;
  result[3] = blockIdx.x, result[4] = blockIdx.y, result[5] = blockIdx.z;
  result[6] = blockDim.x, result[7] = blockDim.y, result[8] = blockDim.z;
  result[9] = gridDim.x, result[10] = gridDim.y, result[11] = gridDim.z;
}

/// Sums a tile of a matrix through a padded shared one: rows become columns. Blocks of 16 x 8.
extern "C" __global__ void __launch_bounds__(128)
    matrix_transpose(const std::uint16_t* in, std::uint32_t rows, std::uint32_t columns, std::uint16_t* out) {
  __shared__ std::uint16_t tile[16][17];
  for (unsigned y = threadIdx.y; y < 16; y += 8) {
    const unsigned row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + threadIdx.x;
    if (row < rows && column < columns) tile[y][threadIdx.x] = in[row * columns + column];
  }
  __syncthreads();
  for (unsigned y = threadIdx.y; y < 16; y += 8) {
    const unsigned row = blockIdx.x * 16 + y, column = blockIdx.y * 16 + threadIdx.x;
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][y];
  }
}
