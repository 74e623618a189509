#include "job/selftest_units.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>

#include "format/bf16_fields.h"
#include "format/codebook.h"
#include "format/histogram.h"
#include "job/selftest_random.h"

namespace weightpress::job {
namespace {

using Words = std::vector<std::uint16_t>;
using Random = SelftestRandom;

std::uint16_t with_exponent(std::uint32_t exponent, std::uint64_t random) {
  return df11::join_bf16(static_cast<std::uint8_t>(exponent), static_cast<std::uint8_t>(random));
}

/// `count` words whose exponent is choose(random bits); sign and mantissa random.
Words make_words(std::size_t count, const std::function<std::uint32_t(std::uint64_t)>& choose) {
  Random random(0);
  Words words(count);
  for (std::uint16_t& word : words) {
    const std::uint64_t bits = random.next();
    word = with_exponent(choose(bits >> 8), bits);
  }
  return words;
}

/// Exponents as a normal distribution has them: halved in number with each step below the largest.
std::uint32_t weight_like(std::uint64_t random) {
  return 121u - static_cast<std::uint32_t>(std::countr_zero(random | std::uint64_t{1} << 40));
}

std::uint32_t rare_outliers(std::uint64_t random) {
  return random % 10 == 0 ? static_cast<std::uint32_t>(random / 10 % 200) + 20 : weight_like(random / 2048);
}

// ---- random units

/// The exponents that a kind of unit consists of; indices into a random order of all that can be stored.
struct Exponents {
  std::array<std::uint8_t, df11::kFirstPointer> order;

