// The DF11 encoding stages on the CPU beside memcpy of the same bytes, in one run.
//
//   bench_df11_encode --benchmark_repetitions=5
//   WP_BENCH_THREADS=2 WP_BENCH_WEIGHTS=20000 bench_df11_encode --benchmark_filter=normal
//
// What was encoded is read back by the slow decoder before anything is timed. Counters: G_weights/s; GB/s of
// BF16 bytes, decimal; of_memcpy: share of the bandwidth of memcpy measured in this process just before.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench_data.h"
#include "format/slab_border.h"
#include "format/unit_plan.h"
#include "host/host_stages.h"
#include "selftest/slow_decoder.h"

namespace weightpress {
namespace {

using bench::num_weights;

struct Data {
  std::vector<std::uint16_t> weights;
  std::vector<df11::SegmentHistogram> histograms;
  df11::UnitPlan plan;
  std::vector<std::uint8_t> sign_mantissa, bitstream, gaps;
  std::vector<std::uint32_t> positions;
  std::uint64_t segment_weights = 0;
};

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

Data& prepare(const bench::WeightKind& kind, int threads) {
  const std::string name = kind.name;
  static std::map<std::string, Data> all;
  Data& data = all[name];
  if (!data.weights.empty()) return data;
  host::HostStages stages(threads);
  data.weights = kind.make(num_weights());
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

void register_all(int threads) {
  for (const bench::WeightKind& kind : bench::kWeightKinds) {
    const auto add = [&](const char* stage, auto body) {
      bench::add<host::HostStages>(stage, kind, threads, prepare, body);
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
  const int threads = weightpress::bench::num_threads();
  weightpress::register_all(threads);
  return weightpress::bench::run_all(argc, argv, threads);
}
