// A lane's tables: the stored decode table (docs/format.md, "Tile-ANS: decode tables") and what an encoder
// looks up by symbol.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "format/tile_ans_frequencies.h"

namespace weightpress::tile_ans {

/// First slot of each symbol: the sum of the frequencies of those below.
using Starts = std::array<std::uint16_t, kNumSymbols>;
Starts starts_of(const Frequencies& frequencies);

/// table: out, [2^probability_bits], which is also the sum of the frequencies.
void write_decode_table(const Frequencies& frequencies, std::span<std::uint32_t> table);

/// The frequencies of a stored table of 2^9 to 2^12 entries; nothing if it is not, to the bit, what
/// write_decode_table() makes of some frequencies.
std::optional<Frequencies> read_decode_table(std::span<const std::uint32_t> table);

/// What coding a symbol needs: x = x + x / f * (T - f) + c, which is x / f * T + x % f + c, after a word was
/// moved out if x >= renormalise_from.
struct EncodeEntry {
  std::uint32_t multiplier;        ///< of the reciprocal of f
  std::uint32_t renormalise_from;  ///< f * 2^(31 - probability_bits), up to 2^31
  std::uint16_t complement;        ///< T - f
  std::uint16_t start;             ///< c
  std::uint32_t shift;             ///< of the reciprocal; with kAbsent if f is 0
  static constexpr std::uint32_t kAbsent = 1u << 31;
};
static_assert(sizeof(EncodeEntry) == 16);
using EncodeTable = std::array<EncodeEntry, kNumSymbols>;

/// Symbols that do not occur have entries that are safe to compute with, and kAbsent.
EncodeTable make_encode_table(const Frequencies& frequencies, std::uint32_t probability_bits);

}  // namespace weightpress::tile_ans
