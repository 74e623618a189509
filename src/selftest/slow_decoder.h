// A slow, independent decoder of DF11 units: the referee of tests and of `weightpress selftest`.
//
// Written from docs/format.md alone. It shares no code, constant or table with the encoder in src/format, so
// that a mistake has to be made twice to go unseen. Plain loops, many of them bit by bit; nothing here is
// tuned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightpress::selftest {

/// The raw bytes of a unit's tensors, as they are stored ("Buffers of a unit"). Any bytes are allowed.
struct UnitBytes {
  std::span<const std::uint8_t> luts;              ///< [num_tables + 1, 256]
  std::span<const std::uint8_t> encoded_exponent;  ///< [num_bytes]
  std::span<const std::uint8_t> sign_mantissa;     ///< [num_weights]
  std::span<const std::uint8_t> output_positions;  ///< [4 * num_positions]
  std::span<const std::uint8_t> gaps;              ///< [320 * num_chunks]
};

struct SlowDecoding {
  bool ok = false;
  std::string problem = {};  ///< the first problem found and its place; empty if ok
  std::vector<std::uint16_t> weights =
      {};  ///< BF16 words [num_weights]; after a problem, those found before it
};

/// Decodes weight after weight from bit 0, then checks what docs/format.md says about the buffers:
/// - the sizes of all of them, and that the stream's last byte is the one in which the last code ends;
/// - the row of code lengths, and that the codes met are a prefix code looked up at the levels of their
/// lengths;
/// - every gap and every output position against the starts of the codes, with the two exceptions;
/// - the number of output positions, and the zeros that pad the gaps.
/// Not checked: what no decoder can know (the bits of EOF that complete the last byte), and entries of lookup
/// tables that the stream does not reach (`window_decode` looks at those that the kernel reaches).
///
/// Always ends, never reads outside the buffers, throws only std::bad_alloc. Thread-safe.
SlowDecoding slow_decode(const UnitBytes& unit);

/// Does what the official kernel's threads do ("Padding"): decodes each window of each chunk from its gap
/// until the window's 64 bits are used up, and places the weights by output positions and by the counts of
/// the windows before.
///
/// Not ok if `slow_decode` finds a problem; if the unit exceeds a limit of the official kernel and loader; if
/// a window would never end (`problem` names it); or if the weights are not those of `slow_decode`. Otherwise
/// as `slow_decode`.
SlowDecoding window_decode(const UnitBytes& unit);

}  // namespace weightpress::selftest
