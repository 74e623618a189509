// Settings, layout, sums and decisions: golden tensors' settings and estimates, sizes by plain loops, and the
// borders where a decision turns.
#include "format/tile_ans_plan.h"

#include <cmath>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "format/tile_ans_entropy.h"
#include "support/golden.h"
#include "support/tile_ans_slow_model.h"
#include "support/weights.h"

namespace weightpress::tile_ans {
namespace {

using testing::golden_folder;
using testing::Random;
using testing::SlowTileAns;

TEST(TileAnsSettings, Limits) {
  for (const Settings& good :
       {Settings{}, Settings{kMaxTileElements, 9, 0.0}, Settings{1, 12, 8.0}, Settings{0, 10, 7.9}})
    EXPECT_TRUE(check_settings(good));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Settings& bad : {Settings{kMaxTileElements + 1, 0, 7}, Settings{0, 8, 7}, Settings{0, 13, 7},
                              Settings{0, 1, 7}, Settings{0, 0, -0.001}, Settings{0, 0, 8.001},
                              Settings{0, 0, nan}, Settings{~std::uint64_t{0}, 0, 7}}) {
    const auto checked = check_settings(bad);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::kUsage);
    EXPECT_FALSE(plan_tensor(bad, std::vector<Histogram>(1, Histogram{1})));
  }
}

TEST(TileAnsLayout, AutomaticTile) {
  EXPECT_EQ(automatic_tile_elements(1), 4096u);
  EXPECT_EQ(automatic_tile_elements(33'554'432), 4096u);
  EXPECT_EQ(automatic_tile_elements(33'554'433), 8192u);
}

TEST(TileAnsLayout, SizesByALoop) {
  Random random(1);
  for (int run = 0; run < 3000; ++run) {
    const Layout layout{.tile_elements = 1 + random.below(70),
                        .probability_bits = 9,
                        .num_lanes = 1u << random.below(4),
                        .num_elements = 1 + random.below(400)};
    std::uint64_t tiles = 0, words = 0;
    for (std::uint64_t first = 0; first < layout.num_elements; first += layout.tile_elements, ++tiles) {
      const std::uint64_t count = std::min(layout.tile_elements, layout.num_elements - first);
      ASSERT_EQ(layout.elements_of(tiles), count);
      ASSERT_EQ(layout.first_element(tiles), first);
      ASSERT_EQ(layout.elements_of(0, tiles + 1), first + count);
      words += (count + 1) / 2;
    }
    ASSERT_EQ(layout.num_tiles(), tiles);
    ASSERT_EQ(layout.num_offsets(), tiles * layout.num_lanes + 1);
    ASSERT_EQ(layout.raw_lane_words(), words);
    ASSERT_EQ(layout.stream_of(layout.num_lanes - 1, tiles - 1), layout.num_streams() - 1);
  }
}

TEST(TileAnsLayout, LargestTensors) {
  // One element a tile, and one tile: nothing overflows.
  const Layout smallest_tiles{1, 9, 8, kMaxElements};
  EXPECT_EQ(smallest_tiles.num_streams(), kMaxElements * 8);
  EXPECT_EQ(smallest_tiles.raw_lane_words(), kMaxElements);
  TensorPlan plan;
  plan.layout = smallest_tiles;
  EXPECT_EQ(plan.stored_bytes(1), 2 + 4 * (kMaxElements * 8 + 1 + kMaxElements * 8 * 32 + 8 * 512) + 8 + 32);
  EXPECT_LT(plan.stored_bytes(kPayloadWordsLimit), std::uint64_t{1} << 63);
  const Layout largest_tiles{kMaxTileElements, 12, 1, kMaxElements};
  EXPECT_EQ(largest_tiles.num_tiles(), kMaxElements / kMaxTileElements + 1);
  EXPECT_EQ(largest_tiles.elements_of(0, largest_tiles.num_tiles()), kMaxElements);
  EXPECT_EQ(largest_tiles.raw_lane_words(), kMaxElements / kMaxTileElements * (kMaxTileElements / 2 + 1) +
                                                (kMaxElements % kMaxTileElements + 1) / 2);
}

TEST(TileAnsEntropy, PairwiseSumOfEveryLength) {
  Random random(2);
  for (std::size_t count = 0; count <= 256; ++count) {
    std::vector<double> terms;
    for (std::size_t i = 0; i < count; ++i)
      terms.push_back(std::ldexp(random.uniform() - 0.3, static_cast<int>(random.below(40))));
    ASSERT_EQ(pairwise_sum(terms), SlowTileAns::numpy_sum(terms.data(), count));
  }
}

// numpy 1.24.2: numpy.sum(1 / numpy.arange(1, n + 1)).
TEST(TileAnsEntropy, PairwiseSumsOfNumpy) {
  const std::pair<std::size_t, double> sums[] = {{1, 1.0},
                                                 {7, 2.5928571428571425},
                                                 {8, 2.7178571428571425},
                                                 {9, 2.8289682539682537},
                                                 {15, 3.3182289932289937},
                                                 {16, 3.3807289932289937},
                                                 {100, 5.187377517639621},
                                                 {127, 5.425334592589172},
                                                 {128, 5.433147092589173},
                                                 {129, 5.440899030573669},
                                                 {136, 5.493542515771517},
                                                 {200, 5.878030948121444},
                                                 {255, 6.120438712817281},
                                                 {256, 6.124344962817281}};
  for (const auto& [count, sum] : sums) {
    std::vector<double> terms;
    for (std::size_t i = 1; i <= count; ++i) terms.push_back(1.0 / static_cast<double>(i));
    EXPECT_EQ(pairwise_sum(terms), sum) << count;
  }
}

