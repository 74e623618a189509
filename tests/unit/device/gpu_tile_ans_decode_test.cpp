// Tile-ANS decoding on the emulated GPU of what strangers wrote: the CPU's verdict on every fault, for every
// order of threads, and nothing outside the buffers is read or written, which the interpreter sees.
#include <array>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/gpu_tile_ans_stages.h"
#include "device/watched_memory.h"
#include "host/tile_ans_stages.h"
#include "support/tile_ans_faults.h"

namespace weightpress::device {
namespace {

using namespace testing;
using tile_ans::LaneMode;
using tile_ans::StageCode;
using tile_ans::StageStatus;

class GpuTileAnsDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};

TEST_F(GpuTileAnsDecode, TheVerdictIsTheCpus) {
  Random random(1);
  std::set<StageCode> seen;
  std::unique_ptr<EmulatedGpu> emulated;
  for (int run = 0; run < 500; ++run) {
    if (run % 50 == 0) {
      emulated.reset();
      emulated = std::make_unique<EmulatedGpu>(EmulatedGpu::Variables{
          {"SEED", std::to_string(run / 50)}, {"THREADS", std::to_string(1 + run / 50 % 2)}});
    }
    SCOPED_TRACE("run " + std::to_string(run));
    StoredTileAns stored = random_container(random);
    for (std::uint64_t faults = random.below(4); faults > 0; --faults) spoil(random, stored.buffers);
    std::vector<std::uint8_t> source = random.below(3) == 0 ? std::vector<std::uint8_t>{} : stored.bytes;
    if (!source.empty() && random.below(4) == 0) source[random.below(source.size())] ^= 4;
    const bool want_bytes = random.below(3) != 0;
    const Slabs slabs = random_slabs(random, stored.buffers.layout[0]);

    host::HostTileAnsDecodeStage host(1);
    const Decoded expected = stored.decode(host, slabs, source, want_bytes);
    GpuTileAnsStages stages(emulated->gpu(), emulated->kernels());  // anew: buffers are as large as needed
    const Decoded decoded = stored.decode(stages, slabs, source, want_bytes);
    ASSERT_EQ(decoded.error, expected.error);
    ASSERT_EQ(decoded.status, expected.status)
        << stage_code_text(decoded.status.code) << " and " << stage_code_text(expected.status.code);
    if (expected.ok() && want_bytes) {
      ASSERT_TRUE(decoded.bytes == expected.bytes);
    }
    if (expected.error.empty()) seen.insert(expected.status.code);
  }
  EXPECT_EQ(seen.size(), 9u) << "well, and all that can be wrong";
}

TEST_F(GpuTileAnsDecode, EveryLengthOfAStream) {
  Random random(2);
  const StoredTileAns good(RandomTensor::gaussian_bytes(random, 300, 1, 30), 1, 300, 12, {0});
  const std::size_t num_words = good.buffers.payload.size();
  EmulatedGpu emulated({{"SEED", "3"}});
  for (std::size_t length = 0; length <= 300; ++length) {
    StoredTileAns stored = good;
    std::vector<std::uint16_t>& payload = stored.buffers.payload;
    // From the front: what is read last.
    if (length < num_words) {
      payload.erase(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(num_words - length));
    } else {
      payload.insert(payload.begin(), length - num_words, 3);
    }
    stored.buffers.offsets.back() = static_cast<std::uint32_t>(length);
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    const StageCode expected = length < num_words   ? StageCode::kTruncated
                               : length > num_words ? StageCode::kUnreadWords
                                                    : StageCode::kOk;
    ASSERT_EQ(stored.decode(stages).status.code, expected) << length;
  }
}

TEST_F(GpuTileAnsDecode, ComparesWithTheSource) {
  Random random(3);
  const StoredTileAns stored(RandomTensor::gaussian_bytes(random, 1'000, 4, 20), 4, 100, 11, {0, 1, 0, 0});
  EmulatedGpu emulated;
  GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
  for (const bool want_bytes : {false, true}) {
    EXPECT_TRUE(stored.decode(stages, {.tiles = 3}, stored.bytes, want_bytes).ok());
    for (const std::size_t byte : {std::size_t{0}, std::size_t{1'999}, stored.bytes.size() - 1}) {
      std::vector<std::uint8_t> source = stored.bytes;
      source[byte] ^= 0x10;
      EXPECT_EQ(stored.decode(stages, {.tiles = 3}, source, want_bytes).status,
                (StageStatus{StageCode::kDiffers, byte / 400, 0}));
    }
  }
}

// A slab in the middle, in memory that shows what is written beside it.
TEST_F(GpuTileAnsDecode, OnlyTheElementsAreWritten) {
  Random random(4);
  const std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 1'010, 2, 9);
  const StoredTileAns stored(bytes, 2, 101, 10, {0, 0});
  const tile_ans::Layout layout{101, 10, 2, 1'010};
  std::vector<tile_ans::Frequencies> frequencies;
  std::vector<tile_ans::LaneInput> lanes(2);
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    const auto table = std::span(stored.buffers.decode_tables).subspan(lane * 1'024, 1'024);
    frequencies.push_back(*tile_ans::read_decode_table(table));
  }
  const tile_ans::TileRange tiles{3, 4};
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    lanes[lane].frequencies = &frequencies[lane];
    lanes[lane].offsets = std::span(stored.buffers.offsets).subspan(lane * 10 + 3, 5);
    lanes[lane].words = std::span(stored.buffers.payload).subspan(lanes[lane].offsets.front());
    lanes[lane].states = std::span(stored.buffers.states).subspan((lane * 10 + 3) * 32, 4 * 32);
  }
  GuardedSpan<std::uint8_t> elements(2 * 404);
  EmulatedGpu emulated;
  GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
  ASSERT_TRUE(
      stages
          .decode(
              {.layout = layout, .tiles = tiles, .lanes = lanes, .source = {}, .elements = elements.get()})
          .wait()
          .ok());
  EXPECT_TRUE(elements.is_intact());
  EXPECT_TRUE(std::ranges::equal(elements.get(), std::span(bytes).subspan(2 * 303, 2 * 404)));
}

}  // namespace
}  // namespace weightpress::device
