// kernels/block_kernels.cu: CUB's block primitives against loops and the standard library.
#include <algorithm>
#include <limits>
#include <numeric>

#include "cuda_kernel_cases.h"

namespace weightpress::ptxvm::testing {
namespace {

constexpr std::uint32_t kThreads = 128;
constexpr std::uint32_t kItems = 4;
constexpr std::uint32_t kTile = kThreads * kItems;
const std::vector<std::uint32_t> kSizes = {1, 4, 31, 33, 128, 511, 512, 513, 1'500};

using Words = std::vector<std::uint32_t>;

std::vector<CudaKernelCase> scan_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    Words out(size), totals(blocks_for(size, kTile));
    for (std::uint32_t i = 0; i < size; ++i) {
      out[i] = totals[i / kTile];
      totals[i / kTile] += in[i];
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kTile), kThreads,
                              {input(in), value(size), output(out), output(totals)}));
  }
  return cases;
}

std::vector<CudaKernelCase> scan_largest_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : {1u, 32u, 95u, 96u, 97u, 500u}) {
    std::vector<long long> in(size), out(size);
    for (std::uint32_t i = 0; i < size; ++i) {
      // Mostly negative, and growing, so that the largest moves on.
      in[i] = static_cast<long long>(random.below(1'000'000'000'000)) + i * 3'000'000'000ll - 999'999'999'999;
      out[i] = i % 96 == 0 ? in[i] : std::max(out[i - 1], in[i]);
    }
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, 96), 96, {input(in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> reduce_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : {1u, 31u, 32u, 33u, 127u, 128u, 129u, 700u}) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    std::vector<std::uint64_t> sums(blocks_for(size, kThreads));
    std::vector<std::int32_t> largest(sums.size(), std::numeric_limits<std::int32_t>::min());
    for (std::uint32_t i = 0; i < size; ++i) {
      sums[i / kThreads] += std::uint64_t{in[i]} * in[i];
      largest[i / kThreads] = std::max(largest[i / kThreads], static_cast<std::int32_t>(in[i]));
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), output(sums), output(largest)}));
  }
  return cases;
}

/// How the items of a tile are dealt to threads; what is stored goes back the same way.
enum class Deal { kBlocked, kStriped };

std::vector<CudaKernelCase> copy_cases(std::uint64_t seed, Deal deal) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    Words out(size);
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint32_t in_tile = i % kTile;
      const std::uint32_t thread = deal == Deal::kBlocked ? in_tile / kItems : in_tile % kThreads;
      const std::uint32_t item = deal == Deal::kBlocked ? in_tile % kItems : in_tile / kThreads;
      out[i] = in[i] + thread * 1000 + item;
    }
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, kTile), kThreads, {input(in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> blocked_copy_cases(std::uint64_t seed) {
  return copy_cases(seed, Deal::kBlocked);
}

std::vector<CudaKernelCase> striped_copy_cases(std::uint64_t seed) {
  return copy_cases(seed, Deal::kStriped);
}

std::vector<CudaKernelCase> sort_pairs_cases(std::uint64_t seed) {
  Random random(seed);
  struct Bits {
    std::uint32_t begin, end;
  };
  std::vector<CudaKernelCase> cases;
  for (const Bits bits : {Bits{0, 32}, Bits{0, 4}, Bits{5, 12}, Bits{31, 32}}) {
    const std::uint32_t blocks = 2;
    const Words in = mixed_words<std::uint32_t>(blocks * kTile, random);
    Words keys(in.size());
    std::vector<std::uint16_t> values(in.size());
    for (std::uint32_t tile = 0; tile < in.size(); tile += kTile) {
      std::vector<std::uint16_t> order(kTile);
      std::iota(order.begin(), order.end(), std::uint16_t{0});
      const auto digit = [&](std::uint32_t key) {
        return (key >> bits.begin) & ((std::uint64_t{1} << (bits.end - bits.begin)) - 1);
      };
      std::sort(order.begin(), order.end(), [&](std::uint16_t a, std::uint16_t b) {
        return std::pair(digit(in[tile + a]), a) < std::pair(digit(in[tile + b]), b);
      });
      for (std::uint32_t i = 0; i < kTile; ++i) {
        keys[tile + i] = in[tile + order[i]];
        values[tile + i] = order[i];
      }
    }
    cases.push_back(launch_of("bits " + std::to_string(bits.begin) + " to " + std::to_string(bits.end),
                              blocks, kThreads,
                              {input(in), value(bits.begin), value(bits.end), output(keys), output(values)}));
  }
  return cases;
}

std::vector<CudaKernelCase> sort_descending_cases(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t blocks = 2, tile = 192;
  const auto in = mixed_words<std::int64_t>(blocks * tile, random);
  auto out = in;
  for (std::uint32_t block = 0; block < blocks; ++block)
    std::sort(out.begin() + block * tile, out.begin() + (block + 1) * tile, std::greater<>());
  return {launch_of("", blocks, 64, {input(in), output(out)})};
}

std::vector<CudaKernelCase> discontinuity_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t values : {1u, 2u, 1'000u}) {
    Words in(2 * kTile);
    for (std::uint32_t& word : in) word = static_cast<std::uint32_t>(random.below(values));
    Words heads(in.size()), tails(in.size());
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      heads[i] = i % kTile == 0 || in[i] != in[i - 1];
      tails[i] = i % kTile == kTile - 1 || in[i] != in[i + 1];
    }
    cases.push_back(launch_of(std::to_string(values) + " values", 2, kThreads,
                              {input(in), output(heads), output(tails)}));
  }
  return cases;
}