TEST(TileAnsPlan, ThresholdLeavesRoomForTheStates) {
  EXPECT_EQ(effective_threshold(7.9, 4096), 7.75);
  EXPECT_EQ(effective_threshold(7.9, 8192), 7.875);
  EXPECT_EQ(effective_threshold(7.9, 16384), 7.9);
  EXPECT_EQ(effective_threshold(7.9, 128), 0);
  EXPECT_EQ(effective_threshold(7.9, 1), -1016);
}

// Settings, histograms and estimates of all golden tensors; the last digits of the estimates depend on the
// processor that made them.
TEST(TileAnsPlan, EstimatesOfGoldenTensors) {
  int weighed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / "tile_ans")) {
    if (!std::filesystem::exists(entry.path() / "payload.u16")) continue;
    const nlohmann::json meta = nlohmann::json::parse(std::ifstream(entry.path() / "meta.json"));
    const std::vector<std::uint8_t> bytes = testing::read_bytes(entry.path() / "input.bin");
    const std::size_t num_lanes = meta.at("layout").at("num_lanes");
    std::vector<Histogram> histograms(num_lanes);
    for (std::size_t i = 0; i < bytes.size(); ++i) ++histograms[i % num_lanes][bytes[i]];
    const auto plan = plan_tensor({.tile_elements = meta.at("config").at("tile_elements"),
                                   .probability_bits = meta.at("config").at("probability_bits"),
                                   .raw_lane_threshold = meta.at("config").at("raw_lane_threshold")},
                                  histograms);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->layout.tile_elements, meta.at("layout").at("tile_elements"));
    EXPECT_EQ(plan->layout.probability_bits, meta.at("layout").at("probability_bits"));
    const std::uint64_t words = meta.at("buffer_shapes").at("payload").at(0);
    EXPECT_LE(words, plan->max_payload_words());
    EXPECT_EQ(plan->stored_bytes(words), meta.at("storage_nbytes_without_header"));
    const nlohmann::json& info = meta.at("informational");
    for (std::size_t lane = 0; lane < num_lanes; ++lane) {
      EXPECT_EQ(static_cast<int>(plan->lanes[lane].mode), meta.at("lane_modes").at(lane));
      EXPECT_NEAR(shannon_bits(histograms[lane]), info.at("lanes").at(lane).at("shannon_bits"), 1e-12);
    }
    const double threshold =
        effective_threshold(meta.at("config").at("raw_lane_threshold"), plan->layout.tile_elements);
    EXPECT_EQ(threshold, info.at("effective_threshold"));
    if (!info.contains("auto")) continue;
    const auto candidates = precision_candidates(plan->layout, threshold, histograms);
    const nlohmann::json& expected = info.at("auto").at("candidates");
    ASSERT_EQ(candidates.size(), expected.size()) << entry.path();
    for (const PrecisionCandidate& candidate : candidates) {
      const nlohmann::json& of_bits = expected.at(std::to_string(candidate.probability_bits));
      const double bytes_estimate = of_bits.at("estimated_bytes");
      EXPECT_NEAR(candidate.estimated_bytes, bytes_estimate, 1e-12 * bytes_estimate);
      for (std::size_t lane = 0; lane < num_lanes; ++lane)
        EXPECT_EQ(static_cast<int>(candidate.lanes[lane].mode), of_bits.at("lane_modes").at(lane));
      ++weighed;
    }
  }
  EXPECT_GT(weighed, 60);
}

TEST(TileAnsPlan, NoElementsAndTooMany) {
  const auto empty = plan_tensor({}, std::vector<Histogram>(2));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kEmptyUnit);
  Histogram full{};
  full[0] = kMaxElements;
  EXPECT_TRUE(plan_tensor({}, {&full, 1}));
  full[1] = 1;
  const auto too_many = plan_tensor({}, {&full, 1});
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, ErrorCode::kUnitTooLarge);
}

TEST(TileAnsPlan, HistogramsThatContradictEachOther) {
  std::vector<Histogram> histograms(2);
  histograms[0][3] = 7;
  for (const std::uint64_t other : {0, 6, 8}) {
    histograms[1][0] = other;
    const auto plan = plan_tensor({}, histograms);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, ErrorCode::kDeviceFailed);
  }
  histograms[1][0] = 7;
  EXPECT_TRUE(plan_tensor({}, histograms));
}

TEST(TileAnsPlan, RanksOfLanes) {
  TensorPlan plan;
  plan.layout = {10, 9, 4, 25};
  plan.lanes[1].mode = plan.lanes[2].mode = LaneMode::kRaw;
  EXPECT_EQ(plan.num_ans_lanes(), 2u);
  EXPECT_EQ(plan.ans_rank(0), 0u);
  EXPECT_EQ(plan.ans_rank(3), 1u);
  EXPECT_EQ(plan.max_payload_words(), 2 * 25 + 2 * (5 + 5 + 3u));
}

}  // namespace
}  // namespace weightpress::tile_ans
