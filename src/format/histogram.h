// Counts by exponent: of a unit (64 bits) and of one of its segments (32 bits).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "format/df11_constants.h"

namespace weightpress::df11 {

using Histogram = std::array<std::uint64_t, kNumSymbols>;

/// Counts of one segment. 32 bits are enough: a segment holds at most kMaxSegmentWeights.
using SegmentHistogram = std::array<std::uint32_t, kNumSymbols>;

// Small enough that a unit of a few hundred thousand weights still feeds several threads, and large enough
// that its histogram (1 KiB) is under 1% of its weights (128 KiB). Larger ones are used for units above half
// a billion weights, so that the histograms kept for the offsets stay below kMaxSegments KiB.
inline constexpr std::uint64_t kDefaultSegmentWeights = 65'536;
inline constexpr std::uint64_t kMaxSegments = 8'192;
inline constexpr std::uint64_t kMaxSegmentWeights = kMaxUnitWeights;
static_assert(kMaxSegmentWeights <= UINT32_MAX);

/// Weights a segment for a unit of num_weights. The stored bytes do not depend on it.
std::uint64_t segment_weights_for(std::uint64_t num_weights);

/// num_weights / segment_weights, rounded up.
constexpr std::uint64_t num_segments(std::uint64_t num_weights, std::uint64_t segment_weights) {
  return num_weights / segment_weights + (num_weights % segment_weights != 0);
}

/// Sum of the segments' counts.
Histogram sum_histograms(std::span<const SegmentHistogram> segments);

std::uint64_t total_count(const Histogram& histogram);

}  // namespace weightpress::df11
