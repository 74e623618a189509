// What callers of the stages count with.
#include "format/tile_ans_stages.h"

#include <gtest/gtest.h>

namespace weightpress::tile_ans {
namespace {

TEST(TileAnsStages, WordsToReadAreBounded) {
  const Layout layout{10, 9, 1, 35};
  const TileRange all{0, 4};
  const auto range = [&](LaneMode mode, std::vector<std::uint32_t> offsets, std::uint64_t payload) {
    const WordRange words = lane_words(layout, mode, all, offsets, payload);
    return std::pair(words.first, words.count);
  };
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(range(LaneMode::kAns, {5, 15, 15, 20, 25}, 25), (Pair{5, 20}));
  EXPECT_EQ(range(LaneMode::kAns, {5, 15, 15, 20, 26}, 26), (Pair{5, 15}));   // 5 elements, 6 words
  EXPECT_EQ(range(LaneMode::kAns, {5, 15, 15, 20, 25}, 24), (Pair{5, 15}));   // beyond the payload
  EXPECT_EQ(range(LaneMode::kAns, {5, 15, 14, 20, 25}, 25), (Pair{5, 10}));   // falls
  EXPECT_EQ(range(LaneMode::kAns, {99, 15, 14, 20, 25}, 25), (Pair{99, 0}));  // begins outside
  EXPECT_EQ(range(LaneMode::kRaw, {0, 5, 10, 15, 18}, 18), (Pair{0, 18}));
  EXPECT_EQ(range(LaneMode::kRaw, {0, 5, 11, 15, 18}, 18), (Pair{0, 5}));
}

TEST(TileAnsStages, OffsetsAndTheirLimit) {
  const std::vector<std::uint32_t> words = {3, 0, 0xFFFFFFFA};
  std::vector<std::uint32_t> offsets(3);
  std::uint64_t end = 2;
  ASSERT_TRUE(add_offsets(words, end, offsets));
  EXPECT_EQ(offsets, (std::vector<std::uint32_t>{5, 5, 0xFFFFFFFF}));
  EXPECT_EQ(end, 0xFFFFFFFF);
  EXPECT_TRUE(add_offsets(std::vector<std::uint32_t>(1, 0), end, std::span(offsets).first(1)));
  EXPECT_FALSE(add_offsets(std::vector<std::uint32_t>(1, 1), end, std::span(offsets).first(1)));
  end = 3;
  EXPECT_FALSE(add_offsets(words, end, offsets));
}

TEST(TileAnsStages, CapacityIsTheWorstCase) {
  TensorPlan plan;
  plan.layout = {5, 9, 2, 23};
  plan.lanes[0].mode = LaneMode::kRaw;
  EXPECT_EQ(lane_words_capacity(plan, 0, {0, 5}), plan.layout.raw_lane_words());
  EXPECT_EQ(lane_words_capacity(plan, 0, {3, 2}), 3 + 2u);
  EXPECT_EQ(lane_words_capacity(plan, 0, {1, 1}), 3u);
  EXPECT_EQ(lane_words_capacity(plan, 1, {0, 5}), 23u);
  EXPECT_EQ(lane_words_capacity(plan, 1, {3, 2}), 8u);
}

}  // namespace
}  // namespace weightpress::tile_ans
