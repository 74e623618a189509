#include <gtest/gtest.h>

#include "host/host_stages.h"
#include "support/weights.h"

namespace weightpress::host {
namespace {

TEST(HistogramStage, EqualsAPlainLoopForEveryLengthSegmentSizeAndThreadCount) {
  for (const std::size_t count : {1, 2, 7, 8, 9, 31, 32, 33, 1'000, 4'097}) {
    const std::vector<std::uint16_t> weights = testing::uniform_exponents(count, 0, 256, count);
    for (const std::uint64_t segment_weights : {1, 2, 7, 8, 100, 5'000}) {
      for (const int threads : {1, 2, 3, 7}) {
        std::vector<df11::SegmentHistogram> histograms(df11::num_segments(count, segment_weights));
        HostStages stages(threads);
        EXPECT_EQ(stages.histogram({weights, segment_weights, histograms}).wait().code, df11::StageCode::kOk);
        for (std::size_t segment = 0; segment < histograms.size(); ++segment) {
          df11::SegmentHistogram expected{};
          const std::size_t end = std::min<std::size_t>(count, (segment + 1) * segment_weights);
          for (std::size_t i = segment * segment_weights; i < end; ++i) ++expected[weights[i] >> 7 & 0xFF];
          ASSERT_EQ(histograms[segment], expected) << count << " " << segment_weights << " " << segment;
        }
      }
    }
  }
}

TEST(HistogramStage, SignAndMantissaDoNotCount) {
  std::vector<std::uint16_t> weights(65'536);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<std::uint16_t>(i);
  std::vector<df11::SegmentHistogram> histograms(1);
  HostStages(2).histogram({weights, 65'536, histograms}).wait();
  for (const std::uint32_t count : histograms[0]) EXPECT_EQ(count, 256u);
}

}  // namespace
}  // namespace weightpress::host
