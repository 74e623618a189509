// What the benchmarks of the DF11 stages share: data, the bandwidth of memcpy, counters.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "support/weights.h"

namespace weightpress::bench {

/// WP_BENCH_WEIGHTS; without it 64 Mi: 128 MiB are well beyond the caches.
inline std::size_t num_weights() {
  static const std::size_t count = [] {
    const char* text = std::getenv("WP_BENCH_WEIGHTS");
    return text != nullptr ? std::max<std::size_t>(1, std::strtoull(text, nullptr, 10))
                           : std::size_t{64} << 20;
  }();
  return count;
}

/// WP_BENCH_THREADS; without it 1.
inline int num_threads() {
  const char* text = std::getenv("WP_BENCH_THREADS");
  return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

struct WeightKind {
  const char* name;
  std::vector<std::uint16_t> (*make)(std::size_t count);
};

inline const std::array<WeightKind, 4> kWeightKinds = {{
    {"normal", [](std::size_t count) { return testing::normal_weights(count, 1); }},
    {"uniform8", [](std::size_t count) { return testing::uniform_exponents(count, 100, 8, 1); }},
    {"uniform200", [](std::size_t count) { return testing::uniform_exponents(count, 20, 200, 1); }},
    {"pruned70", [](std::size_t count) { return testing::mostly_zero(count, 3, 12, 1); }},
}};

inline double memcpy_bytes_per_second(const std::vector<std::uint16_t>& from) {
  std::vector<std::uint16_t> to(from.size());
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), from.size() * sizeof from[0]);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(from.size() * sizeof from[0]) / seconds.count());
  }
  return best;
}

inline void report(benchmark::State& state, double memcpy_rate) {
  const double weights = static_cast<double>(state.iterations()) * static_cast<double>(num_weights());
  state.counters["G_weights/s"] = benchmark::Counter(weights / 1e9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(2 * weights / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_memcpy"] = benchmark::Counter(2 * weights / memcpy_rate, benchmark::Counter::kIsRate);
}

/// Registers BM_<stage>/<kind>/<size>/cpu<threads>. prepare(kind, threads) makes and checks the data;
/// Stages(threads) does the work of body(data, stages), which is timed.
template <class Stages, class Prepare, class Body>
void add(const std::string& stage, const WeightKind& kind, int threads, Prepare prepare, Body body) {
  const std::string name = "BM_" + stage + "/" + kind.name + "/" + std::to_string(num_weights()) + "/cpu" +
                           std::to_string(threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 auto& data = prepare(kind, threads);
                                 const double memcpy_rate = memcpy_bytes_per_second(data.weights);
                                 Stages stages(threads);
                                 for (auto _ : state) body(data, stages);
                                 report(state, memcpy_rate);
                               })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

inline int run_all(int argc, char** argv, int threads) {
  benchmark::AddCustomContext("threads", std::to_string(threads));
  benchmark::AddCustomContext("compiler", __VERSION__);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace weightpress::bench
