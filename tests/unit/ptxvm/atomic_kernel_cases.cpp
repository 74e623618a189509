// kernels/atomic_kernels.cu: the sums, ends and products that no order of the updates can change.
#include <algorithm>

#include "cuda_kernel_cases.h"

namespace weightpress::ptxvm::testing {
namespace {

using Words = std::vector<std::uint32_t>;
using WideWords = std::vector<std::uint64_t>;

constexpr std::uint32_t kCells = 8;
constexpr std::uint32_t kThreads = 96;
const std::vector<std::uint32_t> kSizes = {1, 32, 95, 97, 700};

/// add, min, max, or, and, xor, signed min, signed max: kCells each.
template <class T, class Signed>
void update(std::vector<T>& cells, T word) {
  const auto cell = [&](std::uint32_t row) -> T& { return cells[row * kCells + word % kCells]; };
  cell(0) += word;
  cell(1) = std::min(cell(1), word);
  cell(2) = std::max(cell(2), word);
  cell(3) |= word;
  cell(4) &= word | 7;
  cell(5) ^= word;
  cell(6) = static_cast<T>(std::min(static_cast<Signed>(cell(6)), static_cast<Signed>(word)));
  cell(7) = static_cast<T>(std::max(static_cast<Signed>(cell(7)), static_cast<Signed>(word)));
}

std::vector<CudaKernelCase> update_cases(std::uint64_t seed, bool one_block) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const auto in = mixed_words<std::uint64_t>(size, random);
    Words narrow = mixed_words<std::uint32_t>(8 * kCells, random);
    WideWords wide = mixed_words<std::uint64_t>(8 * kCells, random);
    const Words narrow_before = narrow;
    const WideWords wide_before = wide;
    for (const std::uint64_t word : in) {
      update<std::uint32_t, std::int32_t>(narrow, static_cast<std::uint32_t>(word));
      update<std::uint64_t, std::int64_t>(wide, word);
    }
    cases.push_back(
        launch_of(size_name(size), one_block ? 1 : blocks_for(size, kThreads), kThreads,
                  {input(in), value(size), in_out(narrow_before, narrow), in_out(wide_before, wide)}));
  }
  return cases;
}

std::vector<CudaKernelCase> global_cases(std::uint64_t seed) {
  return update_cases(seed, false);
}

std::vector<CudaKernelCase> shared_cases(std::uint64_t seed) {
  return update_cases(seed, true);
}

std::vector<CudaKernelCase> exchange_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    std::uint64_t sum = 0;
    for (const std::uint32_t word : in) sum += word;
    cases.push_back(
        launch_of(size_name(size), 1, kThreads,
                  {input(in), value(size), in_out(WideWords(4), WideWords{sum, sum << 20, sum, 0})}));
  }
  return cases;
}

std::vector<CudaKernelCase> cas_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    Words narrow(kCells + 1, 3);
    WideWords wide(kCells + 1, 5);
    std::vector<std::uint16_t> half(kCells, 7);
    const auto narrow_before = narrow;
    const auto wide_before = wide;
    const auto half_before = half;
    for (const std::uint32_t word : in) {
      const std::uint32_t factor = word | 1;
      narrow[factor % kCells] *= factor;
      wide[factor % kCells] *= factor * 0x1'0000'0001u;
      half[factor % kCells] = static_cast<std::uint16_t>(half[factor % kCells] * (factor & 0xFFFF));
      narrow[kCells] *= factor;
      wide[kCells] *= factor * 0x3'0000'0001u;
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), in_out(narrow_before, narrow),
                               in_out(wide_before, wide), in_out(half_before, half)}));
  }
  return cases;
}

std::vector<CudaKernelCase> float_add_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    std::vector<float> narrow(kCells + 1, 0.5f);
    std::vector<double> wide(kCells + 1, -0.25);
    const auto narrow_before = narrow;
    const auto wide_before = wide;
    for (const std::uint32_t word : in) {
      const int number = static_cast<int>(word % 2001) - 1000;
      narrow[word % kCells] += static_cast<float>(number);
      wide[word % kCells] += number * 0.25;
      narrow[kCells] += static_cast<float>(number);
      wide[kCells] += number * 0.5;
    }
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                  {input(in), value(size), in_out(narrow_before, narrow), in_out(wide_before, wide)}));
  }
  return cases;
}

