// One chunk of the bitstream to exponents: every window from its gap, several windows in flight.
#pragma once

#include <cstdint>
#include <span>

#include "format/df11_constants.h"
#include "host/decode_table.h"

namespace weightpress::host {

/// A chunk as the decoder needs it: all windows in reach, whatever the unit's end.
struct ChunkInput {
  /// [kChunkBytes + kPaddingBytes] bytes that may be read: the chunk, what follows it in the stream, then
  /// zeros.
  const std::uint8_t* bytes = nullptr;
  /// [kWindowsPerChunk + 1] gaps: of the chunk's windows and of the one after them (unused in the unit's last
  /// chunk).
  const std::uint8_t* gaps = nullptr;
  /// Of the chunk as output positions say it.
  std::uint64_t num_weights = 0;
  /// Bytes of the stream from the chunk's begin on, in the unit's last chunk (1 to kChunkBytes); otherwise 0.
  std::uint64_t last_bytes = 0;
  /// Bytes of the stream beyond this chunk, if all of them belong to codes that start in it: the unit's last
  /// chunk has no weight then. Otherwise 0.
  std::uint64_t crossing_bytes = 0;

  /// Two words of 64 bits are loaded at each window.
  static constexpr std::uint64_t kPaddingBytes = 2 * df11::kWindowBytes;
};

struct ChunkResult {
  bool ok = false;
  bool kernel_ends = true;  ///< of an ok chunk that is the unit's last
};

/// Most codes that start in a chunk, and what may be written beyond them.
inline constexpr std::uint64_t kMaxChunkCodes = df11::kChunkBits;
inline constexpr std::uint64_t kExponentSlack = 2 * df11::kWindowBits;

/// exponents: out, [kMaxChunkCodes + kExponentSlack]; the first num_weights of them are the chunk's if the
/// result is ok.
ChunkResult decode_chunk(const DecodeTable& table, const ChunkInput& chunk, std::uint8_t* exponents);

}  // namespace weightpress::host
