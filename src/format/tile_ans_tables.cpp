#include "format/tile_ans_tables.h"

#include <cassert>

#include "format/tile_ans_reciprocal.h"

namespace weightpress::tile_ans {

Starts starts_of(const Frequencies& frequencies) {
  Starts starts;
  std::uint32_t sum = 0;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    // The sum before the last symbol that occurs is below 4096; behind it, nobody looks.
    starts[symbol] = static_cast<std::uint16_t>(sum);
    sum += frequencies[symbol];
  }
  assert(sum <= kMaxTableSize);
  return starts;
}

void write_decode_table(const Frequencies& frequencies, std::span<std::uint32_t> table) {
  std::uint32_t slot = 0;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    const std::uint32_t frequency = frequencies[symbol];
    assert(slot + frequency <= table.size());
    const std::uint32_t entry =
        slot << kEntryStartShift | (frequency & kEntryFieldMask) << kEntryFrequencyShift | symbol;
    for (std::uint32_t end = slot + frequency; slot < end; ++slot) table[slot] = entry;
  }
  assert(slot == table.size());
}

std::optional<Frequencies> read_decode_table(std::span<const std::uint32_t> table) {
  assert(table.size() >= kNumSymbols && table.size() <= kMaxTableSize);
  Frequencies frequencies{};
  std::uint32_t least_symbol = 0;
  for (std::size_t slot = 0; slot < table.size();) {
    const std::uint32_t entry = table[slot];
    const std::uint32_t symbol = entry & 0xFF;
    std::uint32_t frequency = entry >> kEntryFrequencyShift & kEntryFieldMask;
    if (frequency == 0) frequency = kMaxTableSize;
    if (entry >> kEntryStartShift != slot || symbol < least_symbol || frequency > table.size() - slot)
      return std::nullopt;
    for (std::size_t end = slot + frequency; slot < end; ++slot) {
      if (table[slot] != entry) return std::nullopt;
    }
    frequencies[symbol] = static_cast<std::uint16_t>(frequency);
    least_symbol = symbol + 1;
  }
  return frequencies;
}

EncodeTable make_encode_table(const Frequencies& frequencies, std::uint32_t probability_bits) {
  const std::uint32_t table_size = 1u << probability_bits;
  const Starts starts = starts_of(frequencies);
  EncodeTable table;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    const std::uint32_t frequency = frequencies[symbol] == 0 ? 1 : frequencies[symbol];
    const Reciprocal reciprocal = reciprocal_of(frequency);
    table[symbol] = {.multiplier = reciprocal.multiplier,
                     .renormalise_from = frequency << (kStateBits - probability_bits),
                     .complement = static_cast<std::uint16_t>(table_size - frequency),
                     .start = starts[symbol],
                     .shift = reciprocal.shift | (frequencies[symbol] == 0 ? EncodeEntry::kAbsent : 0)};
  }
  return table;
}

}  // namespace weightpress::tile_ans
