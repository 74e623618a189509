// The unit's codebook: a Huffman code over the exponents that occur and EOF, with the tie-breaking of the
// Python package dahuffman and the official 32-bit limiter (docs/format.md, "Codebook").
//
// Both decide stored bytes: another optimal code would decode, but differ from the official files.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "format/df11_constants.h"
#include "format/histogram.h"
#include "format/result.h"

namespace weightpress::df11 {

/// Stands for EOF in a CodebookEntry; sorts before every exponent.
inline constexpr int kEofSymbol = -1;

struct CodebookEntry {
  int symbol = kEofSymbol;  // exponent, or kEofSymbol
  std::uint8_t length = 0;  // bits, 1 .. kMaxCodeBits
  std::uint32_t code = 0;   // right-aligned; its most significant bit is written first

  bool operator==(const CodebookEntry&) const = default;
};

struct Codebook {
  /// In table order: the leaves of the tree from left to right, which is also the order of the codes as bit
  /// strings.
  std::vector<CodebookEntry> entries;
  /// By exponent; 0 for those that do not occur.
  std::array<std::uint8_t, kNumSymbols> lengths{};
  std::array<std::uint32_t, kNumSymbols> codes{};
  std::uint8_t eof_length = 0;
  std::uint32_t eof_code = 0;
  /// The limiter had to choose among equally rare exponents: the official choice depends on numpy's version.
  bool ambiguous_limiter = false;

  std::uint8_t shortest_length() const;  // of the exponents' codes
  std::uint8_t longest_length() const;   // EOF's included
};

/// A codebook from its entries, given in table order.
Codebook make_codebook(std::vector<CodebookEntry> entries);

/// The official codebook of a histogram.
/// Precondition: at least one count is not zero.
Codebook build_official_codebook(const Histogram& histogram);

/// Bits of all codes together: the dot product of counts and code lengths.
template <class Counts>
std::uint64_t total_bits(const Counts& counts, const Codebook& codebook) {
  std::uint64_t bits = 0;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    bits += std::uint64_t{counts[symbol]} * codebook.lengths[symbol];
  }
  return bits;
}

}  // namespace weightpress::df11
