// Units with codebooks of all kinds, for the encoder.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/encode_slab.h"
#include "format/codebook.h"
#include "support/plain_encoder.h"
#include "support/weights.h"

namespace weightpress::device {

using weightpress::testing::PlainCode;
using weightpress::testing::Random;
using Words = std::vector<std::uint16_t>;

struct CodedWeights {
  std::string kind;
  Words weights;
  df11::Codebook codebook;
};

inline df11::Codebook codebook_of(const PlainCode& code, std::uint8_t eof_length, std::uint32_t eof_code) {
  std::vector<df11::CodebookEntry> entries = {{df11::kEofSymbol, eof_length, eof_code}};
  for (const std::uint8_t exponent : code.exponents())
    entries.push_back({exponent, code.lengths[exponent], code.bits[exponent]});
  std::ranges::sort(entries, {},
                    [](const df11::CodebookEntry& entry) { return entry.code << (32 - entry.length); });
  return df11::make_codebook(std::move(entries));
}

/// Of code_of_all_lengths(), which leaves 001 free: EOF's code begins so.
inline df11::Codebook codebook_of_all_lengths(Random& random) {
  const auto more = static_cast<std::uint8_t>(random.below(30));
  const auto tail = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << more));
  return codebook_of(testing::code_of_all_lengths(), static_cast<std::uint8_t>(3 + more), 1u << more | tail);
}

/// Exponents 101 to 132 with codes of 1 to 32 bits.
inline PlainCode code_of_each_length() {
  PlainCode code;
  for (unsigned length = 1; length <= df11::kMaxCodeBits; ++length) code.add(100 + length, length, 1);
  return code;
}

/// The same with ones for zeros.
inline df11::Codebook complement(const df11::Codebook& codebook) {
  std::vector<df11::CodebookEntry> entries = codebook.entries;
  for (df11::CodebookEntry& entry : entries) entry.code ^= ~std::uint32_t{0} >> (32 - entry.length);
  std::ranges::reverse(entries);
  return df11::make_codebook(std::move(entries));
}

inline CodedWeights with_official_codebook(std::string kind, Words weights) {
  df11::Codebook codebook = df11::build_official_codebook(testing::histogram_of(weights));
  return {std::move(kind), std::move(weights), std::move(codebook)};
}

/// Any prefix code; one of its codes is EOF's.
inline CodedWeights of_random_code(std::size_t count, Random& random) {
  const std::uint64_t depth_bias = random.below(250), drop = 5 * random.below(2);
  PlainCode code = testing::random_code(random, 120, depth_bias, drop);
  const std::vector<std::uint8_t> exponents = code.exponents();
  const std::uint8_t taken = exponents[random.below(exponents.size())];
  const std::uint8_t eof_length = code.lengths[taken];
  std::uint32_t eof_code = code.bits[taken];
  if (exponents.size() == 1) {
    eof_code ^= 1;  // nothing is there
  } else {
    code.lengths[taken] = 0;
  }
  const bool by_length = random.below(2) == 0;
  Words weights = testing::weights_of_code(code, count, by_length, random);
  return {"any code", std::move(weights), codebook_of(code, eof_length, eof_code)};
}

/// Codes of these lengths alone, out of each length, as often as the others or in runs.
inline CodedWeights of_lengths(std::span<const unsigned> lengths, std::size_t count, bool in_runs,
                               Random& random) {
  Words weights;
  std::string kind = in_runs ? "runs of codes of" : "codes of";
  for (const unsigned length : lengths) {
    kind += ' ';
    kind += std::to_string(length);
  }
  while (weights.size() < count) {
    const unsigned length = lengths[random.below(lengths.size())];
    const std::size_t more = in_runs ? 1 + random.below(700) : 1;
    for (std::size_t i = 0; i < more && weights.size() < count; ++i)
      weights.push_back(testing::with_exponent(random, 100 + length));
  }
  const df11::Codebook codebook = codebook_of(code_of_each_length(), df11::kMaxCodeBits, 0);
  return {std::move(kind), std::move(weights), random.below(2) == 0 ? codebook : complement(codebook)};
}

