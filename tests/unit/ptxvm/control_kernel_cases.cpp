// kernels/control_kernels.cu: what branches, calls, tables and barriers must lead to.
#include <algorithm>
#include <bit>

#include "cuda_kernel_cases.h"

namespace weightpress::ptxvm::testing {
namespace {

using Words = std::vector<std::uint32_t>;
using Numbers = std::vector<std::int32_t>;

constexpr std::uint32_t kThreads = 64;
const std::vector<std::uint32_t> kSizes = {1, 31, 64, 65, 300};

std::vector<CudaKernelCase> loop_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t limit : {0u, 20u, 1'000u}) {
    const std::uint32_t size = 200;
    const Words in = mixed_words<std::uint32_t>(size, random);
    Words steps, sums;
    for (const std::uint32_t word : in) {
      std::uint32_t count = 0;
      for (std::uint32_t value = word % 1000 + 1; value != 1 && count < limit; ++count)
        value = value % 2 == 0 ? value / 2 : 3 * value + 1;
      steps.push_back(count);
      std::uint32_t sum = 0;
      bool full = false;
      for (std::uint32_t i = 0; i < word % 9 && !full; ++i) {
        if (i == 4) continue;
        for (std::uint32_t j = i; !full && (j ^ word) % 5 != 0; j += 3) {
          sum += j;
          full = sum > 40;
        }
        if (!full) sum += 100 * i;
      }
      sums.push_back(sum);
    }
    cases.push_back(launch_of("limit " + std::to_string(limit), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), value(limit), output(steps), output(sums)}));
  }
  return cases;
}

std::uint32_t switched(std::uint32_t word) {
  const auto first = [word]() -> std::uint32_t {
    const std::uint32_t kind = word % 13;
    if (kind == 0) return word * 3;
    if (kind == 1) return word / 3;
    if (kind == 2) return 1 + word + 9;
    if (kind == 3) return 10;
    if (kind == 4) return ~word;
    if (kind == 5) return word >> 5;
    if (kind == 6) return word << 7;
    if (kind == 7) return word ^ 0xABCDEF;
    if (kind == 8 || kind == 9) return static_cast<std::uint32_t>(std::popcount(word));
    if (kind == 11) return word - 11;
    return 1000;
  }();
  const std::uint32_t top = word >> 28;
  if (top == 1) return first ^ 0x10;
  if (top == 7) return first * 7;
  if (top == 15) return first + 15;
  return first;
}

