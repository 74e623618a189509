// Casts against a reference that works on numbers instead of bits: it reads a word as sign, exponent and
// fraction into a double, which holds every F32 and F16 exactly, and rounds that with the machine's
// arithmetic.
#include "model/bf16_cast.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace weightpress::model {
namespace {

using Bytes = std::vector<std::uint8_t>;

void append(Bytes& bytes, std::uint32_t word, unsigned num_bytes) {
  for (unsigned i = 0; i < num_bytes; ++i) bytes.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
}

Bytes f32_bytes(const std::vector<std::uint32_t>& words) {
  Bytes bytes;
  for (const std::uint32_t word : words) append(bytes, word, 4);
  return bytes;
}

// The value of a word with `exponent_bits` and `fraction_bits`, as IEEE 754 says.
double value_of(std::uint32_t word, int exponent_bits, int fraction_bits) {
  const bool negative = (word >> (exponent_bits + fraction_bits) & 1) != 0;
  const int largest = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(word >> fraction_bits) & largest;
  const double fraction = std::ldexp(word & ((1u << fraction_bits) - 1), -fraction_bits);
  const int bias = largest / 2;
  double value = 0;
  if (exponent == largest) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias);
  } else {
    value = std::ldexp(1 + fraction, exponent - bias);
  }
  return negative ? -value : value;
}

struct Expected {
  std::uint16_t word = 0;
  CastCounts counts;
};

Expected reference(double value) {
  if (std::isnan(value)) return {.word = 0x7FC0, .counts = {}};
  Expected expected;
  const double magnitude = std::abs(value);
  std::uint32_t word = 0;
  bool overflowed = std::isinf(value);
  if (magnitude != 0 && !overflowed) {
    // Steps of BF16 next to the value: 2^-7 of its power of two, and never less than the smallest subnormal.
    const int power = std::max(std::ilogb(magnitude), -126);
    const double steps = std::nearbyint(std::ldexp(magnitude, 7 - power));  // ties to even
    const double rounded = std::ldexp(steps, power - 7);
    expected.counts.changed = rounded != magnitude;
    expected.counts.flushed_to_zero = rounded == 0;
    overflowed = rounded >= std::ldexp(1, 128);
    expected.counts.overflowed = overflowed;
    const auto significand = static_cast<std::uint32_t>(steps);  // up to 256: then the next power of two
    // Subnormals have no hidden 128, and their power is that of the smallest normal values.
    word = static_cast<std::uint32_t>(power + 126) * 128 + significand;
  }
  if (overflowed) word = 255 * 128;
  expected.word = static_cast<std::uint16_t>(word | (std::signbit(value) ? 0x8000 : 0));
  return expected;
}

// Casts and compares every word and the sums of the counts.
void expect_cast(Dtype from, const Bytes& bytes, std::size_t num_values) {
  const bool is_f32 = from == Dtype::kF32;
  const unsigned value_bytes = is_f32 ? 4 : 2;
  ASSERT_EQ(bytes.size(), num_values * value_bytes);
  std::vector<std::uint16_t> words(num_values, 0xAAAA);
  const CastCounts counts = cast_to_bf16(from, bytes.data(), words);
  CastCounts expected_counts;
  unsigned wrong = 0;
  for (std::size_t i = 0; i < num_values; ++i) {
    std::uint32_t word = 0;
    for (unsigned k = 0; k < value_bytes; ++k)
      word |= static_cast<std::uint32_t>(bytes[i * value_bytes + k]) << (8 * k);
    const Expected expected = reference(is_f32 ? value_of(word, 8, 23) : value_of(word, 5, 10));
    expected_counts += expected.counts;
    if (words[i] == expected.word) continue;
    ADD_FAILURE() << std::hex << word << " became " << words[i] << ", expected " << expected.word;
    if (++wrong == 10) return;
  }
  EXPECT_EQ(counts.changed, expected_counts.changed);
  EXPECT_EQ(counts.overflowed, expected_counts.overflowed);
  EXPECT_EQ(counts.flushed_to_zero, expected_counts.flushed_to_zero);
}

struct Case {
  std::uint32_t f32;
  std::uint16_t bf16;
  CastCounts counts;
};

constexpr CastCounts kExact{};
constexpr CastCounts kChanged{.changed = 1};
constexpr CastCounts kOverflow{.changed = 1, .overflowed = 1};
constexpr CastCounts kFlush{.changed = 1, .flushed_to_zero = 1};

