// The hot loops of Tile-ANS with AVX2: eight states a vector, four vectors a group. Compiled for every
// x86-64: only these functions use the instructions, and only where best_simd_level() found them.
#if defined(__x86_64__)

#include <array>
#include <bit>
#include <cstdint>

#include <immintrin.h>

#include "host/tile_ans_stream_decoder.h"
#include "host/tile_ans_stream_encoder.h"

#define WP_AVX2 __attribute__((target("avx2,popcnt")))

namespace weightpress::host {
namespace {

using tile_ans::kNumStates;

constexpr std::uint32_t kVectorStates = 8;
constexpr std::uint32_t kVectors = kNumStates / kVectorStates;

/// For each set of eight states, as a mask: which bytes of eight words bring the words of these to the front.
struct alignas(16) WordShuffle {
  std::uint8_t bytes[16];
};
constexpr std::array<WordShuffle, 256> kToFront = [] {
  std::array<WordShuffle, 256> shuffles{};
  for (std::uint32_t mask = 0; mask < 256; ++mask) {
    std::uint32_t at = 0;
    for (std::uint32_t state = 0; state < kVectorStates; ++state) {
      if ((mask >> state & 1) == 0) continue;
      shuffles[mask].bytes[at++] = static_cast<std::uint8_t>(2 * state);
      shuffles[mask].bytes[at++] = static_cast<std::uint8_t>(2 * state + 1);
    }
  }
  return shuffles;
}();

/// For each set of states: which of the last eight words each of them takes, ascending, the last state the
/// last.
constexpr std::array<std::uint64_t, 256> kFromEnd = [] {
  std::array<std::uint64_t, 256> indices{};
  for (std::uint32_t mask = 0; mask < 256; ++mask) {
    std::uint64_t word = kVectorStates - static_cast<std::uint64_t>(std::popcount(mask));
    for (std::uint32_t state = 0; state < kVectorStates; ++state) {
      if (mask >> state & 1) indices[mask] |= word++ << (8 * state);
    }
  }
  return indices;
}();

WP_AVX2 inline __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

WP_AVX2 inline void store(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

WP_AVX2 inline std::uint32_t mask_of(__m256i lanes) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
}

/// (x * multiplier) >> shift, in 64 bits, of each state.
WP_AVX2 inline __m256i divide(__m256i x, __m256i multiplier, __m256i shift) {
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m256i even = _mm256_srlv_epi64(_mm256_mul_epu32(x, multiplier), _mm256_and_si256(shift, low));
  const __m256i odd =
      _mm256_srlv_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(multiplier, 32)),
                        _mm256_srli_epi64(shift, 32));
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

}  // namespace

WP_AVX2 std::size_t encode_groups_avx2(const StreamEncodeTable& table, const std::uint8_t* symbols,
                                       std::size_t count, StreamEncoder& encoder, std::uint16_t*& out) {
  const int* const packed = reinterpret_cast<const int*>(table.packed);
  const __m256i table_size = _mm256_set1_epi32(1 << table.probability_bits);
  const __m128i limit_shift =
      _mm_cvtsi32_si128(static_cast<int>(tile_ans::kStateBits - table.probability_bits));
  const __m256i ones = _mm256_set1_epi32(-1);
  __m256i x[kVectors];
  for (std::uint32_t v = 0; v < kVectors; ++v) x[v] = load(encoder.states + kVectorStates * v);
  __m256i seen = _mm256_setzero_si256();
  std::uint16_t* to = out;
  std::size_t done = 0;
  // A store of eight words ends behind the symbols that are encoded then, or before: so far there was at most
  // a word a symbol.
  for (; count - done >= kNumStates; done += kNumStates) {
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const __m256i symbol = _mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(symbols + done + kVectorStates * v)));
      const __m256i multiplier = _mm256_i32gather_epi32(packed, symbol, 8);
      const __m256i info = _mm256_i32gather_epi32(packed + 1, symbol, 8);
      seen = _mm256_or_si256(seen, info);
      const __m256i frequency = _mm256_and_si256(_mm256_srli_epi32(info, 12), _mm256_set1_epi32(0x1FFF));
      const __m256i start = _mm256_and_si256(info, _mm256_set1_epi32(tile_ans::kEntryFieldMask));
      const __m256i shift =
          _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(info, 25), _mm256_set1_epi32(0xF)),
                           _mm256_set1_epi32(tile_ans::kStateBits));

      // x >= f << n as signed numbers: f << n can be 2^31, one less cannot.
      const __m256i limit = _mm256_add_epi32(_mm256_sll_epi32(frequency, limit_shift), ones);
      const __m256i moves = _mm256_cmpgt_epi32(x[v], limit);
      const std::uint32_t mask = mask_of(moves);
      const __m256i low = _mm256_and_si256(x[v], _mm256_set1_epi32(0xFFFF));
      const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
      const __m128i shuffle = _mm_load_si128(reinterpret_cast<const __m128i*>(kToFront[mask].bytes));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(words, shuffle));
      to += std::popcount(mask);
      const __m256i state =
          _mm256_srlv_epi32(x[v], _mm256_and_si256(moves, _mm256_set1_epi32(tile_ans::kWordBits)));

      const __m256i quotient = divide(state, multiplier, shift);
      const __m256i complement = _mm256_sub_epi32(table_size, frequency);
      x[v] = _mm256_add_epi32(_mm256_add_epi32(state, start), _mm256_mullo_epi32(quotient, complement));
    }
  }
  for (std::uint32_t v = 0; v < kVectors; ++v) store(encoder.states + kVectorStates * v, x[v]);
  if (mask_of(seen) != 0) encoder.flags |= tile_ans::EncodeEntry::kAbsent;
  out = to;
  return done;
}

