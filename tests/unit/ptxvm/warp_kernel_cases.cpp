// kernels/warp_kernels.cu: each lane's result from the values of its warp, by the programming guide's words.
#include <algorithm>
#include <bit>

#include "cuda_kernel_cases.h"

namespace weightpress::ptxvm::testing {
namespace {

using Words = std::vector<std::uint32_t>;

constexpr std::uint32_t kThreads = 64;

/// Values of a few bits, so that lanes agree and disagree; several warps, and one in which all are equal.
Words few_values(std::uint32_t count, std::uint32_t values, Random& random) {
  Words words(count);
  for (std::uint32_t i = 0; i < count; ++i)
    words[i] = i < 32 ? 6 : static_cast<std::uint32_t>(random.below(values));
  return words;
}

/// The lanes of the warp of thread i whose values satisfy something.
template <class Predicate>
std::uint32_t lanes_where(const Words& in, std::uint32_t i, Predicate predicate) {
  std::uint32_t lanes = 0;
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    if (predicate(in[i / 32 * 32 + lane])) lanes |= 1u << lane;
  return lanes;
}

std::vector<CudaKernelCase> scan_reduce_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t flag_chance : {0u, 1u, 3u, 10u}) {
    const std::uint32_t count = 256;
    std::vector<std::int32_t> in(count), sums(count), groups(count), totals(count / 32), runs(count, -1);
    std::vector<std::uint8_t> flags(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      in[i] = static_cast<std::int32_t>(random.below(2'000)) - 1'000;
      flags[i] = flag_chance > 0 && random.below(flag_chance) == 0;
    }
    const std::vector<std::int32_t> runs_before = runs;
    for (std::uint32_t i = 0; i < count; ++i) {
      sums[i] = in[i] + (i % 32 == 0 ? 0 : sums[i - 1]);
      groups[i] = -7;
      for (std::uint32_t k = i / 8 * 8; k < i; ++k) groups[i] = std::max(groups[i], in[k]);
      totals[i / 32] += in[i];
      if (flags[i] == 0 && i % 32 != 0) continue;
      runs[i] = in[i];
      for (std::uint32_t k = i + 1; k % 32 != 0 && flags[k] == 0; ++k) runs[i] += in[k];
    }
    cases.push_back(launch_of(
        flag_chance == 0 ? "no flags" : "a flag in " + std::to_string(flag_chance), 2, 128,
        {input(in), input(flags), output(sums), output(groups), output(totals), in_out(runs_before, runs)}));
  }
  return cases;
}

/// Where a shuffle takes a lane's value from. CUDA C++ Programming Guide, "Warp Shuffle Functions".
enum class Shuffle { kUp, kDown, kXor, kIndex };

std::uint32_t shuffle_source(Shuffle shuffle, std::uint32_t lane, std::uint32_t by, std::uint32_t width) {
  const std::uint32_t first = lane / width * width, last = first + width - 1;
  switch (shuffle) {
    case Shuffle::kUp:
      return lane >= first + by ? lane - by : lane;
    case Shuffle::kDown:
      return lane + by <= last ? lane + by : lane;
    case Shuffle::kXor:
      return (lane ^ by) <= last ? lane ^ by : lane;
    case Shuffle::kIndex:
      return first + by % width;
  }
  return lane;
}

std::vector<CudaKernelCase> shuffle_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t delta : {0u, 1u, 2u, 5u, 7u, 8u, 16u, 31u}) {
    const std::uint32_t count = 3 * kThreads;
    const Words in = mixed_words<std::uint32_t>(count, random);
    std::vector<std::uint64_t> out;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto from = [&](Shuffle shuffle, std::uint32_t by, std::uint32_t width) {
        return in[i / 32 * 32 + shuffle_source(shuffle, i % 32, by, width)];
      };
      out.push_back(from(Shuffle::kUp, delta, 32));
      out.push_back(from(Shuffle::kUp, delta, 8));
      out.push_back(from(Shuffle::kDown, delta, 32));
      out.push_back(from(Shuffle::kDown, delta, 16));
      out.push_back(from(Shuffle::kXor, delta, 32));
      out.push_back(from(Shuffle::kXor, delta, 4));
      out.push_back(from(Shuffle::kIndex, in[i] >> 7, 32));
      out.push_back(from(Shuffle::kIndex, in[i] >> 7, 8));
      const std::uint64_t lower = from(Shuffle::kDown, delta, 32);
      out.push_back((lower << 32 | lower) + (std::uint64_t{1} << 40));
      out.push_back(std::bit_cast<std::uint64_t>(from(Shuffle::kIndex, delta, 32) * 0.5));
    }
    cases.push_back(
        launch_of("by " + std::to_string(delta), 3, kThreads, {input(in), value(delta), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> partial_shuffle_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t values : {2u, 1'000u}) {
    const Words in = few_values(4 * kThreads, values, random);
    Words out;
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      std::uint32_t first_odd = 0, last_even = 0, sum = 0;
      for (std::uint32_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
        if (in[k] % 2 == 0) last_even = in[k];
        if (in[k] % 2 == 1 && sum == 0) first_odd = in[k];
        if (in[k] % 2 == 1) sum += in[k];
      }
      out.push_back(in[i] % 2 == 1 ? first_odd : last_even);
      out.push_back(in[i] % 2 == 1 ? sum : 0);
    }
    cases.push_back(launch_of(std::to_string(values) + " values", 4, kThreads, {input(in), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> vote_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t limit : {0u, 6u, 9u, 15u}) {
    const Words in = few_values(4 * kThreads, 16, random);
    Words out;
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      const std::uint32_t odd = lanes_where(in, i, [](std::uint32_t v) { return v % 2 == 1; });
      const auto with = [&](std::uint32_t bit) {
        return lanes_where(in, i, [bit](std::uint32_t v) { return (v & bit) != 0; });
      };
      out.push_back(lanes_where(in, i, [&](std::uint32_t v) { return v < limit; }));
      out.push_back(lanes_where(in, i, [&](std::uint32_t v) { return v == limit; }) != 0);
      out.push_back(lanes_where(in, i, [&](std::uint32_t v) { return v > limit; }) == 0);
      std::uint32_t below = 0;
      for (std::uint32_t k = i / 32 * 32; k < i; ++k) below += in[k] % 2;
      out.push_back(below);
      const bool is_odd = in[i] % 2 == 1;
      out.push_back(is_odd ? with(2) & odd : with(4) & ~odd);
      const bool all = is_odd ? (~with(4) & odd) == 0 : (~with(8) & ~odd) == 0;
      const bool any = is_odd ? (with(8) & odd) != 0 : (with(2) & ~odd) != 0;
      out.push_back(is_odd ? 2u * all + any : 2u * any + all);
    }
    cases.push_back(
        launch_of("limit " + std::to_string(limit), 4, kThreads, {input(in), value(limit), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> match_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t values : {2u, 8u, 100u}) {
    const Words in = few_values(4 * kThreads, values, random);
    Words out;
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      const std::uint32_t odd = lanes_where(in, i, [](std::uint32_t v) { return v % 2 == 1; });
      const std::uint32_t group = in[i] % 2 == 1 ? odd : ~odd;
      const auto equal = [&](auto part) {
        return lanes_where(in, i, [&](std::uint32_t v) { return part(v) == part(in[i]); });
      };
      out.push_back(equal([](std::uint32_t v) { return v; }));
      out.push_back(equal([](std::uint32_t v) { return v / 2; }));
      const bool same = equal([](std::uint32_t v) { return v / 4; }) == ~0u;
      out.push_back(same ? ~2u : 0);
      const std::uint32_t bits_any = in[i] % 2 == 1 ? 6 : 2, bits_all = in[i] % 2 == 1 ? 2 : 4;
      out.push_back(equal([&](std::uint32_t v) { return v & bits_any; }) & group);
      const std::uint32_t alike = equal([&](std::uint32_t v) { return v & bits_all; }) & group;
      out.push_back(alike == group ? group : 0);
    }
    cases.push_back(launch_of(std::to_string(values) + " values", 4, kThreads, {input(in), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> append_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : {1u, 31u, 64u, 65u, 1'000u}) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    const auto count = static_cast<std::uint32_t>(
        std::count_if(in.begin(), in.end(), [](std::uint32_t v) { return v % 3 == 0; }));
    Words taken(size);
    std::fill_n(taken.begin(), count, 1u);
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                  {input(in), value(size), in_out(Words{0}, Words{count}), in_out(Words(size), taken)}));
  }
  return cases;
}

std::vector<CudaKernelCase> transpose_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t rounds : {0u, 1u, 7u}) {
    const Words in = mixed_words<std::uint32_t>(3 * kThreads, random);
    Words out = in;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const Words before = out;
      for (std::uint32_t i = 0; i < out.size(); ++i) {
        const std::uint32_t row = i % 32 / 4, column = i % 4;
        out[i] = before[i / 32 * 32 + column * 8 + row] + round;
      }
    }
    cases.push_back(
        launch_of(std::to_string(rounds) + " rounds", 3, kThreads, {input(in), value(rounds), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> tile_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> in(4 * kThreads), out;
  for (std::int32_t& word : in) word = static_cast<std::int32_t>(random.below(13)) - 6;
  for (std::uint32_t i = 0; i < in.size(); ++i) {
    const std::uint32_t first = i / 8 * 8, rank = i % 8, tile_of_block = i % kThreads / 8;
    std::int32_t sum = 0, positive = 0;
    bool any_five = false;
    for (std::uint32_t k = 0; k < 8; ++k) {
      sum += in[first + k];
      if (in[first + k] > 0) positive |= 1 << k;
      any_five |= in[first + k] == 5;
    }
    out.push_back(in[rank + 3 < 8 ? i + 3 : i]);
    out.push_back(sum);
    out.push_back(positive);
    out.push_back(any_five ? static_cast<std::int32_t>(rank) : -1);
    out.push_back(tile_of_block % 2 == 0 ? in[first + 7] + static_cast<std::int32_t>(tile_of_block)
                                         : in[i ^ 1]);
  }
  return {launch_of("", 4, kThreads, {input(in), output(out)})};
}

std::vector<CudaKernelCase> redux_cases(std::uint64_t seed) {
  Random random(seed);
  Words in = mixed_words<std::uint32_t>(6 * kThreads, random);
  std::fill_n(in.begin(), 32, 4u);
  Words out;
  for (std::uint32_t i = 0; i < in.size(); ++i) {
    std::uint32_t sum = 0, least = ~0u, all = ~0u, any = 0, parity = 0;
    std::int32_t largest = INT32_MIN;
    std::uint32_t odd_largest = 0, odd_sum = 0, even_parity = 0;
    std::int32_t even_least = INT32_MAX;
    for (std::uint32_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
      sum += in[k];
      least = std::min(least, in[k]);
      largest = std::max(largest, static_cast<std::int32_t>(in[k]));
      all &= in[k] | 0xFFFF;
      any |= in[k] & 0xFF00FF;
      parity ^= in[k];
      if (in[k] % 2 == 1) {
        odd_largest = std::max(odd_largest, in[k]);
        odd_sum += in[k];
      } else {
        even_least = std::min(even_least, static_cast<std::int32_t>(in[k]));
        even_parity ^= in[k];
      }
    }
    const bool is_odd = in[i] % 2 == 1;
    for (const std::uint32_t result :
         {sum, least, static_cast<std::uint32_t>(largest), all, any, parity,
          is_odd ? odd_largest : static_cast<std::uint32_t>(even_least), is_odd ? odd_sum : even_parity})
      out.push_back(result);
  }
  return {launch_of("", 6, kThreads, {input(in), output(out)})};
}

}  // namespace

std::vector<CudaKernel> warp_kernels() {
  std::vector<CudaKernel> kernels;
  for (const char* const file : {"warp_kernels.compute_75.ptx", "warp_kernels.compute_90.ptx"}) {
    kernels.push_back({file, "warp_scan_reduce", scan_reduce_cases});
    kernels.push_back({file, "warp_shuffles", shuffle_cases});
    kernels.push_back({file, "warp_partial_shuffles", partial_shuffle_cases});
    kernels.push_back({file, "warp_votes", vote_cases});
    kernels.push_back({file, "warp_match", match_cases});
    kernels.push_back({file, "warp_aggregated_append", append_cases});
    kernels.push_back({file, "warp_transpose", transpose_cases});
    kernels.push_back({file, "warp_tiles", tile_cases});
  }
  kernels.push_back({"warp_kernels.compute_90.ptx", "warp_redux", redux_cases});
  return kernels;
}

}  // namespace weightpress::ptxvm::testing
