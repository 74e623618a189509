// Test weights: BF16 words whose exponents follow a given distribution. Seeded, the same on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "format/bf16_fields.h"
#include "format/histogram.h"

namespace weightpress::testing {

/// SplitMix64: one line, the same everywhere (the standard's distributions are not).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// 0 .. bound - 1
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

inline std::uint16_t with_exponent(Random& random, std::uint32_t exponent) {
  return df11::join_bf16(static_cast<std::uint8_t>(exponent), static_cast<std::uint8_t>(random.next()));
}

/// Normal weights of standard deviation 0.02, cut to BF16: what trained layers look like.
inline std::vector<std::uint16_t> normal_weights(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint16_t> weights(count);
  for (std::size_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform())) * 0.02;
    const double angle = 6.283185307179586 * random.uniform();
    const float pair[2] = {static_cast<float>(radius * std::cos(angle)),
                           static_cast<float>(radius * std::sin(angle))};
    for (std::size_t k = 0; k < 2 && i + k < count; ++k) {
      std::uint32_t bits;
      __builtin_memcpy(&bits, &pair[k], sizeof bits);
      weights[i + k] = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  return weights;
}

/// Exponents first .. first + num - 1, each as often as the others on average.
inline std::vector<std::uint16_t> uniform_exponents(std::size_t count, std::uint32_t first, std::uint32_t num,
                                                    std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint16_t> weights(count);
  for (std::uint16_t& weight : weights) {
    weight = with_exponent(random, first + static_cast<std::uint32_t>(random.below(num)));
  }
  return weights;
}

/// One weight in `every` has exponent 100 + (0..spread-1), the others are zero: pruned tensors.
inline std::vector<std::uint16_t> mostly_zero(std::size_t count, std::uint64_t every, std::uint32_t spread,
                                              std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint16_t> weights(count);
  for (std::uint16_t& weight : weights) {
    const bool kept = random.below(every) == 0;
    weight = kept ? with_exponent(random, 100 + static_cast<std::uint32_t>(random.below(spread)))
                  : std::uint16_t{0};
  }
  return weights;
}

/// Exactly histogram[e] weights of each exponent e, shuffled.
inline std::vector<std::uint16_t> weights_of_histogram(const df11::Histogram& histogram, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint16_t> weights;
  for (std::uint32_t exponent = 0; exponent < df11::kNumSymbols; ++exponent) {
    for (std::uint64_t i = 0; i < histogram[exponent]; ++i)
      weights.push_back(with_exponent(random, exponent));
  }
  for (std::size_t i = weights.size(); i > 1; --i) std::swap(weights[i - 1], weights[random.below(i)]);
  return weights;
}

/// Counts that grow like Fibonacci numbers: the longest codes for a given number of weights.
inline df11::Histogram fibonacci_histogram(std::uint32_t num_symbols, std::uint32_t first_exponent) {
  df11::Histogram histogram{};
  std::uint64_t a = 1, b = 1;
  for (std::uint32_t i = 0; i < num_symbols; ++i) {
    histogram[first_exponent + i] = a;
    const std::uint64_t next = a + b;
    a = b;
    b = next;
  }
  return histogram;
}

/// Codes above 32 bits and a limiter that has to choose: it ends at two 5s, of which it changes one. (2, 2,
/// 5, and then each count just large enough that the tree stays a list; 17,622,889 weights.)
inline df11::Histogram ambiguous_histogram() {
  std::vector<std::uint64_t> counts = {2, 2, 5};
  std::vector<std::uint64_t> sums = {3, 5, 10};  // of EOF and the counts so far
  while (counts.size() < 33) {
    counts.push_back(std::max(sums[sums.size() - 2], counts.back()));
    sums.push_back(sums.back() + counts.back());
  }
  df11::Histogram histogram{};
  std::copy(counts.begin(), counts.end(), histogram.begin() + 100);
  return histogram;
}

inline df11::Histogram histogram_of(std::span<const std::uint16_t> weights) {
  df11::Histogram histogram{};
  for (const std::uint16_t weight : weights) ++histogram[df11::exponent_of(weight)];
  return histogram;
}

}  // namespace weightpress::testing
