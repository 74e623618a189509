#include "format/histogram.h"

#include <numeric>

namespace weightpress::df11 {

std::uint64_t segment_weights_for(std::uint64_t num_weights) {
  std::uint64_t segment_weights = kDefaultSegmentWeights;
  while (num_segments(num_weights, segment_weights) > kMaxSegments) segment_weights *= 2;
  return segment_weights;
}

Histogram sum_histograms(std::span<const SegmentHistogram> segments) {
  Histogram sum{};
  for (const SegmentHistogram& segment : segments) {
    for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) sum[symbol] += segment[symbol];
  }
  return sum;
}

std::uint64_t total_count(const Histogram& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}

}  // namespace weightpress::df11
