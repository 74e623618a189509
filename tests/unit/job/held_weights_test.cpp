// Memory that units' weights are held in: what is taken lies apart, and never more than there is.
#include "job/held_weights.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "job/process_memory.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

bool is_aligned(std::span<const std::uint16_t> weights) {
  return reinterpret_cast<std::uintptr_t>(weights.data()) % 64 == 0;
}

TEST(HeldWeights, NothingGivesNothing) {
  HeldWeights held(0);
  for (const std::uint64_t weights :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    EXPECT_TRUE(held.take(weights).empty());
  held.clear();
  EXPECT_TRUE(held.take(1).empty());
}

TEST(HeldWeights, NoMoreThanThereIs) {
  for (const std::uint64_t capacity : {1u, 2u, 3u, 63u, 64u, 65u, 4'096u, 4'097u, 1'000'000u}) {
    SCOPED_TRACE(capacity);
    HeldWeights held(capacity);
    EXPECT_TRUE(held.take(capacity / 2 + 1).empty());
    EXPECT_TRUE(held.take((std::uint64_t{1} << 63) + 1).empty());  // twice that is 2
    EXPECT_TRUE(held.take(~std::uint64_t{0}).empty());
    const auto all = held.take(capacity / 2);  // what was refused took nothing
    EXPECT_EQ(all.size(), capacity / 2);
    std::ranges::fill(all, std::uint16_t{0xABCD});
    EXPECT_TRUE(held.take(1).empty() || capacity % 2 != 0);
    EXPECT_TRUE(held.take(0).empty());
  }
}

TEST(HeldWeights, OddCapacitiesDoNotWrapAround) {
  for (std::uint64_t capacity = 1; capacity <= 300; ++capacity) {
    HeldWeights held(capacity);
    std::uint64_t taken = 0;
    for (int i = 0; i < 400; ++i) taken += held.take(1).size();
    EXPECT_LE(2 * taken, capacity);
    EXPECT_EQ(taken, capacity / 64 + (capacity % 64 >= 2)) << capacity;
  }
}

TEST(HeldWeights, PiecesLieApartAndAligned) {
  testing::Random random(5);
  constexpr std::uint64_t kCapacity = 1 << 20;
  HeldWeights held(kCapacity);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::span<std::uint16_t>> pieces;
    std::uint64_t used = 0;
    while (true) {
      const std::uint64_t wanted = 1 + random.below(20'000);
      const auto piece = held.take(wanted);
      if (piece.empty()) {
        EXPECT_GT(used + 2 * wanted, kCapacity);
        break;
      }
      ASSERT_EQ(piece.size(), wanted);
      EXPECT_TRUE(is_aligned(piece));
      used += (2 * wanted + 63) / 64 * 64;
      std::ranges::fill(piece, static_cast<std::uint16_t>(pieces.size()));
      pieces.push_back(piece);
    }
    EXPECT_GT(pieces.size(), 20u);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_TRUE(std::ranges::all_of(pieces[i], [&](std::uint16_t word) { return word == i; }));
    }
    const auto* const begin = pieces[0].data();
    held.clear();
    const auto again = held.take(kCapacity / 2);
    EXPECT_EQ(again.size(), kCapacity / 2);
    EXPECT_EQ(again.data(), begin);
    held.clear();
  }
}

TEST(HeldWeights, IsNotResidentBeforeItIsUsed) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::uint64_t before = resident_memory_bytes();
  if (before == 0) GTEST_SKIP() << "the system does not tell what is resident";
  HeldWeights held(256 * kMiB);
  EXPECT_FALSE(held.take(64 * kMiB).empty());
  EXPECT_LT(resident_memory_bytes(), before + 16 * kMiB);
}

TEST(HeldWeights, MoreThanAddressesIsBadAlloc) {
  EXPECT_THROW(HeldWeights(std::uint64_t{1} << 62), std::bad_alloc);
  EXPECT_THROW(HeldWeights(~std::uint64_t{0}), std::bad_alloc);
}

}  // namespace
}  // namespace weightpress::job
