#include "format/chunk_density.h"

#include <algorithm>

#include "format/df11_constants.h"

namespace weightpress::df11 {
namespace {

/// Most codes that fit into a chunk, if they may be chosen from these counts.
std::uint64_t most_codes(const Histogram& counts, const Codebook& codebook) {
  std::uint64_t by_length[kMaxCodeBits + 1] = {};
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol)
    if (counts[symbol] != 0) by_length[codebook.lengths[symbol]] += counts[symbol];
  std::uint64_t codes = 0, free_bits = kChunkBits;
  for (std::uint32_t length = 1; length <= kMaxCodeBits; ++length) {
    const std::uint64_t fitting = std::min(by_length[length], free_bits / length);
    codes += fitting;
    free_bits -= fitting * length;
  }
  return codes + 1;  // the last one may only begin there
}

}  // namespace

std::uint64_t densest_chunk_bound(std::span<const SegmentHistogram> segments, const Codebook& codebook) {
  // A chunk that begins in segment `first` reaches on as long as the segments between are shorter than a
  // chunk. Both ends only move forward, so the counts of the segments in between are kept up to date.
  std::uint64_t bound = 0;
  Histogram counts{};
  std::uint64_t bits_between = 0;  // of the segments first + 1 to end - 1
  std::size_t end = 0;
  for (std::size_t first = 0; first < segments.size(); ++first) {
    while (end < segments.size() && (end <= first || bits_between < kChunkBits)) {
      for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) counts[symbol] += segments[end][symbol];
      if (end > first) bits_between += total_bits(segments[end], codebook);
      ++end;
    }
    bound = std::max(bound, most_codes(counts, codebook));
    for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) counts[symbol] -= segments[first][symbol];
    if (first + 1 < end) bits_between -= total_bits(segments[first + 1], codebook);
  }
  return std::min(bound, total_count(sum_histograms(segments)));
}

}  // namespace weightpress::df11