/// `count` weights of code_of_all_lengths() whose codes take exactly `bits`: near seven bits each.
inline Words weights_of_count_and_bits(std::size_t count, std::uint64_t bits, Random& random) {
  const auto over = static_cast<std::int64_t>(bits) - 7 * static_cast<std::int64_t>(count);
  const std::int64_t shorter = (over % 4 + 4) % 4, longer = (over + 3 * shorter) / 4;
  Words weights;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i)
    weights.push_back(testing::with_exponent(random, i < shorter ? 104 : i < shorter + longer ? 111 : 107));
  for (std::size_t i = count; i > 1; --i) std::swap(weights[i - 1], weights[random.below(i)]);
  return weights;
}

inline CodedWeights random_weights(std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t size_kind = random.below(8);
  const std::size_t count = 1 + random.below(size_kind == 0 ? 40 : size_kind == 1 ? 20'000 : 5'000);
  const std::uint64_t data_seed = random.next();
  const auto exponent = static_cast<std::uint32_t>(random.below(180));
  const auto num = static_cast<std::uint32_t>(1 + random.below(60));
  const bool coin = random.below(2) == 0;
  switch (random.below(12)) {
    case 0:
    case 1:
      return with_official_codebook("normal", testing::normal_weights(count, data_seed));
    case 2:
      return with_official_codebook("uniform", testing::uniform_exponents(count, exponent, num, data_seed));
    case 3:
      return with_official_codebook("flat", testing::uniform_exponents(count, 0, 240, data_seed));
    case 4:
      return with_official_codebook("constant", testing::uniform_exponents(count, exponent, 1, data_seed));
    case 5:
      return with_official_codebook("mostly zero",
                                    testing::mostly_zero(count, 2 + random.below(40), num, data_seed));
    case 6:
      return with_official_codebook(
          "Fibonacci counts",
          testing::weights_of_histogram(testing::fibonacci_histogram(2 + num % 17, exponent), data_seed));
    case 7:
      return of_random_code(count, random);
    case 8: {
      const df11::Codebook codebook = codebook_of_all_lengths(random);
      Words weights = testing::weights_of_bits(32 + 8 * count, num % 2 == 0 ? 1 : 32, coin, random);
      return {"codes of all lengths", std::move(weights), num % 3 == 0 ? complement(codebook) : codebook};
    }
    case 9: {
      // Around what is merged in 32 and 64 bits, and the longest code of the fast path.
      static constexpr std::array<std::array<unsigned, 3>, 5> kChoices = {
          {{2, 4, 7}, {7, 8, 9}, {3, 4, 5}, {21, 22, 23}, {1, 15, 17}}};
      return of_lengths(kChoices[num % kChoices.size()], count, false, random);
    }
    case 10: {
      static constexpr std::array<std::array<unsigned, 3>, 3> kChoices = {
          {{1, 2, 32}, {4, 5, 31}, {8, 9, 22}}};
      return of_lengths(kChoices[num % kChoices.size()], count, true, random);
    }
    default: {
      std::array<unsigned, 4> lengths{};
      for (unsigned& length : lengths) length = static_cast<unsigned>(1 + random.below(df11::kMaxCodeBits));
      return of_lengths(lengths, count, coin, random);
    }
  }
}

/// Of all sizes, but no more segments than are encoded in a moment.
inline std::uint64_t random_segment_weights(std::size_t num_weights, Random& random) {
  const std::uint64_t least = num_weights / 14 + 1;
  switch (random.below(6)) {
    case 0:
      return std::max(least, 1 + random.below(40));
    case 1:
      return std::max(least, 1 + random.below(400));
    case 2:
      return 16 * std::max(least / 16 + 1, 1 + random.below(300));
    case 3:
      return kGpuSegmentWeights;
    default:
      return std::max(least, 1 + random.below(5'000));
  }
}

/// Segments [0, num_segments) in runs of any length: the slabs' borders.
inline std::vector<std::uint64_t> random_slab_borders(std::uint64_t num_segments, Random& random) {
  std::vector<std::uint64_t> borders = {0};
  const std::uint64_t most = 1 + random.below(num_segments);
  while (borders.back() < num_segments)
    borders.push_back(std::min(num_segments, borders.back() + 1 + random.below(most)));
  return borders;
}

}  // namespace weightpress::device
