// Random units for the official kernel: distributions and sizes of all kinds, and tables of any fill.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weightpress/df11.h>

#include "support/plain_encoder.h"
#include "support/stored_units.h"
#include "support/weights.h"

namespace weightpress::testing {

/// A unit with safe tables, and the code that its stream is written in.
struct CodedUnit {
  std::string kind;
  std::vector<std::uint16_t> weights;
  Df11Unit unit;
  PlainCode code;
};

/// The code of the exponents that occur, read off the stream.
inline PlainCode code_of_stream(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  PlainCode code;
  const std::vector<std::uint64_t> starts = code_starts(unit, weights);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const unsigned exponent = weights[i] >> 7 & 0xFF;
    if (code.lengths[exponent] != 0) continue;
    std::uint32_t bits = 0;
    for (std::uint64_t bit = starts[i]; bit < starts[i + 1]; ++bit)
      bits = bits << 1 | (unit.encoded_exponent[bit / 8] >> (7 - bit % 8) & 1u);
    code.add(exponent, static_cast<unsigned>(starts[i + 1] - starts[i]), bits);
  }
  return code;
}

/// Which entries of the tables some code reaches.
inline std::vector<bool> reached_entries(const std::vector<std::uint8_t>& luts, const PlainCode& code) {
  std::vector<bool> reached(luts.size() - 256, false);
  for (const std::uint8_t e : code.exponents()) {
    std::size_t table = 0;
    unsigned rest = code.lengths[e];
    for (; rest > 8; rest -= 8) {
      const std::size_t place = table * 256 + (code.bits[e] >> (rest - 8) & 0xFF);
      reached[place] = true;
      table = 256u - luts[place];
    }
    const std::size_t first = table * 256 + ((code.bits[e] & ((1u << rest) - 1)) << (8 - rest));
    std::fill_n(reached.begin() + static_cast<std::ptrdiff_t>(first), 1u << (8 - rest), true);
  }
  return reached;
}

/// As official files have it: what stands before a row's first code is the end of the row above.
inline std::vector<std::uint8_t> with_carried_fill(std::vector<std::uint8_t> luts, const PlainCode& code) {
  const std::vector<bool> reached = reached_entries(luts, code);
  for (std::size_t row = 1; row < luts.size() / 256 - 1; ++row)
    for (std::size_t i = row * 256; !reached[i]; ++i) luts[i] = luts[row * 256 - 1];
  return luts;
}

/// Zeros in the first row where no code leads.
inline std::vector<std::uint8_t> with_zero_fill(std::vector<std::uint8_t> luts, const PlainCode& code) {
  const std::vector<bool> reached = reached_entries(luts, code);
  for (std::size_t i = 0; i < 256; ++i)
    if (!reached[i]) luts[i] = 0;
  return luts;
}

/// Cuts the weights where their codes end near `bits`. `lengths`: of the codes.
inline void cut_near(std::vector<std::uint16_t>& weights, const std::array<std::uint8_t, 256>& lengths,
                     std::uint64_t bits) {
  std::uint64_t sum = 0;
  std::size_t count = 0;
  while (count < weights.size() && sum < bits) sum += lengths[weights[count++] >> 7 & 0xFF];
  weights.resize(count);
}

/// Near a border of 64 or 32 bits in the first windows, or of a chunk, by -40 to 40 bits.
inline std::uint64_t bits_near_a_border(Random& random) {
  const std::uint64_t kind = random.below(8);
  std::uint64_t border = 0;
  if (kind < 3) border = 64 * (1 + random.below(40));
  if (kind == 3) border = 32 * (1 + random.below(80));
  if (kind >= 4 && kind < 7) border = 32'768;
  if (kind == 7) border = random.below(4) == 0 ? 65'536 : 32'768 - 64 * random.below(6);
  const std::uint64_t offset = random.below(3) == 0 ? 40 : random.below(81);
  return std::max<std::uint64_t>(border + offset, 41) - 40;
}

/// Compressed as the program does it, cut so that the stream ends near `bits`.
inline CodedUnit compressed_unit(std::string kind, std::vector<std::uint16_t> weights, std::uint64_t bits) {
  CodedUnit made;
  made.kind = std::move(kind);
  // Fewer weights have another code, so that the second cut is the better one.
  for (int round = 0; round < 2; ++round) {
    made.unit = compress_df11_unit(weights, {.luts = LutFill::kSafe, .num_threads = 1});
    std::array<std::uint8_t, 256> lengths{};
    std::copy(made.unit.luts.end() - 256, made.unit.luts.end(), lengths.begin());
    cut_near(weights, lengths, bits);
  }
  made.unit = compress_df11_unit(weights, {.luts = LutFill::kSafe, .num_threads = 1});
  made.weights = std::move(weights);
  made.code = code_of_stream(made.unit, made.weights);
  return made;
}

