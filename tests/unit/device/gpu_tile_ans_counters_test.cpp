// What the Tile-ANS kernels cost, as the interpreter counts it on normal BF16 weights (docs/kernels.md,
// "Costs").
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/gpu_tile_ans_stages.h"
#include "support/tile_ans_container.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

using namespace testing;

constexpr std::size_t kNumWeights = 500'000;

double a_weight(std::uint64_t count) {
  return static_cast<double>(count) / static_cast<double>(kNumWeights);
}
double bytes_a_weight(const ptxvm::Counters& run) {
  return 32 * a_weight(run.global_load_sectors + run.global_store_sectors);
}

void print(const std::string& name, const ptxvm::Counters& run) {
  std::cout << name << ": " << a_weight(run.lane_instructions) << " lane instructions, "
            << 32 * a_weight(run.global_load_sectors) << " bytes loaded, "
            << 32 * a_weight(run.global_store_sectors) << " stored a weight; bank factor "
            << run.bank_factor() << ", lanes on an atomic address " << run.lanes_per_address() << "\n";
}

/// By kernel, of histogram, encoding and decoding in one slab.
std::map<std::string, ptxvm::Counters> count_all(const tile_ans::Settings& settings, std::uint32_t ans_lanes,
                                                 double& stored_a_weight) {
  EmulatedGpu emulated({{"CHECK", ""}, {"COUNT", "1"}});
  std::map<std::string, ptxvm::Counters> runs;
  {
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    const std::vector<std::uint16_t> weights = normal_weights(kNumWeights, 1);
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(weights.data());
    const std::vector<std::uint8_t> bytes(begin, begin + 2 * kNumWeights);
    const tile_ans::TensorPlan plan = plan_with(stages, bytes, 2, settings);
    EXPECT_EQ(plan.num_ans_lanes(), ans_lanes);
    const TileAnsBuffers made = encode_with(stages, bytes, plan);
    stored_a_weight = static_cast<double>(2 * made.payload.size() + 4 * made.states.size()) /
                      static_cast<double>(kNumWeights);
    const Decoded decoded = decode_with(stages, made, std::array{std::uint64_t{kNumWeights}}, 2);
    EXPECT_TRUE(decoded.ok());
    EXPECT_TRUE(decoded.bytes == bytes);
  }
  for (const EmulatedGpu::KernelRun& run : emulated.end()) runs[run.name] += run.counters;
  for (const auto& [name, run] : runs) print(name, run);
  std::cout << "stored: " << stored_a_weight << " bytes a weight\n";
  return runs;
}

TEST(GpuTileAnsCounters, NormalWeights) {
  if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  for (const std::uint64_t tile : {4096u, 8192u}) {
    double stored = 0;
    auto runs = count_all({.tile_elements = tile}, 1, stored);
    ASSERT_TRUE(runs.contains("wp_tile_ans_histogram") && runs.contains("wp_tile_ans_encode") &&
                runs.contains("wp_tile_ans_decode"));
    const ptxvm::Counters& encoding = runs["wp_tile_ans_encode"];
    ptxvm::Counters compression = runs["wp_tile_ans_histogram"];
    compression += encoding;
    print("histogram and encode", compression);
    EXPECT_GT(bytes_a_weight(compression), 4 + stored) << "it cannot be less: were the counters on?";
    EXPECT_LE(bytes_a_weight(compression), 7);
  }
}

}  // namespace
}  // namespace weightpress::device
