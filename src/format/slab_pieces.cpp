#include "format/slab_pieces.h"

namespace weightpress::df11 {

SlabPieces slab_pieces(const SlabPosition& position, std::uint64_t slab_bits, std::uint32_t last_code_length,
                       const StreamLayout& layout) {
  const std::uint64_t end_bit = position.first_bit + slab_bits;
  const std::uint64_t first_window = first_open_window(position.first_bit, position.previous_code_length);
  const std::uint64_t end_window = first_open_window(end_bit, last_code_length);
  SlabPieces pieces;
  pieces.first_byte = position.first_bit / 8;
  pieces.first_gap_group = first_window / kWindowsPerGapGroup;
  pieces.first_position = first_open_chunk(first_window);
  if (position.is_last) {
    pieces.num_bytes = layout.num_bytes - pieces.first_byte;
    pieces.num_gap_groups = layout.gaps_bytes / kGapGroupBytes - pieces.first_gap_group;
    pieces.num_positions = layout.num_positions - pieces.first_position;
  } else {
    pieces.num_bytes = end_bit / 8 - pieces.first_byte;
    pieces.num_gap_groups = end_window / kWindowsPerGapGroup - pieces.first_gap_group;
    pieces.num_positions = first_open_chunk(end_window) - pieces.first_position;
  }
  return pieces;
}

}  // namespace weightpress::df11
