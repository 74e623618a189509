// The Tile-ANS stages on the CPU beside memcpy of the same bytes, in one run.
//
//   bench_tile_ans --benchmark_repetitions=5
//   WP_BENCH_THREADS=2 WP_BENCH_WEIGHTS=20000000 bench_tile_ans --benchmark_filter=bf16
//   WP_BENCH_TENSOR=weights.bin bench_tile_ans
//
// WP_BENCH_WEIGHTS: how many BF16 weights take as many bytes as each tensor here. WP_BENCH_TENSOR: a file
// whose bytes are the one tensor, of BF16; bench/tile_ans_speed.py gives it to this program and to entropack.
// What was encoded is decoded and compared before anything is timed. Counters: GB/s of the tensor's bytes,
// decimal; of_memcpy: share of the bandwidth of memcpy measured in this process just before; ratio: stored
// bytes / tensor bytes.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench_data.h"
#include "format/tile_ans_stages.h"
#include "host/tile_ans_stages.h"

namespace weightpress {
namespace {

using namespace tile_ans;

struct TensorKind {
  const char* name;
  std::uint32_t num_lanes;
  std::vector<std::uint8_t> (*make)(std::size_t num_bytes);
  std::size_t num_bytes = 2 * bench::num_weights();
};

template <class T, class Make>
std::vector<std::uint8_t> elements(std::size_t num_bytes, Make make) {
  testing::Random random(1);
  std::vector<std::uint8_t> bytes(num_bytes / sizeof(T) * sizeof(T));
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    const T element = make(random);
    std::memcpy(bytes.data() + i, &element, sizeof element);
  }
  return bytes;
}

double normal(testing::Random& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
}

std::vector<TensorKind> kinds() {
  if (const char* path = std::getenv("WP_BENCH_TENSOR")) {
    std::error_code error;
    const std::uintmax_t num_bytes = std::filesystem::file_size(path, error) / 2 * 2;
    if (error || num_bytes == 0) {
      std::fprintf(stderr, "WP_BENCH_TENSOR=%s: this file cannot be read, or is empty\n", path);
      std::exit(1);
    }
    return {{"bf16_file", 2,
             [](std::size_t size) {
               std::vector<std::uint8_t> bytes(size);
               std::ifstream file(std::getenv("WP_BENCH_TENSOR"), std::ios::binary);
               if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
                 std::fprintf(stderr, "WP_BENCH_TENSOR: the file cannot be read\n");
                 std::exit(1);
               }
               return bytes;
             },
             static_cast<std::size_t>(num_bytes)}};
  }
  return {
      {"bf16", 2,
       [](std::size_t num_bytes) {
         const std::vector<std::uint16_t> weights = testing::normal_weights(num_bytes / 2, 1);
         std::vector<std::uint8_t> bytes(weights.size() * 2);
         std::memcpy(bytes.data(), weights.data(), bytes.size());
         return bytes;
       }},
      {"fp32", 4,
       [](std::size_t num_bytes) {
         return elements<float>(
             num_bytes, [](testing::Random& random) { return static_cast<float>(0.02 * normal(random)); });
       }},
      {"int8", 1,
       [](std::size_t num_bytes) {
         return elements<std::int8_t>(num_bytes, [](testing::Random& random) {
           return static_cast<std::int8_t>(std::lround(std::fmax(-127, std::fmin(127, 20 * normal(random)))));
         });
       }},
      {"int64_small", 8,
       [](std::size_t num_bytes) {
         return elements<std::int64_t>(num_bytes, [](testing::Random& random) {
           return static_cast<std::int64_t>(std::lround(300 * normal(random)));
         });
       }},
  };
}

struct Data {
  std::vector<std::uint8_t> bytes, decoded;
  std::vector<Histogram> histograms;
  TensorPlan plan;
  std::vector<std::vector<std::uint16_t>> words;  // by lane
  std::vector<std::vector<std::uint32_t>> states, stream_words, offsets;

  TileRange tiles() const { return {0, plan.layout.num_tiles()}; }
};

void must_be_ok(const StageStatus& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: tile %llu, lane %u: %s\n", what, static_cast<unsigned long long>(status.tile),
               status.lane, stage_code_text(status.code));
  std::abort();
}

void histogram(Data& data, TileAnsStages& stages) {
  std::fill(data.histograms.begin(), data.histograms.end(), Histogram{});
  stages.histogram({data.bytes, static_cast<std::uint32_t>(data.histograms.size()), data.histograms}).wait();
}

std::vector<LaneOutput> outputs(Data& data) {
  std::vector<LaneOutput> lanes;
  for (std::uint32_t lane = 0; lane < data.plan.layout.num_lanes; ++lane)
    lanes.push_back({lane, data.stream_words[lane], data.words[lane], data.states[lane]});
  return lanes;
}

void encode(Data& data, TileAnsStages& stages) {
  const std::vector<LaneOutput> lanes = outputs(data);
  must_be_ok(stages.encode({&data.plan, data.tiles(), data.bytes, lanes}).wait(), "encode");
}

void sizes(Data& data, TileAnsStages& stages) {
  const std::vector<LaneOutput> lanes = outputs(data);
  must_be_ok(stages.sizes({&data.plan, data.tiles(), data.bytes, lanes}).wait(), "sizes");
}