  explicit Exponents(Random& random) {
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint8_t>(i);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  std::uint16_t word(std::uint64_t index, Random& random) const {
    return with_exponent(order[index], random.next());
  }
};

/// The sum of twelve uniform numbers, cut to BF16: no arithmetic that differs between machines.
std::uint16_t normal_word(Random& random) {
  std::int64_t sum = 0;
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t bits = random.next();
    for (int k = 0; k < 4; ++k) sum += static_cast<std::int64_t>(bits >> 16 * k & 0xFFFF);
  }
  const float value = static_cast<float>(sum - 6 * 0x10000) * 0x1p-22f;
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

Words normal_words(std::size_t count, Random& random) {
  Words words(count);
  for (std::uint16_t& word : words) word = normal_word(random);
  return words;
}

Words flat_words(std::size_t count, std::uint64_t num_exponents, Random& random) {
  const Exponents exponents(random);
  Words words(count);
  for (std::uint16_t& word : words) word = exponents.word(random.below(num_exponents), random);
  return words;
}

/// Counts 1, 1, 2, 3, 5, ..., and the commonest exponent once more for all that is left: the longest codes
/// for that many weights.
Words fibonacci_words(std::size_t count, Random& random) {
  const Exponents exponents(random);
  Words words;
  std::uint64_t last = 1, next = 1;
  std::size_t index = 0;
  for (; words.size() + last <= count && index < exponents.order.size(); ++index) {
    for (std::uint64_t i = 0; i < last; ++i) words.push_back(exponents.word(index, random));
    last = std::exchange(next, last + next);
  }
  while (words.size() < count) words.push_back(exponents.word(index - 1, random));
  for (std::size_t i = words.size(); i > 1; --i) std::swap(words[i - 1], words[random.below(i)]);
  return words;
}

Words pruned_words(std::size_t count, Random& random) {
  const std::uint64_t one_in = 2 + random.below(40);
  Words words(count, 0);
  for (std::uint16_t& word : words)
    if (random.below(one_in) == 0) word = normal_word(random);
  return words;
}

Words words_with_outliers(std::size_t count, Random& random) {
  const Exponents exponents(random);
  const std::uint64_t one_in = 2 + random.below(100);
  Words words = normal_words(count, random);
  for (std::uint16_t& word : words)
    if (random.below(one_in) == 0) word = exponents.word(random.below(exponents.order.size()), random);
  return words;
}

/// Codes that are long for a while: what they take differs much from segment to segment.
Words words_with_outliers_in_one_place(std::size_t count, Random& random) {
  const Exponents exponents(random);
  Words words = normal_words(count, random);
  const std::size_t begin = random.below(count), end = begin + 1 + random.below(count - begin);
  for (std::size_t i = begin; i < end; ++i)
    words[i] = exponents.word(random.below(exponents.order.size()), random);
  return words;
}

struct Kind {
  const char* name;
  Words (*make)(std::size_t count, Random& random);
};

constexpr Kind kKinds[] = {
    {"one exponent", [](std::size_t count, Random& random) { return flat_words(count, 1, random); }},
    {"two exponents", [](std::size_t count, Random& random) { return flat_words(count, 2, random); }},
    {"normal", normal_words},
    {"flat counts",
     [](std::size_t count, Random& random) { return flat_words(count, 3 + random.below(200), random); }},
    {"Fibonacci counts", fibonacci_words},
    {"pruned", pruned_words},
    {"outliers", words_with_outliers},
    {"outliers in one place", words_with_outliers_in_one_place},
};

// ---- their sizes

std::uint64_t bits_of(std::span<const std::uint16_t> words) {
  df11::Histogram histogram{};
  for (const std::uint16_t word : words) ++histogram[df11::exponent_of(word)];
  return df11::total_bits(histogram, df11::build_official_codebook(histogram));
}

/// So many of the words have about `wanted` bits, as far as there are enough. Each weight changes the codes
/// of all, so this finds one place where that is so, or nearly.
std::size_t count_of_bits(std::span<const std::uint16_t> words, std::uint64_t wanted) {
  std::size_t low = 1, high = words.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (bits_of(words.first(middle)) < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// What back ends take at once: weights of a warp, a thread block's row, tile and segment, the CPU's segment.
constexpr std::uint64_t kBorders[] = {32, 512, 4096, 8 * 4096 - 512, 65'536};

/// How many of the words the unit gets.
std::size_t random_count(std::span<const std::uint16_t> words, Random& random) {
  const std::uint64_t max = words.size();
  std::uint64_t count = 0;
  switch (random.below(8)) {
    case 0:
      count = 1 + random.below(100);
      break;
    case 1:  // whole windows
      count = count_of_bits(words, df11::kWindowBits * (1 + random.below(1000))) - 1 + random.below(3);
      break;
    case 2:  // whole chunks
      count = count_of_bits(words, df11::kChunkBits * (1 + random.below(8))) - 1 + random.below(3);
      break;
    case 3: {
      const std::uint64_t border = kBorders[random.below(std::size(kBorders))];
      count = border * (1 + random.below(std::max<std::uint64_t>(max / border, 1))) - 1 + random.below(3);
      break;
    }
    case 4:
    case 5:  // of all orders of magnitude
      count = (max >> random.below(static_cast<std::uint64_t>(std::bit_width(max)))) - random.below(2);
      break;
    default:
      count = 1 + random.below(max);
  }
  return std::clamp<std::uint64_t>(count, 1, max);
}

}  // namespace

std::vector<SelftestUnit> built_in_units(std::uint64_t max_weights) {
  std::vector<SelftestUnit> units;
  const auto add = [&](const char* name, Words words) {
    words.resize(std::min<std::uint64_t>(words.size(), max_weights));
    units.push_back({.name = name, .weights = std::move(words), .seed = units.size()});
  };
  add("one weight", {0x3C00});
  add("one exponent", make_words(1'000, [](std::uint64_t) { return 120u; }));
  add("zeros", Words(200'000, 0));
  add("weight-like, one window and a bit", make_words(40, weight_like));
  add("weight-like, several chunks", make_words(300'001, weight_like));
  add("every exponent that can be stored",
      make_words(100'000, [](std::uint64_t r) { return static_cast<std::uint32_t>(r % 240); }));
  add("nine in ten pruned",
      make_words(250'000, [](std::uint64_t r) { return r % 10 ? 0 : weight_like(r / 16); }));
  add("outliers over 200 exponents", make_words(250'000, rare_outliers));
  return units;
}

SelftestUnit random_unit(std::uint64_t seed, std::uint64_t number, std::uint64_t max_weights) {
  Random random(mix(seed) + number);
  const Kind& kind = kKinds[random.below(std::size(kKinds))];
  SelftestUnit unit;
  unit.seed = random.next();
  unit.luts = random.below(2) == 0 ? LutFill::kCompat : LutFill::kSafe;
  unit.weights = kind.make(max_weights, random);
  unit.weights.resize(random_count(unit.weights, random));
  unit.name = "random unit " + std::to_string(number) + " of seed " + std::to_string(seed) + " (" +
              kind.name + ", " + std::to_string(unit.weights.size()) + " weights)";
  return unit;
}

}  // namespace weightpress::job