inline CodedUnit plain_unit(std::string kind, const PlainCode& code, std::vector<std::uint16_t> weights,
                            PlainPositions ending, std::uint8_t padding) {
  CodedUnit made;
  made.kind = std::move(kind);
  made.unit = encode_plainly(code, weights, PlainFill::kRepeat, ending, padding);
  made.weights = std::move(weights);
  made.code = code;
  return made;
}

/// The shortest codes that Huffman gives to a dominant exponent: 1 bit, and 2 or 3 for the others.
inline PlainCode dense_code(Random& random) {
  const auto first = static_cast<unsigned>(random.below(200));
  const bool of_zeros = random.below(2) == 0;
  PlainCode code;
  code.add(first, 1, of_zeros ? 0b0 : 0b1);
  code.add(first + 1, 2, of_zeros ? 0b10 : 0b01);
  code.add(first + 2, 3, of_zeros ? 0b110 : 0b001);
  return code;
}

inline CodedUnit random_unit(std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t bits = bits_near_a_border(random), data_seed = random.next();
  const std::size_t enough = bits + 64;  // even with one bit a weight
  const auto exponent = static_cast<std::uint32_t>(random.below(240));
  const auto ending = static_cast<PlainPositions>(random.below(3));
  const auto padding = static_cast<std::uint8_t>(random.next());
  switch (random.below(12)) {
    case 0:
      return compressed_unit("a few weights",
                             uniform_exponents(1 + random.below(8), 0,
                                               static_cast<std::uint32_t>(1 + random.below(240)), data_seed),
                             enough);
    case 1:
      return compressed_unit("constant", uniform_exponents(enough, exponent, 1, data_seed), bits);
    case 2: {
      std::vector<std::uint16_t> weights;
      const std::uint64_t share = 1 + random.below(40);
      while (weights.size() < enough)
        weights.push_back(with_exponent(random, random.below(share) == 0 ? exponent : exponent / 2));
      return compressed_unit("two symbols", std::move(weights), bits);
    }
    case 3:
    case 4:
      return compressed_unit("normal", normal_weights(enough, data_seed), bits);
    case 5: {
      const auto num = static_cast<std::uint32_t>(1 + random.below(40));
      return compressed_unit("uniform",
                             uniform_exponents(enough, std::min(exponent, 240 - num), num, data_seed), bits);
    }
    case 6:
      return compressed_unit(
          "many exponents",
          uniform_exponents(enough, 0, static_cast<std::uint32_t>(40 + random.below(200)), data_seed), bits);
    case 7: {
      const auto num = static_cast<std::uint32_t>(2 + random.below(18));
      return compressed_unit(
          "Fibonacci counts",
          weights_of_histogram(fibonacci_histogram(num, std::min(exponent, 240 - num)), data_seed), bits);
    }
    case 8:
      return compressed_unit("mostly zero",
                             mostly_zero(enough, 2 + random.below(40),
                                         static_cast<std::uint32_t>(1 + random.below(60)), data_seed),
                             bits);
    case 9: {
      const PlainCode code = random_code(random, 120, random.below(200), random.below(2) == 0 ? 0 : 5);
      std::vector<std::uint16_t> weights = weights_of_code(code, enough / 3 + 2, true, random);
      cut_near(weights, code.lengths, bits);
      return plain_unit("any code", code, std::move(weights), ending, padding);
    }
    case 10: {
      static constexpr unsigned kLengths[] = {1, 2, 4, 7, 11, 16, 25, 32};
      const unsigned last = kLengths[random.below(8)];
      return plain_unit("codes of up to 32 bits", code_of_all_lengths(),
                        weights_of_bits(bits + last, last, random.below(2) == 0, random), ending, padding);
    }
    default: {
      const PlainCode code = dense_code(random);
      const std::vector<std::uint8_t> exponents = code.exponents();
      std::vector<std::uint16_t> weights;
      const std::uint64_t share = 2 + random.below(60);
      while (weights.size() < enough) {
        const std::uint64_t which = random.below(share) == 0 ? 1 + random.below(2) : 0;
        weights.push_back(with_exponent(random, exponents[which]));
      }
      cut_near(weights, code.lengths, bits);
      return plain_unit("a dominant exponent", code, std::move(weights), ending, padding);
    }
  }
}

}  // namespace weightpress::testing
