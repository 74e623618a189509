// The DF11 kernels on a GPU beside a copy of the same bytes on the device, in one run.
//
//   bench_gpu_df11
//   bench_gpu_df11 --official .../dfloat11/decode.ptx --json times.json
//   bench_gpu_df11 --weights 300000 --verify-only
//
// Before anything is timed: the counts are compared with the host's, a prefix of the unit with what the
// stages of src/host make of it, and the weights that our decoder and the official kernel give with the
// source. Times are those of events, all stages in turn in each run. GB/s: of BF16 bytes, decimal; of the
// copy: share of the rate of the copy, which reads and writes 2 bytes a weight each.
//
// Exit codes: 0 done, 1 something is wrong, 2 it cannot run, 77 there is no GPU.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <weightpress/error.h>

#include "device/compare_stage.h"
#include "device/driver/cuda_driver.h"
#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/gpu_stages.h"
#include "format/slab_pieces.h"
#include "gpu_unit.h"
#include "host/host_stages.h"
#include "model/json_writer.h"
#include "support/weights.h"

namespace weightpress::bench {
namespace {

constexpr int kWrong = 1, kCannotRun = 2, kNoGpu = 77;

/// Made on the host once; larger units repeat them.
constexpr std::uint64_t kRepeatedWeights = std::uint64_t{64} << 20;
/// Of the unit's begin, encoded by the CPU too.
constexpr std::uint64_t kComparedWeights = std::uint64_t{4} << 20;
static_assert(kComparedWeights % df11::kDefaultSegmentWeights == 0 && kComparedWeights <= kRepeatedWeights);

struct Options {
  std::uint64_t num_weights = std::uint64_t{1} << 30;  // 2 GiB: far beyond any cache
  std::uint64_t segment_weights = device::kGpuSegmentWeights;
  std::uint64_t seed = 1;
  int num_runs = 11;
  int device = 0;
  std::string official, json;
  bool verify_only = false;
};

// ---- what is true before it is timed

void check_counts(const df11::Histogram& counted, std::span<const std::uint16_t> repeated,
                  std::uint64_t num_weights) {
  df11::Histogram expected = testing::histogram_of(repeated);
  for (std::uint64_t& count : expected) count *= num_weights / repeated.size();
  const df11::Histogram rest = testing::histogram_of(repeated.first(num_weights % repeated.size()));
  for (std::uint32_t symbol = 0; symbol < df11::kNumSymbols; ++symbol) {
    expected[symbol] += rest[symbol];
    if (counted[symbol] != expected[symbol])
      throw WrongResult("the histogram has " + std::to_string(counted[symbol]) + " weights of exponent " +
                        std::to_string(symbol) + " instead of " + std::to_string(expected[symbol]));
  }
}

template <class T>
void check_prefix(const char* name, const GpuUnit& unit, const device::DeviceBuffer& buffer,
                  const std::vector<T>& expected) {
  const std::vector<T> found = unit.read<T>(buffer, expected.size());
  const auto differ = std::ranges::mismatch(found, expected);
  if (differ.in1 != found.end())
    throw WrongResult("entry " + std::to_string(differ.in1 - found.begin()) + " of " + name + " is " +
                      std::to_string(*differ.in1) + ", the CPU's is " + std::to_string(*differ.in2));
}

/// Compares the first weights' part of each buffer, to the unit's last byte if that is all of it. Returns how
/// many weights that were.
std::uint64_t check_beside_the_cpu(const GpuUnit& unit, std::span<const std::uint16_t> repeated) {
  const std::span<const std::uint16_t> weights =
      repeated.first(std::min<std::uint64_t>(unit.num_weights(), kComparedWeights));
  const df11::UnitPlan& plan = unit.plan();
  host::HostStages stages(host::usable_num_threads(0));
  std::vector<df11::SegmentHistogram> histograms(
      df11::num_segments(weights.size(), df11::kDefaultSegmentWeights));
  stages.histogram({weights, df11::kDefaultSegmentWeights, histograms}).wait();
  const df11::SlabPosition position{.is_last = weights.size() == unit.num_weights()};
  const df11::SlabPieces pieces =
      df11::slab_pieces(position, df11::total_bits(df11::sum_histograms(histograms), plan.codebook),
                        plan.codebook.lengths[df11::exponent_of(weights.back())], plan.layout);
  std::vector<std::uint8_t> sign_mantissa(weights.size()), encoded_exponent(pieces.num_bytes),
      gaps(pieces.num_gap_groups * df11::kGapGroupBytes);
  std::vector<std::uint32_t> positions(pieces.num_positions);
  df11::SlabBorder border;
  const df11::StageStatus status = stages
                                       .encode({.weights = weights,
                                                .segment_weights = df11::kDefaultSegmentWeights,
                                                .position = position,
                                                .codebook = &plan.codebook,
                                                .layout = &plan.layout,
                                                .histograms = histograms,
                                                .sign_mantissa = sign_mantissa,
                                                .encoded_exponent = encoded_exponent,
                                                .gaps = gaps,
                                                .positions = positions,
                                                .border = &border})
                                       .wait();
  if (status.code != df11::StageCode::kOk) throw WrongResult("the CPU does not encode the unit's begin");
  check_prefix("sign_mantissa", unit, unit.sign_mantissa(), sign_mantissa);
  check_prefix("encoded_exponent", unit, unit.encoded_exponent(), encoded_exponent);
  check_prefix("gaps", unit, unit.gaps(), gaps);
  check_prefix("output_positions", unit, unit.positions(), positions);
  return weights.size();
}

/// Encodes, and checks all. official: may be nullptr.
void verify(GpuUnit& unit, std::span<const std::uint16_t> repeated, device::CompareStage& compare,
            const OfficialKernel* official) {
  unit.histogram();
  check_counts(unit.counts(), repeated, unit.num_weights());
  unit.prepare();
  unit.encode();
  unit.check_encoding();
  const std::uint64_t num_compared = check_beside_the_cpu(unit, repeated);
  unit.poison_weights();
  unit.decode();
  unit.check_decoding("decoding");
  unit.check_weights("decoding", compare);
  unit.decode_and_compare();
  unit.check_decoding("decoding beside the source");
  std::string official_text;
  if (official != nullptr) {
    if (unit.densest_chunk() > df11::kMaxChunkWeights)
      throw Error(ErrorCode::kUsage, "the official kernel cannot decode this unit: a chunk holds " +
                                         std::to_string(unit.densest_chunk()) + " weights");
    unit.poison_weights();
    unit.decode(*official);
    unit.check_weights("the official kernel", compare);
    official_text = ", and by the official kernel";
  }
  std::printf(
      "verified    the counts; all buffers of %llu weights beside the CPU's; all weights, decoded%s\n",
      static_cast<unsigned long long>(num_compared), official_text.c_str());
}

// ---- times

struct Case {
  std::string stage;
  std::function<void()> enqueue;
  std::vector<double> seconds = {};

