#include "model/bf16_cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstring>

namespace weightpress::model {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

// Values are cast in blocks, by loops of constant length without branches, which compilers vectorise even at
// -O2. A block's words are made in a buffer of their own, since `words` might overlap `values` for all that
// the compiler knows. The counts of a block fit 32 bits many times over.
constexpr std::size_t kBlockValues = 1024;

// Bits of an F32 without its sign. Signed, since SSE2 compares nothing else; their order is that of the
// values.
constexpr std::int32_t kInf = 0x7F80'0000;
// From here on finite values round to Inf: half a step above the largest finite BF16.
constexpr std::int32_t kFirstToInf = 0x7F7F'8000;
// Up to here values round to zero: half the smallest subnormal BF16, which is as near to it and has the odd
// bit.
constexpr std::int32_t kLastToZero = 0x0000'8000;
constexpr std::uint32_t kNan = 0x7FC0;

std::int32_t magnitude_of(std::uint32_t f32_bits) {
  return static_cast<std::int32_t>(f32_bits & 0x7FFF'FFFF);
}

// Adds just under half a step, or half a step if the last bit is 1, and cuts. Not for NaN.
std::uint32_t nearest_bf16(std::uint32_t f32_bits) {
  return (f32_bits + 0x7FFF + (f32_bits >> 16 & 1)) >> 16;
}

std::uint32_t one_if(bool condition) {
  return condition ? 1 : 0;
}

std::uint32_t mask_if(bool condition) {
  return 0 - one_if(condition);
}

// What a file may hold: its word, and the bits of the F32 of the same value.
struct F32 {
  using Word = std::uint32_t;
  static std::uint32_t f32_bits(Word word) { return word; }
};

struct F16 {  // 15: sign, 14-10: exponent with bias 15, 9-0: fraction
  using Word = std::uint16_t;
  static std::uint32_t f32_bits(Word word) {
    const std::uint32_t magnitude = word & 0x7FFF;
    const std::uint32_t sign = (word & 0x8000u) << 16;
    const std::uint32_t normal = (magnitude << 13) + ((127 - 15) << 23);
    const std::uint32_t inf_or_nan = mask_if(magnitude >= 0x7C00) & kInf;
    // A subnormal one is its fraction times 2^-24: normal as an F32, and the product is exact.
    const float product = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const auto subnormal = std::bit_cast<std::uint32_t>(product);
    // Masks, since g++ 12 makes a branch of a choice and then no vectors.
    const std::uint32_t is_subnormal = mask_if(magnitude < 0x0400);
    return sign | inf_or_nan | (subnormal & is_subnormal) | (normal & ~is_subnormal);
  }
};

template <class Source>
std::uint32_t load_f32_bits(const std::uint8_t* values, std::size_t i) {
  typename Source::Word word;
  std::memcpy(&word, values + i * sizeof word, sizeof word);
  return Source::f32_bits(word);
}

using BlockWords = std::array<std::uint16_t, kBlockValues>;

// Casts a block in which nothing is Inf or NaN or becomes Inf or zero, as nearly all blocks of weights.
// Returns false if there is such a value; then cast_block() must do it.
template <class Source>
bool cast_ordinary_block(const std::uint8_t* values, BlockWords& words, CastCounts& sum) {
  std::uint32_t changed = 0;
  std::uint32_t others = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const std::uint32_t bits = load_f32_bits<Source>(values, i);
    const std::int32_t magnitude = magnitude_of(bits);
    words[i] = static_cast<std::uint16_t>(nearest_bf16(bits));
    const std::uint32_t is_changed = one_if((bits & 0xFFFF) != 0);
    changed += is_changed;
    others |= one_if(magnitude >= kFirstToInf) | (is_changed & one_if(magnitude <= kLastToZero));
  }
  if (others != 0) return false;
  sum.changed += changed;
  return true;
}

template <class Source>
void cast_block(const std::uint8_t* values, BlockWords& words, CastCounts& sum) {
  std::uint32_t changed = 0;
  std::uint32_t overflowed = 0;
  std::uint32_t flushed_to_zero = 0;
  for (std::size_t i = 0; i < kBlockValues; ++i) {
    const std::uint32_t bits = load_f32_bits<Source>(values, i);
    const std::int32_t magnitude = magnitude_of(bits);
    const std::uint32_t is_nan = one_if(magnitude > kInf);
    words[i] = static_cast<std::uint16_t>(is_nan != 0 ? kNan : nearest_bf16(bits));
    const std::uint32_t is_changed = one_if((bits & 0xFFFF) != 0) & (is_nan ^ 1);
    changed += is_changed;
    overflowed += is_changed & one_if(magnitude >= kFirstToInf);
    flushed_to_zero += is_changed & one_if(magnitude <= kLastToZero);
  }
  sum += {changed, overflowed, flushed_to_zero};
}

template <class Source>
CastCounts cast(const std::uint8_t* values, std::span<std::uint16_t> words) {
  constexpr std::size_t kValueBytes = sizeof(typename Source::Word);
  CastCounts counts;
  BlockWords block_words;
  for (std::size_t i = 0; i < words.size(); i += kBlockValues) {
    const std::size_t num_values = std::min(kBlockValues, words.size() - i);
    const std::uint8_t* block = values + i * kValueBytes;
    std::array<std::uint8_t, kBlockValues * kValueBytes> last_block;
    if (num_values < kBlockValues) {  // filled up with zeros, which count nothing
      last_block.fill(0);
      std::memcpy(last_block.data(), block, num_values * kValueBytes);
      block = last_block.data();
    }
    if (!cast_ordinary_block<Source>(block, block_words, counts))
      cast_block<Source>(block, block_words, counts);
    std::memcpy(words.data() + i, block_words.data(), num_values * sizeof block_words[0]);
  }
  return counts;
}

}  // namespace

CastCounts& CastCounts::operator+=(const CastCounts& other) {
  changed += other.changed;
  overflowed += other.overflowed;
  flushed_to_zero += other.flushed_to_zero;
  return *this;
}

bool can_cast_to_bf16(Dtype from) {
  return from == Dtype::kF32 || from == Dtype::kF16;
}

CastCounts cast_to_bf16(Dtype from, const std::uint8_t* values, std::span<std::uint16_t> words) {
  assert(can_cast_to_bf16(from));
  return from == Dtype::kF32 ? cast<F32>(values, words) : cast<F16>(values, words);
}

}  // namespace weightpress::model
