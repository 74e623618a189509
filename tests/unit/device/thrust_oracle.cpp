// Thrust's headers are here alone: they compile slowly. Its device is the CPU, so that no CUDA runtime is
// needed.
#ifndef THRUST_DEVICE_SYSTEM
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#endif
#include "device/thrust_oracle.h"

#include <algorithm>

#include <thrust/device_vector.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

namespace weightpress::device {

std::vector<df11::SegmentHistogram> thrust_histograms(std::span<const std::uint16_t> weights,
                                                      std::uint64_t segment_weights) {
  std::vector<df11::SegmentHistogram> histograms;
  for (std::size_t first = 0; first < weights.size(); first += segment_weights) {
    const auto segment =
        weights.subspan(first, std::min<std::size_t>(segment_weights, weights.size() - first));
    // As in docs/format.md: a sign, eight bits of exponent, seven of mantissa.
    std::vector<std::uint8_t> exponents;
    for (const std::uint16_t weight : segment)
      exponents.push_back(static_cast<std::uint8_t>(weight % 0x8000 / 0x80));
    thrust::device_vector<std::uint8_t> sorted(exponents.begin(), exponents.end());
    thrust::sort(sorted.begin(), sorted.end());
    thrust::device_vector<std::uint8_t> symbols(df11::kNumSymbols);
    thrust::device_vector<std::uint32_t> counts(df11::kNumSymbols);
    const auto ends =
        thrust::reduce_by_key(sorted.begin(), sorted.end(), thrust::constant_iterator<std::uint32_t>(1),
                              symbols.begin(), counts.begin());
    df11::SegmentHistogram histogram{};
    for (std::size_t i = 0; i < static_cast<std::size_t>(ends.first - symbols.begin()); ++i)
      histogram[symbols[i]] = counts[i];
    histograms.push_back(histogram);
  }
  return histograms;
}

std::vector<std::uint64_t> thrust_prefix_sums(std::span<const std::uint64_t> values, std::uint64_t first) {
  thrust::device_vector<std::uint64_t> sums(values.begin(), values.end());
  sums.push_back(0);
  thrust::exclusive_scan(sums.begin(), sums.end(), sums.begin(), first);
  std::vector<std::uint64_t> result(sums.size());
  thrust::copy(sums.begin(), sums.end(), result.begin());
  return result;
}

}  // namespace weightpress::device
