// Histogram stage: one histogram a segment.
//
// The commonest exponents of trained weights stand next to each other all the time, and a counter that is
// increased twice in a row waits for its own store. Eight tables, one a position, keep these apart.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "format/bf16_fields.h"
#include "host/host_stages.h"

namespace weightpress::host {
namespace {

constexpr std::uint32_t kTables = 8;

df11::SegmentHistogram count_segment(std::span<const std::uint16_t> weights) {
  alignas(64) std::uint32_t counts[kTables][df11::kNumSymbols] = {};
  const std::size_t whole = weights.size() / kTables * kTables;
  for (std::size_t i = 0; i < whole; i += kTables) {
    std::uint64_t a, b;
    std::memcpy(&a, weights.data() + i, sizeof a);
    std::memcpy(&b, weights.data() + i + 4, sizeof b);
    ++counts[0][(a >> 7) & 0xFF];
    ++counts[1][(a >> 23) & 0xFF];
    ++counts[2][(a >> 39) & 0xFF];
    ++counts[3][(a >> 55) & 0xFF];
    ++counts[4][(b >> 7) & 0xFF];
    ++counts[5][(b >> 23) & 0xFF];
    ++counts[6][(b >> 39) & 0xFF];
    ++counts[7][(b >> 55) & 0xFF];
  }
  for (std::size_t i = whole; i < weights.size(); ++i) ++counts[0][df11::exponent_of(weights[i])];
  df11::SegmentHistogram sum{};
  for (const auto& table : counts) {
    for (std::uint32_t symbol = 0; symbol < df11::kNumSymbols; ++symbol) sum[symbol] += table[symbol];
  }
  return sum;
}

}  // namespace

df11::Completion HostStages::histogram(const df11::HistogramArguments& arguments) {
  const std::uint64_t segments = df11::num_segments(arguments.weights.size(), arguments.segment_weights);
  assert(arguments.histograms.size() == segments);
#pragma omp parallel for num_threads(threads_for(segments)) schedule(dynamic)
  for (std::uint64_t segment = 0; segment < segments; ++segment) {
    const std::uint64_t first = segment * arguments.segment_weights;
    const std::uint64_t count = std::min(arguments.segment_weights, arguments.weights.size() - first);
    arguments.histograms[segment] = count_segment(arguments.weights.subspan(first, count));
  }
  return df11::Completion(df11::StageStatus{});
}

}  // namespace weightpress::host
