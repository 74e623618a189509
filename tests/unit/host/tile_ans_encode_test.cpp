// Encoding against the slow model: random tensors of all widths, tiles and settings, cut anywhere; and
// sources that are not what was counted.
#include <gtest/gtest.h>

#include "host/tile_ans_stages.h"
#include "support/tile_ans_random.h"

namespace weightpress::host {
namespace {

using namespace testing;
using tile_ans::LaneMode;
using tile_ans::StageCode;

TEST(TileAnsEncode, RandomTensorsAsTheSlowModelMakesThem) {
  Random random(1);
  int ans = 0, raw = 0, automatic = 0;
  for (int run = 0; run < 500; ++run) {
    const RandomTensor tensor(random);
    SCOPED_TRACE("run " + std::to_string(run));
    const TileAnsBuffers expected = SlowTileAns::encode(
        tensor.bytes, tensor.num_lanes,
        {tensor.settings.tile_elements, static_cast<int>(tensor.settings.probability_bits),
         tensor.settings.raw_lane_threshold});
    for (const SimdLevel simd : simd_levels()) {
      const int threads = 1 + static_cast<int>(random.below(3));
      const Slabs slabs = random_slabs(random, expected.layout[0]);
      HostTileAnsStages stages(threads, simd);
      const tile_ans::TensorPlan plan =
          plan_with(stages, tensor.bytes, tensor.num_lanes, tensor.settings, slabs);
      const TileAnsBuffers made = encode_with(stages, tensor.bytes, plan, slabs);
      ASSERT_TRUE(made == expected);
      ASSERT_LE(made.payload.size(), plan.max_payload_words());

      HostTileAnsDecodeStage decoder(threads, simd);
      const std::uint64_t shape[] = {tensor.bytes.size() / tensor.num_lanes};
      const Decoded decoded =
          decode_with(decoder, made, shape, tensor.num_lanes, random_slabs(random, expected.layout[0]));
      ASSERT_TRUE(decoded.ok()) << decoded.error << stage_code_text(decoded.status.code);
      ASSERT_TRUE(decoded.bytes == tensor.bytes);
    }
    for (const std::uint8_t mode : expected.lane_modes) ++(mode == 0 ? ans : raw);
    automatic += tensor.settings.probability_bits == 0;
  }
  // Not all of one kind.
  EXPECT_GT(ans, 300);
  EXPECT_GT(raw, 100);
  EXPECT_GT(automatic, 100);
}

// Every number of elements around groups, blocks and batches, in one tile and in small ones.
TEST(TileAnsEncode, EverySize) {
  Random random(2);
  const std::vector<std::uint8_t> all = RandomTensor::gaussian_bytes(random, 5000, 1, 3);
  for (const std::uint64_t tile : {std::uint64_t{64}, std::uint64_t{100}, tile_ans::kMaxTileElements}) {
    for (std::size_t size = 1; size < 4200; size += size < 200 || (size % 2048 > 1960) ? 1 : 31) {
      const std::vector<std::uint8_t> bytes(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
      // A threshold is at most 8, so small tiles are raw: with states that cost more than they are worth.
      const SlowTileAns::Counts counts = count(bytes);
      const tile_ans::Frequencies frequencies = frequencies_of(SlowTileAns::normalise(counts, 11));
      const TileAnsBuffers expected =
          SlowTileAns::encode(bytes, 1, tile, 11, {0}, {SlowTileAns::normalise(counts, 11)});
      tile_ans::TensorPlan plan;
      plan.layout = {tile, 11, 1, size};
      plan.lanes[0].frequencies = frequencies;
      for (const SimdLevel simd : simd_levels()) {
        HostTileAnsStages stages(1 + static_cast<int>(size % 2), simd);
        ASSERT_TRUE(encode_with(stages, bytes, plan) == expected) << size;
        HostTileAnsDecodeStage decoder(1, simd);
        const std::uint64_t shape[] = {size};
        const Decoded decoded = decode_with(decoder, expected, shape, 1);
        ASSERT_TRUE(decoded.ok()) << size;
        ASSERT_TRUE(decoded.bytes == bytes) << size;
      }
    }
  }
}

// Several batches a slab, so that threads write at places of their own first.
TEST(TileAnsEncode, LargeSlabs) {
  Random random(6);
  for (const std::uint64_t tile : {std::uint64_t{0}, std::uint64_t{9000}, std::uint64_t{70'001}}) {
    std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 210'001, 2, 5);
    for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<std::uint8_t>(random.next());
    const TileAnsBuffers expected = SlowTileAns::encode(bytes, 2, {tile, 0, 7.9});
    ASSERT_EQ(expected.lane_modes, (std::vector<std::uint8_t>{1, 0}));
    for (const SimdLevel simd : simd_levels()) {
      for (const int threads : {1, 2, 5}) {
        HostTileAnsStages stages(threads, simd);
        const tile_ans::TensorPlan plan = plan_with(stages, bytes, 2, {.tile_elements = tile});
        ASSERT_TRUE(encode_with(stages, bytes, plan) == expected);
        HostTileAnsDecodeStage decoder(threads, simd);
        const std::uint64_t shape[] = {210'001};
        const Decoded decoded = decode_with(decoder, expected, shape, 2);
        ASSERT_TRUE(decoded.ok());
        ASSERT_TRUE(decoded.bytes == bytes);
      }
    }
  }
}

TEST(TileAnsEncode, LaneHistogramsByALoop) {
  Random random(3);
  for (int run = 0; run < 60; ++run) {
    const std::uint32_t num_lanes = 1u << random.below(4);
    // Beyond the pieces of a megabyte in one of them.
    const std::size_t count = random.below(run == 0 ? 2'500'000 / num_lanes : 3000);
    const std::size_t shift = random.below(9);
    std::vector<std::uint8_t> memory(shift + count * num_lanes);
    for (std::uint8_t& byte : memory) byte = static_cast<std::uint8_t>(random.next() & random.next());
    const std::span<const std::uint8_t> elements = std::span(memory).subspan(shift);
    std::vector<tile_ans::Histogram> made(num_lanes), expected(num_lanes);
    made[0][7] = expected[0][7] = 5;  // added to what is there
    for (std::size_t i = 0; i < elements.size(); ++i) ++expected[i % num_lanes][elements[i]];
    HostTileAnsStages(1 + run % 3).histogram({elements, num_lanes, made}).wait();
    ASSERT_TRUE(made == expected);
  }
}

TEST(TileAnsEncode, ChangedSourceIsToldByLowestTileAndLane) {
  Random random(4);
  std::vector<std::uint8_t> bytes(100 * 90 * 4);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(6));
  for (const SimdLevel simd : simd_levels()) {
    for (const int threads : {1, 3}) {
      HostTileAnsStages stages(threads, simd);
      tile_ans::TensorPlan plan = plan_with(stages, bytes, 4, {.tile_elements = 1000});
      ASSERT_EQ(plan.num_ans_lanes(), 4u);
      std::vector<std::uint8_t> changed = bytes;
      // Symbols without frequency in tiles 7 and 4, there in lanes 3 and 1; at ends of tiles as inside.
      changed[4 * 7999 + 0] = 9;
      changed[4 * 4000 + 3] = 200;
      changed[4 * 4999 + 1] = 6;
      std::vector<std::uint32_t> stream_words(4 * 9), states(4 * 9 * 32);
      std::vector<std::vector<std::uint16_t>> words(4);
      std::vector<tile_ans::LaneOutput> outputs;
      for (std::uint32_t lane = 0; lane < 4; ++lane) {
        words[lane].resize(9000);
        outputs.push_back({lane, std::span(stream_words).subspan(lane * 9, 9), words[lane],
                           std::span(states).subspan(lane * 9 * 32, 9 * 32)});
      }
      const tile_ans::StageStatus expected{StageCode::kSourceChanged, 4, 1};
      EXPECT_EQ(stages.encode({&plan, {0, 9}, changed, outputs}).wait(), expected);
      EXPECT_EQ(stages.sizes({&plan, {0, 9}, changed, outputs}).wait(), expected);
      plan.lanes[1].mode = LaneMode::kRaw;
      outputs[1].states = {};
      EXPECT_EQ(stages.encode({&plan, {0, 9}, changed, outputs}).wait(),
                (tile_ans::StageStatus{StageCode::kSourceChanged, 4, 3}));
      EXPECT_TRUE(stages.encode({&plan, {0, 9}, bytes, outputs}).wait().ok());
    }
  }
}

// Whatever the source has become, no byte outside a lane's capacity is written.
TEST(TileAnsEncode, ChangedSourceStaysInsideItsSpans) {
  Random random(5);
  for (int run = 0; run < 200; ++run) {
    const RandomTensor tensor(random);
    HostTileAnsStages stages(1 + run % 3, simd_levels()[run % simd_levels().size()]);
    const tile_ans::TensorPlan plan = plan_with(stages, tensor.bytes, tensor.num_lanes, tensor.settings);
    std::vector<std::uint8_t> changed = tensor.bytes;
    for (std::uint8_t& byte : changed) byte = static_cast<std::uint8_t>(random.next());
    const tile_ans::TileRange tiles{0, plan.layout.num_tiles()};
    for (std::uint32_t lane = 0; lane < tensor.num_lanes; ++lane) {
      const std::size_t capacity = lane_words_capacity(plan, lane, tiles);
      const bool is_ans = plan.lanes[lane].mode == LaneMode::kAns;
      constexpr std::size_t kGuard = 64;
      std::vector<std::uint16_t> words(capacity + 2 * kGuard, 0xABCD);
      std::vector<std::uint32_t> stream_words(tiles.num_tiles), states(is_ans ? tiles.num_tiles * 32 : 0);
      const tile_ans::LaneOutput output{lane, stream_words, std::span(words).subspan(kGuard, capacity),
                                        states};
      stages.encode({&plan, tiles, changed, {&output, 1}}).wait();
      for (std::size_t i = 0; i < kGuard; ++i) {
        ASSERT_EQ(words[i], 0xABCD);
        ASSERT_EQ(words[kGuard + capacity + i], 0xABCD);
      }
    }
  }
}

}  // namespace
}  // namespace weightpress::host