  double median() const {
    const std::size_t half = seconds.size() / 2;
    return seconds.size() % 2 != 0 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  }
};

std::vector<Case> make_cases(GpuUnit& unit, const OfficialKernel* official) {
  std::vector<Case> cases = {
      {"Copy", [&unit] { unit.copy(); }},
      {"Histogram", [&unit] { unit.histogram(); }},
      {"Encode", [&unit] { unit.encode(); }},
      {"HistogramEncode",
       [&unit] {
         unit.histogram();
         unit.encode();
       }},
      {"HistogramPlanEncode",  // the host makes the codebook in between, and the GPU waits for it
       [&unit] {
         unit.histogram();
         unit.make_plan();
         unit.encode();
       }},
      {"Decode", [&unit] { unit.decode(); }},
      {"DecodeCompare", [&unit] { unit.decode_and_compare(); }},
  };
  if (official != nullptr) cases.push_back({"DecodeOfficial", [&unit, official] { unit.decode(*official); }});
  return cases;
}

/// In turn, so that none has the GPU to itself when it is cool. The first round is not counted.
void time_all(std::vector<Case>& cases, const device::Gpu& gpu, const GpuUnit& unit, int num_runs) {
  const device::Event begin(gpu, device::Event::Timing::kYes), end(gpu, device::Event::Timing::kYes);
  for (int run = -1; run < num_runs; ++run) {
    for (Case& one : cases) {
      unit.stream().record(begin);
      one.enqueue();
      unit.stream().record(end);
      end.wait();
      if (run >= 0) one.seconds.push_back(begin.milliseconds_to(end) / 1e3);
    }
  }
  for (Case& one : cases) std::ranges::sort(one.seconds);
}

std::string bench_name(const Case& one, const GpuUnit& unit, const device::Gpu& gpu) {
  return "BM_" + one.stage + "/normal/" + std::to_string(unit.num_weights()) +
         "/cuda:" + std::to_string(gpu.info().number);
}

void print_times(const std::vector<Case>& cases, const device::Gpu& gpu, const GpuUnit& unit) {
  const double bytes = static_cast<double>(unit.bf16_bytes());
  std::printf("%-48s %10s %8s %9s %12s\n", "case", "median, ms", "spread", "GB/s", "of the copy");
  for (const Case& one : cases) {
    const double median = one.median();
    std::printf("%-48s %10.4f %7.1f%% %9.1f %12.3f\n", bench_name(one, unit, gpu).c_str(), median * 1e3,
                100 * (one.seconds.back() - one.seconds.front()) / median, bytes / median / 1e9,
                cases.front().median() / median);
  }
}

void write_json(const std::string& path, const Options& options, const std::vector<Case>& cases,
                const device::Gpu& gpu, const device::GpuKernels& kernels, const GpuUnit& unit) {
  using Style = model::JsonWriter::Style;
  const device::CudaDriver& driver = gpu.driver();
  model::JsonWriter json;
  json.begin_object().key("gpu").begin_object();
  json.member("name", gpu.info().name).member("arch", "sm_" + std::to_string(gpu.info().arch));
  json.member("memory_bytes", gpu.info().memory_bytes);
  json.member("multiprocessors", gpu.info().num_multiprocessors).end_object();
  json.key("driver").begin_object().member("path", driver.path());
  json.member("cuda", device::cuda_version_text(driver.version())).end_object();
  json.member("kernels", kernels.image());
  json.member("weights", unit.num_weights()).member("seed", options.seed);
  json.member("bf16_bytes", unit.bf16_bytes()).member("stored_bytes", unit.stored_bytes());
  json.member("segment_weights", options.segment_weights).member("runs", options.num_runs);
  json.key("cases").begin_array();
  for (const Case& one : cases) {
    const double median = one.median();
    json.begin_object(Style::kOneLine).member("name", bench_name(one, unit, gpu));
    json.member("median_seconds", median).member("fastest_seconds", one.seconds.front());
    json.member("slowest_seconds", one.seconds.back());
    json.member("gigabytes_per_second", static_cast<double>(unit.bf16_bytes()) / median / 1e9);
    json.member("of_copy", cases.front().median() / median).end_object();
  }
  json.end_array().end_object();
  std::ofstream file(path, std::ios::binary);
  file << std::move(json).take();
  if (!file.flush()) throw Error(ErrorCode::kIo, "cannot write " + path);
}

// ---- the program

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, "cannot open " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int run(const Options& options) {
  std::string why_not;
  const device::CudaDriver* const driver = device::CudaDriver::find(&why_not);
  if (driver == nullptr) {
    std::fprintf(stderr, "bench_gpu_df11: no GPU was at hand: %s\n", why_not.c_str());
    return kNoGpu;
  }
  const device::Gpu gpu(*driver, options.device);
  std::printf("GPU         %s, sm_%d, %d multiprocessors, %.1f GB; driver for CUDA %s\n",
              gpu.info().name.c_str(), gpu.info().arch, gpu.info().num_multiprocessors,
              static_cast<double>(gpu.info().memory_bytes) / 1e9,
              device::cuda_version_text(driver->version()).c_str());
  const device::GpuKernels kernels(gpu);
  std::printf("kernels     %s\n", kernels.image().c_str());
  for (const std::string& note : kernels.notes()) std::printf("            note: %s\n", note.c_str());
  std::unique_ptr<OfficialKernel> official;
  if (!options.official.empty())
    official = std::make_unique<OfficialKernel>(gpu, read_file(options.official));

  const std::vector<std::uint16_t> repeated =
      testing::normal_weights(std::min(options.num_weights, kRepeatedWeights), options.seed);
  GpuUnit unit(gpu, kernels, repeated, options.num_weights, options.segment_weights);
  device::CompareStage compare(gpu, kernels);
  std::printf("weights     %llu, normal, seed %llu; segments of %llu\n",
              static_cast<unsigned long long>(options.num_weights),
              static_cast<unsigned long long>(options.seed),
              static_cast<unsigned long long>(options.segment_weights));
  verify(unit, repeated, compare, official.get());
  std::printf("unit        %.3f GB of BF16, %.3f GB stored\n", static_cast<double>(unit.bf16_bytes()) / 1e9,
              static_cast<double>(unit.stored_bytes()) / 1e9);
  if (options.verify_only) return 0;

  std::vector<Case> cases = make_cases(unit, official.get());
  time_all(cases, gpu, unit, options.num_runs);
  // What was timed last is right too.
  unit.check_encoding();
  unit.check_decoding("decoding beside the source");
  unit.check_weights(official ? "the official kernel" : "decoding", compare);
  print_times(cases, gpu, unit);
  if (!options.json.empty()) write_json(options.json, options, cases, gpu, kernels, unit);
  return 0;
}

}  // namespace
}  // namespace weightpress::bench

