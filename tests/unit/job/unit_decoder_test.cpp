// Reading units back: against the slow decoder, in slabs of all sizes, on every length of the stream's end.
#include "job/unit_decoder.h"

#include <gtest/gtest.h>

#include "support/plain_encoder.h"
#include "support/stored_units.h"

namespace weightpress::job {
namespace {

using testing::decodes_as_the_referee;

TEST(UnitDecoder, AllKindsOfWeightsInSlabsOfAllSizes) {
  const std::vector<std::vector<std::uint16_t>> data = {
      testing::normal_weights(200'001, 1),
      testing::uniform_exponents(100'001, 10, 200, 2),
      testing::uniform_exponents(50'000, 100, 2, 3),
      testing::mostly_zero(150'000, 20, 30, 4),
      testing::weights_of_histogram(testing::fibonacci_histogram(24, 90), 5),  // codes up to 24 bits
      std::vector<std::uint16_t>(100'000, 0x3C00),
  };
  for (const auto& weights : data) {
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_TRUE(decodes_as_the_referee(unit, weights));
    for (const std::uint64_t slab_chunks : {1u, 2u, 3u, 256u}) {
      for (const int threads : {1, 3}) {
        std::vector<std::uint16_t> decoded;
        ASSERT_FALSE(testing::UnitInMemory(unit, slab_chunks, threads).decode(decoded)) << slab_chunks;
        ASSERT_EQ(decoded, weights) << slab_chunks;
      }
    }
    EXPECT_EQ(decompress_df11_unit(view_of(unit), 2), weights);
  }
}

TEST(UnitDecoder, EveryNumberOfWeightsAroundTheBorders) {
  const std::vector<std::uint16_t> all = testing::normal_weights(25'000, 7);
  const auto check = [&](std::size_t count) {
    const std::span<const std::uint16_t> weights = std::span(all).first(count);
    ASSERT_TRUE(decodes_as_the_referee(compress_df11_unit(weights), weights, 1)) << count;
  };
  for (std::size_t count = 1; count <= 1'000; ++count) check(count);
  for (std::size_t count = 12'200; count <= 12'500; ++count) check(count);  // around 32,768 bits
}

TEST(UnitDecoder, EveryNumberOfBitsAndTheBordersWithCodesOfAllLengthsAtTheEnd) {
  const testing::PlainCode code = testing::code_of_all_lengths();
  testing::Random random(41);
  const auto check = [&](std::uint64_t bits, unsigned last) {
    if (last > bits) return;
    const auto weights = testing::weights_of_bits(bits, last, bits > 2'500, random);
    const Df11Unit unit = testing::encode_plainly(code, weights, testing::PlainFill::kRepeat);
    ASSERT_TRUE(decodes_as_the_referee(unit, weights, 1 + bits % 2)) << bits << " bits, the last " << last;
  };
  for (std::uint64_t bits = 1; bits <= 2'500; ++bits)
    for (const unsigned last : {1u, 7u, 32u}) check(bits, last);
  for (const std::uint64_t border : {32'768u, 65'536u})
    for (std::uint64_t bits = border - 70; bits <= border + 70; ++bits)
      for (const unsigned last : {1u, 2u, 4u, 7u, 11u, 16u, 25u, 32u}) check(bits, last);
}

TEST(UnitDecoder, FiveHundredRandomUnitsAgainstTheSlowDecoder) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    testing::Random random(seed);
    const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random.below(bound)); };
    const std::size_t count = 1 + random.below(seed % 10 < 2 ? 60'000 : 6'000);
    std::vector<std::uint16_t> weights;
    switch (seed % 5) {
      case 0:
        weights = testing::normal_weights(count, seed);
        break;
      case 1:
        weights = testing::uniform_exponents(count, below(40), 1 + below(200), seed);
        break;
      case 2:
        weights = testing::mostly_zero(count, 1 + random.below(30), 1 + below(60), seed);
        break;
      case 3:
        weights = testing::weights_of_histogram(testing::fibonacci_histogram(2 + below(19), 50), seed);
        break;
      default:
        weights.assign(count, static_cast<std::uint16_t>(random.below(0x7800)));
    }
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_TRUE(decodes_as_the_referee(unit, weights, 1 + seed % 4, 1 + static_cast<int>(seed % 3)))
        << "seed " << seed;
  }
}

TEST(UnitDecoder, GoldenUnits) {
  for (const std::string& name : testing::golden_units()) {
    const bool hangs = name.starts_with("official_tables_hang_kernel");
    const std::vector<std::uint16_t> weights = testing::golden_weights(name);
    const Df11Unit official = testing::golden_unit(name), safe = testing::golden_unit(name, "luts_safe.u8");
    ASSERT_TRUE(decodes_as_the_referee(official, weights)) << name;
    ASSERT_TRUE(decodes_as_the_referee(safe, weights)) << name;
    const auto kernel_ends = [&](const Df11Unit& unit) {
      testing::UnitInMemory memory(unit);
      EXPECT_FALSE(memory.decoder().check_lengths()) << name;
      return memory.decoder().kernel_ends();
    };
    EXPECT_EQ(kernel_ends(official), !hangs) << name;
    EXPECT_TRUE(kernel_ends(safe)) << name;
  }
}

}  // namespace
}  // namespace weightpress::job