void decode(Data& data, TileAnsDecodeStage& stage) {
  std::vector<LaneInput> lanes;
  for (std::uint32_t lane = 0; lane < data.plan.layout.num_lanes; ++lane) {
    lanes.push_back({data.plan.lanes[lane].mode, &data.plan.lanes[lane].frequencies, data.offsets[lane],
                     std::span<const std::uint16_t>(data.words[lane]).first(data.offsets[lane].back()),
                     data.states[lane]});
  }
  must_be_ok(
      stage
          .decode(
              {.layout = data.plan.layout, .tiles = data.tiles(), .lanes = lanes, .elements = data.decoded})
          .wait(),
      "decode");
}

Data& prepare(const TensorKind& kind, int threads) {
  static std::map<std::string, Data> all;
  Data& data = all[kind.name];
  if (!data.bytes.empty()) return data;
  data.bytes = kind.make(kind.num_bytes);
  data.decoded.resize(data.bytes.size());
  data.histograms.resize(kind.num_lanes);
  host::HostTileAnsStages stages(threads);
  histogram(data, stages);
  data.plan = plan_tensor({}, data.histograms).value();
  data.words.resize(kind.num_lanes);
  data.states.resize(kind.num_lanes);
  data.stream_words.resize(kind.num_lanes);
  data.offsets.resize(kind.num_lanes);
  for (std::uint32_t lane = 0; lane < kind.num_lanes; ++lane) {
    data.words[lane].resize(lane_words_capacity(data.plan, lane, data.tiles()));
    data.stream_words[lane].resize(data.tiles().num_tiles);
    if (data.plan.lanes[lane].mode == LaneMode::kAns)
      data.states[lane].resize(data.tiles().num_tiles * kNumStates);
  }
  encode(data, stages);
  for (std::uint32_t lane = 0; lane < kind.num_lanes; ++lane) {
    data.offsets[lane].resize(data.tiles().num_tiles + 1);
    std::partial_sum(data.stream_words[lane].begin(), data.stream_words[lane].end(),
                     data.offsets[lane].begin() + 1);
  }
  host::HostTileAnsDecodeStage stage(threads);
  decode(data, stage);
  if (data.decoded != data.bytes) {
    std::fprintf(stderr, "%s does not come back\n", kind.name);
    std::abort();
  }
  return data;
}

/// All that makes the buffers of a tensor, which is what entropack's `compress` does.
void histogram_plan_encode(Data& data, TileAnsStages& stages) {
  histogram(data, stages);
  data.plan = plan_tensor({}, data.histograms).value();
  encode(data, stages);
}

struct NoStages {
  NoStages(int, host::SimdLevel) {}
};

void copy(Data& data, NoStages&) {
  std::memcpy(data.decoded.data(), data.bytes.data(), data.bytes.size());
  benchmark::DoNotOptimize(data.decoded.data());
  benchmark::ClobberMemory();
}

double memcpy_rate(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint16_t> words(bytes.size() / 2);
  std::memcpy(words.data(), bytes.data(), words.size() * 2);
  return bench::memcpy_bytes_per_second(words);
}

template <class Stages, class Body>
void add(const char* stage, const TensorKind& kind, int threads, host::SimdLevel simd, Body body) {
  std::string name = std::string("BM_") + stage + "/" + kind.name + "/" + std::to_string(kind.num_bytes) +
                     "/cpu" + std::to_string(threads);
  if (!std::is_same_v<Stages, NoStages>) name += simd == host::SimdLevel::kPortable ? "_portable" : "_avx2";
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        Data& data = prepare(kind, threads);
        const double rate = memcpy_rate(data.bytes);
        Stages stages(threads, simd);
        for (auto _ : state) body(data, stages);
        const double bytes = static_cast<double>(state.iterations()) * static_cast<double>(data.bytes.size());
        state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsRate);
        state.counters["of_memcpy"] = benchmark::Counter(bytes / rate, benchmark::Counter::kIsRate);
        std::uint64_t words = 0;
        for (const auto& offsets : data.offsets) words += offsets.back();
        state.counters["ratio"] =
            static_cast<double>(data.plan.stored_bytes(words)) / static_cast<double>(data.bytes.size());
      })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void register_all(int threads) {
  std::vector<host::SimdLevel> levels = {host::SimdLevel::kPortable};
  if (host::best_simd_level() == host::SimdLevel::kAvx2) levels.push_back(host::SimdLevel::kAvx2);
  for (const TensorKind& kind : kinds()) {
    add<NoStages>("Memcpy", kind, 1, host::SimdLevel::kPortable, copy);
    add<host::HostTileAnsStages>("LaneHistogram", kind, threads, host::SimdLevel::kPortable, histogram);
    for (const host::SimdLevel simd : levels) {
      add<host::HostTileAnsStages>("Sizes", kind, threads, simd, sizes);
      add<host::HostTileAnsStages>("Encode", kind, threads, simd, encode);
      add<host::HostTileAnsStages>("HistogramPlanEncode", kind, threads, simd, histogram_plan_encode);
      add<host::HostTileAnsDecodeStage>("Decode", kind, threads, simd, decode);
    }
  }
}

}  // namespace
}  // namespace weightpress

int main(int argc, char** argv) {
  const int threads = weightpress::bench::num_threads();
  weightpress::register_all(threads);
  return weightpress::bench::run_all(argc, argv, threads);
}