std::vector<CudaKernelCase> run_length_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t longest : {1u, 5u, 60u}) {
    const Words values = mixed_words<std::uint32_t>(128, random);
    Words lengths(128), out, offsets;
    for (std::uint32_t run = 0; run < 128; ++run) {
      lengths[run] = 1 + static_cast<std::uint32_t>(random.below(longest));
      for (std::uint32_t i = 0; i < lengths[run]; ++i) {
        out.push_back(values[run]);
        offsets.push_back(i);
      }
    }
    cases.push_back(launch_of("runs up to " + std::to_string(longest), 1, 64,
                              {input(values), input(lengths), output(out), output(offsets)}));
  }
  return cases;
}

std::vector<CudaKernelCase> histogram_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t values : {1u, 7u, 256u}) {
    std::vector<std::uint8_t> in(2 * kTile);
    Words before(256), after;
    for (std::uint32_t& count : before) count = static_cast<std::uint32_t>(random.below(5));
    after = before;
    for (std::uint8_t& byte : in) {
      byte = static_cast<std::uint8_t>(255 - random.below(values));
      ++after[byte];
    }
    cases.push_back(
        launch_of(std::to_string(values) + " values", 2, kThreads, {input(in), in_out(before, after)}));
  }
  return cases;
}

std::vector<CudaKernelCase> exchange_cases(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t blocks = 2;
  const auto in = mixed_words<std::uint64_t>(blocks * kTile, random);
  Words ranks(in.size());
  std::vector<std::uint64_t> scattered(in.size());
  for (std::uint32_t tile = 0; tile < in.size(); tile += kTile) {
    std::iota(ranks.begin() + tile, ranks.begin() + tile + kTile, 0u);
    for (std::uint32_t i = kTile - 1; i > 0; --i) {
      const auto other = static_cast<std::uint32_t>(random.below(i + 1));
      std::swap(ranks[tile + i], ranks[tile + other]);
    }
    for (std::uint32_t i = 0; i < kTile; ++i) scattered[tile + ranks[tile + i]] = in[tile + i];
  }
  // Blocked as thread and item have it is just the order in memory.
  return {launch_of("", blocks, kThreads, {input(in), input(ranks), output(in), output(scattered)})};
}

}  // namespace

std::vector<CudaKernel> block_kernels() {
  const char* const file = "block_kernels.compute_75.ptx";
  return {{file, "block_scan_warps", scan_cases},
          {file, "block_scan_raking", scan_cases},
          {file, "block_scan_largest", scan_largest_cases},
          {file, "block_reduce", reduce_cases},
          {file, "block_copy_direct", blocked_copy_cases},
          {file, "block_copy_striped", striped_copy_cases},
          {file, "block_copy_vectorize", blocked_copy_cases},
          {file, "block_copy_transpose", blocked_copy_cases},
          {file, "block_copy_warp_transpose", blocked_copy_cases},
          {file, "block_sort_pairs", sort_pairs_cases},
          {file, "block_sort_descending", sort_descending_cases},
          {file, "block_discontinuity", discontinuity_cases},
          {file, "block_run_length_decode", run_length_cases},
          {file, "block_histogram_atomic", histogram_cases},
          {file, "block_histogram_sort", histogram_cases},
          {file, "block_exchange", exchange_cases}};
}

}  // namespace weightpress::ptxvm::testing
