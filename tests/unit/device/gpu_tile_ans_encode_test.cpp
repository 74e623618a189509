// Tile-ANS histograms, sizes and encoding on the emulated GPU: what the CPU's stages make, in every order of
// threads, wherever elements lie, and no byte beside the outputs.
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/gpu_tile_ans_stages.h"
#include "device/watched_memory.h"
#include "host/tile_ans_stages.h"
#include "support/tile_ans_random.h"

namespace weightpress::device {
namespace {

using namespace testing;
using tile_ans::LaneMode;
using tile_ans::StageCode;
using tile_ans::StageStatus;

class GpuTileAns : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};
using GpuTileAnsHistogram = GpuTileAns;
using GpuTileAnsEncode = GpuTileAns;

// ---- histograms

TEST_F(GpuTileAnsHistogram, OfElementsOfEverySizeWhereverTheyLie) {
  EmulatedGpu emulated;
  const TileAnsLaunches launches(emulated.gpu(), emulated.kernels());
  const Stream stream(emulated.gpu());
  Random random(1);
  for (const std::uint32_t num_lanes : {1u, 2u, 4u, 8u}) {
    for (std::uint64_t offset = 0; offset < 17; ++offset) {
      for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{3}, 1 + random.below(200),
                                        16'384 / num_lanes + random.below(40)}) {
        SCOPED_TRACE(std::to_string(count) + " elements of " + std::to_string(num_lanes) + " bytes, " +
                     std::to_string(offset) + " bytes off");
        std::vector<std::uint8_t> bytes(count * num_lanes);
        for (std::uint8_t& byte : bytes) {
          byte = static_cast<std::uint8_t>(random.below(2) == 0 ? random.next() : offset);
        }
        // What is there already counts too, and beyond 32 bits.
        std::vector<std::uint64_t> expected(num_lanes * tile_ans::kNumSymbols);
        for (std::uint64_t& number : expected) number = random.next() >> 20;
        const DeviceValues<std::uint64_t> d_counts(emulated.gpu(), expected);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          ++expected[i % num_lanes * tile_ans::kNumSymbols + bytes[i]];
        const DeviceValues<std::uint8_t> d_bytes(emulated.gpu(), bytes, offset);
        TileAnsHistogramKernel::Parameters parameters;
        parameters.d_elements = d_bytes.get();
        parameters.num_bytes = bytes.size();
        parameters.d_counts = d_counts.get();
        parameters.num_lanes = num_lanes;
        launches.histogram(stream, parameters);
        stream.wait();
        ASSERT_EQ(d_counts.read(), expected);
      }
    }
  }
}

TEST_F(GpuTileAnsHistogram, OfSeveralBlocksInEveryOrder) {
  Random random(2);
  const std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 1'000'001, 1, 30);
  std::vector<tile_ans::Histogram> expected(1), counted(1);
  host::HostTileAnsStages(1).histogram({bytes, 1, expected}).wait();
  for (const char* seed : {"0", "7"}) {
    EmulatedGpu emulated({{"SEED", seed}, {"THREADS", "2"}, {"CHECK", ""}});
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    counted[0].fill(0);
    EXPECT_TRUE(stages.histogram({bytes, 1, counted}).wait().ok());
    EXPECT_EQ(counted, expected);
  }
}

// ---- encoding

TEST_F(GpuTileAnsEncode, RandomTensorsAsOnTheCpu) {
  Random random(3);
  std::uint64_t num_raw = 0, num_coded = 0;
  for (int run = 0; run < 80; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    const RandomTensor tensor(random);
    host::HostTileAnsStages host(1);
    const tile_ans::TensorPlan plan = plan_with(host, tensor.bytes, tensor.num_lanes, tensor.settings);
    const TileAnsBuffers expected = encode_with(host, tensor.bytes, plan);
    for (std::uint32_t lane = 0; lane < tensor.num_lanes; ++lane)
      ++(plan.lanes[lane].mode == LaneMode::kRaw ? num_raw : num_coded);

    EmulatedGpu emulated({{"SEED", std::to_string(run)}, {"THREADS", std::to_string(1 + run % 2)}});
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    const Slabs slabs = random_slabs(random, static_cast<std::int64_t>(tensor.settings.tile_elements));
    const tile_ans::TensorPlan same =
        plan_with(stages, tensor.bytes, tensor.num_lanes, tensor.settings, slabs);
    ASSERT_EQ(same.layout, plan.layout);
    const TileAnsBuffers made = encode_with(stages, tensor.bytes, same, slabs);
    ASSERT_TRUE(made == expected);

    const Decoded decoded = decode_with(stages, made, std::array{tensor.bytes.size() / tensor.num_lanes},
                                        tensor.num_lanes, slabs, tensor.bytes, run % 3 != 0);
    ASSERT_EQ(decoded.error, "");
    ASSERT_EQ(decoded.status, StageStatus{});
    if (run % 3 != 0) {
      ASSERT_TRUE(decoded.bytes == tensor.bytes);
    }
  }
  EXPECT_GT(num_raw, 30u);
  EXPECT_GT(num_coded, 30u);
}

