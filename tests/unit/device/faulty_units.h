// Units for the decode stages that no encoder would make: streams of hostile tables, and faults of all kinds
// within the contract of format/decode_stage.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/decode_slab.h"
#include "support/plain_encoder.h"
#include "support/weights.h"

namespace weightpress::device {

using Bytes = std::vector<std::uint8_t>;

inline std::uint8_t random_byte(testing::Random& random) {
  return static_cast<std::uint8_t>(random.next());
}

// ---- tables of a stranger

/// Runs of equal entries, pointers to tables there are and are not, lengths of all kinds; most of them look
/// sound.
inline Bytes hostile_luts(testing::Random& random) {
  const std::size_t tables = 1 + random.below(random.below(4) == 0 ? 40 : 18);
  Bytes luts((tables + 1) * 256);
  const std::uint64_t longest_run = 1 + random.below(64), pointers = random.below(8);
  for (std::size_t i = 0; i < tables * 256;) {
    const std::uint64_t value = random.below(12) < pointers ? 256 - random.below(1 + random.below(17))
                                : random.below(4) == 0      ? random.below(240)
                                                            : 100 + random.below(3);
    for (std::uint64_t run = 1 + random.below(longest_run); run > 0 && i < tables * 256; --run)
      luts[i++] = static_cast<std::uint8_t>(value);
  }
  for (std::size_t e = 0; e < 256; ++e) {
    static constexpr std::uint8_t kOdd[] = {0, 32, 33, 64, 127, 128, 255};
    const std::uint64_t kind = random.below(12);
    luts[tables * 256 + e] = static_cast<std::uint8_t>(kind == 0   ? kOdd[random.below(std::size(kOdd))]
                                                       : kind == 1 ? random.below(33)
                                                                   : 1 + random.below(9));
  }
  return luts;
}

/// 32 bits from bit `bit` of the stream on, zeros after its end.
inline std::uint32_t bits_at(const Bytes& stream, std::uint64_t bit) {
  std::uint64_t bits = 0;
  for (std::uint64_t byte = bit / 8; byte < bit / 8 + 5; ++byte)
    bits = bits << 8 | (byte < stream.size() ? stream[byte] : 0);
  return static_cast<std::uint32_t>(bits >> (8 - bit % 8));
}

struct PlainLookUp {
  unsigned exponent = 0, length = 0;  ///< length 0: there is no code
  std::size_t entry = 0;              ///< that was looked at last
};

/// As docs/format.md has it.
inline PlainLookUp plain_look_up(const Bytes& luts, std::uint32_t bits) {
  const std::size_t lengths = luts.size() - 256;
  PlainLookUp found;
  for (std::size_t table = 0, level = 0; level < 4 && table * 256 < lengths; ++level, bits <<= 8) {
    found.entry = table * 256 + (bits >> 24);
    found.exponent = luts[found.entry];
    if (found.exponent < 240) {
      found.length = luts[lengths + found.exponent] <= 32 ? luts[lengths + found.exponent] : 0;
      return found;
    }
    table = 256 - found.exponent;
  }
  return found;
}

inline bool kernel_ends_on_window(const Bytes& luts, const Bytes& window, unsigned bit) {
  while (bit < 64) {
    const unsigned length = plain_look_up(luts, bits_at(window, bit)).length;
    if (length == 0) return false;
    bit += length;
  }
  return true;
}

/// A stream with the gaps and positions that belong to it.
struct HostileUnit {
  DecodeInput input;
  bool kernel_ends = true;
};

/// What hostile tables make of random bytes: lengths have nothing to do with the levels that exponents are
/// found at, several entries are the same exponent, and codes overlap. Only where the stream would come to no
/// code they are mended.
inline HostileUnit hostile_unit(testing::Random& random, std::uint64_t num_bytes) {
  DecodeInput unit;
  unit.luts = hostile_luts(random);
  const std::size_t lengths = unit.luts.size() - 256;
  unit.encoded_exponent.resize(num_bytes);
  for (std::uint8_t& byte : unit.encoded_exponent) byte = random_byte(random);
  std::vector<std::uint64_t> starts;
  Bytes exponents;
  std::uint64_t end = 0;  // of the last code, in the last byte
  while (end == 0) {
    const Bytes& stream = unit.encoded_exponent;
    starts.clear();
    exponents.clear();
    std::uint64_t bit = 0;
    while (bit < 8 * stream.size()) {
      const PlainLookUp code = plain_look_up(unit.luts, bits_at(stream, bit));
      if (code.length == 0) {
        if (code.exponent >= 240)
          unit.luts[code.entry] = static_cast<std::uint8_t>(random.below(240));
        else
          unit.luts[lengths + code.exponent] = static_cast<std::uint8_t>(1 + random.below(16));
        break;
      }
      starts.push_back(bit);
      exponents.push_back(static_cast<std::uint8_t>(code.exponent));
      bit += code.length;
    }
    if (bit < 8 * stream.size()) continue;
    starts.push_back(bit);
    for (const std::uint64_t start : starts)
      if (start > 0 && (start + 7) / 8 == stream.size() && (end == 0 || random.below(2) == 0)) end = start;
    // No code ends there.
    if (end == 0 && stream.size() > 1) unit.encoded_exponent.pop_back();
    if (end == 0 && stream.size() == 1) unit.luts[lengths + exponents[0]] = 1;
  }
  while (starts.back() >= end) starts.pop_back();

  for (const std::uint64_t start : starts) {
    const auto weight = static_cast<std::uint32_t>(unit.sign_mantissa.size());
    const std::uint8_t sign_mantissa = random_byte(random);
    unit.sign_mantissa.push_back(sign_mantissa);
    unit.source.push_back(static_cast<std::uint16_t>((sign_mantissa & 0x80) << 8 | exponents[weight] << 7 |
                                                     (sign_mantissa & 0x7F)));
    while (unit.positions.size() <= start / 32'768) unit.positions.push_back(weight);
  }
  unit.positions.resize(unit.num_chunks() + 1, static_cast<std::uint32_t>(starts.size()));
  Df11Unit gaps;
  gaps.gaps.resize(unit.num_chunks() * 320);
  std::vector<unsigned> first_starts(unit.num_chunks() * 512, 64);
  if (end % 8 != 0) first_starts[end / 64] = static_cast<unsigned>(end % 64);
  for (std::size_t i = starts.size(); i-- > 0;)
    first_starts[starts[i] / 64] = static_cast<unsigned>(starts[i] % 64);
  for (std::size_t window = 0; window < first_starts.size(); ++window)
    if (first_starts[window] < 64) testing::set_gap(gaps, window, first_starts[window]);
  unit.gaps = std::move(gaps.gaps);

  HostileUnit made;
  const std::uint64_t last = (unit.encoded_exponent.size() - 1) / 8;
  const Bytes window(unit.encoded_exponent.begin() + static_cast<std::ptrdiff_t>(8 * last),
                     unit.encoded_exponent.end());
  made.kernel_ends = kernel_ends_on_window(unit.luts, window, first_starts[last] % 64) &&
                     (last % 512 == 511 || kernel_ends_on_window(unit.luts, {}, 0));
  made.input = std::move(unit);
  return made;
}

// ---- faults

/// Changes the length of the stream. What there is more of it is random.
inline void set_stream_bytes(DecodeInput& unit, std::uint64_t num_bytes, testing::Random& random) {
  while (unit.encoded_exponent.size() < num_bytes) unit.encoded_exponent.push_back(random_byte(random));
  unit.encoded_exponent.resize(num_bytes);
  unit.gaps.resize(unit.num_chunks() * 320);
  unit.positions.resize(unit.num_chunks() + 1, static_cast<std::uint32_t>(unit.num_weights()));
  unit.positions.back() = static_cast<std::uint32_t>(unit.num_weights());
}

inline void set_num_weights(DecodeInput& unit, std::uint64_t num_weights) {
  unit.sign_mantissa.resize(num_weights, 0x55);
  unit.source.resize(num_weights, 0x3C55);
  for (std::uint32_t& position : unit.positions)
    position = std::min(position, static_cast<std::uint32_t>(num_weights));
  unit.positions.back() = static_cast<std::uint32_t>(num_weights);
}

/// Any positions that keep the contract, and as many weights.
inline void set_random_positions(DecodeInput& unit, std::uint64_t most_in_a_chunk, testing::Random& random) {
  std::uint64_t weight = random.below(4) == 0 ? random.below(100) : 0;
  for (std::size_t i = 0; i < unit.positions.size(); ++i) {
    unit.positions[i] = static_cast<std::uint32_t>(weight);
    if (random.below(4) != 0 || i + 2 == unit.positions.size()) weight += random.below(most_in_a_chunk + 1);
  }
  if (unit.positions.back() == 0) unit.positions.back() = 1;
  unit.sign_mantissa.resize(unit.positions.back());
  unit.source.resize(unit.positions.back());
}

inline void flip_random_bit(Bytes& bytes, std::uint64_t begin, testing::Random& random) {
  testing::flip_bit(bytes, 8 * begin + random.below(8 * (bytes.size() - begin)));
}

inline void set_random_gap(DecodeInput& unit, testing::Random& random) {
  Df11Unit gaps;
  gaps.gaps = std::move(unit.gaps);
  const std::uint64_t used = (unit.encoded_exponent.size() + 7) / 8;
  // Mostly of a window that has a byte of the stream, and its last ones or a chunk's first more often.
  std::uint64_t window = random.below(used);
  if (random.below(3) == 0) window = used - 1 - random.below(std::min<std::uint64_t>(used, 2));
  if (random.below(6) == 0) window = window / 512 * 512;
  if (random.below(6) == 0) window = random.below(gaps.gaps.size() / 5 * 8);
  testing::set_gap(gaps, window, static_cast<unsigned>(random.below(32)));
  unit.gaps = std::move(gaps.gaps);
}

/// One fault of any kind, or none where the contract would not be kept. Returns its name.
inline const char* add_fault(DecodeInput& unit, testing::Random& random) {
  const DecodeInput before = unit;
  const auto kept = [&](const char* name) {
    if (keeps_contract(unit)) return name;
    unit = before;
    return "none";
  };
  const std::uint64_t num_bytes = unit.encoded_exponent.size(), num_weights = unit.num_weights();
  switch (random.below(14)) {
    case 0:
      flip_random_bit(unit.luts, 0, random);
      return "a bit of luts";
    case 1:
      flip_random_bit(unit.luts, unit.luts.size() - 256, random);
      return "a bit of a code length";
    case 2: {
      static constexpr std::uint8_t kLengths[] = {0, 1, 8, 9, 32, 33, 255};
      const unsigned exponent = unit.source[random.below(num_weights)] >> 7 & 0xFF;
      unit.luts[unit.luts.size() - 256 + exponent] = kLengths[random.below(std::size(kLengths))];
      return "a code length";
    }
    case 3:
    case 4:
      flip_random_bit(unit.encoded_exponent, 0, random);
      return "a bit of the stream";
    case 5:
      flip_random_bit(unit.encoded_exponent, num_bytes - std::min<std::uint64_t>(num_bytes, 9), random);
      return "a bit of the stream's end";
    case 6:
      flip_random_bit(unit.gaps, 0, random);
      return "a bit of gaps";
    case 7:
    case 8:
      set_random_gap(unit, random);
      return "a gap";
    case 9: {
      std::uint32_t& position = unit.positions[random.below(unit.positions.size())];
      position = random.below(2) == 0 ? position ^ 1u << random.below(17)
                                      : position + static_cast<std::uint32_t>(random.below(5)) - 2;
      if (&position == &unit.positions.back()) set_num_weights(unit, position & 0x3FFFF);
      return kept("a position");
    }
    case 10:
      set_num_weights(unit, std::max<std::uint64_t>(num_weights + random.below(5), 3) - 2);
      return kept("the number of weights");
    case 11:
      set_stream_bytes(unit, std::max<std::uint64_t>(num_bytes + random.below(25), 13) - 12, random);
      return kept("the stream's length");
    case 12:
      set_stream_bytes(unit, 1 + random.below(num_bytes), random);
      if (random.below(2) == 0) set_num_weights(unit, 1 + random.below(num_weights));
      return kept("a stream cut short");
    default:
      flip_random_bit(unit.sign_mantissa, 0, random);
      return "a bit of sign_mantissa";
  }
}

/// A sound unit of any kind, of `num_bits` or a little more.
inline DecodeInput sound_unit(std::uint64_t num_bits, testing::Random& random) {
  const auto ending = static_cast<testing::PlainPositions>(random.below(3));
  const auto fill = static_cast<testing::PlainFill>(random.below(3));
  switch (random.below(4)) {
    case 0: {
      const auto weights = testing::normal_weights(1 + num_bits / 3, random.next());
      return decode_input(compress_df11_unit(weights, {.num_threads = 1}), weights);
    }
    case 1: {
      const testing::PlainCode code = testing::code_of_all_lengths();
      const auto weights = testing::weights_of_bits(num_bits + 32, 32, random.below(2) == 0, random);
      return decode_input(testing::encode_plainly(code, weights, fill, ending, random_byte(random)), weights);
    }
    case 2: {
      const testing::PlainCode code = testing::random_code(random, 100, random.below(220), random.below(6));
      const auto weights = testing::weights_of_code(code, 1 + num_bits / 6, true, random);
      return decode_input(testing::encode_plainly(code, weights, fill, ending, random_byte(random)), weights);
    }
    default:
      return hostile_unit(random, 1 + num_bits / 8).input;
  }
}

}  // namespace weightpress::device
