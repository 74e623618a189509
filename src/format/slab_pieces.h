// Where a slab stands in its unit, and which pieces of the unit's buffers are its own.
#pragma once

#include <cstdint>

#include "format/stream_layout.h"

namespace weightpress::df11 {

/// Where a slab stands in its unit.
struct SlabPosition {
  std::uint64_t first_weight = 0;
  std::uint64_t first_bit = 0;             ///< of the bitstream: bits of all codes before the slab
  std::uint32_t previous_code_length = 0;  ///< of the weight before first_weight; 0 for the first slab
  bool is_last = false;                    ///< the slab ends with the unit's last weight
};

/// Sizes of the pieces that a slab writes. Each starts at the byte (gap group, chunk) in which the slab's
/// first bit (window, chunk) lies; what the slab before it left there is missing until SlabJoiner adds it.
struct SlabPieces {
  std::uint64_t first_byte = 0;  ///< of encoded_exponent
  std::uint64_t num_bytes = 0;  ///< whole bytes that the slab completes; in the last slab also the final byte
  std::uint64_t first_gap_group = 0;
  std::uint64_t num_gap_groups = 0;  ///< groups that the slab completes; in the last slab all that are left
  std::uint64_t first_position = 0;  ///< of output_positions, in entries
  std::uint64_t num_positions =
      0;  ///< chunks that the slab opens; in the last slab also the entries at the end
};

/// Pieces of a slab from its position, the bits of its codes, and the code length of its last weight.
/// layout: the unit's; used for the last slab.
/// Precondition: 1 <= last_code_length <= slab_bits. A caller that reads the weights a second time checks it:
/// the source may have changed.
SlabPieces slab_pieces(const SlabPosition& position, std::uint64_t slab_bits, std::uint32_t last_code_length,
                       const StreamLayout& layout);

}  // namespace weightpress::df11