/// Frequencies that do not fit the tensor: its streams are longer than the rooms that they are given.
tile_ans::TensorPlan misleading_plan(std::uint32_t num_lanes, std::uint64_t num_elements,
                                     std::uint64_t tile) {
  tile_ans::TensorPlan plan;
  plan.layout = {tile, 12, num_lanes, num_elements};
  for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
    plan.lanes[lane].frequencies.fill(1);
    plan.lanes[lane].frequencies[lane] = static_cast<std::uint16_t>(tile_ans::kMaxTableSize - 255);
  }
  return plan;
}

TEST_F(GpuTileAnsEncode, StreamsLongerThanTheirRooms) {
  Random random(4);
  for (const std::uint32_t num_lanes : {1u, 2u, 4u, 8u}) {
    for (const std::uint64_t tile : {std::uint64_t{5'000}, std::uint64_t{1'031}}) {
      SCOPED_TRACE(std::to_string(num_lanes) + " lanes, tiles of " + std::to_string(tile));
      const std::uint64_t count = 11'003;
      std::vector<std::uint8_t> bytes(count * num_lanes);
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
      const tile_ans::TensorPlan plan = misleading_plan(num_lanes, count, tile);
      host::HostTileAnsStages host(1);
      const TileAnsBuffers expected = encode_with(host, bytes, plan);
      for (const char* seed : {"0", "1", "2"}) {
        EmulatedGpu emulated({{"SEED", seed}});
        GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
        ASSERT_TRUE(encode_with(stages, bytes, plan) == expected);
      }
    }
  }
}

