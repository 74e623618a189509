// All golden tensors of Tile-ANS on the emulated GPU, buffer for buffer, and back, with the interpreter's
// checks.
#include <string>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/gpu_tile_ans_stages.h"
#include "support/tile_ans_golden.h"
#include "support/tile_ans_random.h"

namespace weightpress::device {
namespace {

using namespace testing;

TEST(GpuTileAnsGolden, EveryBufferAndBack) {
  if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  const std::vector<std::string> names = GoldenTileAns::coded_tensors();
  ASSERT_EQ(names.size(), 74u);
  const Slabs cuts[] = {{}, {.tiles = 3, .histogram_elements = 999}, {.tiles = 9, .lane_by_lane = true}};
  std::size_t number = 0;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const GoldenTileAns golden(name);
    const bool is_large = golden.bytes.size() > 100'000 || golden.stored.offsets.size() > 500;
    const Slabs slabs = is_large ? Slabs{.tiles = 200} : cuts[number % std::size(cuts)];
    EmulatedGpu emulated({{"SEED", std::to_string(number++)}});
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    const tile_ans::TensorPlan plan = plan_with(stages, golden.bytes, golden.num_lanes, golden.settings,
                                                is_large ? Slabs{.histogram_elements = 100'000} : slabs);
    const TileAnsBuffers made = encode_with(stages, golden.bytes, plan, slabs);
    EXPECT_EQ(made.layout, golden.stored.layout);
    EXPECT_EQ(made.lane_modes, golden.stored.lane_modes);
    EXPECT_TRUE(made.decode_tables == golden.stored.decode_tables);
    EXPECT_TRUE(made.offsets == golden.stored.offsets);
    EXPECT_TRUE(made.states == golden.stored.states);
    EXPECT_TRUE(made.payload == golden.stored.payload);

    const Decoded decoded = decode_with(stages, golden.stored, golden.shape, golden.num_lanes, slabs);
    EXPECT_EQ(decoded.error, "");
    EXPECT_TRUE(decoded.status.ok()) << tile_ans::stage_code_text(decoded.status.code);
    EXPECT_TRUE(decoded.bytes == golden.bytes);
  }
}

}  // namespace
}  // namespace weightpress::device
