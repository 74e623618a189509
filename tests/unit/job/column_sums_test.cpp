// Sums of bytes by place, against a plain loop.
#include "job/column_sums.h"

#include <vector>

#include <gtest/gtest.h>

#include "support/weights.h"

namespace weightpress::job {
namespace {

ColumnSums plain_sums(std::span<const std::uint8_t> bytes) {
  ColumnSums sums{};
  for (std::size_t i = 0; i < bytes.size(); ++i) sums[i % 8] += bytes[i];
  return sums;
}

/// Mostly of the largest bytes, which fill the sums of the inner loop up.
std::vector<std::uint8_t> random_bytes(testing::Random& random, std::size_t count) {
  std::vector<std::uint8_t> bytes(count, 0xFF);
  for (std::uint8_t& byte : bytes)
    if (random.below(4) == 0) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

TEST(ColumnSums, OfAllSizes) {
  testing::Random random(1);
  const std::vector<std::uint8_t> bytes = random_bytes(random, 5'008);
  for (std::size_t size = 0; size <= 5'000; size += size < 2'000 ? 1 : 13) {
    const auto part = std::span(bytes).subspan(size % 8, size);
    ASSERT_EQ(sum_columns(part, 1), plain_sums(part)) << size;
  }
  const std::vector<std::uint8_t> full(4'100, 0xFF);  // more than a round of words
  EXPECT_EQ(sum_columns(full, 1), plain_sums(full));
}

TEST(ColumnSums, OnAnyNumberOfThreads) {
  testing::Random random(2);
  constexpr std::size_t kPiece = std::size_t{256} << 10;
  for (const std::size_t size :
       {kPiece - 1, kPiece, kPiece + 1, 2 * kPiece, 4 * kPiece + 3, 9 * kPiece + 7}) {
    const std::vector<std::uint8_t> bytes = random_bytes(random, size);
    const ColumnSums expected = plain_sums(bytes);
    for (const int threads : {1, 2, 3, 16}) EXPECT_EQ(sum_columns(bytes, threads), expected) << size;
  }
}

TEST(ColumnSums, OfLanesAndElements) {
  testing::Random random(3);
  for (const std::uint32_t num_lanes : {1u, 2u, 4u, 8u}) {
    for (std::size_t count = 0; count < 300; ++count) {
      const std::vector<std::uint8_t> bytes = random_bytes(random, count * num_lanes);
      const ColumnSums sums = sum_columns(bytes, 2);
      std::uint64_t elements = 0;
      std::vector<std::uint64_t> lanes(num_lanes);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        lanes[i % num_lanes] += bytes[i];
        elements += std::uint64_t{bytes[i]} << (8 * (i % num_lanes));  // modulo 2^64
      }
      for (std::uint32_t lane = 0; lane < num_lanes; ++lane)
        ASSERT_EQ(lane_sum(sums, num_lanes, lane), lanes[lane]);
      ASSERT_EQ(element_sum(sums, num_lanes), elements);
    }
  }
}

}  // namespace
}  // namespace weightpress::job