// More batches than a warp looks back at in one step, and than blocks run at once.
TEST_F(GpuTileAnsEncode, ManyBatchesInEveryOrderOfBlocks) {
  Random random(5);
  const std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 36'000, 2, 30);
  host::HostTileAnsStages host(1);
  const tile_ans::TensorPlan plan =
      plan_with(host, bytes, 2, {.tile_elements = 100, .probability_bits = 9, .raw_lane_threshold = 8});
  tile_ans::TensorPlan coded = plan;
  for (tile_ans::LanePlan& lane : coded.lanes) lane.mode = LaneMode::kAns;
  const TileAnsBuffers expected = encode_with(host, bytes, coded);
  ASSERT_GT(expected.payload.size(), 10'000u);
  for (const char* multiprocessors : {"1", "46"}) {
    for (const char* seed : {"0", "1", "2"}) {
      EmulatedGpu emulated({{"SEED", seed}, {"THREADS", "2"}, {"MULTIPROCESSORS", multiprocessors}});
      GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
      ASSERT_TRUE(encode_with(stages, bytes, coded) == expected);
    }
  }
}

TEST_F(GpuTileAnsEncode, NothingBesideTheOutputsIsTouched) {
  Random random(6);
  const std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 1'999, 4, 20);
  host::HostTileAnsStages host(1);
  tile_ans::TensorPlan plan =
      plan_with(host, bytes, 4, {.tile_elements = 333, .probability_bits = 10, .raw_lane_threshold = 8});
  for (std::uint32_t lane = 0; lane < 4; ++lane)
    plan.lanes[lane].mode = lane % 2 == 0 ? LaneMode::kRaw : LaneMode::kAns;
  EmulatedGpu emulated;
  GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
  const tile_ans::TileRange tiles{1, 4};
  // Lanes 1 and 2 of four.
  GuardedSpan<std::uint32_t> coded_sizes(4), raw_sizes(4), states(4 * tile_ans::kNumStates);
  GuardedSpan<std::uint16_t> coded_words(tile_ans::lane_words_capacity(plan, 1, tiles)),
      raw_words(tile_ans::lane_words_capacity(plan, 2, tiles));
  const tile_ans::LaneOutput outputs[] = {{1, coded_sizes.get(), coded_words.get(), states.get()},
                                          {2, raw_sizes.get(), raw_words.get(), {}}};
  ASSERT_TRUE(stages.encode({&plan, tiles, slab_bytes(bytes, plan.layout, tiles), outputs}).wait().ok());
  EXPECT_TRUE(coded_sizes.is_intact() && raw_sizes.is_intact() && states.is_intact());
  EXPECT_TRUE(coded_words.is_intact() && raw_words.is_intact());
  EXPECT_EQ(raw_sizes.get()[0], 167u);
}

TEST_F(GpuTileAnsEncode, TheFirstSymbolThatWasNotCountedIsTold) {
  Random random(7);
  std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 5'000, 2, 4);
  for (std::uint8_t& byte : bytes) byte &= 0x3F;
  host::HostTileAnsStages host(1);
  tile_ans::TensorPlan plan =
      plan_with(host, bytes, 2, {.tile_elements = 100, .probability_bits = 11, .raw_lane_threshold = 8});
  for (tile_ans::LanePlan& lane : plan.lanes) lane.mode = LaneMode::kAns;  // at any size
  for (int run = 0; run < 30; ++run) {
    std::vector<std::uint8_t> changed = bytes;
    for (std::uint64_t i = random.below(4); i > 0; --i) changed[random.below(bytes.size())] = 0xC0;
    const tile_ans::TileRange tiles{random.below(10), 1 + random.below(40)};
    const auto run_on = [&](tile_ans::TileAnsStages& stages, bool sizes_only) {
      std::vector<std::uint32_t> sizes[2];
      std::vector<std::uint32_t> states[2];
      std::vector<std::uint16_t> words[2];
      std::vector<tile_ans::LaneOutput> outputs;
      for (std::uint32_t lane = 0; lane < 2; ++lane) {
        sizes[lane].resize(tiles.num_tiles);
        states[lane].resize(tiles.num_tiles * tile_ans::kNumStates);
        words[lane].resize(tile_ans::lane_words_capacity(plan, lane, tiles));
        outputs.push_back({lane, sizes[lane], words[lane], states[lane]});
      }
      const tile_ans::EncodeArguments arguments{&plan, tiles, slab_bytes(changed, plan.layout, tiles),
                                                outputs};
      return (sizes_only ? stages.sizes(arguments) : stages.encode(arguments)).wait();
    };
    const StageStatus expected = run_on(host, false);
    EmulatedGpu emulated({{"SEED", std::to_string(run)}});
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    EXPECT_EQ(run_on(stages, false), expected);
    EXPECT_EQ(run_on(stages, true), expected);
  }
}

TEST(GpuTileAnsStatus, WhatNoKernelWritesIsRefused) {
  const tile_ans::TileRange tiles{5, 3};
  const auto word = [](std::uint64_t tile, std::uint64_t lane, std::uint64_t code) {
    return tile << 16 | lane << 8 | code;
  };
  EXPECT_EQ(tile_ans_encode_status(word(7, 1, 1), tiles, 2), (StageStatus{StageCode::kSourceChanged, 7, 1}));
  EXPECT_EQ(tile_ans_decode_status(word(5, 0, 9), tiles, 2), (StageStatus{StageCode::kDiffers, 5, 0}));
  EXPECT_EQ(tile_ans_decode_status(~std::uint64_t{0}, tiles, 2), StageStatus{});
  for (const std::uint64_t bad : {word(4, 0, 1), word(8, 0, 1), word(7, 2, 1), word(7, 0, 0), word(7, 0, 2)})
    EXPECT_THROW(tile_ans_encode_status(bad, tiles, 2), Error);
  for (const std::uint64_t bad : {word(4, 0, 2), word(8, 0, 2), word(7, 2, 2), word(7, 0, 1), word(7, 0, 10)})
    EXPECT_THROW(tile_ans_decode_status(bad, tiles, 2), Error);
}

}  // namespace
}  // namespace weightpress::device
