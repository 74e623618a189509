// Stored lookup tables as a decoder reads them: one code at a time, whatever the bytes are.
#pragma once

#include <cstdint>
#include <span>

#include "format/df11_constants.h"
#include "format/host_device.h"

namespace weightpress::df11 {

/// One code, or none.
struct DecodedCode {
  std::uint8_t exponent = 0;
  std::uint8_t length = 0;  ///< bits; 0: the look-up leads to no exponent that has a code
};

class LutsView {
 public:
  /// luts: [256 * (num_tables + 1)], two rows at least; must outlive the object.
  WP_HOST_DEVICE explicit LutsView(std::span<const std::uint8_t> luts)
      : entries_(luts.data()), num_tables_(static_cast<std::uint32_t>(luts.size() / kNumSymbols) - 1) {}

  WP_HOST_DEVICE std::uint32_t num_tables() const { return num_tables_; }
  WP_HOST_DEVICE std::uint8_t entry(std::uint32_t table, std::uint32_t byte) const {
    return entries_[table * kNumSymbols + byte];
  }
  /// Of an exponent's code as the last row says; 0 where it says what no code can have.
  WP_HOST_DEVICE std::uint8_t length(std::uint32_t exponent) const {
    const std::uint8_t stored = entry(num_tables_, exponent);
    return stored <= kMaxCodeBits ? stored : 0;
  }

  /// The code that begins with the most significant of these bits.
  WP_HOST_DEVICE DecodedCode look_up(std::uint32_t bits) const {
    std::uint32_t table = 0;
    for (std::uint32_t level = 0; level < kMaxCodeBits / 8; ++level) {
      const std::uint8_t value = entry(table, bits >> (kMaxCodeBits - 8));
      if (value < kFirstPointer) return {value, length(value)};
      table = 256u - value;
      if (table >= num_tables_) break;
      bits <<= 8;
    }
    return {};
  }

 private:
  const std::uint8_t* entries_;
  std::uint32_t num_tables_;
};

}  // namespace weightpress::df11
