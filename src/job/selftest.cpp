// include/weightpress/selftest.h: built-in units and tensors through the codecs and back, through the slow
// decoder and the fast one; and through every path that there is.
#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include <weightpress/df11.h>
#include <weightpress/selftest.h>

#include "device/device_paths.h"
#include "host/decode.h"
#include "host/host_stages.h"
#include "host/tile_ans_stages.h"
#include "job/selftest_compare.h"
#include "job/selftest_tensors.h"
#include "job/selftest_tile_ans.h"
#include "job/selftest_units.h"
#include "job/unit_memory.h"
#include "selftest/slow_decoder.h"

namespace weightpress {
namespace {

using Words = std::vector<std::uint16_t>;

std::string check(const Words& words, LutFill fill, int num_threads) {
  const Df11Unit unit = compress_df11_unit(words, {.luts = fill, .num_threads = num_threads});
  const selftest::SlowDecoding back = selftest::window_decode(
      {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps});
  if (!back.ok) return "the slow decoder found: " + back.problem;
  if (back.weights != words) return "it decodes to other weights";
  if (decompress_df11_unit(job::view_of(unit), num_threads) != words)
    return "the fast decoder gives other weights";
  return {};
}

std::string cpu_name(int num_threads) {
  return "cpu, " + std::to_string(num_threads) + (num_threads == 1 ? " thread" : " threads");
}

/// The CPU's paths, which are always there.
struct HostPath {
  explicit HostPath(int num_threads)
      : name(cpu_name(num_threads)), stages(num_threads), decode_stage(num_threads) {}

  job::CodecPath path() { return {.name = name, .stages = &stages, .decode_stage = &decode_stage}; }

  const std::string name;
  host::HostStages stages;
  host::HostDecodeStage decode_stage;
};

void add_host_paths(HostPath& one, HostPath& many, std::vector<job::CodecPath>& paths) {
  paths.push_back(one.path());
  if (many.name != one.name) {
    paths.push_back(many.path());
    paths.back().segment_weights = 1021;  // or there would be no work for more than two of them
  }
  paths.push_back(one.path());
  paths.back().name += ", in pieces";
  paths.back().in_pieces = true;
}

/// A GPU as a path that takes units whole, and one that takes them in pieces.
void add_gpu_paths(device::GpuPath& gpu, const std::string& name, std::vector<job::CodecPath>& paths) {
  job::CodecPath path{.name = name,
                      .stages = &gpu.stages(),
                      .decode_stage = &gpu.decode_stage(),
                      .segment_weights = gpu.segment_weights(),
                      .use = [&gpu] { gpu.use(); }};
  paths.push_back(path);
  path.name += ", in pieces";
  path.in_pieces = true;
  paths.push_back(std::move(path));
}

// ---- Tile-ANS

const char* simd_name(host::SimdLevel simd) {
  return simd == host::SimdLevel::kPortable ? "without SIMD" : "with AVX2";
}

struct HostTileAnsPath {
  HostTileAnsPath(int num_threads, host::SimdLevel simd)
      : name(cpu_name(num_threads) + ", Tile-ANS " + simd_name(simd)),
        stages(num_threads, simd),
        decode_stage(num_threads, simd) {}

  job::TileAnsPath path() { return {.name = name, .stages = &stages, .decode_stage = &decode_stage}; }

  const std::string name;
  host::HostTileAnsStages stages;
  host::HostTileAnsDecodeStage decode_stage;
};

/// A GPU's stages, with slabs in pinned memory and in ordinary memory.
void add_gpu_paths(device::GpuPath& gpu, device::TileAnsBackEnd& back_end, const std::string& name,
                   std::vector<job::TileAnsPath>& paths) {
  job::TileAnsPath path{.name = name + ", Tile-ANS",
                        .stages = &back_end,
                        .decode_stage = &back_end,
                        .use = [&gpu] { gpu.use(); },
                        .memory = [&back_end](std::uint64_t bytes) { return back_end.pinned(bytes); },
                        .decoded_sum = [&back_end] { return back_end.decoded_sum(); }};
  paths.push_back(path);
  path.name += ", in pieces";
  path.in_pieces = true;
  path.memory = {};
  paths.push_back(std::move(path));
}

/// One format of a comparison.
class Comparison {
 public:
  Comparison(const SelftestComparisonOptions& options, const device::GpuPaths& gpus,
             SelftestComparison& comparison)
      : options_(options), gpus_(gpus), comparison_(comparison) {}

  void compare_df11() {
    HostPath one(1), many(host::usable_num_threads(options_.num_threads));
    std::vector<job::CodecPath> paths;
    add_host_paths(one, many, paths);
    for (const device::GpuPaths::Found& gpu : gpus_.found)
      if (gpu.path != nullptr) add_gpu_paths(*gpu.path, gpu.name, paths);

    job::PathComparison compared(std::move(paths));
    const auto add = [&](const job::SelftestUnit& unit) {
      compared.add(unit);
      ++comparison_.num_units;
    };
    std::ranges::for_each(job::built_in_units(options_.max_weights), add);
    for (std::uint64_t i = 0; i < options_.num_random_units; ++i)
      add(job::random_unit(options_.seed, i, options_.max_weights));
    take(compared.outcome(), Format::kDf11);
  }

