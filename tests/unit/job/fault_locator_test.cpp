// Where faults are said to be: each buffer damaged at a known place, with the source and without.
#include "job/fault_locator.h"

#include <gtest/gtest.h>

#include "format/luts_view.h"
#include "support/plain_encoder.h"
#include "support/stored_units.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

using testing::UnitInMemory;

constexpr std::uint64_t kNowhere = UnitFault::kNowhere;

/// About six chunks of weights as models have them.
class FaultLocator : public ::testing::Test {
 protected:
  std::optional<UnitFault> with_source(const Df11Unit& unit) {
    MemorySource source(weights_);
    return UnitInMemory(unit, 1 + random_.below(8)).decoder().compare(source);
  }
  std::optional<UnitFault> without_source(const Df11Unit& unit) {
    return UnitInMemory(unit, 1 + random_.below(8)).decoder().check_lengths();
  }

  std::uint64_t window_of(std::uint64_t weight) const { return starts_[weight] / 64; }

  const std::vector<std::uint16_t> weights_ = testing::normal_weights(75'000, 41);
  const Df11Unit unit_ = compress_df11_unit(weights_);
  const std::vector<std::uint64_t> starts_ = testing::code_starts(unit_, weights_);
  const std::uint64_t num_chunks_ = unit_.gaps.size() / 320;
  const std::uint64_t num_windows_ = (unit_.encoded_exponent.size() + 7) / 8;
  testing::Random random_{42};
};

TEST_F(FaultLocator, NothingIsWrongWithTheUnit) {
  EXPECT_FALSE(with_source(unit_));
  EXPECT_FALSE(without_source(unit_));
  ASSERT_GE(num_chunks_, 6u);
}

TEST_F(FaultLocator, SignMantissaIsTheWeightAtFault) {
  for (int round = 0; round < 100; ++round) {
    Df11Unit unit = unit_;
    const std::uint64_t weight = random_.below(weights_.size());
    unit.sign_mantissa[weight] =
        static_cast<std::uint8_t>(unit.sign_mantissa[weight] ^ 1u << random_.below(8));
    const auto fault = with_source(unit);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->kind, "weight");
    EXPECT_EQ(fault->weight, weight);
    EXPECT_EQ(fault->window, window_of(weight));
    EXPECT_EQ(fault->chunk, window_of(weight) / 512);
    EXPECT_TRUE(fault->message.starts_with("sign_mantissa: weight " + std::to_string(weight) + ", window " +
                                           std::to_string(window_of(weight)) + " (chunk "))
        << fault->message;
  }
}

TEST_F(FaultLocator, GapsAreTheWindowAtFault) {
  for (int round = 0; round < 400; ++round) {
    Df11Unit unit = unit_;
    // Also of empty windows, and the first of a chunk.
    std::uint64_t window = random_.below(num_chunks_ * 512);
    if (round % 4 == 0) window = random_.below(num_chunks_) * 512;
    if (round % 4 == 1) window = num_windows_ - 1 + random_.below(2);
    const unsigned right = testing::gap_of(unit, window),
                   wrong = right ^ (1 + static_cast<unsigned>(random_.below(31)));
    testing::set_gap(unit, window, wrong);
    for (const auto& fault : {with_source(unit), without_source(unit)}) {
      ASSERT_TRUE(fault) << window;
      EXPECT_EQ(fault->kind, "gap") << fault->message;
      EXPECT_EQ(fault->message, "gaps: window " + std::to_string(window) + " (chunk " +
                                    std::to_string(window / 512) + ") has gap " + std::to_string(wrong) +
                                    ", but must have " + std::to_string(right));
      EXPECT_EQ(fault->window, window);
      EXPECT_EQ(fault->chunk, window / 512);
      EXPECT_EQ(fault->weight, kNowhere);
    }
  }
}

/// Without a source a position beside the right one may fit as well, when the stream's last byte is where
/// either number of codes ends.
bool may_be_stream(const UnitFault& fault, std::uint32_t right, std::uint32_t wrong) {
  return fault.kind == "stream" && (wrong == right + 1 || wrong == right - 1);
}

