#include "host/decode_table.h"

#include <algorithm>

#include "format/luts_view.h"

namespace weightpress::host {
namespace {

constexpr std::uint32_t kLevelBits = 8;

/// Codes of which not all bits that a look-up takes are known.
class PartialLookup {
 public:
  explicit PartialLookup(const df11::LutsView& luts) : luts_(luts) {
    for (std::uint32_t num_bits = 1; num_bits <= kLevelBits; ++num_bits)
      for (std::uint32_t bits = 0; bits < 1u << num_bits; ++bits)
        first_level_[num_bits][bits] = common_value(0, num_bits, bits);
  }

  /// The code that `bits`, right-aligned, begin with: if it is the same whatever follows, and ends within
  /// them. Otherwise its length is 0.
  df11::DecodedCode find(std::uint32_t num_bits, std::uint32_t bits) const {
    const std::uint32_t known = std::min(num_bits, kLevelBits);
    int value = first_level_[known][bits >> (num_bits - known)];
    if (value >= static_cast<int>(df11::kFirstPointer) && num_bits > kLevelBits) {
      const std::uint32_t table = 256 - static_cast<std::uint32_t>(value);
      if (table >= luts_.num_tables()) return {};
      const std::uint32_t rest = num_bits - kLevelBits;
      value = common_value(table, rest, bits & ((1u << rest) - 1));
    }
    if (value < 0 || value >= static_cast<int>(df11::kFirstPointer)) return {};
    const std::uint8_t length = luts_.length(static_cast<std::uint32_t>(value));
    if (length > num_bits) return {};
    return {static_cast<std::uint8_t>(value), length};
  }

 private:
  static_assert(kDecodeTableBits <= 2 * kLevelBits);

  /// What all entries of a table say that begin with these bits; -1 if they do not agree.
  int common_value(std::uint32_t table, std::uint32_t num_bits, std::uint32_t bits) const {
    const std::uint32_t spread = 1u << (kLevelBits - num_bits);
    const std::uint8_t value = luts_.entry(table, bits * spread);
    for (std::uint32_t i = 1; i < spread; ++i)
      if (luts_.entry(table, bits * spread + i) != value) return -1;
    return value;
  }

  const df11::LutsView& luts_;
  int first_level_[kLevelBits + 1][1 << kLevelBits] = {};
};

}  // namespace

void DecodeTable::build(std::span<const std::uint8_t> luts) {
  if (entries_ != nullptr && std::ranges::equal(luts, luts_)) return;
  luts_.assign(luts.begin(), luts.end());
  constexpr std::uint32_t kEntries = 1u << kDecodeTableBits;
  if (entries_ == nullptr) entries_ = std::make_unique<DecodeEntry[]>(kEntries);

  const df11::LutsView view(luts_);
  const PartialLookup lookup(view);
  for (std::uint32_t index = 0; index < kEntries; ++index) {
    DecodeEntry entry;
    std::uint32_t left = kDecodeTableBits;  // bits of the index that no code has taken
    while (left > 0 && entry.num_codes() < DecodeEntry::kMaxCodes) {
      const std::uint32_t rest = index & ((1u << left) - 1);
      const df11::DecodedCode code = lookup.find(left, rest);
      if (code.length == 0) break;
      entry = entry.with(code.exponent, code.length);
      left -= code.length;
    }
    entries_[index] = entry;
  }
}

}  // namespace weightpress::host
