#include "host/tile_ans_stream_decoder.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace weightpress::host {

using tile_ans::kMinState;
using tile_ans::kNumStates;
using tile_ans::StageCode;

StreamDecodeTable::StreamDecodeTable(const tile_ans::Frequencies& frequencies, std::uint32_t bits)
    : probability_bits(bits) {
  std::uint32_t slot = 0;
  for (std::uint32_t symbol = 0; symbol < tile_ans::kNumSymbols; ++symbol) {
    const std::uint32_t frequency = frequencies[symbol];
    if (frequency == 1u << bits) {
      is_constant = true;
      constant = static_cast<std::uint8_t>(symbol);
      return;
    }
    for (std::uint32_t i = 0; i < frequency; ++i) {
      entries[slot++] =
          i << tile_ans::kEntryStartShift | frequency << tile_ans::kEntryFrequencyShift | symbol;
    }
  }
  assert(slot == 1u << bits);
}

namespace {

// On entry 2^15 <= x < 2^31. With f <= 2^bits and slot - start < f: f * (x >> bits) + slot - start < f * ((x
// >> bits) + 1) <= 2^31, and it is at least 2^3 (f >= 1, bits <= 12), which one word brings to 2^19 or more.
// So whatever the words are, the same holds afterwards.
template <std::uint32_t kBits>
inline std::uint32_t next_state(std::uint32_t x, std::uint32_t entry) {
  return (entry >> tile_ans::kEntryFrequencyShift & tile_ans::kEntryFieldMask) * (x >> kBits) +
         (entry >> tile_ans::kEntryStartShift);
}

// A word is read in any case and taken by moving back: whether it is wanted is as good as random, and a
// branch would be mispredicted. By a mask: of the ways to write it, what g++ and clang make the least of.
template <std::uint32_t kBits>
inline void decode_symbol(const std::uint32_t* entries, std::uint32_t& state, const std::uint16_t*& end,
                          std::uint8_t& symbol) {
  const std::uint32_t entry = entries[state & ((1u << kBits) - 1)];
  symbol = static_cast<std::uint8_t>(entry);
  const std::uint32_t x = next_state<kBits>(state, entry);
  const std::ptrdiff_t takes = -std::ptrdiff_t{x < kMinState};
  const std::uint32_t refilled = x << tile_ans::kWordBits | end[-1];
  end += takes;
  state = x ^ ((x ^ refilled) & static_cast<std::uint32_t>(takes));
}

// Each state takes at most one word, so a group stays above `limit`.
template <std::uint32_t kBits>
std::size_t decode_groups_of(const StreamDecodeTable& table, StreamReader& reader, const std::uint16_t* limit,
                             std::size_t num_groups, std::uint8_t* symbols) {
  std::uint32_t states[kNumStates];
  std::memcpy(states, reader.states, sizeof states);
  const std::uint16_t* end = reader.end;
  while (num_groups > 0 && end - limit >= std::ptrdiff_t{kNumStates}) {
    std::uint8_t* const group = symbols + --num_groups * kNumStates;
    // Ascending states take words from lower places on. So, from the end: the last state first. Unrolled: 1.7
    // ns a symbol where a loop takes 2.1 (g++ 12, 2.4 GHz EPYC Milan), and in line: as a call, which g++
    // likes to make of one of four, it takes 3.1.
    [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) __attribute__((always_inline)) {
      (decode_symbol<kBits>(table.entries, states[kNumStates - 1 - kIndex], end,
                            group[kNumStates - 1 - kIndex]),
       ...);
    }(std::make_index_sequence<kNumStates>());
  }
  std::memcpy(reader.states, states, sizeof states);
  reader.end = end;
  return num_groups;
}

std::uint32_t next_state(std::uint32_t bits, std::uint32_t x, std::uint32_t entry) {
  return (entry >> tile_ans::kEntryFrequencyShift & tile_ans::kEntryFieldMask) * (x >> bits) +
         (entry >> tile_ans::kEntryStartShift);
}

}  // namespace

std::size_t decode_groups(const StreamDecodeTable& table, StreamReader& reader, const std::uint16_t* limit,
                          std::size_t num_groups, std::uint8_t* symbols) {
  switch (table.probability_bits) {
    case 9:
      return decode_groups_of<9>(table, reader, limit, num_groups, symbols);
    case 10:
      return decode_groups_of<10>(table, reader, limit, num_groups, symbols);
    case 11:
      return decode_groups_of<11>(table, reader, limit, num_groups, symbols);
    default:
      return decode_groups_of<12>(table, reader, limit, num_groups, symbols);
  }
}

StageCode StreamDecoder::begin(const StreamDecodeTable& table, std::span<const std::uint16_t> words,
                               const std::uint32_t* states, SimdLevel simd) {
  table_ = &table;
  simd_ = simd;
  begin_ = words.data();
  reader_.end = words.data() + words.size();
  in_tail_ = false;
  std::memcpy(reader_.states, states, sizeof reader_.states);
  const bool all_good = std::all_of(states, states + kNumStates, [](std::uint32_t state) {
    return state >= kMinState && state >> tile_ans::kStateBits == 0;
  });
  return all_good ? StageCode::kOk : StageCode::kBadState;
}

void StreamDecoder::enter_tail() {
  const std::size_t left = static_cast<std::size_t>(reader_.end - begin_);
  assert(!in_tail_ && left < kNumStates);
  std::fill_n(tail_, kNumStates, std::uint16_t{0});
  if (left != 0) std::memcpy(tail_ + kNumStates, begin_, left * sizeof tail_[0]);
  begin_ = tail_ + kNumStates;
  reader_.end = begin_ + left;
  in_tail_ = true;
}

bool StreamDecoder::decode_careful(std::uint32_t count, std::uint8_t* symbols) {
  const std::uint32_t bits = table_->probability_bits;
  for (std::uint32_t i = count; i-- > 0;) {
    std::uint32_t& state = reader_.states[i];
    const std::uint32_t entry = table_->entries[state & ((1u << bits) - 1)];
    symbols[i] = static_cast<std::uint8_t>(entry);
    state = next_state(bits, state, entry);
    if (state >= kMinState) continue;
    if (reader_.end == begin_) return false;
    state = state << tile_ans::kWordBits | *--reader_.end;
  }
  return true;
}

bool StreamDecoder::decode(std::size_t count, std::uint8_t* symbols) {
  if (table_->is_constant) {
    std::memset(symbols, table_->constant, count);
    return true;
  }
  const std::uint32_t rest = static_cast<std::uint32_t>(count % kNumStates);
  if (rest != 0 && !decode_careful(rest, symbols + (count - rest))) return false;

  auto* groups = decode_groups;
#if defined(__x86_64__)
  if (simd_ == SimdLevel::kAvx2) groups = decode_groups_avx2;
#endif
  std::size_t left = count / kNumStates;
  if (!in_tail_) {
    left = groups(*table_, reader_, begin_, left, symbols);
    if (left == 0) return true;
    enter_tail();
  }
  // All are decoded, or words that are not the stream's were taken.
  groups(*table_, reader_, tail_, left, symbols);
  return reader_.end >= begin_;
}

StageCode StreamDecoder::end() const {
  if (reader_.end != begin_) return StageCode::kUnreadWords;
  const bool all_back = std::all_of(reader_.states, reader_.states + kNumStates,
                                    [](std::uint32_t state) { return state == kMinState; });
  return all_back ? StageCode::kOk : StageCode::kBadEnd;
}

}  // namespace weightpress::host