TEST_F(FaultLocator, OutputPositionsAreTheEntryAtFault) {
  for (std::uint64_t entry = 0; entry <= num_chunks_; ++entry) {
    const std::uint32_t right = testing::position_of(unit_, entry);
    for (const std::uint32_t wrong : {right + 1, right - 1, right + 1'000, right ^ 0x8000, 0u, 0xFFFF'FFFFu,
                                      static_cast<std::uint32_t>(random_.next())}) {
      if (wrong == right) continue;
      Df11Unit unit = unit_;
      testing::set_position(unit, entry, wrong);
      const auto with = with_source(unit), without = without_source(unit);
      for (const auto* fault : {&with, &without}) {
        ASSERT_TRUE(*fault) << entry;
        if (fault == &without && may_be_stream(**fault, right, wrong)) continue;
        EXPECT_EQ((*fault)->kind, "position") << (*fault)->message;
        EXPECT_EQ((*fault)->message, "output_positions: entry " + std::to_string(entry) + " is " +
                                         std::to_string(wrong) + ", but must be " + std::to_string(right));
        EXPECT_EQ((*fault)->chunk, std::min(entry, num_chunks_ - 1));
        EXPECT_EQ((*fault)->window, kNowhere);
        EXPECT_EQ((*fault)->weight, kNowhere);
      }
    }
  }
}

