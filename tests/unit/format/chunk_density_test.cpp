// The bound against chunks counted bit by bit: never below, and below the limit where short codes are few.
#include "format/chunk_density.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "support/weights.h"

namespace weightpress::df11 {
namespace {

using Words = std::vector<std::uint16_t>;

std::vector<SegmentHistogram> count(const Words& weights, std::size_t segment_weights) {
  std::vector<SegmentHistogram> segments((weights.size() + segment_weights - 1) / segment_weights);
  for (std::size_t i = 0; i < weights.size(); ++i) ++segments[i / segment_weights][exponent_of(weights[i])];
  return segments;
}

std::uint64_t densest_chunk(const Words& weights, const Codebook& codebook) {
  std::vector<std::uint64_t> chunks(1);
  std::uint64_t bit = 0;
  for (const std::uint16_t weight : weights) {
    chunks.resize(bit / kChunkBits + 1);
    ++chunks.back();
    bit += codebook.lengths[exponent_of(weight)];
  }
  return *std::ranges::max_element(chunks);
}

TEST(ChunkDensity, IsNeverBelowTheDensestChunk) {
  std::vector<Words> units = {testing::normal_weights(150'000, 1),
                              testing::uniform_exponents(90'000, 10, 40, 2),
                              Words(100'000, 0),
                              testing::mostly_zero(200'000, 9, 20, 3),
                              testing::mostly_zero(200'000, 300, 20, 4),
                              Words(1, 0x3C00),
                              testing::weights_of_histogram(testing::fibonacci_histogram(20, 100), 5)};
  Words two_halves = testing::normal_weights(100'000, 6);  // ones that are dense lie together
  two_halves.insert(two_halves.end(), 60'000, 0);
  units.push_back(two_halves);
  for (const Words& weights : units) {
    const Codebook codebook = build_official_codebook(sum_histograms(count(weights, 1'000)));
    // Segments of one weight: many of them to a chunk, and the time still grows with the unit alone.
    for (const std::size_t segment_weights : {1u, 7u, 1'000u, 4'096u, 65'536u}) {
      const auto segments = count(weights, segment_weights);
      const std::uint64_t densest = densest_chunk(weights, codebook);
      EXPECT_GE(densest_chunk_bound(segments, codebook), densest) << weights.size() << " " << segment_weights;
    }
  }
}

TEST(ChunkDensity, RulesOutWhatCannotBeDense) {
  const auto bound = [](const Words& weights, std::size_t segment_weights) {
    const auto segments = count(weights, segment_weights);
    return densest_chunk_bound(segments, build_official_codebook(sum_histograms(segments)));
  };
  EXPECT_EQ(bound(Words(20'000, 0), 65'536), 20'000u);
  EXPECT_LT(bound(testing::normal_weights(1'000'000, 1), 65'536), kMaxChunkWeights);
  // Half of the weights have a 1-bit code, evenly among the others: segments shorter than a chunk tell.
  Words half = testing::uniform_exponents(400'000, 10, 64, 2);
  for (std::size_t i = 0; i < half.size(); i += 2) half[i] = 0;
  EXPECT_GT(bound(half, 65'536), kMaxChunkWeights);
  EXPECT_LT(bound(half, 1'024), kMaxChunkWeights);
}

}  // namespace
}  // namespace weightpress::df11