  void compare_tile_ans() {
    const host::SimdLevel best = host::best_simd_level();
    const int num_threads = host::usable_num_threads(options_.num_threads);
    HostTileAnsPath plain(1, host::SimdLevel::kPortable), one(1, best), many(num_threads, best);
    std::vector<job::TileAnsPath> paths{plain.path()};
    if (one.name != plain.name) paths.push_back(one.path());
    if (many.name != one.name) paths.push_back(many.path());
    paths.push_back(one.path());
    paths.back().name += ", in pieces";
    paths.back().in_pieces = true;

    std::vector<std::unique_ptr<device::TileAnsBackEnd>> back_ends;
    std::vector<SelftestPath> broken;
    for (const device::GpuPaths::Found& gpu : gpus_.found) {
      if (gpu.path == nullptr) continue;
      try {
        back_ends.push_back(gpu.path->make_tile_ans_back_end(0));
        add_gpu_paths(*gpu.path, *back_ends.back(), gpu.name, paths);
      } catch (const Error& error) {
        broken.emplace_back().name = gpu.name + ", Tile-ANS";
        broken.back().problems.emplace_back(error.what());
      }
    }

    job::TileAnsPathComparison compared(std::move(paths));
    const std::uint64_t max_bytes = 2 * options_.max_weights;
    const auto add = [&](const job::SelftestTensor& tensor) {
      compared.add(tensor);
      ++comparison_.num_tensors;
    };
    std::ranges::for_each(job::built_in_tensors(max_bytes), add);
    for (std::uint64_t i = 0; i < options_.num_random_units; ++i)
      add(job::random_tensor(options_.seed, i, max_bytes));
    take(compared.outcome(), Format::kTileAns);
    take(std::move(broken), Format::kTileAns);
  }

 private:
  void take(std::vector<SelftestPath> outcome, Format format) {
    for (SelftestPath& path : outcome) {
      path.format = format;
      comparison_.paths.push_back(std::move(path));
    }
  }

  const SelftestComparisonOptions& options_;
  const device::GpuPaths& gpus_;
  SelftestComparison& comparison_;
};

/// check() gives a problem, or nothing.
template <class Check>
void add_case(std::vector<SelftestCase>& cases, std::string name, const Check& check) {
  SelftestCase& test = cases.emplace_back();
  test.name = std::move(name);
  try {
    test.problem = check();
  } catch (const std::exception& error) {
    test.problem = error.what();
  }
  test.passed = test.problem.empty();
}

}  // namespace

std::vector<SelftestCase> run_selftest(int num_threads) {
  std::vector<SelftestCase> cases;
  for (const job::SelftestUnit& unit : job::built_in_units(UINT64_MAX))
    for (const LutFill fill : {LutFill::kCompat, LutFill::kSafe})
      add_case(cases, unit.name + (fill == LutFill::kSafe ? ", safe tables" : ""),
               [&] { return check(unit.weights, fill, num_threads); });

  const int usable = host::usable_num_threads(num_threads);
  HostTileAnsPath plain(usable, host::SimdLevel::kPortable), best(usable, host::best_simd_level());
  for (const job::SelftestTensor& tensor : job::built_in_tensors(UINT64_MAX)) {
    add_case(cases, "Tile-ANS: " + tensor.name, [&] {
      for (HostTileAnsPath* path : {&plain, &best}) {
        const std::string problem = job::check_tensor(path->path(), tensor);
        if (!problem.empty()) return path->name + ": " + problem;
      }
      return std::string();
    });
  }
  return cases;
}

bool SelftestComparison::passed() const {
  return std::ranges::all_of(paths, [](const SelftestPath& path) { return path.problems.empty(); });
}

SelftestComparison compare_selftest_paths(const SelftestComparisonOptions& options) {
  SelftestComparison comparison;
  const device::GpuPaths gpus = device::find_gpu_paths();
  if (options.tile_ans && host::best_simd_level() == host::SimdLevel::kPortable)
    comparison.not_run.emplace_back("cpu, Tile-ANS with AVX2: the processor or this build has none");
  if (!gpus.why_none.empty()) comparison.not_run.push_back("cuda: " + gpus.why_none);
  for (const device::GpuPaths::Found& gpu : gpus.found)
    if (gpu.path == nullptr) comparison.not_run.push_back(gpu.name + ": " + gpu.problem);
  Comparison formats(options, gpus, comparison);
  if (options.df11) formats.compare_df11();
  if (options.tile_ans) formats.compare_tile_ans();
  return comparison;
}

}  // namespace weightpress
