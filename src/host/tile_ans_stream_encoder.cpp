#include "host/tile_ans_stream_encoder.h"

#include <cstring>

namespace weightpress::host {

using tile_ans::EncodeEntry;
using tile_ans::kNumStates;
using tile_ans::kNumSymbols;

StreamEncodeTable::StreamEncodeTable(const tile_ans::Frequencies& frequencies, std::uint32_t bits)
    : entries(tile_ans::make_encode_table(frequencies, bits)), probability_bits(bits) {
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    const EncodeEntry& entry = entries[symbol];
    const std::uint32_t frequency = (1u << bits) - entry.complement;
    packed[2 * symbol] = entry.multiplier;
    // The start of an absent symbol can be 4096; it must not touch the frequency.
    packed[2 * symbol + 1] = (entry.shift & EncodeEntry::kAbsent) |
                             ((entry.shift & 63) - tile_ans::kStateBits) << 25 | frequency << 12 |
                             (entry.start & tile_ans::kEntryFieldMask);
  }
}

namespace {

// On entry: kMinState <= x < 2^31, and `out` has room for a word. The word is stored in any case and kept by
// moving on: which symbols move a word is as good as random, and a branch would be mispredicted.
inline void encode_symbol(const EncodeEntry& entry, std::uint32_t& state, std::uint16_t*& out,
                          std::uint32_t& flags) {
  std::uint32_t x = state;
  *out = static_cast<std::uint16_t>(x);
  const std::ptrdiff_t moves = -std::ptrdiff_t{x >= entry.renormalise_from};
  out -= moves;
  x ^= (x ^ x >> tile_ans::kWordBits) & static_cast<std::uint32_t>(moves);
  const std::uint32_t quotient =
      static_cast<std::uint32_t>((std::uint64_t{x} * entry.multiplier) >> (entry.shift & 63));
  flags |= entry.shift;
  state = x + quotient * entry.complement + entry.start;
}

}  // namespace

std::uint16_t* StreamEncoder::encode(const StreamEncodeTable& table, const std::uint8_t* symbols,
                                     std::size_t count, std::uint16_t* out, SimdLevel simd) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (simd == SimdLevel::kAvx2) done = encode_groups_avx2(table, symbols, count, *this, out);
#else
  (void)simd;
#endif
  // On copies: bytes of symbols could be anything's, so the compiler would store and load each time.
  std::uint32_t x[kNumStates];
  std::memcpy(x, states, sizeof x);
  std::uint32_t seen = flags;
  const EncodeEntry* const entries = table.entries.data();
  for (; done + kNumStates <= count; done += kNumStates) {
    for (std::uint32_t i = 0; i < kNumStates; ++i) encode_symbol(entries[symbols[done + i]], x[i], out, seen);
  }
  for (std::uint32_t i = 0; done < count; ++i, ++done) encode_symbol(entries[symbols[done]], x[i], out, seen);
  std::memcpy(states, x, sizeof x);
  flags = seen;
  return out;
}

}  // namespace weightpress::host
