// Units of other makers: any prefix code, written bit by bit from docs/format.md. Shares no code with
// src/format.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <weightpress/df11.h>

#include "support/weights.h"

namespace weightpress::testing {

/// Any prefix code, complete or not; length 0: the exponent has none.
struct PlainCode {
  std::array<std::uint8_t, 256> lengths{};
  std::array<std::uint32_t, 256> bits{};  // right-aligned

  void add(unsigned exponent, unsigned length, std::uint32_t code) {
    lengths[exponent] = static_cast<std::uint8_t>(length);
    bits[exponent] = code;
  }
  std::vector<std::uint8_t> exponents() const {
    std::vector<std::uint8_t> all;
    for (unsigned e = 0; e < 256; ++e)
      if (lengths[e] != 0) all.push_back(static_cast<std::uint8_t>(e));
    return all;
  }
};

/// Codes of 1, 2, 4, 7, 11, 16, 25 and 32 bits, of exponents 101, 102, 104, ... (100 + bits): streams of any
/// length, with any of them as the last code. Zeros begin the longest, so empty windows are short work.
inline PlainCode code_of_all_lengths() {
  PlainCode code;
  for (const unsigned length : {1u, 2u, 4u, 7u, 11u, 16u, 25u}) code.add(100 + length, length, 1);
  code.add(132, 32, 0);
  return code;
}

/// A random prefix code of 1 to `max_codes` exponents; `depth_bias` of 256 splits go to the longest code that
/// there is. One code in `drop` is left out (0: none): the code is not complete then.
inline PlainCode random_code(Random& random, std::size_t max_codes, std::uint64_t depth_bias,
                             std::uint64_t drop) {
  struct Leaf {
    unsigned length;
    std::uint32_t bits;
  };
  std::vector<Leaf> leaves = {{1, 0}, {1, 1}};
  std::size_t tables = 1;
  const std::size_t wanted = 1 + random.below(max_codes);
  for (int tries = 0; leaves.size() < wanted && tries < 2000; ++tries) {
    std::size_t which = random.below(leaves.size());
    if (random.below(256) < depth_bias)
      which = static_cast<std::size_t>(
          std::ranges::max_element(leaves, {}, [](const Leaf& leaf) { return leaf.length; }) -
          leaves.begin());
    const Leaf leaf = leaves[which];
    if (leaf.length == 32 || (leaf.length % 8 == 0 && tables == 17)) continue;
    tables += leaf.length % 8 == 0 ? 1 : 0;
    leaves[which] = {leaf.length + 1, leaf.bits << 1};
    leaves.push_back({leaf.length + 1, leaf.bits << 1 | 1});
  }
  PlainCode code;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (i > 0 && (i >= wanted || (drop != 0 && random.below(drop) == 0))) continue;
    unsigned exponent = 0;
    do exponent = static_cast<unsigned>(random.below(240));
    while (code.lengths[exponent] != 0);
    code.add(exponent, leaves[i].length, leaves[i].bits);
  }
  return code;
}

/// What stands in entries that no code reaches.
enum class PlainFill : std::uint8_t { kZero, kRepeat, kPointers };

inline std::vector<std::uint8_t> plain_luts(const PlainCode& code, PlainFill fill) {
  // The prefixes, in the order of their tables; a prefix of 0 to 3 bytes is a pair of its length and its
  // bits.
  std::set<std::pair<unsigned, std::uint32_t>> prefixes = {{0, 0}};
  const std::vector<std::uint8_t> exponents = code.exponents();
  for (const std::uint8_t e : exponents)
    for (unsigned length = 8; length < code.lengths[e]; length += 8)
      prefixes.emplace(length, code.bits[e] >> (code.lengths[e] - length));
  const auto number_of = [&](unsigned length, std::uint32_t bits) {
    return static_cast<unsigned>(std::distance(prefixes.begin(), prefixes.find({length, bits})));
  };
  std::vector<std::uint8_t> luts((prefixes.size() + 1) * 256, fill == PlainFill::kPointers ? 0xFF : 0);
  std::vector<bool> is_set(luts.size(), false);
  const auto set = [&](std::size_t place, unsigned value) {
    luts[place] = static_cast<std::uint8_t>(value);
    is_set[place] = true;
  };
  for (const std::uint8_t e : exponents) {
    const unsigned length = code.lengths[e];
    unsigned before = 0;
    std::size_t table = 0;
    for (; before + 8 < length; before += 8) {
      const std::uint32_t prefix = code.bits[e] >> (length - before - 8);
      const unsigned next = number_of(before + 8, prefix);
      set(table * 256 + (prefix & 0xFF), 256 - next);
      table = next;
    }
    const unsigned rest = length - before;
    const std::uint32_t first = (code.bits[e] & ((1u << rest) - 1)) << (8 - rest);
    for (std::uint32_t i = 0; i < 1u << (8 - rest); ++i) set(table * 256 + first + i, e);
  }
  if (fill == PlainFill::kRepeat) {
    for (std::size_t row = 0; row < prefixes.size(); ++row) {
      const auto begin = luts.begin() + static_cast<std::ptrdiff_t>(row * 256);
      std::size_t first = 0;
      while (!is_set[row * 256 + first]) ++first;
      std::fill(begin, begin + static_cast<std::ptrdiff_t>(first), begin[static_cast<std::ptrdiff_t>(first)]);
      for (std::size_t i = first + 1; i < 256; ++i)
        if (!is_set[row * 256 + i]) luts[row * 256 + i] = luts[row * 256 + i - 1];
    }
  }
  std::ranges::copy(code.lengths, luts.end() - 256);
  return luts;
}

