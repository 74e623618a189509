#include "format/stream_layout.h"

#include <cassert>

namespace weightpress::df11 {

StreamLayout make_stream_layout(std::uint64_t num_weights, std::uint64_t total_bits,
                                std::uint32_t last_code_length) {
  assert(num_weights > 0 && last_code_length > 0 && total_bits >= last_code_length);
  StreamLayout layout;
  layout.num_weights = num_weights;
  layout.total_bits = total_bits;
  layout.last_code_length = last_code_length;
  layout.num_bytes = total_bits / 8 + (total_bits % 8 != 0);
  layout.num_chunks = layout.num_bytes / kChunkBytes + (layout.num_bytes % kChunkBytes != 0);
  layout.gaps_bytes = layout.num_chunks * kGapBytesPerChunk;

  const std::uint64_t open_window = first_open_window(total_bits, last_code_length);
  const std::uint64_t open_chunk = first_open_chunk(open_window);
  if (total_bits % 8 != 0) {
    layout.end_opens_window = open_window == total_bits / kWindowBits;
    layout.end_opens_chunk = open_chunk == total_bits / kChunkBits;
  }
  layout.num_positions = open_chunk + layout.end_opens_chunk + 1;
  return layout;
}

std::uint8_t eof_padding(const Codebook& codebook, std::uint32_t free_bits) {
  assert(free_bits >= 1 && free_bits <= 7);
  const std::uint32_t length = codebook.eof_length;
  return static_cast<std::uint8_t>(length >= free_bits ? codebook.eof_code >> (length - free_bits)
                                                       : codebook.eof_code << (free_bits - length));
}

StreamEnd make_stream_end(const Codebook& codebook, std::uint64_t total_bits, std::uint8_t last_exponent) {
  StreamEnd end;
  end.total_bits = total_bits;
  end.last_code_length = codebook.lengths[last_exponent];
  const std::uint32_t used = static_cast<std::uint32_t>(total_bits % kWindowBits);
  std::uint64_t window = 0;
  if (used != 0) {
    window = std::uint64_t{codebook.codes[last_exponent]}
             << (kWindowBits - used);  // its head falls off at the top
    const std::uint32_t free_bits = (8 - used % 8) % 8;
    if (free_bits != 0) {
      window |= std::uint64_t{eof_padding(codebook, free_bits)} << (kWindowBits - used - free_bits);
    }
  }
  for (std::uint32_t byte = 0; byte < kWindowBytes; ++byte) {
    end.window[byte] = static_cast<std::uint8_t>(window >> (kWindowBits - 8 - 8 * byte));
  }
  return end;
}

}  // namespace weightpress::df11
