// Orders of blocks are permutations.
#include "ptxvm/block_order.h"

#include <set>

#include <gtest/gtest.h>

namespace weightpress::ptxvm {
namespace {

TEST(BlockOrder, GivesEveryNumberOnce) {
  for (std::uint64_t count = 1; count <= 300; ++count) {
    for (std::uint64_t seed = 0; seed <= 20; ++seed) {
      const BlockOrder order(count, seed);
      std::set<std::uint64_t> numbers;
      for (std::uint64_t place = 0; place < count; ++place) numbers.insert(order.at(place));
      ASSERT_EQ(numbers.size(), count) << "seed " << seed;
      ASSERT_EQ(*numbers.rbegin(), count - 1) << "seed " << seed;
    }
  }
}

TEST(BlockOrder, WithoutASeedAscends) {
  const BlockOrder order(1000, 0);
  for (std::uint64_t place = 0; place < 1000; ++place) ASSERT_EQ(order.at(place), place);
}

TEST(BlockOrder, DiffersBySeed) {
  EXPECT_NE(BlockOrder(1000, 1).at(0), BlockOrder(1000, 2).at(0));
}

}  // namespace
}  // namespace weightpress::ptxvm
