// Sizes, open windows and the stream's end, against a walk over every start of a code.
#include "format/stream_layout.h"

#include <set>

#include <gtest/gtest.h>

#include "format/histogram.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

TEST(StreamLayout, AgreesWithAWalkOverTheCodes) {
  testing::Random random(19);
  for (int round = 0; round < 3'000; ++round) {
    // Code lengths that end near a border, so that all exceptions occur.
    const std::uint64_t border = kWindowBits * (1 + random.below(1'100));
    std::vector<std::uint32_t> lengths;
    std::uint64_t bits = 0;
    while (bits + 40 < border) {
      lengths.push_back(1 + static_cast<std::uint32_t>(random.below(32)));
      bits += lengths.back();
    }
    const std::uint64_t more = random.below(4);
    for (std::uint64_t i = 0; i <= more; ++i) {
      lengths.push_back(1 + static_cast<std::uint32_t>(random.below(32)));
      bits += lengths.back();
    }

    std::set<std::uint64_t> windows, chunks;
    std::uint64_t bit = 0;
    std::uint32_t previous = 0;
    for (const std::uint32_t length : lengths) {
      const bool opens = !windows.contains(bit / kWindowBits);
      ASSERT_EQ(first_open_window(bit, previous), bit / kWindowBits + !opens);
      windows.insert(bit / kWindowBits);
      chunks.insert(bit / kChunkBits);
      bit += length;
      previous = length;
    }
    const StreamLayout layout = make_stream_layout(lengths.size(), bit, previous);
    ASSERT_EQ(layout.num_bytes, (bit + 7) / 8);
    ASSERT_EQ(layout.num_chunks, (layout.num_bytes + 4095) / 4096);
    ASSERT_EQ(layout.gaps_bytes, 320 * layout.num_chunks);
    ASSERT_EQ(layout.end_opens_window, bit % 8 != 0 && !windows.contains(bit / kWindowBits));
    ASSERT_EQ(layout.end_opens_chunk, bit % 8 != 0 && !chunks.contains(bit / kChunkBits));
    ASSERT_EQ(layout.num_positions, chunks.size() + layout.end_opens_chunk + 1);
  }
}

TEST(StreamEnd, HoldsTheRestOfTheLastCodeAndTheBitsOfEof) {
  const Codebook codebook =
      make_codebook({{120, 1, 0}, {121, 2, 0b10}, {kEofSymbol, 4, 0b1101}, {119, 4, 0b1111}});
  // The last code, 1111, ends at bit 3 of a window: 111, then the first five bits of EOF and zeros: 1101 0.
  const StreamEnd end = make_stream_end(codebook, 67, 119);
  EXPECT_EQ(end.window[0], 0b11111010);
  EXPECT_EQ(end.window[1], 0);
  EXPECT_EQ(eof_padding(codebook, 2), 0b11);
  EXPECT_EQ(eof_padding(codebook, 4), 0b1101);
  EXPECT_EQ(eof_padding(codebook, 7), 0b1101000);
}

TEST(SegmentSizes, KeepTheHistogramsOfTheLargestUnitsSmall) {
  EXPECT_EQ(segment_weights_for(1), kDefaultSegmentWeights);
  EXPECT_EQ(segment_weights_for(kDefaultSegmentWeights * kMaxSegments), kDefaultSegmentWeights);
  EXPECT_LE(num_segments(kMaxUnitWeights, segment_weights_for(kMaxUnitWeights)), kMaxSegments);
}

}  // namespace
}  // namespace weightpress::df11