// Written by hand.
constexpr std::array kCases{
    Case{0x0000'0000, 0x0000, kExact},     // 0
    Case{0x8000'0000, 0x8000, kExact},     // -0
    Case{0x3F80'0000, 0x3F80, kExact},     // 1
    Case{0x3F80'7FFF, 0x3F80, kChanged},   // just below a tie
    Case{0x3F80'8000, 0x3F80, kChanged},   // a tie: down to even
    Case{0x3F80'8001, 0x3F81, kChanged},   // just above
    Case{0x3F81'8000, 0x3F82, kChanged},   // a tie: up to even
    Case{0xBF81'8000, 0xBF82, kChanged},   // the same, negative
    Case{0x3FFF'8000, 0x4000, kChanged},   // a carry into the exponent
    Case{0x0000'0001, 0x0000, kFlush},     // the smallest F32
    Case{0x8000'0001, 0x8000, kFlush},     //
    Case{0x0000'8000, 0x0000, kFlush},     // half the smallest BF16: a tie, down to 0
    Case{0x8000'8000, 0x8000, kFlush},     //
    Case{0x0000'8001, 0x0001, kChanged},   // just above
    Case{0x0001'0000, 0x0001, kExact},     // the smallest BF16
    Case{0x0001'8000, 0x0002, kChanged},   //
    Case{0x007F'8000, 0x0080, kChanged},   // the largest subnormals become the smallest normal value
    Case{0x0080'0000, 0x0080, kExact},     //
    Case{0x7F7F'0000, 0x7F7F, kExact},     // the largest finite BF16
    Case{0x7F7F'7FFF, 0x7F7F, kChanged},   // the last that stays finite
    Case{0x7F7F'8000, 0x7F80, kOverflow},  // a tie, up to Inf
    Case{0x7F7F'FFFF, 0x7F80, kOverflow},  // the largest F32
    Case{0xFF7F'8000, 0xFF80, kOverflow},  //
    Case{0xFF7F'7FFF, 0xFF7F, kChanged},   //
    Case{0x7F80'0000, 0x7F80, kExact},     // Inf
    Case{0xFF80'0000, 0xFF80, kExact},     //
    Case{0x7F80'0001, 0x7FC0, kExact},     // NaNs; rounding would make this one Inf,
    Case{0x7FFF'FFFF, 0x7FC0, kExact},     // and this one -0
    Case{0xFFFF'FFFF, 0x7FC0, kExact},     //
    Case{0xFF80'0001, 0x7FC0, kExact},     //
    Case{0x7FC0'0000, 0x7FC0, kExact},     //
    Case{0x7FA0'0000, 0x7FC0, kExact}};

TEST(Bf16Cast, CasesWrittenByHand) {
  for (const Case& c : kCases) {
    std::uint16_t word = 0xAAAA;
    const Bytes bytes = f32_bytes({c.f32});
    const CastCounts counts = cast_to_bf16(Dtype::kF32, bytes.data(), {&word, 1});
    EXPECT_EQ(word, c.bf16) << std::hex << c.f32;
    EXPECT_EQ(counts, c.counts) << std::hex << c.f32;
    // The reference is held to the same.
    const Expected expected = reference(value_of(c.f32, 8, 23));
    EXPECT_EQ(expected.word, c.bf16) << std::hex << c.f32;
    EXPECT_EQ(expected.counts, c.counts) << std::hex << c.f32;
  }
}

TEST(Bf16Cast, EveryF16) {
  Bytes bytes;
  for (std::uint32_t word = 0; word < 0x1'0000; ++word) append(bytes, word, 2);
  expect_cast(Dtype::kF16, bytes, 0x1'0000);
}

TEST(Bf16Cast, F16CasesWrittenByHand) {
  const std::vector<std::pair<std::uint16_t, std::uint16_t>> cases{
      {0x0000, 0x0000}, {0x8000, 0x8000}, {0x3C00, 0x3F80}, {0xC000, 0xC000},  // 0, -0, 1, -2
      {0x0001, 0x3380}, {0x0400, 0x3880}, {0x7BFF, 0x4780},  // 2^-24, 2^-14, 65504 becomes 65536
      {0x7C00, 0x7F80}, {0xFC00, 0xFF80}, {0x7C01, 0x7FC0}, {0xFE00, 0x7FC0},
      {0x3C04, 0x3F80}, {0x3C0C, 0x3F82}};  // ties to even
  for (const auto& [f16, bf16] : cases) {
    Bytes bytes;
    append(bytes, f16, 2);
    std::uint16_t word = 0xAAAA;
    cast_to_bf16(Dtype::kF16, bytes.data(), {&word, 1});
    EXPECT_EQ(word, bf16) << std::hex << f16;
  }
}

// Every BF16 as an F32 with low halves around each border: every exponent, subnormals and NaNs included.
TEST(Bf16Cast, F32AroundEveryBf16) {
  for (const std::uint32_t low : {0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF}) {
    Bytes bytes;
    for (std::uint32_t high = 0; high < 0x1'0000; ++high) append(bytes, high << 16 | low, 4);
    expect_cast(Dtype::kF32, bytes, 0x1'0000);
  }
}

TEST(Bf16Cast, RandomF32) {
  const char* given = std::getenv("WEIGHTPRESS_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20261130;
  std::cout << "seed " << seed << " (WEIGHTPRESS_SEED=N gives another)\n";
  std::mt19937_64 random(seed);
  constexpr std::size_t kValues = 1'000'000;
  for (const std::uint32_t mask : {0xFFFF'FFFFu, 0x807F'FFFFu, 0xBFFF'FFFFu}) {  // any, subnormal, below 2
    Bytes bytes;
    for (std::size_t i = 0; i < kValues; ++i) append(bytes, static_cast<std::uint32_t>(random()) & mask, 4);
    expect_cast(Dtype::kF32, bytes, kValues);
  }
}

// One value that is not ordinary among many that are, at each place of a block and in each kind of block.
TEST(Bf16Cast, OneOddValueAnywhere) {
  for (const std::size_t num_values : {1024u, 1500u, 3000u}) {
    for (std::size_t at = 0; at < num_values; at += 61) {
      for (const std::uint32_t odd : {0x7F80'0001u, 0xFF80'0000u, 0x7F7F'8000u, 0x0000'8000u, 0x8000'0000u}) {
        std::vector<std::uint32_t> words(num_values, 0x3F80'1234);
        words[at] = odd;
        expect_cast(Dtype::kF32, f32_bytes(words), num_values);
      }
    }
  }
}

// Sizes below a vector, and around a block; at every alignment; nothing outside is read (AddressSanitizer, as
// the buffers end with the last value) or written.
TEST(Bf16Cast, SizesAndAlignments) {
  std::mt19937_64 random(1);
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size <= 70; ++size) sizes.push_back(size);
  sizes.insert(sizes.end(), {1023, 1024, 1025, 2047, 2048, 2049});
  for (const Dtype from : {Dtype::kF32, Dtype::kF16}) {
    const std::size_t value_bytes = from == Dtype::kF32 ? 4 : 2;
    for (const std::size_t size : sizes) {
      Bytes values(size * value_bytes);
      for (std::uint8_t& byte : values) byte = static_cast<std::uint8_t>(random());
      expect_cast(from, values, size);
      std::vector<std::uint16_t> aligned(size);
      const CastCounts counts = cast_to_bf16(from, values.data(), aligned);
      for (std::size_t shift = 1; shift < 8; ++shift) {
        Bytes shifted(shift, 0xFF);
        shifted.insert(shifted.end(), values.begin(), values.end());
        shifted.shrink_to_fit();
        std::vector<std::uint16_t> words(size + 2, 0xAAAA);
        EXPECT_EQ(cast_to_bf16(from, shifted.data() + shift, std::span(words).subspan(1, size)), counts);
        EXPECT_EQ(words.front(), 0xAAAA);
        EXPECT_EQ(words.back(), 0xAAAA);
        EXPECT_TRUE(std::equal(aligned.begin(), aligned.end(), words.begin() + 1)) << size << " " << shift;
      }
    }
  }
}

TEST(Bf16Cast, CountsAddUp) {
  CastCounts sum{1, 2, 3};
  sum += {10, 20, 30};
  EXPECT_EQ(sum, (CastCounts{11, 22, 33}));
}

TEST(Bf16Cast, OtherTypesAreNotCast) {
  for (unsigned i = 0; i < kNumDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(can_cast_to_bf16(dtype), dtype_name(dtype) == "F32" || dtype_name(dtype) == "F16");
  }
}

}  // namespace
}  // namespace weightpress::model
