// include/weightpress/selftest.h: built-in units through the codec and back, through the slow decoder and the
// fast one; and through every path that there is.
#include <algorithm>
#include <exception>
#include <functional>

#include <weightpress/df11.h>
#include <weightpress/selftest.h>

#include "device/device_paths.h"
#include "host/decode.h"
#include "host/host_stages.h"
#include "job/selftest_compare.h"
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

/// The CPU's paths, which are always there.
struct HostPath {
  explicit HostPath(int num_threads)
      : name("cpu, " + std::to_string(num_threads) + (num_threads == 1 ? " thread" : " threads")),
        stages(num_threads),
        decode_stage(num_threads) {}

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

}  // namespace

std::vector<SelftestCase> run_selftest(int num_threads) {
  std::vector<SelftestCase> cases;
  for (const job::SelftestUnit& unit : job::built_in_units(UINT64_MAX)) {
    for (const LutFill fill : {LutFill::kCompat, LutFill::kSafe}) {
      SelftestCase test;
      test.name = unit.name + (fill == LutFill::kSafe ? ", safe tables" : "");
      try {
        test.problem = check(unit.weights, fill, num_threads);
      } catch (const std::exception& error) {
        test.problem = error.what();
      }
      test.passed = test.problem.empty();
      cases.push_back(std::move(test));
    }
  }
  return cases;
}

bool SelftestComparison::passed() const {
  return std::ranges::all_of(paths, [](const SelftestPath& path) { return path.problems.empty(); });
}

SelftestComparison compare_selftest_paths(const SelftestComparisonOptions& options) {
  SelftestComparison comparison;
  HostPath one(1), many(host::usable_num_threads(options.num_threads));
  std::vector<job::CodecPath> paths;
  add_host_paths(one, many, paths);
  const device::GpuPaths gpus = device::find_gpu_paths();
  if (!gpus.why_none.empty()) comparison.not_run.push_back("cuda: " + gpus.why_none);
  for (const device::GpuPaths::Found& gpu : gpus.found) {
    if (gpu.path != nullptr) {
      add_gpu_paths(*gpu.path, gpu.name, paths);
    } else {
      comparison.not_run.push_back(gpu.name + ": " + gpu.problem);
    }
  }

  job::PathComparison compared(std::move(paths));
  const auto add = [&](const job::SelftestUnit& unit) {
    compared.add(unit);
    ++comparison.num_units;
  };
  std::ranges::for_each(job::built_in_units(options.max_weights), add);
  for (std::uint64_t i = 0; i < options.num_random_units; ++i)
    add(job::random_unit(options.seed, i, options.max_weights));
  comparison.paths = compared.outcome();
  return comparison;
}

}  // namespace weightpress
