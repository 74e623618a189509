// The DF11 encoding stages on the CPU beside memcpy of the same bytes, in one run.
//
//   bench_df11_encode --benchmark_repetitions=5
//   WP_BENCH_THREADS=2 WP_BENCH_WEIGHTS=20000 bench_df11_encode --benchmark_filter=normal
//
// What was encoded is read back by the slow decoder before anything is timed. Counters: G_weights/s; GB/s of
// BF16 bytes, decimal; of_memcpy: share of the bandwidth of memcpy measured in this process just before.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "format/slab_border.h"
#include "format/unit_plan.h"
#include "host/host_stages.h"
#include "selftest/slow_decoder.h"
#include "support/weights.h"

namespace weightpress {
namespace {

/// 64 Mi weights, 128 MiB, are well beyond the caches.
std::size_t num_weights() {
  static const std::size_t count = [] {
    const char* text = std::getenv("WP_BENCH_WEIGHTS");
    return text != nullptr ? std::max<std::size_t>(1, std::strtoull(text, nullptr, 10))
                           : std::size_t{64} << 20;
  }();
  return count;
}

struct Data {
  std::vector<std::uint16_t> weights;
  std::vector<df11::SegmentHistogram> histograms;
  df11::UnitPlan plan;
  std::vector<std::uint8_t> sign_mantissa, bitstream, gaps;
  std::vector<std::uint32_t> positions;
  std::uint64_t segment_weights = 0;
};

using Generator = std::vector<std::uint16_t> (*)(std::size_t count);

const std::vector<std::pair<std::string, Generator>> kData = {
    {"normal", [](std::size_t count) { return testing::normal_weights(count, 1); }},
    {"uniform8", [](std::size_t count) { return testing::uniform_exponents(count, 100, 8, 1); }},
    {"uniform200", [](std::size_t count) { return testing::uniform_exponents(count, 20, 200, 1); }},
    {"pruned70", [](std::size_t count) { return testing::mostly_zero(count, 3, 12, 1); }},
};

double memcpy_bytes_per_second(const std::vector<std::uint16_t>& from) {
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

void encode(Data& data, df11::Df11Stages& stages) {
  df11::SlabBorder border;
  const df11::StageStatus status = stages
                                       .encode({.weights = data.weights,
                                                .segment_weights = data.segment_weights,
                                                .position = {.is_last = true},
                                                .codebook = &data.plan.codebook,
                                                .layout = &data.plan.layout,
                                                .histograms = data.histograms,
                                                .sign_mantissa = data.sign_mantissa,
                                                .encoded_exponent = data.bitstream,
                                                .gaps = data.gaps,
                                                .positions = data.positions,
                                                .border = &border})
                                       .wait();
  if (status.code != df11::StageCode::kOk) std::abort();
}

void check(const Data& data, const std::string& name) {
  std::vector<std::uint8_t> positions(4 * data.positions.size());
  std::memcpy(positions.data(), data.positions.data(), positions.size());
  const selftest::SlowDecoding back =
      selftest::slow_decode({{data.plan.tables.data(), data.plan.tables.size_bytes()},
                             data.bitstream,
                             data.sign_mantissa,
                             positions,
                             data.gaps});
  if (!back.ok || back.weights != data.weights) {
    std::fprintf(stderr, "%s does not decode: %s\n", name.c_str(), back.problem.c_str());
    std::abort();
  }
}

Data& prepare(const std::string& name, Generator generator, int threads) {
  static std::map<std::string, Data> all;
  Data& data = all[name];
  if (!data.weights.empty()) return data;
  host::HostStages stages(threads);
  data.weights = generator(num_weights());
  data.segment_weights = df11::segment_weights_for(num_weights());
  data.histograms.resize(df11::num_segments(num_weights(), data.segment_weights));
  stages.histogram({data.weights, data.segment_weights, data.histograms}).wait();
  data.plan =
      df11::plan_unit({name, df11::sum_histograms(data.histograms), df11::exponent_of(data.weights.back())},
                      {}, [](const df11::Codebook&) { return std::uint64_t{0}; })
          .value();
  data.sign_mantissa.resize(num_weights());
  data.bitstream.resize(data.plan.layout.num_bytes);
  data.gaps.resize(data.plan.layout.gaps_bytes);
  data.positions.resize(data.plan.layout.num_positions);
  encode(data, stages);
  check(data, name);
  return data;
}

void report(benchmark::State& state, double memcpy_rate) {
  const double weights = static_cast<double>(state.iterations()) * static_cast<double>(num_weights());
  state.counters["G_weights/s"] = benchmark::Counter(weights / 1e9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(2 * weights / 1e9, benchmark::Counter::kIsRate);
  state.counters["of_memcpy"] = benchmark::Counter(2 * weights / memcpy_rate, benchmark::Counter::kIsRate);
}

void register_all(int threads) {
  const std::string backend = "cpu" + std::to_string(threads);
  const std::string size = std::to_string(num_weights());
  for (const auto& [name, generator] : kData) {
    const auto add = [&, data_name = name, make = generator](
                         const std::string& stage, std::function<void(Data&, host::HostStages&)> body) {
      benchmark::RegisterBenchmark(("BM_" + stage + "/" + data_name + "/" + size + "/" + backend).c_str(),
                                   [=](benchmark::State& state) {
                                     Data& data = prepare(data_name, make, threads);
                                     const double memcpy_rate = memcpy_bytes_per_second(data.weights);
                                     host::HostStages stages(threads);
                                     for (auto _ : state) body(data, stages);
                                     report(state, memcpy_rate);
                                   })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    };
    add("Memcpy", [](Data& data, host::HostStages&) {
      static std::vector<std::uint16_t> copy(num_weights());
      std::memcpy(copy.data(), data.weights.data(), num_weights() * sizeof copy[0]);
      benchmark::DoNotOptimize(copy.data());
      benchmark::ClobberMemory();
    });
    add("Histogram", [](Data& data, host::HostStages& stages) {
      stages.histogram({data.weights, data.segment_weights, data.histograms}).wait();
    });
    add("SplitEncode", [](Data& data, host::HostStages& stages) { encode(data, stages); });
    add("HistogramSplitEncode", [](Data& data, host::HostStages& stages) {
      stages.histogram({data.weights, data.segment_weights, data.histograms}).wait();
      encode(data, stages);
    });
  }
}

}  // namespace
}  // namespace weightpress

int main(int argc, char** argv) {
  int threads = 1;
  if (const char* text = std::getenv("WP_BENCH_THREADS")) threads = std::max(1, std::atoi(text));
  weightpress::register_all(threads);
  benchmark::AddCustomContext("threads", std::to_string(threads));
  benchmark::AddCustomContext("compiler", __VERSION__);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
