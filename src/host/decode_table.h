// Several codes in one look-up: a table over the next kDecodeTableBits bits of the stream, made from luts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/df11_constants.h"

namespace weightpress::host {

// Measured on normal weights (2.7 bits a code), bench_df11_decode, one core of an AMD EPYC: see
// docs/benchmarking.md. 2^12 entries of 8 bytes are 32 KiB.
inline constexpr std::uint32_t kDecodeTableBits = 12;

/// An entry, high to low:
///   63..61  number of codes, 0 to kMaxEntryCodes; 0: the bits begin a code that they do not end
///   60..52  bits of these codes together
///   51..40  bit 40 + i: a code starts i bits into the entry
///   39..0   exponents, the first in the lowest byte
class DecodeEntry {
 public:
  static constexpr std::uint32_t kMaxCodes = 5;

  constexpr DecodeEntry() = default;
  static constexpr DecodeEntry from_packed(std::uint64_t packed) {
    DecodeEntry entry;
    entry.packed_ = packed;
    return entry;
  }
  /// No code at all. So many bits that no stream ends and no gap is where it leads.
  static constexpr DecodeEntry none() { return from_packed(std::uint64_t{kNoneBits} << kBitsShift); }
  /// With one more code of `length` bits, which starts where the ones before it end.
  constexpr DecodeEntry with(std::uint8_t exponent, std::uint32_t length) const {
    const std::uint32_t codes = num_codes();
    const std::uint64_t start = codes == 0 ? 1 : std::uint64_t{1} << num_bits();
    DecodeEntry entry = *this;
    entry.packed_ |= std::uint64_t{exponent} << (8 * codes);
    entry.packed_ |= start << kStartsShift;
    entry.packed_ += (std::uint64_t{length} << kBitsShift) + (std::uint64_t{1} << kCodesShift);
    return entry;
  }

  /// The exponents are its lowest bytes.
  constexpr std::uint64_t packed() const { return packed_; }
  constexpr std::uint32_t num_codes() const { return static_cast<std::uint32_t>(packed_ >> kCodesShift); }
  constexpr std::uint32_t num_bits() const {
    return static_cast<std::uint32_t>(packed_ >> kBitsShift) & ((1u << (kCodesShift - kBitsShift)) - 1);
  }
  constexpr std::uint32_t starts() const {
    return static_cast<std::uint32_t>(packed_ >> kStartsShift) & ((1u << kDecodeTableBits) - 1);
  }

 private:
  static constexpr std::uint32_t kStartsShift = 8 * kMaxCodes;
  static constexpr std::uint32_t kBitsShift = kStartsShift + kDecodeTableBits;
  static constexpr std::uint32_t kCodesShift = 61;
  static constexpr std::uint32_t kNoneBits = 4 * df11::kWindowBits;
  static_assert(kMaxCodes < 1u << (64 - kCodesShift));
  static_assert(kNoneBits < 1u << (kCodesShift - kBitsShift));

  std::uint64_t packed_ = 0;
};

class DecodeTable {
 public:
  /// Makes the table for these luts; nothing to do if they are the ones before. luts: two rows at least.
  void build(std::span<const std::uint8_t> luts);

  /// [2^kDecodeTableBits]
  const DecodeEntry* entries() const { return entries_.get(); }
  std::span<const std::uint8_t> luts() const { return luts_; }

 private:
  std::vector<std::uint8_t> luts_;  // that the table was made from
  std::unique_ptr<DecodeEntry[]> entries_;
};

}  // namespace weightpress::host