WP_AVX2 std::size_t decode_groups_avx2(const StreamDecodeTable& table, StreamReader& reader,
                                       const std::uint16_t* limit, std::size_t num_groups,
                                       std::uint8_t* symbols) {
  const int* const entries = reinterpret_cast<const int*>(table.entries);
  const __m128i bits = _mm_cvtsi32_si128(static_cast<int>(table.probability_bits));
  const __m256i slot_mask = _mm256_set1_epi32((1 << table.probability_bits) - 1);
  const __m256i least = _mm256_set1_epi32(tile_ans::kMinState);
  __m256i x[kVectors];
  for (std::uint32_t v = 0; v < kVectors; ++v) x[v] = load(reader.states + kVectorStates * v);
  const std::uint16_t* end = reader.end;
  while (num_groups > 0 && end - limit >= std::ptrdiff_t{kNumStates}) {
    std::uint8_t* const group = symbols + --num_groups * kNumStates;
    __m256i found[kVectors];
    for (std::uint32_t v = kVectors; v-- > 0;) {
      const __m256i entry = _mm256_i32gather_epi32(entries, _mm256_and_si256(x[v], slot_mask), 4);
      found[v] = _mm256_and_si256(entry, _mm256_set1_epi32(0xFF));
      const __m256i frequency = _mm256_and_si256(_mm256_srli_epi32(entry, tile_ans::kEntryFrequencyShift),
                                                 _mm256_set1_epi32(tile_ans::kEntryFieldMask));
      const __m256i state = _mm256_add_epi32(_mm256_mullo_epi32(frequency, _mm256_srl_epi32(x[v], bits)),
                                             _mm256_srli_epi32(entry, tile_ans::kEntryStartShift));
      // Eight words back from the end are there: 32 were at the group's begin, and each vector takes at
      // most 8.
      const __m256i takes = _mm256_cmpgt_epi32(least, state);
      const std::uint32_t mask = mask_of(takes);
      const __m256i words =
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(end - kVectorStates)));
      const __m256i indices =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kFromEnd[mask])));
      const __m256i refilled = _mm256_or_si256(_mm256_slli_epi32(state, tile_ans::kWordBits),
                                               _mm256_permutevar8x32_epi32(words, indices));
      x[v] = _mm256_blendv_epi8(state, refilled, takes);
      end -= std::popcount(mask);
    }
    const __m256i pairs =
        _mm256_packus_epi16(_mm256_packus_epi32(found[0], found[1]), _mm256_packus_epi32(found[2], found[3]));
    store(group, _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  }
  for (std::uint32_t v = 0; v < kVectors; ++v) store(reader.states + kVectorStates * v, x[v]);
  reader.end = end;
  return num_groups;
}

}  // namespace weightpress::host

#endif