std::vector<CudaKernelCase> switch_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    Words in = mixed_words<std::uint32_t>(size, random), out;
    for (std::uint32_t i = 0; i < size && i < 26; ++i) in[i] = i;
    for (const std::uint32_t word : in) out.push_back(switched(word));
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> local_array_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    Words out;
    for (std::uint32_t word : in) {
      std::array<std::uint32_t, 16> counts, order;
      for (std::uint32_t i = 0; i < 16; ++i) counts[i] = order[i] = i;
      for (std::uint32_t step = 0; step < 24; ++step) {
        counts[word % 16] += 1;
        std::swap(order[word % 16], order[step % 16]);
        word = word * 1'664'525 + 1'013'904'223;
        word ^= word >> 15;
      }
      std::uint32_t hash = 0;
      for (const std::uint32_t at : order) hash = 31 * hash + counts[at];
      out.push_back(hash);
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> call_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Numbers in = mixed_words<std::int32_t>(size, random);
    std::vector<std::int64_t> out;
    for (const std::int32_t number : in) {
      const std::int64_t factor = number % 100;
      out.push_back(factor + number % 7);
      out.push_back(factor * number);
      // One turn by number % 4, a second by 1 if it is odd: each adds bytes[by], moves the words, doubles c.
      const std::uint32_t by = static_cast<std::uint32_t>(number) % 4, odd = number & 1;
      auto a =
          static_cast<std::int16_t>(static_cast<std::int16_t>(number) + static_cast<std::int32_t>(by) + 1);
      if (odd != 0) a = static_cast<std::int16_t>(a + 2);
      out.push_back(a);
      const std::int64_t doubled = odd != 0 ? std::int64_t{2} * number : number;
      out.push_back(10'000 * ((by + odd) % 4 + 1) + 10 * ((by + odd + 3) % 4 + 1) + doubled);
      const std::int32_t rest = number % 50;
      out.push_back(rest + 1 + 3 + rest);
      out.push_back(number % 1000 * 3 + 1);
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> generic_pointer_cases(std::uint64_t seed) {
  Random random(seed);
  const Words in = mixed_words<std::uint32_t>(64, random);
  Numbers global(64), shared(64), out(64);
  for (std::int32_t& number : global) number = static_cast<std::int32_t>(random.below(1'000));
  for (std::uint32_t i = 0; i < 64; ++i) shared[i] = static_cast<std::int32_t>(i);
  const Numbers global_before = global;
  for (std::uint32_t i = 0; i < 64; ++i) {
    const auto added = static_cast<std::int32_t>(in[i] % 100) + 5;
    switch (in[i] % 3) {
      case 0:
        shared[(i + 1) % 64] += added + 7;
        out[i] += 3'000 + 1;
        break;
      case 1:
        global[(i + 1) % 64] += added + 7;
        out[i] += 3'000 + 4;
        break;
      default:
        out[i] += 3'000 + added + 2;
        break;
    }
  }
  for (std::uint32_t i = 0; i < 64; ++i) out[i] += 10 * shared[i];
  return {launch_of("", 1, 64, {input(in), in_out(global_before, global), output(out)})};
}

std::vector<CudaKernelCase> table_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    Words out;
    for (const std::uint32_t word : in) {
      const std::uint32_t root = word % 16, key = word % 12;
      out.push_back(root * root);
      out.push_back(key < 7 || key == 11 ? 1 : key == 10 ? 0xFFFFFFFF : key * 10);
      // {5, 6, 7}, {50, 60, ...} and that from its third on.
      const std::uint32_t at = word / 3 % 3;
      out.push_back(word % 3 == 0 ? 5 + at : (word % 3 == 1 ? 50 : 70) + 10 * at);
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> variable_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words in = mixed_words<std::uint32_t>(size, random);
    const std::vector<std::uint64_t> first = {random.next()};
    std::vector<std::uint64_t> total = first;
    Words visits(4);
    for (const std::uint32_t word : in) {
      total[0] += word;
      ++visits[word % 4];
    }
    const std::vector<std::uint64_t> seen = {size == 1 ? first[0] : 0};
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(in), value(size), in_out(std::vector<std::uint64_t>{0}, seen)}));
    cases.back().variables = {{"total", bytes_of(first), bytes_of(total)},
                              {"visits", bytes_of(Words(4)), bytes_of(visits)}};
  }
  return cases;
}

std::vector<CudaKernelCase> dynamic_shared_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t threads : {1u, 2u, 32u, 34u, 256u, 1'024u}) {
    const std::uint32_t blocks = 3;
    const Words in = mixed_words<std::uint32_t>(blocks * threads, random);
    Words out;
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      const std::uint32_t first = i / threads * threads, thread = i % threads;
      const std::uint32_t neighbour = threads == 1 ? thread : thread ^ 1;
      out.push_back(2 * in[first + threads - 1 - thread] + (in[first + neighbour] >> 8) % 256);
    }
    cases.push_back(
        launch_of(std::to_string(threads) + " threads", blocks, threads, {input(in), output(out)}));
    cases.back().dynamic_shared_bytes = 5 * threads;
  }
  return cases;
}

std::vector<CudaKernelCase> volatile_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const Words before = mixed_words<std::uint32_t>(size, random);
    Words after;
    for (std::uint32_t i = 0; i < size; ++i) after.push_back((before[i] + 1) * (i % 64 + 1));
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, 64), 64, {in_out(before, after), value(size)}));
  }
  return cases;
}

