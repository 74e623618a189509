// Reciprocals over all frequencies, frequencies against a search for the best symbol, and stored tables with
// one fault at a time.
#include "format/tile_ans_tables.h"

#include <numeric>

#include <gtest/gtest.h>

#include "format/tile_ans_reciprocal.h"
#include "support/tile_ans_slow_model.h"
#include "support/weights.h"

namespace weightpress::tile_ans {
namespace {

using testing::Random;
using testing::SlowTileAns;

// A quotient can only be wrong beside a multiple of f: the error of the product grows with x, so the last
// multiples are the critical ones; and first ones, and powers of two, where rounding of the multiplier is
// largest.
TEST(TileAnsReciprocal, EveryFrequencyAtCriticalAndRandomStates) {
  Random random(1);
  for (std::uint32_t f = 1; f <= kMaxTableSize; ++f) {
    const Reciprocal reciprocal = reciprocal_of(f);
    ASSERT_GE(reciprocal.shift, 31u);
    ASSERT_LE(reciprocal.shift, 43u);
    const auto check = [&](std::uint64_t x) {
      if (x >= (std::uint64_t{1} << 31)) return;
      const std::uint32_t state = static_cast<std::uint32_t>(x);
      ASSERT_EQ(reciprocal.divide(state), state / f) << state << " / " << f;
    };
    const std::uint64_t last = ((std::uint64_t{1} << 31) - 1) / f;
    for (std::uint64_t k = 0; k < 64; ++k) {
      for (const std::uint64_t quotient : {k, last - std::min(k, last), last / 2 + k}) {
        check(quotient * f);
        check(quotient * f + f - 1);
        check(quotient * f + 1);
      }
      if (k < 32) {
        check((std::uint64_t{1} << k) - 1);
        check(std::uint64_t{1} << k);
        check((std::uint64_t{1} << k) / f * f);
        check((std::uint64_t{1} << k) / f * f + f - 1);
      }
      check(random.next() >> 33);
    }
    check((std::uint64_t{1} << 31) - 1);
  }
}

Histogram random_histogram(Random& random) {
  Histogram histogram{};
  const std::uint64_t symbols = 1 + random.below(random.below(4) == 0 ? 256 : 12);
  const std::uint64_t kind = random.below(4);
  for (std::uint64_t i = 0; i < symbols; ++i) {
    std::uint64_t count = 1 + random.below(1000);
    if (kind == 1) count = 1 + (random.next() >> random.below(64)) % (std::uint64_t{1} << 40);
    if (kind == 2) count = 1;
    if (kind == 3) count = i == 0 ? 1 + random.below(100'000) : 1 + random.below(2);
    histogram[random.below(256)] = count;
  }
  return histogram;
}

TEST(TileAnsFrequencies, LikeASearchForTheBestSymbol) {
  Random random(2);
  for (int run = 0; run < 400; ++run) {
    const Histogram histogram = random_histogram(random);
    SlowTileAns::Counts counts(histogram.begin(), histogram.end());
    for (std::uint32_t bits = kMinProbabilityBits; bits <= kMaxProbabilityBits; ++bits) {
      const Frequencies frequencies = normalise(histogram, bits);
      const SlowTileAns::Frequencies expected = SlowTileAns::normalise(counts, static_cast<int>(bits));
      std::uint32_t sum = 0;
      for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
        ASSERT_EQ(frequencies[symbol], expected[symbol]) << "run " << run << ", bits " << bits;
        ASSERT_EQ(frequencies[symbol] > 0, histogram[symbol] > 0);
        sum += frequencies[symbol];
      }
      ASSERT_EQ(sum, 1u << bits);
    }
  }
}

TEST(TileAnsFrequencies, OneSymbolHasTheWholeTable) {
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{3}, kMaxElements}) {
    for (std::uint32_t bits = kMinProbabilityBits; bits <= kMaxProbabilityBits; ++bits) {
      Histogram histogram{};
      histogram[255] = count;
      EXPECT_EQ(normalise(histogram, bits)[255], 1u << bits);
    }
  }
}

std::vector<std::uint32_t> table_of(const Frequencies& frequencies, std::uint32_t bits) {
  std::vector<std::uint32_t> table(std::size_t{1} << bits);
  write_decode_table(frequencies, table);
  return table;
}

