// include/weightpress/selftest.h: built-in units through the codec and back, through the slow decoder and the
// fast one.
#include <exception>
#include <functional>

#include <weightpress/df11.h>
#include <weightpress/selftest.h>

#include "format/bf16_fields.h"
#include "job/unit_memory.h"
#include "selftest/slow_decoder.h"

namespace weightpress {
namespace {

using Words = std::vector<std::uint16_t>;

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// `count` words whose exponent is choose(random bits); sign and mantissa random.
Words make_words(std::size_t count, const std::function<std::uint32_t(std::uint64_t)>& choose) {
  Words words(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random = mix(0x9E3779B97F4A7C15 * (i + 1));
    words[i] =
        df11::join_bf16(static_cast<std::uint8_t>(choose(random >> 8)), static_cast<std::uint8_t>(random));
  }
  return words;
}

/// Exponents as a normal distribution has them: halved in number with each step below the largest.
std::uint32_t weight_like(std::uint64_t random) {
  return 121u - static_cast<std::uint32_t>(__builtin_ctzll(random | std::uint64_t{1} << 40));
}

std::uint32_t rare_outliers(std::uint64_t random) {
  return random % 10 == 0 ? static_cast<std::uint32_t>(random / 10 % 200) + 20 : weight_like(random / 2048);
}

std::string check(const Words& words, LutFill fill, int num_threads) {
  const Df11Unit unit = compress_df11_unit(words, {.luts = fill, .num_threads = num_threads});
  const selftest::SlowDecoding back = selftest::window_decode(
      {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps});
  if (!back.ok) return "the slow decoder found: " + back.problem;
  if (back.weights != words) return "it decodes to other weights";
  if (decompress_df11_unit(job::view_of(unit), num_threads) != words)
    return "the fast decoder gives other weights";
  return {};
}

}  // namespace

std::vector<SelftestCase> run_selftest(int num_threads) {
  const std::vector<std::pair<std::string, Words>> units = {
      {"one weight", Words{0x3C00}},
      {"one exponent", make_words(1'000, [](std::uint64_t) { return 120u; })},
      {"zeros", Words(200'000, 0)},
      {"weight-like, one window and a bit", make_words(40, weight_like)},
      {"weight-like, several chunks", make_words(300'001, weight_like)},
      {"every exponent that can be stored", make_words(100'000, [](std::uint64_t r) { return r % 240; })},
      {"nine in ten pruned",
       make_words(250'000, [](std::uint64_t r) { return r % 10 ? 0 : weight_like(r / 16); })},
      {"outliers over 200 exponents", make_words(250'000, rare_outliers)},
  };
  std::vector<SelftestCase> cases;
  for (const auto& [name, words] : units) {
    for (const LutFill fill : {LutFill::kCompat, LutFill::kSafe}) {
      SelftestCase test;
      test.name = name + (fill == LutFill::kSafe ? ", safe tables" : "");
      try {
        test.problem = check(words, fill, num_threads);
      } catch (const std::exception& error) {
        test.problem = error.what();
      }
      test.passed = test.problem.empty();
      cases.push_back(std::move(test));
    }
  }
  return cases;
}

}  // namespace weightpress