/// In a last chunk without a start the last two entries are alike.
TEST_F(FaultLocator, OutputPositionsOfALastChunkWithoutAStart) {
  const testing::PlainCode code = testing::code_of_all_lengths();
  for (const unsigned beyond : {3u, 8u, 29u}) {
    for (const auto ending : {testing::PlainPositions::kLong, testing::PlainPositions::kShort}) {
      const auto weights = testing::weights_of_bits(2 * 32'768 + beyond, 32, true, random_);
      const Df11Unit sound = testing::encode_plainly(code, weights, testing::PlainFill::kRepeat, ending);
      const std::uint64_t entries = sound.output_positions.size() / 4;
      for (std::uint64_t entry = 0; entry < entries; ++entry) {
        const std::uint32_t right = testing::position_of(sound, entry);
        for (const std::uint32_t wrong : {right + 1, right - 1, right + 500, 0xFFFF'FFFFu}) {
          Df11Unit unit = sound;
          testing::set_position(unit, entry, wrong);
          MemorySource source(weights);
          for (const auto& fault :
               {UnitInMemory(unit, 1 + random_.below(4)).decoder().compare(source), without_source(unit)}) {
            ASSERT_TRUE(fault);
            if (may_be_stream(*fault, right, wrong)) continue;
            EXPECT_EQ(fault->message, "output_positions: entry " + std::to_string(entry) + " is " +
                                          std::to_string(wrong) + ", but must be " + std::to_string(right))
                << beyond << " bits beyond, entry " << entry << " of " << entries;
            EXPECT_EQ(fault->kind, "position");
          }
        }
      }
    }
  }
}

/// The exponents from bit 0 on, code by code, until there is none or all weights have theirs.
std::vector<std::uint8_t> plain_walk(const Df11Unit& unit) {
  const df11::LutsView luts(unit.luts);
  std::vector<std::uint8_t> stream = unit.encoded_exponent, exponents;
  const std::uint64_t num_bits = 8 * stream.size();
  stream.resize(stream.size() + 8);
  for (std::uint64_t bit = 0; exponents.size() < unit.sign_mantissa.size();) {
    std::uint64_t ahead = 0;
    for (std::uint64_t i = 0; i < 5 && bit < num_bits; ++i) ahead = ahead << 8 | stream[bit / 8 + i];
    const df11::DecodedCode code = luts.look_up(static_cast<std::uint32_t>(ahead >> (8 - bit % 8)));
    if (code.length == 0 || bit + code.length > num_bits) break;
    exponents.push_back(code.exponent);
    bit += code.length;
  }
  return exponents;
}

TEST_F(FaultLocator, ABitOfTheStreamIsTheFirstWeightThatComesOutWrong) {
  int told_as_stream = 0, told_as_gap = 0, found = 0;
  for (int round = 0; round < 400; ++round) {
    Df11Unit unit = unit_;
    const std::uint64_t bit = random_.below(starts_.back());
    testing::flip_bit(unit.encoded_exponent, bit);
    const std::vector<std::uint8_t> walked = plain_walk(unit);
    std::uint64_t first = 0;
    while (first < walked.size() && walked[first] == (weights_[first] >> 7 & 0xFF)) ++first;
    if (first == weights_.size()) {  // EOF's code, which the tables give to a neighbour
      EXPECT_FALSE(with_source(unit));
      continue;
    }
    const auto fault = with_source(unit);
    ASSERT_TRUE(fault) << bit;
    EXPECT_EQ(fault->kind, first < walked.size() ? "weight" : "stream") << fault->message;
    EXPECT_EQ(fault->weight, first) << fault->message;
    EXPECT_EQ(fault->window, window_of(first)) << fault->message;
    EXPECT_TRUE(fault->message.starts_with("encoded_exponent: weight ")) << fault->message;

    // Without the source it is seen where codes and gaps part, if they do.
    const auto blind = without_source(unit);
    if (!blind) continue;
    ++found;
    told_as_stream += blind->kind == "stream";
    told_as_gap += blind->kind == "gap";
    EXPECT_GE(blind->chunk, fault->chunk) << blind->message;
    if (blind->window != kNowhere) {
      EXPECT_GE(blind->window, fault->window) << blind->message;
    }
    EXPECT_LE(blind->chunk, fault->chunk + 1) << blind->message;
  }
  // What is one gap or one position that does not fit, while all else does, is taken for its fault.
  EXPECT_GT(found, 100);
  EXPECT_LT(told_as_gap, found / 2);
  EXPECT_LE(found - told_as_stream - told_as_gap, found / 20);
}

TEST_F(FaultLocator, DamagedTablesAreWeightsOrTheStream) {
  int found = 0;
  for (int round = 0; round < 200; ++round) {
    Df11Unit unit = unit_;
    const std::size_t place = random_.below(unit.luts.size());
    unit.luts[place] = static_cast<std::uint8_t>(unit.luts[place] ^ 1u << random_.below(8));
    const std::vector<std::uint8_t> walked = plain_walk(unit);
    std::uint64_t first = 0;
    while (first < walked.size() && walked[first] == (weights_[first] >> 7 & 0xFF)) ++first;
    const auto fault = with_source(unit);
    if (first == weights_.size()) {  // not reached
      EXPECT_FALSE(fault) << fault->message;
      continue;
    }
    ++found;
    ASSERT_TRUE(fault) << place;
    // A length that is wrong shows in the gap behind it or in the weight after it, whichever comes first.
    if (fault->kind == "gap") {
      EXPECT_GE(place, unit.luts.size() - 256) << fault->message;
      EXPECT_LE(fault->window, window_of(first) + 1) << fault->message;
      continue;
    }
    EXPECT_EQ(fault->kind, first < walked.size() ? "weight" : "stream") << fault->message;
    EXPECT_EQ(fault->weight, first) << fault->message;
    const auto blind = without_source(unit);
    if (blind) {
      EXPECT_NE(blind->kind, "weight") << blind->message;
    }
  }
  EXPECT_GT(found, 50);
}

TEST_F(FaultLocator, OfTwoFaultsTheFirstIsTold) {
  struct Fault {
    std::string kind;
    std::uint64_t bit;  // of the stream, where it shows
  };
  const auto damage = [&](Df11Unit& unit, std::uint64_t chunk) -> Fault {
    switch (random_.below(3)) {
      case 0: {
        const std::uint64_t first = testing::position_of(unit_, chunk);
        const std::uint64_t weight = first + random_.below(testing::position_of(unit_, chunk + 1) - first);
        unit.sign_mantissa[weight] ^= 1;
        return {"weight", starts_[weight]};
      }
      case 1: {
        const std::uint64_t window = 512 * chunk + 1 + random_.below(400);
        testing::set_gap(unit, window, testing::gap_of(unit, window) ^ 1);
        return {"gap", 64 * window};
      }
      default:
        // It shows at the end of the chunk.
        testing::set_position(unit, chunk + 1, testing::position_of(unit, chunk + 1) + 1);
        return {"position", 32'768 * (chunk + 1) - 1};
    }
  };
  for (int round = 0; round < 200; ++round) {
    Df11Unit unit = unit_;
    const std::uint64_t a = random_.below(num_chunks_ - 2), b = random_.below(num_chunks_ - 2);
    const Fault first = damage(unit, a), second = damage(unit, b);
    if (a == b) continue;
    const Fault& earlier = first.bit < second.bit ? first : second;
    const auto fault = with_source(unit);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->kind, earlier.kind) << fault->message;
    if (earlier.kind != "position") {
      EXPECT_EQ(fault->window, earlier.bit / 64) << fault->message;
    }
    if (earlier.kind == "position") {
      EXPECT_EQ(fault->chunk, earlier.bit / 32'768 + 1) << fault->message;
    }
  }
}

TEST_F(FaultLocator, AStreamTooShortOrTooLong) {
  for (const int more : {-9, -3, -1, 1, 2, 9}) {
    Df11Unit unit = unit_;
    unit.encoded_exponent.resize(
        static_cast<std::size_t>(static_cast<std::int64_t>(unit.encoded_exponent.size()) + more));
    ASSERT_EQ((unit.encoded_exponent.size() + 4095) / 4096, num_chunks_);
    for (const auto& fault : {with_source(unit), without_source(unit)}) {
      ASSERT_TRUE(fault) << more;
      EXPECT_EQ(fault->kind, "stream") << more << ' ' << fault->message;
      EXPECT_EQ(fault->chunk, num_chunks_ - 1);
      EXPECT_TRUE(fault->message.starts_with("encoded_exponent: ")) << fault->message;
    }
  }
}

}  // namespace
}  // namespace weightpress::job