TEST(TileAnsTables, DecodeTableByHand) {
  Frequencies frequencies{};
  frequencies[3] = 500;
  frequencies[200] = 12;
  const std::vector<std::uint32_t> table = table_of(frequencies, 9);
  EXPECT_EQ(table[0], 500u << 8 | 3);
  EXPECT_EQ(table[499], 500u << 8 | 3);
  EXPECT_EQ(table[500], 500u << 20 | 12u << 8 | 200);
  EXPECT_EQ(table[511], 500u << 20 | 12u << 8 | 200);

  frequencies = {};
  frequencies[7] = 4096;
  for (const std::uint32_t entry : table_of(frequencies, 12)) ASSERT_EQ(entry, 7u);
  frequencies[7] = 2048;
  for (const std::uint32_t entry : table_of(frequencies, 11)) ASSERT_EQ(entry, 2048u << 8 | 7);
}

TEST(TileAnsTables, AreReadBack) {
  Random random(3);
  for (int run = 0; run < 200; ++run) {
    const Histogram histogram = random_histogram(random);
    for (std::uint32_t bits = kMinProbabilityBits; bits <= kMaxProbabilityBits; ++bits) {
      const Frequencies frequencies = normalise(histogram, bits);
      ASSERT_EQ(read_decode_table(table_of(frequencies, bits)), frequencies);
    }
  }
}

// Tables of one symbol, of two and of many; every bit of every entry of the small ones. Only the symbol of a
// frequency of 1 can be changed to another one: that is a good table.
TEST(TileAnsTables, EveryFlippedBitIsFound) {
  Random random(4);
  Histogram one{}, two{}, many{};
  one[9] = 1;
  two[0] = 511;
  two[255] = 1;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; symbol += 1 + symbol % 3) many[symbol] = 1 + symbol;
  for (const Histogram& histogram : {one, two, many}) {
    for (const std::uint32_t bits : {9u, 12u}) {
      std::vector<std::uint32_t> table = table_of(normalise(histogram, bits), bits);
      for (std::size_t slot = 0; slot < table.size(); slot += bits == 9 ? 1 : 1 + random.below(50)) {
        for (std::uint32_t bit = 0; bit < 32; ++bit) {
          table[slot] ^= 1u << bit;
          if (const auto read = read_decode_table(table)) {
            ASSERT_LT(bit, 8u);
            ASSERT_EQ((*read)[table[slot] & 0xFF], 1);
            ASSERT_EQ(table_of(*read, bits), table);
          }
          table[slot] ^= 1u << bit;
        }
      }
      ASSERT_TRUE(read_decode_table(table));
    }
  }
}

TEST(TileAnsTables, WhatIsNoTable) {
  EXPECT_FALSE(read_decode_table(std::vector<std::uint32_t>(512, 0)));  // frequency 4096
  EXPECT_FALSE(read_decode_table(std::vector<std::uint32_t>(512, 0xFFFFFFFF)));
  // Runs that fit each other, but symbols descend, or one comes twice.
  std::vector<std::uint32_t> table(512);
  for (const auto& [low, high] : {std::pair(200u, 3u), std::pair(3u, 3u)}) {
    for (std::uint32_t slot = 0; slot < 512; ++slot)
      table[slot] = slot < 256 ? 256u << 8 | low : 256u << 20 | 256u << 8 | high;
    EXPECT_FALSE(read_decode_table(table));
  }
}

TEST(TileAnsTables, EncodeEntriesCodeAsTheRuleSays) {
  Random random(5);
  for (int run = 0; run < 50; ++run) {
    const Histogram histogram = random_histogram(random);
    for (std::uint32_t bits = kMinProbabilityBits; bits <= kMaxProbabilityBits; ++bits) {
      const Frequencies frequencies = normalise(histogram, bits);
      const EncodeTable table = make_encode_table(frequencies, bits);
      std::uint32_t start = 0;
      for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
        const EncodeEntry& entry = table[symbol];
        const std::uint32_t f = frequencies[symbol];
        ASSERT_EQ((entry.shift & EncodeEntry::kAbsent) != 0, f == 0);
        if (f == 0) continue;
        ASSERT_EQ(entry.renormalise_from, std::uint64_t{f} << (31 - bits));
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t x = static_cast<std::uint32_t>(random.below(entry.renormalise_from));
          const std::uint32_t quotient =
              static_cast<std::uint32_t>((std::uint64_t{x} * entry.multiplier) >> (entry.shift & 63));
          ASSERT_EQ(x + quotient * entry.complement + entry.start, x / f * (1u << bits) + x % f + start);
        }
        start += f;
      }
    }
  }
}

}  // namespace
}  // namespace weightpress::tile_ans
