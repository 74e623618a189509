// The encode stage on one slab against a bit-by-bit loop, and what it does when the weights are not what was
// counted.
#include <cstring>

#include <gtest/gtest.h>

#include "format/unit_plan.h"
#include "host/host_stages.h"
#include "support/weights.h"

namespace weightpress::host {
namespace {

struct EncodedUnit {
  std::vector<std::uint16_t> weights;
  std::uint64_t segment_weights;
  std::vector<df11::SegmentHistogram> histograms;
  df11::UnitPlan plan;
  std::vector<std::uint8_t> sign_mantissa, bitstream, gaps;
  std::vector<std::uint32_t> positions;

  EncodedUnit(std::vector<std::uint16_t> of, std::uint64_t segment)
      : weights(std::move(of)), segment_weights(segment) {
    histograms.resize(df11::num_segments(weights.size(), segment_weights));
    HostStages(1).histogram({weights, segment_weights, histograms}).wait();
    plan = df11::plan_unit({"unit", df11::sum_histograms(histograms), df11::exponent_of(weights.back())}, {},
                           [](const df11::Codebook&) { return std::uint64_t{0}; })
               .value();
    sign_mantissa.resize(weights.size());
    bitstream.resize(plan.layout.num_bytes);
    gaps.resize(plan.layout.gaps_bytes);
    positions.resize(plan.layout.num_positions);
  }

  df11::StageStatus encode(int threads) {
    df11::SlabBorder border;
    HostStages stages(threads);
    return stages
        .encode({.weights = weights,
                 .segment_weights = segment_weights,
                 .position = {.is_last = true},
                 .codebook = &plan.codebook,
                 .layout = &plan.layout,
                 .histograms = histograms,
                 .sign_mantissa = sign_mantissa,
                 .encoded_exponent = bitstream,
                 .gaps = gaps,
                 .positions = positions,
                 .border = &border})
        .wait();
  }

  /// The bitstream by a loop over bits.
  std::vector<std::uint8_t> plain_bitstream() const {
    std::vector<std::uint8_t> bytes(plan.layout.num_bytes);
    std::uint64_t at = 0;
    const auto put = [&](std::uint32_t code, std::uint32_t length) {
      for (std::uint32_t i = length; i-- > 0 && at < 8 * bytes.size(); ++at) {
        bytes[at / 8] = static_cast<std::uint8_t>(bytes[at / 8] | (code >> i & 1) << (7 - at % 8));
      }
    };
    for (const std::uint16_t weight : weights) {
      put(plan.codebook.codes[df11::exponent_of(weight)], plan.codebook.lengths[df11::exponent_of(weight)]);
    }
    if (at % 8 != 0) put(plan.codebook.eof_code, plan.codebook.eof_length);
    return bytes;
  }
};

TEST(EncodeStage, BitstreamEqualsABitByBitLoopOnAllKindsOfData) {
  const std::vector<std::vector<std::uint16_t>> data = {
      testing::normal_weights(100'001, 1),              // the fast loop, groups of eight
      testing::uniform_exponents(100'001, 10, 200, 2),  // groups of four
      testing::uniform_exponents(50'000, 100, 2, 3),
      testing::mostly_zero(100'000, 20, 30, 4),
      testing::weights_of_histogram(testing::fibonacci_histogram(24, 90), 5),  // codes up to 24 bits
      testing::normal_weights(100, 6),  // below the size from which pairs are used
  };
  for (const auto& weights : data) {
    for (const std::uint64_t segment_weights : {33'333u, 65'536u, 1'000'000u}) {
      EncodedUnit unit(weights, segment_weights);
      ASSERT_EQ(unit.encode(2).code, df11::StageCode::kOk);
      EXPECT_EQ(unit.bitstream, unit.plain_bitstream());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_EQ(unit.sign_mantissa[i], df11::sign_mantissa_of(weights[i]));
      }
    }
  }
}

TEST(EncodeStage, LongCodesInARowGoCodeByCode) {
  // Pairs above 24 bits and groups above 56 bits side by side: the rarest exponents of a Fibonacci histogram
  // in a run.
  const df11::Histogram histogram = testing::fibonacci_histogram(22, 100);
  std::vector<std::uint16_t> weights = testing::weights_of_histogram(histogram, 1);
  std::sort(weights.begin(), weights.end(),
            [](std::uint16_t a, std::uint16_t b) { return df11::exponent_of(a) < df11::exponent_of(b); });
  EncodedUnit unit(weights, 5'000);
  ASSERT_EQ(unit.encode(2).code, df11::StageCode::kOk);
  EXPECT_EQ(unit.bitstream, unit.plain_bitstream());
}

TEST(EncodeStage, ChangedWeightsAreReportedAndNothingOutsideIsWritten) {
  testing::Random random(23);
  for (int round = 0; round < 200; ++round) {
    EncodedUnit unit(testing::normal_weights(60'000, 7), 10'000);
    std::vector<std::uint8_t> bitstream(unit.bitstream.size() + 64, 0xAB), gaps(unit.gaps.size() + 64, 0xAB),
        sign_mantissa(unit.weights.size() + 64, 0xAB);
    std::vector<std::uint32_t> positions(unit.positions.size() + 64, 0xABABABAB);
    // Any exponent, with or without a code, anywhere.
    const std::size_t changes = 1 + random.below(50);
    const std::vector<std::uint16_t> before = unit.weights;
    for (std::size_t i = 0; i < changes; ++i) {
      unit.weights[random.below(60'000)] = static_cast<std::uint16_t>(random.next());
    }
    bool same_bits = true;
    for (std::size_t i = 0; i < before.size(); ++i) {
      same_bits = same_bits && unit.plan.codebook.lengths[df11::exponent_of(before[i])] ==
                                   unit.plan.codebook.lengths[df11::exponent_of(unit.weights[i])];
    }
    df11::SlabBorder border;
    HostStages stages(2);
    const df11::StageStatus status =
        stages
            .encode({.weights = unit.weights,
                     .segment_weights = unit.segment_weights,
                     .position = {.is_last = true},
                     .codebook = &unit.plan.codebook,
                     .layout = &unit.plan.layout,
                     .histograms = unit.histograms,
                     .sign_mantissa = std::span(sign_mantissa).first(unit.weights.size()),
                     .encoded_exponent = std::span(bitstream).first(unit.bitstream.size()),
                     .gaps = std::span(gaps).first(unit.gaps.size()),
                     .positions = std::span(positions).first(unit.positions.size()),
                     .border = &border})
            .wait();
    if (!same_bits) {
      EXPECT_EQ(status.code, df11::StageCode::kSourceChanged) << "round " << round;
    }
    for (std::size_t i = 1; i <= 64; ++i) {
      ASSERT_EQ(bitstream[bitstream.size() - i], 0xAB);
      ASSERT_EQ(gaps[gaps.size() - i], 0xAB);
      ASSERT_EQ(sign_mantissa[sign_mantissa.size() - i], 0xAB);
      ASSERT_EQ(positions[positions.size() - i], 0xABABABAB);
    }
  }
}

TEST(EncodeStage, LowestSegmentThatChangedIsReported) {
  EncodedUnit unit(testing::normal_weights(100'000, 7), 10'000);
  unit.weights[31'234] = 0x0080;  // exponents without a code
  unit.weights[71'234] = 0x0080;
  const df11::StageStatus status = unit.encode(3);
  EXPECT_EQ(status.code, df11::StageCode::kSourceChanged);
  EXPECT_EQ(status.segment, 3u);
}

}  // namespace
}  // namespace weightpress::host
