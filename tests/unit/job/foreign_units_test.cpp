// Units that our encoder would not make: other codes, other fills, other ends of output_positions; and the
// public call on sizes that do not fit.
#include <gtest/gtest.h>

#include "support/plain_encoder.h"
#include "support/stored_units.h"

namespace weightpress::job {
namespace {

using testing::decodes_as_the_referee;
using testing::PlainCode;
using testing::PlainFill;
using testing::PlainPositions;
using testing::UnitInMemory;

TEST(ForeignUnits, RandomCodesWithUpTo17Tables) {
  testing::Random random(31);
  std::size_t most_tables = 0, longest = 0;
  int never_ending = 0, incomplete = 0;
  for (int round = 0; round < 600; ++round) {
    const std::size_t max_codes = std::array<std::size_t, 4>{3, 20, 100, 220}[random.below(4)];
    const std::uint64_t drop = random.below(3) == 0 ? 4 : 0;
    const PlainCode code = testing::random_code(random, max_codes, random.below(3) * 110, drop);
    incomplete += drop != 0;
    const auto weights = testing::weights_of_code(
        code, 1 + random.below(std::uint64_t{1} << random.below(15)), random.below(2) == 0, random);
    const auto fill = static_cast<PlainFill>(random.below(3));
    const Df11Unit unit = testing::encode_plainly(code, weights, fill, PlainPositions::kOfficial,
                                                  static_cast<std::uint8_t>(random.next()));
    ASSERT_TRUE(decodes_as_the_referee(unit, weights, 1 + random.below(3), 1)) << round;
    most_tables = std::max(most_tables, unit.luts.size() / 256 - 1);
    longest = std::max<std::size_t>(longest, *std::ranges::max_element(code.lengths));
    UnitInMemory memory(unit);
    EXPECT_FALSE(memory.decoder().check_lengths());
    never_ending += !memory.decoder().kernel_ends();
  }
  // The generators reach what they are for.
  EXPECT_EQ(most_tables, 17u);
  EXPECT_EQ(longest, 32u);
  EXPECT_GT(never_ending, 20);
  EXPECT_GT(incomplete, 100);
}

TEST(ForeignUnits, OneCodeOfAnyLength) {
  testing::Random random(32);
  for (unsigned length = 1; length <= 32; ++length) {
    for (const PlainFill fill : {PlainFill::kZero, PlainFill::kRepeat}) {
      PlainCode code;
      code.add(239, length, static_cast<std::uint32_t>(random.next()) >> (32 - length));
      for (const std::size_t count : {1u, 2u, 63u, 64u, 65u, 5'000u}) {
        const auto weights = testing::weights_of_code(code, count, false, random);
        ASSERT_TRUE(decodes_as_the_referee(testing::encode_plainly(code, weights, fill), weights))
            << length << " bits, " << count;
      }
    }
  }
}

/// Units whose last chunk holds nothing but the end of the last code: `beyond` bits of it.
TEST(ForeignUnits, OutputPositionsOfALastChunkWithoutAStart) {
  testing::Random random(33);
  const PlainCode code = testing::code_of_all_lengths();
  for (const std::uint64_t chunks : {1u, 2u, 3u}) {
    for (unsigned beyond = 1; beyond <= 31; ++beyond) {
      const auto weights = testing::weights_of_bits(chunks * 32'768 + beyond, 32, true, random);
      for (const PlainPositions ending :
           {PlainPositions::kOfficial, PlainPositions::kLong, PlainPositions::kShort}) {
        const Df11Unit unit = testing::encode_plainly(code, weights, PlainFill::kRepeat, ending);
        const bool is_long =
            ending == PlainPositions::kLong || (ending == PlainPositions::kOfficial && beyond % 8 != 0);
        ASSERT_EQ(unit.output_positions.size() / 4, chunks + 1 + is_long);
        for (const std::uint64_t slab_chunks : {1u, 2u, 256u}) {
          std::vector<std::uint16_t> decoded;
          const auto fault = UnitInMemory(unit, slab_chunks, 2).decode(decoded);
          ASSERT_FALSE(fault) << fault->message;
          ASSERT_EQ(decoded, weights);
        }
        if (ending == PlainPositions::kOfficial) {
          ASSERT_TRUE(decodes_as_the_referee(unit, weights));
        }
        EXPECT_EQ(decompress_df11_unit(view_of(unit)), weights);
      }
    }
  }
}

/// The same units, of which the gap of the last window must be right.
TEST(ForeignUnits, TheGapOfALastChunkWithoutAStart) {
  testing::Random random(34);
  const PlainCode code = testing::code_of_all_lengths();
  for (unsigned beyond = 1; beyond <= 31; ++beyond) {
    const auto weights = testing::weights_of_bits(32'768 + beyond, 32, true, random);
    const Df11Unit unit = testing::encode_plainly(code, weights, PlainFill::kRepeat, PlainPositions::kLong);
    const unsigned right = beyond % 8 == 0 ? 0 : beyond;
    ASSERT_EQ(testing::gap_of(unit, 512), right);
    for (unsigned gap = 0; gap < 32; ++gap) {
      Df11Unit changed = unit;
      testing::set_gap(changed, 512, gap);
      const auto fault = UnitInMemory(changed, 1).decoder().check_lengths();
      ASSERT_EQ(fault.has_value(), gap != right) << beyond << ' ' << gap;
      if (!fault) continue;
      EXPECT_EQ(fault->kind, "gap") << fault->message;
      EXPECT_EQ(fault->window, 512u) << fault->message;
    }
  }
}

TEST(ForeignUnits, StreamsOfTheWrongLength) {
  testing::Random random(35);
  const PlainCode code = testing::code_of_all_lengths();
  for (std::uint64_t bits :
       {1u, 8u, 63u, 64u, 65u, 128u, 500u, 32'760u, 32'768u, 32'770u, 32'800u, 40'000u}) {
    const auto weights = testing::weights_of_bits(bits, 1, bits > 1000, random);
    const Df11Unit unit = testing::encode_plainly(code, weights);
    for (const int more : {-5, -2, -1, 1, 2, 4, 5, 8, 9, 100}) {
      Df11Unit changed = unit;
      const auto size = static_cast<std::int64_t>(unit.encoded_exponent.size()) + more;
      if (size <= 0) continue;
      changed.encoded_exponent.resize(static_cast<std::size_t>(size));
      const std::size_t chunks = static_cast<std::size_t>(size + 4095) / 4096;
      changed.gaps.resize(chunks * 320);
      while (changed.output_positions.size() / 4 < chunks + 1)
        changed.output_positions.insert(changed.output_positions.end(), unit.output_positions.end() - 4,
                                        unit.output_positions.end());
      if (changed.output_positions.size() / 4 > chunks + 1)
        changed.output_positions.erase(changed.output_positions.end() - 8,
                                       changed.output_positions.end() - 4);
      const auto fault = UnitInMemory(changed, 1).decoder().check_lengths();
      ASSERT_TRUE(fault) << bits << ' ' << more;
      EXPECT_FALSE(fault->message.empty());
    }
  }
}

/// Zeros are no code here, so empty windows would never end; where the last chunk is full there are none.
TEST(ForeignUnits, TheKernelEndsWhereNoWindowIsEmpty) {
  PlainCode code;
  code.add(101, 1, 1);
  code.add(104, 4, 0b0001);
  for (const std::uint64_t chunks : {1u, 2u}) {
    for (std::uint64_t bits = chunks * 32'768 - 70; bits <= chunks * 32'768; ++bits) {
      // Codes of 4 bits, then of 1 bit, the last four bits too.
      std::vector<std::uint16_t> weights(bits / 4 - 1, 104 << 7);
      weights.insert(weights.end(), 4 + bits % 4, 101 << 7);
      const Df11Unit unit = testing::encode_plainly(code, weights, PlainFill::kZero);
      ASSERT_TRUE(decodes_as_the_referee(unit, weights)) << bits;
      UnitInMemory memory(unit);
      ASSERT_FALSE(memory.decoder().check_lengths());
      EXPECT_EQ(memory.decoder().kernel_ends(), bits == chunks * 32'768) << bits;
    }
  }
}

ErrorDetails refusal(const Df11Unit& unit) {
  try {
    decompress_df11_unit(view_of(unit));
  } catch (const Error& error) {
    return error.details();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(ForeignUnits, ThePublicCallRefusesSizesThatDoNotFit) {
  const Df11Unit unit = compress_df11_unit(testing::normal_weights(20'000, 36));
  using Buffer = std::vector<std::uint8_t> Df11Unit::*;
  const auto with_size = [&](Buffer buffer, std::size_t size) {
    Df11Unit changed = unit;
    (changed.*buffer).resize(size);
    return refusal(changed);
  };
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{256}, unit.luts.size() - 1, unit.luts.size() + 1})
    EXPECT_EQ(with_size(&Df11Unit::luts, size).code, ErrorCode::kCorruptFile) << size;
  for (const std::size_t size : {std::size_t{0}, unit.encoded_exponent.size() - 1,
                                 unit.encoded_exponent.size() + 1, std::size_t{100'000}})
    EXPECT_EQ(with_size(&Df11Unit::encoded_exponent, size).code, ErrorCode::kCorruptFile) << size;
  for (const std::size_t size :
       {std::size_t{0}, unit.sign_mantissa.size() - 1, unit.sign_mantissa.size() + 1})
    EXPECT_EQ(with_size(&Df11Unit::sign_mantissa, size).code, ErrorCode::kCorruptFile) << size;
  for (std::size_t size = 0; size < unit.output_positions.size() + 5; ++size)
    if (size != unit.output_positions.size()) {
      EXPECT_EQ(with_size(&Df11Unit::output_positions, size).code, ErrorCode::kCorruptFile) << size;
    }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{320}, unit.gaps.size() - 1, unit.gaps.size() + 320})
    EXPECT_EQ(with_size(&Df11Unit::gaps, size).code, ErrorCode::kCorruptFile) << size;
}

TEST(ForeignUnits, ThePublicCallNamesThePlace) {
  Df11Unit unit = compress_df11_unit(testing::normal_weights(20'000, 37));
  testing::set_gap(unit, 600, testing::gap_of(unit, 600) ^ 3);
  const ErrorDetails error = refusal(unit);
  EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
  EXPECT_NE(error.message.find("gaps: window 600 (chunk 1)"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace weightpress::job
