// The codes of two neighbouring weights as one table entry: one look-up instead of two.
#pragma once

#include <cstdint>
#include <memory>

#include "format/codebook.h"

namespace weightpress::host {

/// 65,536 entries of 8 bytes, indexed by (first exponent | second exponent << 8). Of its 512 KiB only the
/// pairs of common exponents are touched often: about 40 cache lines for trained weights, by calculation.
class PairCodes {
 public:
  // An entry, high to low:
  //   63      escape: a pair longer than kMaxPairBits, or with an exponent without a code
  //   47..40  bits of both codes
  //   39..16  both codes, right-aligned
  //   15..8   bits of the second code
  //    7..0   bits of the first code
  using Entry = std::uint64_t;
  static constexpr std::uint32_t kMaxPairBits = 24;
  static constexpr std::uint32_t kCodeShift = 16;
  static constexpr std::uint32_t kLengthShift = 40;
  static constexpr Entry kEscape = Entry{1} << 63;
  static_assert(kCodeShift + kMaxPairBits == kLengthShift);

  /// Builds the table unless it is that of this codebook already.
  void prepare(const df11::Codebook& codebook);

  const Entry* entries() const { return entries_.get(); }

 private:
  static constexpr std::size_t kNumEntries = std::size_t{1} << 16;

  std::unique_ptr<Entry[]> entries_;
  decltype(df11::Codebook::lengths) lengths_{};
  decltype(df11::Codebook::codes) codes_{};
};

}  // namespace weightpress::host
