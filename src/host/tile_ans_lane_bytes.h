// Elements to lanes and back: byte l of every element is lane l (docs/format.md, "Tile-ANS").
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/tile_ans_constants.h"

namespace weightpress::host {

// Elements that are taken apart, coded and joined at a time: with 8 lanes 16 KiB of symbols, which stay in
// the first cache. A multiple of kNumStates, so that each stream goes on where it was, and even for raw
// streams.
inline constexpr std::size_t kBlockElements = 2048;
static_assert(kBlockElements % tile_ans::kNumStates == 0 && kBlockElements % 2 == 0);

/// Symbols of a block, lane by lane.
using LaneBlock = std::uint8_t[tile_ans::kMaxLanes][kBlockElements];

/// elements: [count * num_lanes], any alignment; count at most kBlockElements; num_lanes 1, 2, 4 or 8.
void split_lanes(const std::uint8_t* elements, std::size_t count, std::uint32_t num_lanes, LaneBlock& lanes);
void join_lanes(const LaneBlock& lanes, std::size_t count, std::uint32_t num_lanes, std::uint8_t* elements);

}  // namespace weightpress::host
