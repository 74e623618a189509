// DF11 units in memory: for callers that have weights and want the buffers, without files.
//
// The format is described in docs/format.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <weightpress/error.h>

namespace weightpress {

/// What stands in table entries that no code reaches.
enum class LutFill : std::uint8_t {
  kCompat,  ///< as in official files; a unit on which the official kernel would never end gets kSafe all the
            ///< same
  kSafe     ///< decoding ends on any bits
};

struct Df11UnitOptions {
  LutFill luts = LutFill::kCompat;
  /// Refuse (error kAmbiguousLimiter, kTooManyTables, kChunkTooDense, kPaddingNeverEnds) what would not be
  /// the official bytes.
  bool strict_identity = false;
  /// 0: as many as the machine has; 1,024 at most, and fewer where the system does not allow as many. The
  /// bytes do not depend on it.
  int num_threads = 0;
};

/// The buffers that the codec makes. The sixth of a stored unit, split_positions, follows from the tensors'
/// sizes alone.
struct Df11Unit {
  std::vector<std::uint8_t> luts;              ///< [num_tables + 1, 256]
  std::vector<std::uint8_t> encoded_exponent;  ///< [num_bytes]
  std::vector<std::uint8_t> sign_mantissa;     ///< [num_weights]
  std::vector<std::uint8_t> output_positions;  ///< [4 * num_positions], 32-bit little-endian
  std::vector<std::uint8_t> gaps;              ///< [320 * num_chunks]

  /// Empty: the official bytes. Otherwise one sentence a reason why no loader could use those.
  std::vector<std::string> rescues;
  /// The official bytes depend on numpy's version; these are one possible result.
  bool ambiguous_limiter = false;
};

/// Compresses one unit.
///
/// weights: BF16 bit patterns [num_weights], the unit's tensors concatenated.
/// Throws Error: kEmptyUnit, kExponentTooLarge (offset: index of the first such weight), kUnitTooLarge,
/// kStreamTooLong, kOutOfMemory, and those of strict_identity. Thread-safe.
Df11Unit compress_df11_unit(std::span<const std::uint16_t> weights, const Df11UnitOptions& options = {});

/// The buffers of a stored unit, of any maker. Shapes as in Df11Unit.
struct Df11UnitView {
  std::span<const std::uint8_t> luts;
  std::span<const std::uint8_t> encoded_exponent;
  std::span<const std::uint8_t> sign_mantissa;
  std::span<const std::uint8_t> output_positions;
  std::span<const std::uint8_t> gaps;
};

/// Reads a unit back: its weights, BF16 bit patterns [sign_mantissa.size()].
///
/// All buffers are checked against each other: whatever the bytes are, this ends, and nothing outside them is
/// read. num_threads: as in Df11UnitOptions. Throws Error: kCorruptFile (the message names buffer, window and
/// chunk; offset: index of the weight at fault, if one is), kOutOfMemory. Thread-safe.
std::vector<std::uint16_t> decompress_df11_unit(const Df11UnitView& unit, int num_threads = 0);

}  // namespace weightpress
