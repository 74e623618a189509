#include <gtest/gtest.h>

#include "host/host_stages.h"
#include "support/weights.h"

namespace weightpress::host {
namespace {

struct Prepared {
  std::vector<std::uint16_t> weights;
  std::uint64_t segment_weights;
  std::vector<df11::SegmentHistogram> histograms;
  df11::Codebook codebook;

  Prepared(std::vector<std::uint16_t> of, std::uint64_t segment)
      : weights(std::move(of)), segment_weights(segment) {
    histograms.resize(df11::num_segments(weights.size(), segment_weights));
    HostStages(1).histogram({weights, segment_weights, histograms}).wait();
    codebook = df11::build_official_codebook(df11::sum_histograms(histograms));
  }
};

std::vector<std::uint32_t> plain_starts(const Prepared& unit) {
  std::vector<std::uint32_t> starts;
  std::uint64_t bit = 0;
  for (std::size_t i = 0; i < unit.weights.size(); ++i) {
    if (bit / df11::kChunkBits == starts.size()) starts.push_back(static_cast<std::uint32_t>(i));
    bit += unit.codebook.lengths[df11::exponent_of(unit.weights[i])];
  }
  return starts;
}

TEST(ChunkStartsStage, EqualsAPlainLoop) {
  for (const std::uint64_t segment_weights : {1, 777, 65'536, 1'000'000}) {
    for (const auto& weights : {testing::mostly_zero(150'000, 5, 9, 1), testing::normal_weights(60'000, 2)}) {
      const Prepared unit(weights, segment_weights);
      const std::vector<std::uint32_t> expected = plain_starts(unit);
      std::vector<std::uint32_t> starts(expected.size());
      const df11::SlabPosition whole{.is_last = true};
      const df11::StageStatus status =
          HostStages(3)
              .chunk_starts({unit.weights, segment_weights, whole, &unit.codebook, unit.histograms, starts})
              .wait();
      EXPECT_EQ(status.code, df11::StageCode::kOk);
      EXPECT_EQ(starts, expected);
    }
  }
}

TEST(ChunkStartsStage, WeightsThatChangedAreReported) {
  Prepared unit(testing::normal_weights(100'000, 2), 10'000);
  std::vector<std::uint32_t> starts(plain_starts(unit).size());
  unit.weights[54'321] = 0x0080;  // exponent 1: no code
  const df11::StageStatus status =
      HostStages(2)
          .chunk_starts({unit.weights, 10'000, {.is_last = true}, &unit.codebook, unit.histograms, starts})
          .wait();
  EXPECT_EQ(status.code, df11::StageCode::kSourceChanged);
  EXPECT_EQ(status.segment, 5u);
}

}  // namespace
}  // namespace weightpress::host
