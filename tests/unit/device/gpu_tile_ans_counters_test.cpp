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

/// By kernel, of histogram, sizes, encoding and decoding in one slab. both_coded: the lower lane too, though
/// it would be stored raw.
std::map<std::string, ptxvm::Counters> count_all(std::uint64_t tile_elements, bool both_coded,
                                                 double& stored_a_weight) {
  EmulatedGpu emulated({{"CHECK", ""}, {"COUNT", "1"}});
  {
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    const std::vector<std::uint16_t> weights = normal_weights(kNumWeights, 1);
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(weights.data());
    const std::vector<std::uint8_t> bytes(begin, begin + 2 * kNumWeights);
    tile_ans::TensorPlan plan = plan_with(stages, bytes, 2, {.tile_elements = tile_elements});
    EXPECT_EQ(plan.num_ans_lanes(), 1u);
    if (both_coded) plan.lanes[0].mode = tile_ans::LaneMode::kAns;
    const TileAnsBuffers made = encode_with(stages, bytes, plan);
    stored_a_weight = static_cast<double>(2 * made.payload.size() + 4 * made.states.size()) /
                      static_cast<double>(kNumWeights);
    const Decoded decoded = decode_with(stages, made, std::array{std::uint64_t{kNumWeights}}, 2);
    EXPECT_TRUE(decoded.ok());
    EXPECT_TRUE(decoded.bytes == bytes);
  }
  std::map<std::string, ptxvm::Counters> runs;
  for (const EmulatedGpu::KernelRun& run : emulated.end()) runs[run.name] += run.counters;
  std::cout << "tiles of " << tile_elements << (both_coded ? ", both lanes coded: " : ": ") << stored_a_weight
            << " bytes a weight stored\n";
  for (const auto& [name, run] : runs) print(name, run);
  return runs;
}

TEST(GpuTileAnsCounters, NormalWeights) {
  if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  for (const std::uint64_t tile : {4096u, 8192u}) {
    double stored = 0;
    auto runs = count_all(tile, false, stored);
    ASSERT_EQ(runs.size(), 4u);
    const ptxvm::Counters &histogram = runs["wp_tile_ans_histogram"], &sizes = runs["wp_tile_ans_sizes"],
                          &encoding = runs["wp_tile_ans_encode"], &decoding = runs["wp_tile_ans_decode"];
    ptxvm::Counters compression = histogram;
    compression += encoding;
    print("histogram and encode", compression);
    EXPECT_GT(bytes_a_weight(compression), 4 + stored) << "it cannot be less: were the counters on?";
    EXPECT_LE(bytes_a_weight(compression), 5.7);
    EXPECT_LE(a_weight(compression.lane_instructions), 75);
    EXPECT_LE(bytes_a_weight(sizes), 2.2);
    EXPECT_LE(a_weight(sizes.lane_instructions), 40);
    EXPECT_GT(bytes_a_weight(decoding), 2 + stored);
    EXPECT_LE(bytes_a_weight(decoding), 3.7);
    EXPECT_LE(a_weight(decoding.lane_instructions), 80);
    EXPECT_LE(histogram.bank_factor(), 1.2);
    EXPECT_LE(encoding.bank_factor(), 1.7);
    EXPECT_LE(decoding.bank_factor(), 2.2);
    for (const ptxvm::Counters* run : {&histogram, &encoding, &decoding})
      EXPECT_LE(run->lanes_per_address(), 1.1);
  }
}

// Streams that shared memory does not hold are encoded from where it was full a second time, and only from
// there on are elements read again.
TEST(GpuTileAnsCounters, WhatDoesNotFitIsReadAgain) {
  if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  for (const auto& [tile, limit] : {std::pair{4096u, 6.3}, {8192u, 7.0}}) {
    double stored = 0;
    auto runs = count_all(tile, true, stored);
    ptxvm::Counters compression = runs["wp_tile_ans_histogram"];
    compression += runs["wp_tile_ans_encode"];
    print("histogram and encode", compression);
    EXPECT_GT(bytes_a_weight(compression), 4 + stored);
    EXPECT_LE(bytes_a_weight(compression), limit);
  }
}

}  // namespace
}  // namespace weightpress::device