int main(int argc, char** argv) try {
  using namespace weightpress::bench;
  Options options;
  CLI::App app("The DF11 kernels on a GPU: verified, then timed beside a copy on the device",
               "bench_gpu_df11");
  app.add_option("--weights", options.num_weights, "2^30 unless said")
      ->check(CLI::Range(std::uint64_t{1}, weightpress::df11::Df11Limits{}.max_weights))
      ->option_text("N");
  app.add_option("--runs", options.num_runs, "11 unless said")
      ->check(CLI::Range(1, 10'000))
      ->option_text("N");
  app.add_option("--seed", options.seed, "1 unless said")->option_text("N");
  app.add_option("--segment-weights", options.segment_weights, "of a block of the encoder")
      ->check(CLI::Range(std::uint64_t{512}, weightpress::df11::kMaxSegmentWeights))
      ->option_text("N");
  app.add_option("--device", options.device, "which GPU, from 0")
      ->check(CLI::Range(0, 1023))
      ->option_text("N");
  app.add_option("--official", options.official, "the decode.ptx of dfloat11: timed as well")
      ->option_text("PATH");
  app.add_option("--json", options.json, "writes the times there as well")->option_text("PATH");
  app.add_flag("--verify-only", options.verify_only, "no times");
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // in the order of what stderr says
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& result) {
    return app.exit(result) == 0 ? 0 : kCannotRun;
  }
  return run(options);
} catch (const weightpress::bench::WrongResult& wrong) {
  std::fprintf(stderr, "bench_gpu_df11: wrong: %s\n", wrong.what());
  return weightpress::bench::kWrong;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_gpu_df11: %s\n", error.what());
  return weightpress::bench::kCannotRun;
}
