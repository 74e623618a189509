// The PTX interpreter on the official decode kernel, beside memcpy of the same bytes, in one run.
//
//   WEIGHTPRESS_DECODE_PTX=.../dfloat11/decode.ptx bench_ptxvm --benchmark_repetitions=5
//   WP_BENCH_THREADS=2 WP_BENCH_WEIGHTS=4000000 bench_ptxvm --benchmark_filter=Run/
//
// What the kernel decodes is compared with the weights before anything is timed. Counters: M_instructions/s,
// lane instructions; M_weights/s; GB/s of BF16 bytes, decimal; of_memcpy: share of the bandwidth of memcpy
// measured in this process just before; memory_MB: the most that this process has held so far. Without
// decode.ptx the benchmarks say so, and are no failure.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <weightpress/df11.h>

#include "bench_data.h"
#include "job/process_memory.h"
#include "official_kernel/decode_kernel.h"

namespace weightpress {
namespace {

/// WP_BENCH_WEIGHTS; without it 1,000,000.
std::size_t weight_count() {
  return std::getenv("WP_BENCH_WEIGHTS") != nullptr ? bench::num_weights() : 1'000'000;
}

struct Data {
  std::vector<std::uint16_t> weights;
  Df11Unit unit;
};

const Data& prepare(testing::DecodeKernel& kernel, const ptxvm::LaunchOptions& launch) {
  static const Data data = [] {
    Data made;
    made.weights = testing::normal_weights(weight_count(), 1);
    made.unit = compress_df11_unit(made.weights);
    return made;
  }();
  const testing::KernelRun run = kernel.run(data.unit, {.launch = launch});
  if (!run.is_clean() || run.weights != data.weights) {
    std::fprintf(stderr, "the weights do not come out: %s\n", run.trouble().c_str());
    std::abort();
  }
  return data;
}

struct Mode {
  const char* name;
  bool checks_initialised = false, checks_races = false, checks_barriers = false, counts = false;

  ptxvm::LaunchOptions options(int threads) const {
    ptxvm::LaunchOptions options;
    options.num_threads = threads;
    options.check_initialised = checks_initialised;
    options.check_races = checks_races;
    options.check_barriers = checks_barriers;
    options.count_accesses = counts;
    return options;
  }
};

constexpr Mode kModes[] = {
    {"Run"},
    {.name = "RunCheckInitialised", .checks_initialised = true},
    {.name = "RunCheckRaces", .checks_races = true},
    {.name = "RunAllChecks", .checks_initialised = true, .checks_races = true, .checks_barriers = true},
    {.name = "RunCountAccesses", .counts = true},
};

void run_mode(benchmark::State& state, const Mode& mode, int threads) {
  testing::DecodeKernel* kernel = testing::DecodeKernel::get();
  if (kernel == nullptr) {
    state.SkipWithError(testing::kNoDecodePtx);
    return;
  }
  const ptxvm::LaunchOptions launch = mode.options(threads);
  const Data& data = prepare(*kernel, launch);
  const double memcpy_rate = bench::memcpy_bytes_per_second(data.weights);
  double instructions = 0;
  for (auto _ : state) {
    const testing::KernelRun run = kernel->run(data.unit, {.launch = launch});
    instructions += static_cast<double>(run.counters.lane_instructions);
  }
  const double weights = static_cast<double>(state.iterations()) * static_cast<double>(data.weights.size());
  const auto rate = [](double count) { return benchmark::Counter(count, benchmark::Counter::kIsRate); };
  state.counters["M_instructions/s"] = rate(instructions / 1e6);
  state.counters["M_weights/s"] = rate(weights / 1e6);
  state.counters["GB/s"] = rate(2 * weights / 1e9);
  state.counters["of_memcpy"] = rate(2 * weights / memcpy_rate);
  state.counters["memory_MB"] = static_cast<double>(job::peak_memory_bytes()) / 1e6;
}

/// From text to what a launch needs.
void load(benchmark::State& state) {
  const std::optional<std::string> text = testing::DecodeKernel::read_text();
  if (!text) {
    state.SkipWithError(testing::kNoDecodePtx);
    return;
  }
  for (auto _ : state) {
    ptxvm::Memory memory;
    benchmark::DoNotOptimize(ptxvm::LoadedModule::load(*text, memory).value());
  }
}

void register_all(int threads) {
  benchmark::RegisterBenchmark("BM_Load/decode.ptx", load)->Unit(benchmark::kMillisecond);
  for (const Mode& mode : kModes) {
    const std::string name = std::string("BM_") + mode.name + "/normal/" + std::to_string(weight_count()) +
                             "/cpu" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { run_mode(state, mode, threads); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace weightpress

int main(int argc, char** argv) {
  const int threads = weightpress::bench::num_threads();
  weightpress::register_all(threads);
  return weightpress::bench::run_all(argc, argv, threads);
}
