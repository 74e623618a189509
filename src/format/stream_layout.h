// Sizes of a unit's buffers, which follow from the number of bits and the last code alone, and what stands at
// the stream's end (docs/format.md, "Gaps", "Output positions" and "Padding").
#pragma once

#include <array>
#include <cstdint>

#include "format/codebook.h"
#include "format/df11_constants.h"
#include "format/open_windows.h"

namespace weightpress::df11 {

/// Sizes of a unit's buffers.
struct StreamLayout {
  std::uint64_t num_weights = 0;
  std::uint64_t total_bits = 0;        // of all codes, EOF's bits excluded
  std::uint32_t last_code_length = 0;  // of the last weight
  std::uint64_t num_bytes = 0;         // of encoded_exponent
  std::uint64_t num_chunks = 0;
  std::uint64_t gaps_bytes = 0;
  std::uint64_t num_positions = 0;  // of output_positions, 4 bytes each
  /// The stream ends inside a byte, in a window (chunk) that no weight starts in: that window's gap is the
  /// offset of the end, that chunk's position is num_weights.
  bool end_opens_window = false;
  bool end_opens_chunk = false;

  std::uint64_t positions_bytes() const { return 4 * num_positions; }
};

/// Precondition: num_weights > 0.
StreamLayout make_stream_layout(std::uint64_t num_weights, std::uint64_t total_bits,
                                std::uint32_t last_code_length);

/// What stands in the stream's last window, for the termination check: bits before the end of the last code
/// and the leading bits of EOF that complete the last byte.
struct StreamEnd {
  std::uint64_t total_bits = 0;
  std::uint32_t last_code_length = 0;
  /// Bytes of the window that holds bit total_bits, as stored; past the end of the stream: 0. Codes before
  /// the last one are 0 here: nothing that padding can reach depends on them.
  std::array<std::uint8_t, kWindowBytes> window{};
};

StreamEnd make_stream_end(const Codebook& codebook, std::uint64_t total_bits, std::uint8_t last_exponent);

/// The last byte's padding: the leading bits of EOF's code that fill `free_bits` (1..7) bits, followed by
/// zeros if the code is shorter.
std::uint8_t eof_padding(const Codebook& codebook, std::uint32_t free_bits);

}  // namespace weightpress::df11
