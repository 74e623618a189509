// Sums of bytes by place, by which a GPU's work on a Tile-ANS tensor is tied to what the host has.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace weightpress::job {

/// Of the bytes whose place is j modulo 8, by j.
using ColumnSums = std::array<std::uint64_t, 8>;

/// In one pass, on so many threads.
ColumnSums sum_columns(std::span<const std::uint8_t> bytes, int num_threads);

// Of elements of num_lanes bytes each: 1, 2, 4 or 8.

/// Of all elements' bytes in this lane.
std::uint64_t lane_sum(const ColumnSums& sums, std::uint32_t num_lanes, std::uint32_t lane);
/// Of the elements as numbers, the first byte being the lowest; modulo 2^64.
std::uint64_t element_sum(const ColumnSums& sums, std::uint32_t num_lanes);

}  // namespace weightpress::job