std::vector<CudaKernelCase> counted_barrier_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t threads : {1u, 3u, 32u, 70u, 256u}) {
    const std::uint32_t blocks = 4, rounds = 5;
    Words in = mixed_words<std::uint32_t>(blocks * threads, random);
    // Values without a multiple of 8 in the first rounds of one block.
    for (std::uint32_t i = 0; i < threads; ++i) in[i] = 0x49;
    Numbers out;
    for (std::uint32_t block = 0; block < blocks; ++block)
      for (std::uint32_t round = 0; round < rounds; ++round) {
        std::int32_t count = 0, all = 1, any = 0;
        for (std::uint32_t thread = 0; thread < threads; ++thread) {
          const std::uint32_t word = in[block * threads + thread] >> round;
          count += static_cast<std::int32_t>(word % 2);
          if (word % 8 == 0) all = 0;
          if (word % 64 == 5) any = 1;
        }
        out.insert(out.end(), {count, all, any});
      }
    cases.push_back(launch_of(std::to_string(threads) + " threads", blocks, threads,
                              {input(in), value(rounds), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> named_barrier_cases(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t blocks = 3;
  const Words in = mixed_words<std::uint32_t>(blocks * 128, random);
  Words turned = in, out(in.size());
  for (std::uint32_t half = 0; half < in.size() / 64; ++half)
    for (std::uint32_t round = 0; round < (half % 2 == 0 ? 3u : 6u); ++round) {
      std::rotate(turned.begin() + half * 64, turned.begin() + half * 64 + 1,
                  turned.begin() + half * 64 + 64);
      for (std::uint32_t i = 0; i < 64; ++i) turned[half * 64 + i] += round;
    }
  for (std::uint32_t i = 0; i < out.size(); ++i) out[i] = turned[i ^ 64];
  return {launch_of("", blocks, 128, {input(in), output(out)})};
}

std::vector<CudaKernelCase> producer_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t rounds : {1u, 2u, 9u}) {
    const Words in = mixed_words<std::uint32_t>(rounds * 64, random);
    Words out;
    for (std::uint32_t i = 0; i < in.size(); ++i) out.push_back((in[i / 64 * 64 + 63 - i % 64] + 1) * 3);
    cases.push_back(
        launch_of(std::to_string(rounds) + " rounds", 1, 128, {input(in), value(rounds), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> vector_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t blocks : {1u, 3u}) {
    const std::uint32_t count = blocks * 64;
    const Words in = mixed_words<std::uint32_t>(4 * count, random);
    Words out;
    std::vector<std::uint16_t> halves;
    std::vector<double> reals;
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t k = 0; k < 4; ++k)
        out.push_back(in[4 * (i ^ 1) + 3 - k] + ((in[4 * i + 2] >> (8 * k)) & 0xFF));
      halves.push_back(static_cast<std::uint16_t>(in[4 * i]));
      halves.push_back(static_cast<std::uint16_t>(in[4 * i] >> 16));
      for (std::uint32_t k = 0; k < 4; k += 2) {
        const std::uint64_t wide = std::uint64_t{in[4 * i + k + 1]} << 32 | in[4 * i + k];
        reals.push_back(static_cast<double>(static_cast<std::int64_t>(wide) >> 20));
      }
    }
    cases.push_back(launch_of(std::to_string(blocks) + " blocks", blocks, 64,
                              {input(in), output(out), output(halves), output(reals)}));
  }
  return cases;
}

std::vector<CudaKernelCase> place_cases(std::uint64_t) {
  struct Shape {
    std::array<std::uint32_t, 3> grid, block;
  };
  std::vector<CudaKernelCase> cases;
  for (const Shape& shape :
       {Shape{{1, 1, 1}, {1, 1, 1}}, Shape{{3, 4, 2}, {5, 2, 3}}, Shape{{1, 1, 7}, {1, 40, 1}},
        Shape{{2, 5, 1}, {33, 1, 2}}, Shape{{1, 2, 2}, {1, 1, 64}}}) {
    Words out;
    const auto& [grid, block] = shape;
    for (std::uint32_t block_z = 0; block_z < grid[2]; ++block_z)
      for (std::uint32_t block_y = 0; block_y < grid[1]; ++block_y)
        for (std::uint32_t block_x = 0; block_x < grid[0]; ++block_x)
          for (std::uint32_t z = 0; z < block[2]; ++z)
            for (std::uint32_t y = 0; y < block[1]; ++y)
              for (std::uint32_t x = 0; x < block[0]; ++x)
                out.insert(out.end(), {x, y, z, block_x, block_y, block_z, block[0], block[1], block[2],
                                       grid[0], grid[1], grid[2]});
    CudaKernelCase one = launch_of(
        "grid " + std::to_string(grid[0]) + " " + std::to_string(grid[1]) + " " + std::to_string(grid[2]), 1,
        1, {output(out)});
    one.grid = grid;
    one.block = block;
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<CudaKernelCase> matrix_cases(std::uint64_t seed) {
  Random random(seed);
  struct Shape {
    std::uint32_t rows, columns;
  };
  std::vector<CudaKernelCase> cases;
  for (const Shape shape : {Shape{1, 1}, Shape{16, 16}, Shape{17, 15}, Shape{5, 60}, Shape{40, 33}}) {
    const auto in = mixed_words<std::uint16_t>(shape.rows * shape.columns, random);
    std::vector<std::uint16_t> out;
    for (std::uint32_t column = 0; column < shape.columns; ++column)
      for (std::uint32_t row = 0; row < shape.rows; ++row) out.push_back(in[row * shape.columns + column]);
    CudaKernelCase one = launch_of(std::to_string(shape.rows) + " x " + std::to_string(shape.columns), 1, 1,
                                   {input(in), value(shape.rows), value(shape.columns), output(out)});
    one.grid = {blocks_for(shape.columns, 16), blocks_for(shape.rows, 16), 1};
    one.block = {16, 8, 1};
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace

std::vector<CudaKernel> control_kernels() {
  const char* const file = "control_kernels.compute_75.ptx";
  return {{file, "divergent_loops", loop_cases},
          {file, "switches", switch_cases},
          {file, "local_arrays", local_array_cases},
          {file, "calls", call_cases},
          {file, "generic_pointers", generic_pointer_cases},
          {file, "constant_tables", table_cases},
          {file, "device_variables", variable_cases},
          {file, "dynamic_shared", dynamic_shared_cases},
          {file, "volatile_words", volatile_cases},
          {file, "counted_barriers", counted_barrier_cases},
          {file, "named_barriers", named_barrier_cases},
          {file, "producers_consumers", producer_cases},
          {file, "vector_loads", vector_cases},
          {file, "places", place_cases},
          {file, "matrix_transpose", matrix_cases}};
}

}  // namespace weightpress::ptxvm::testing