/// How output_positions end where the last chunk has no start ("Output positions"): as the page says, or as
/// other makers could have it.
enum class PlainPositions : std::uint8_t { kOfficial, kLong, kShort };

/// The bits after the last code are those of `padding`. Precondition: each exponent has a code.
inline Df11Unit encode_plainly(const PlainCode& code, std::span<const std::uint16_t> weights,
                               PlainFill fill = PlainFill::kRepeat,
                               PlainPositions ending = PlainPositions::kOfficial, std::uint8_t padding = 0) {
  Df11Unit unit;
  unit.luts = plain_luts(code, fill);
  std::vector<std::int64_t> window_gaps, positions;  // -1: no code starts there, so far
  std::uint64_t bit = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const unsigned exponent = weights[i] >> 7 & 0xFF;
    unit.sign_mantissa.push_back(static_cast<std::uint8_t>((weights[i] >> 8 & 0x80) | (weights[i] & 0x7F)));
    if (bit / 64 >= window_gaps.size()) window_gaps.resize(bit / 64 + 1, -1);
    if (window_gaps[bit / 64] < 0) window_gaps[bit / 64] = static_cast<std::int64_t>(bit % 64);
    if (bit / 32768 >= positions.size()) positions.push_back(static_cast<std::int64_t>(i));
    for (unsigned left = code.lengths[exponent]; left-- > 0; ++bit) {
      if (bit % 8 == 0) unit.encoded_exponent.push_back(0);
      unit.encoded_exponent.back() = static_cast<std::uint8_t>(
          unit.encoded_exponent.back() | (code.bits[exponent] >> left & 1) << (7 - bit % 8));
    }
  }
  const std::uint64_t num_chunks = (unit.encoded_exponent.size() + 4095) / 4096;
  window_gaps.resize(num_chunks * 512, -1);
  if (bit % 8 != 0) {
    unit.encoded_exponent.back() =
        static_cast<std::uint8_t>(unit.encoded_exponent.back() | (padding & 0xFF >> bit % 8));
    if (window_gaps[bit / 64] < 0) window_gaps[bit / 64] = static_cast<std::int64_t>(bit % 64);
  }
  const bool is_corner = positions.size() < num_chunks;
  const auto count = static_cast<std::int64_t>(weights.size());
  if (is_corner && (ending == PlainPositions::kLong || (ending == PlainPositions::kOfficial && bit % 8 != 0)))
    positions.push_back(count);
  positions.push_back(count);

  for (const std::int64_t position : positions)
    for (unsigned i = 0; i < 4; ++i)
      unit.output_positions.push_back(static_cast<std::uint8_t>(position >> 8 * i));
  unit.gaps.assign(num_chunks * 320, 0);
  for (std::size_t window = 0; window < window_gaps.size(); ++window) {
    const std::int64_t gap = std::max<std::int64_t>(window_gaps[window], 0);
    for (unsigned i = 0; i < 5; ++i) {
      const std::size_t at = 5 * window + i;
      if (gap >> (4 - i) & 1)
        unit.gaps[at / 8] = static_cast<std::uint8_t>(unit.gaps[at / 8] | 0x80 >> at % 8);
    }
  }
  return unit;
}

/// Exponents of the code at random: all alike, or as often as their lengths let expect.
inline std::vector<std::uint16_t> weights_of_code(const PlainCode& code, std::size_t count, bool by_length,
                                                  Random& random) {
  const std::vector<std::uint8_t> exponents = code.exponents();
  std::vector<std::uint16_t> weights;
  while (weights.size() < count) {
    const std::uint8_t exponent = exponents[random.below(exponents.size())];
    if (by_length && random.next() >> 32 >> (32 - code.lengths[exponent]) != 0 && random.below(8) != 0)
      continue;
    weights.push_back(with_exponent(random, exponent));
  }
  return weights;
}

/// Weights of code_of_all_lengths() whose codes take exactly `total_bits`, the last one `last_length` of
/// them. `long_codes`: mostly codes of 7 bits and more before it, so that few weights fill many bits.
inline std::vector<std::uint16_t> weights_of_bits(std::uint64_t total_bits, unsigned last_length,
                                                  bool long_codes, Random& random) {
  static constexpr unsigned kLengths[] = {1, 2, 4, 7, 11, 16, 25, 32};
  std::vector<std::uint16_t> weights;
  std::uint64_t left = total_bits - last_length;
  while (left > 0) {
    const unsigned first = long_codes && random.below(16) != 0 ? 3 : 0;
    const unsigned length = kLengths[first + random.below(8 - first)];
    // The shortest fits always.
    weights.push_back(with_exponent(random, 100 + (length <= left ? length : 1)));
    left -= length <= left ? length : 1;
  }
  weights.push_back(with_exponent(random, 100 + last_length));
  return weights;
}

}  // namespace weightpress::testing