std::vector<CudaKernelCase> ticket_cases(std::uint64_t) {
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words before = {0, 0, 0, 7, 1, 2};
    const Words after = {size, 0, 0, 7 - 3 * size, 1 + size, 2 + size};
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                  {value(size), in_out(before, after), in_out(Words(3 * size, 5), Words(3 * size, 6))}));
  }
  return cases;
}

std::vector<CudaKernelCase> histogram_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : {0u, 1u, 255u, 4'000u}) {
    std::vector<std::uint8_t> in(size);
    Words counts(256);
    for (std::uint8_t& byte : in) {
      byte = static_cast<std::uint8_t>(random.next() & random.next());
      ++counts[byte];
    }
    cases.push_back(
        launch_of(size_name(size), 3, kThreads, {input(in), value(size), in_out(Words(256), counts)}));
  }
  return cases;
}

std::vector<CudaKernelCase> look_back_cases(std::uint64_t seed, bool by_ticket) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : {1u, 127u, 128u, 129u, 3'000u}) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    const std::uint32_t tiles = blocks_for(size, 128);
    Words out(size);
    WideWords state(tiles);
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < size; ++i) {
      sum += in[i];
      out[i] = sum;
      state[i / 128] = std::uint64_t{2} << 32 | sum;
    }
    std::vector<KernelArgument> arguments = {input(in), value(size), in_out(WideWords(tiles), state),
                                             output(out)};
    if (by_ticket) arguments.insert(arguments.begin() + 2, in_out(Words{0}, Words{tiles}));
    cases.push_back(launch_of(size_name(size), tiles, 128, std::move(arguments)));
  }
  return cases;
}

std::vector<CudaKernelCase> ticket_look_back_cases(std::uint64_t seed) {
  return look_back_cases(seed, true);
}

std::vector<CudaKernelCase> number_look_back_cases(std::uint64_t seed) {
  return look_back_cases(seed, false);
}

std::vector<CudaKernelCase> spin_lock_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t blocks : {1u, 4u}) {
    const Words in = mixed_words<std::uint32_t>(blocks * 128, random);
    std::uint64_t sum = 11;
    for (const std::uint32_t word : in) sum += std::uint64_t{3} * word;
    cases.push_back(launch_of(
        std::to_string(blocks) + " blocks", blocks, 128,
        {input(in), in_out(Words{0}, Words{0}), in_out(WideWords{11, 0}, WideWords{sum, blocks * 4 * 3})}));
  }
  return cases;
}

std::vector<CudaKernelCase> turn_cases(std::uint64_t) {
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t warps : {1u, 2u, 5u}) {
    Words order;
    for (std::uint32_t i = 0; i < warps; ++i) order.push_back(warps - 1 - i);
    for (std::uint32_t i = 0; i < warps; ++i) order.push_back(i);
    cases.push_back(launch_of(std::to_string(warps) + " warps", 1, warps * 32,
                              {in_out(Words{0}, Words{2 * warps}), output(order)}));
  }
  return cases;
}

}  // namespace

std::vector<CudaKernel> atomic_kernels() {
  const char* const file = "atomic_kernels.compute_75.ptx";
  return {{file, "atomic_global", global_cases},
          {file, "atomic_shared", shared_cases},
          {file, "atomic_exchange", exchange_cases},
          {file, "atomic_cas", cas_cases},
          {file, "atomic_float_add", float_add_cases},
          {file, "atomic_tickets", ticket_cases},
          {file, "atomic_histogram", histogram_cases},
          {file, "look_back_by_ticket", ticket_look_back_cases},
          {file, "look_back_by_number", number_look_back_cases},
          {file, "spin_lock", spin_lock_cases},
          {file, "warp_turns", turn_cases}};
}

}  // namespace weightpress::ptxvm::testing
