// All golden tensors of Tile-ANS: every buffer, however the tensor is cut, by any number of threads, at every
// SIMD level; and back.
#include "support/tile_ans_golden.h"

#include <string>

#include <gtest/gtest.h>

#include "host/tile_ans_stages.h"
#include "support/tile_ans_random.h"

namespace weightpress::host {
namespace {

using namespace testing;

void check_stages(const GoldenTileAns& golden) {
  const Slabs cuts[] = {{}, {.tiles = 1, .lane_by_lane = true, .histogram_elements = 999}, {.tiles = 3}};
  for (const SimdLevel simd : simd_levels()) {
    for (const int threads : {1, 2, 3, 4, 5, 6}) {
      const Slabs& slabs = cuts[(threads - 1) / 2];
      HostTileAnsStages stages(threads, simd);
      const tile_ans::TensorPlan plan =
          plan_with(stages, golden.bytes, golden.num_lanes, golden.settings, slabs);
      const TileAnsBuffers made = encode_with(stages, golden.bytes, plan, slabs);
      EXPECT_EQ(made.layout, golden.stored.layout);
      EXPECT_EQ(made.lane_modes, golden.stored.lane_modes);
      EXPECT_TRUE(made.decode_tables == golden.stored.decode_tables);
      EXPECT_TRUE(made.offsets == golden.stored.offsets);
      EXPECT_TRUE(made.states == golden.stored.states);
      EXPECT_TRUE(made.payload == golden.stored.payload);

      HostTileAnsDecodeStage decoder(threads, simd);
      const Decoded decoded = decode_with(decoder, golden.stored, golden.shape, golden.num_lanes, slabs);
      EXPECT_EQ(decoded.error, "");
      EXPECT_TRUE(decoded.status.ok()) << tile_ans::stage_code_text(decoded.status.code);
      EXPECT_TRUE(decoded.bytes == golden.bytes);
    }
  }
}

TEST(TileAnsGolden, EveryBufferAndBack) {
  const std::vector<std::string> names = GoldenTileAns::coded_tensors();
  ASSERT_EQ(names.size(), 74u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    check_stages(GoldenTileAns(name));
  }
}

TEST(TileAnsGolden, TheSlowModelToo) {
  for (const std::string& name : GoldenTileAns::coded_tensors()) {
    const GoldenTileAns golden(name);
    const TileAnsBuffers made = SlowTileAns::encode(
        golden.bytes, golden.num_lanes,
        {golden.settings.tile_elements, static_cast<int>(golden.settings.probability_bits),
         golden.settings.raw_lane_threshold});
    EXPECT_TRUE(made == golden.stored) << name;
  }
}

}  // namespace
}  // namespace weightpress::host
