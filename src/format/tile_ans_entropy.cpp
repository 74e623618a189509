// Compiled without contraction of a * b + c (CMakeLists.txt): each term is rounded before it is added.
#include "format/tile_ans_entropy.h"

#include <array>
#include <cassert>
#include <cmath>

namespace weightpress::tile_ans {

double pairwise_sum(std::span<const double> terms) {
  const std::size_t count = terms.size();
  if (count < 8) {
    double sum = 0;
    for (const double term : terms) sum += term;
    return sum;
  }
  if (count > 128) {
    const std::size_t half = count / 2 / 8 * 8;
    return pairwise_sum(terms.first(half)) + pairwise_sum(terms.subspan(half));
  }
  std::array<double, 8> r;
  for (std::size_t i = 0; i < 8; ++i) r[i] = terms[i];
  std::size_t at = 8;
  for (; at + 8 <= count; at += 8) {
    for (std::size_t i = 0; i < 8; ++i) r[i] += terms[at + i];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; at < count; ++at) sum += terms[at];
  return sum;
}

double shannon_bits(const Histogram& histogram) {
  const double total = static_cast<double>(total_count(histogram));
  assert(total > 0);
  std::array<double, kNumSymbols> terms;
  std::size_t count = 0;
  for (const std::uint64_t of_symbol : histogram) {
    if (of_symbol == 0) continue;
    const double probability = static_cast<double>(of_symbol) / total;
    terms[count++] = probability * std::log2(probability);
  }
  return -pairwise_sum({terms.data(), count});
}

double coded_bits(const Histogram& histogram, const Frequencies& frequencies,
                  std::uint32_t probability_bits) {
  std::array<double, kNumSymbols> terms;
  std::size_t count = 0;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    if (histogram[symbol] == 0) continue;
    assert(frequencies[symbol] > 0);
    const double bits =
        static_cast<double>(probability_bits) - std::log2(static_cast<double>(frequencies[symbol]));
    terms[count++] = static_cast<double>(histogram[symbol]) * bits;
  }
  return pairwise_sum({terms.data(), count});
}

}  // namespace weightpress::tile_ans
