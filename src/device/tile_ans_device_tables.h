// Tables of Tile-ANS lanes as its kernels want them, and how encoding shares out shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "format/tile_ans_plan.h"
#include "kernels/tile_ans_policy.h"

namespace weightpress::device {

/// Appends a lane's encode table: TileAnsEncodeEntry [256].
void append_encode_table(const tile_ans::Frequencies& frequencies, std::uint32_t probability_bits,
                         std::vector<TileAnsEncodeEntry>& tables);

/// Appends a lane's decode table: TileAnsDecodeKernel::table_bytes(). The frequencies sum to the table size.
void append_decode_table(const tile_ans::Frequencies& frequencies, std::uint32_t probability_bits,
                         std::vector<std::uint8_t>& tables);

/// Sets warp_words and the rooms of the coded lanes that are wanted: for as many words as a tile is likely to
/// take where there is room for these, or else in that proportion. Only speed depends on them.
void share_out_rooms(const tile_ans::TensorPlan& plan, TileAnsEncodeKernel::Parameters& parameters);

}  // namespace weightpress::device
