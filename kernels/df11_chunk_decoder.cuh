// Decodes a chunk: a thread a window, from its gap; each exponent once.
//
// A look-up of eight bits gives two codes where they hold two. A thread puts the exponents of its window into
// a slot of its own in shared memory. Once a scan of the counts says where they belong, the slots are read
// into registers and put down again without holes, in the same memory, so that a thread joins eight
// neighbouring weights and stores 16 bytes. Slots are an odd number of words apart: threads that are equally
// far meet in no bank.
//
// All bytes are a stranger's. A window takes at most 64 codes of a bit or more, a code that there is not ends
// it, and nothing is written before the counts of all windows are what the output positions say. The verdict
// on a chunk is that of src/host/chunk_decoder.cpp, for all bytes.
#pragma once

#include <cstdint>

#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>

#include "format/bf16_fields.h"
#include "kernels/df11_policy.h"

namespace weightpress::device {

/// One block of threads. Every one of them constructs one and calls run() once.
template <class Kernel>
class ChunkDecoder {
  using Parameters = typename Kernel::Parameters;
  using Scan = cub::BlockScan<std::uint32_t, Kernel::kThreads>;

  static constexpr std::uint32_t kNumSymbols = df11::kNumSymbols;
  static constexpr std::uint32_t kWindows = df11::kWindowsPerChunk;
  static constexpr std::uint32_t kWindowBits = df11::kWindowBits;
  static_assert(Kernel::kThreads == kWindows);
  static constexpr std::uint32_t kTableRows = df11::kMaxTables + 1;  // no pointer leads to others

  static constexpr std::uint32_t kSlotWords = kWindowBits / 4;
  static constexpr std::uint32_t kSlotStride = kSlotWords + 1;
  static_assert(kSlotStride % 2 == 1);
  static constexpr std::uint32_t kOutputWeights = 8;  // of a thread at once: 16 bytes
  // Without holes, from any place in a word of eight on, a chunk's exponents fit where the slots were.
  static_assert(kWindows * kSlotStride * 4 >= df11::kChunkBits + kOutputWeights);

  static constexpr std::uint32_t kGapWords = df11::kGapBytesPerChunk / 4;

  /// Leads out of every window.
  static constexpr std::uint32_t kNowhere = 4 * kWindowBits;

 public:
  struct alignas(16) Storage {
    union {
      std::uint32_t slots[kWindows * kSlotStride];
      std::uint8_t exponents[kWindows * kSlotStride * 4];
    };
    std::uint32_t looks[kNumSymbols];  ///< Look, by the next eight bits
    std::uint8_t luts[kTableRows * kNumSymbols];
    std::uint32_t changes[kNumSymbols / 32];  ///< bit i: of the first row, entry i is not as the one after it
    std::uint8_t gaps[df11::kGapBytesPerChunk + 4];  // and the first bytes of the next chunk's
    std::uint32_t last_bit;                          // where the window before the unit's last one ends
    std::uint32_t after;                             // four bytes after the chunk, as they lie in memory
    typename Scan::TempStorage scan;
  };
  static_assert(sizeof(Storage) <= Kernel::kMaxStaticSharedBytes);

  __device__ ChunkDecoder(const Parameters& parameters, Storage& storage)
      : p_(parameters), s_(storage), chunk_(parameters.first_chunk + blockIdx.x) {
    last_chunk_ = (p_.stream_bytes - 1) / df11::kChunkBytes;
    const auto* const positions = reinterpret_cast<const std::uint32_t*>(p_.d_positions) + blockIdx.x;
    first_weight_ = positions[0];
    slab_offset_ = first_weight_ - p_.first_weight;
    end_weight_ = positions[1];
    if (chunk_ == last_chunk_) {
      last_bytes_ = static_cast<std::uint32_t>(p_.stream_bytes - chunk_ * df11::kChunkBytes);
    } else if (chunk_ + 1 == last_chunk_ && end_weight_ == p_.num_weights) {
      // All bits of the last chunk are the end of this one's last code.
      crossing_bytes_ = static_cast<std::uint32_t>(p_.stream_bytes - last_chunk_ * df11::kChunkBytes);
    }
    num_full_windows_ = is_last() ? (last_bytes_ - 1) / df11::kWindowBytes : kWindows;
  }

  __device__ void run() {
    load_tables();
    const WindowBits window = load_window();
    __syncthreads();
    make_looks();
    __syncthreads();

    const std::uint32_t index = threadIdx.x;
    std::uint32_t count = 0;
    bool ok = true;
    if (index < num_full_windows_) {
      const std::uint32_t end = decode_window(window, gap(index), count);
      ok = links(index, end);
    } else if (index > num_full_windows_) {
      ok = gap(index) == 0;
    }
    if (index == 0 && chunk_ == 0) ok = ok && gap(0) == 0 && first_weight_ == 0;

    std::uint32_t place = 0, num_codes = 0;
    Scan(s_.scan).ExclusiveSum(count, place, num_codes);
    const std::uint32_t num_weights = end_weight_ - first_weight_;
    OfficialKernel kernel = OfficialKernel::kNotKnown;
    if (!is_last()) {
      ok = ok && num_codes == num_weights;
    } else if (index == num_full_windows_) {
      // The unit's end. The scan left this window out, but nothing comes after it. What last_bit says was
      // written before the scan's barriers.
      ok = ok && num_codes <= num_weights && decode_end(window, num_weights - num_codes, kernel);
      count = num_weights - num_codes;
    }
    if (!__syncthreads_and(ok)) {
      report_fault();
      return;
    }
    if (kernel == OfficialKernel::kNeverEnds) {
      result().kernel_never_ends = 1;
    } else if (kernel == OfficialKernel::kEnds) {
      result().kernel_ends = 1;
    }
    Sums sums;
    sums.encoded_exponent = as_stored(window.high) + as_stored(window.low);
    if (p_.d_source != 0 || p_.d_weights != 0) {
      close_up(place, count);
      const bool same = p_.d_source != 0 ? join<true>(num_weights, sums) : join<false>(num_weights, sums);
      if (__syncthreads_or(!same)) {
        report_fault();
        return;
      }
    }
    add_up(sums);
  }

 private:
  /// A window and the 32 bits after it, most significant first.
  struct WindowBits {
    std::uint32_t high, low, after;

    /// The next `count` bits are gone; at most 32.
    __device__ void skip(std::uint32_t count) {
      high = __funnelshift_lc(low, high, count);
      low = __funnelshift_lc(after, low, count);
      after = __funnelshift_lc(0, after, count);
    }
  };
  struct Code {
    std::uint32_t exponent, length;  ///< 0: there is none
  };
  enum class OfficialKernel : std::uint8_t { kNotKnown, kEnds, kNeverEnds };
  /// A thread's, for those of the result with these names.
  struct Sums {
    std::uint32_t encoded_exponent = 0, sign_mantissa = 0, weights = 0;
    std::uint64_t source = 0;
  };

  __device__ bool is_last() const { return last_bytes_ != 0; }
  __device__ bool ends_slab() const { return blockIdx.x + 1 == p_.num_chunks; }

  __device__ typename Kernel::Result& result() const {
    return *reinterpret_cast<typename Kernel::Result*>(p_.d_result);
  }

  __device__ void report_fault() const {
    if (threadIdx.x == 0)
      atomicMin(reinterpret_cast<unsigned long long*>(&result().first_fault),
                static_cast<unsigned long long>(chunk_));
  }

  // ---- input

  /// To shared memory: lookup tables, the packed gaps.
  __device__ void load_tables() {
    const auto* const luts = reinterpret_cast<const std::uint8_t*>(p_.d_luts);
    const std::uint32_t num_tables =
        p_.num_tables < df11::kMaxTables ? static_cast<std::uint32_t>(p_.num_tables) : df11::kMaxTables;
    const auto* const words = reinterpret_cast<const std::uint32_t*>(luts);
    for (std::uint32_t i = threadIdx.x; i < num_tables * kNumSymbols / 4; i += Kernel::kThreads)
      reinterpret_cast<std::uint32_t*>(s_.luts)[i] = words[i];
    num_tables_ = num_tables;
    if (threadIdx.x < kNumSymbols) {
      // The row of lengths comes last; a length that no code can have is none.
      const std::uint32_t length = luts[p_.num_tables * kNumSymbols + threadIdx.x];
      s_.luts[num_tables * kNumSymbols + threadIdx.x] =
          static_cast<std::uint8_t>(length <= df11::kMaxCodeBits ? length : 0);
      const std::uint8_t next = luts[threadIdx.x + 1];  // at the end the next row's
      const std::uint32_t changes = __ballot_sync(kAllLanes, luts[threadIdx.x] != next);
      if (threadIdx.x % kLanes == 0) s_.changes[threadIdx.x / kLanes] = changes;
    }
    if (threadIdx.x == 0)
      s_.last_bit = kNowhere;  // where it is not written later, it may be read and not used
    // Gaps, as they are packed; behind the unit's last chunk there are none.
    const std::uint64_t begin = std::uint64_t{blockIdx.x} * df11::kGapBytesPerChunk;
    const auto* const gaps = reinterpret_cast<const std::uint8_t*>(p_.d_gaps) + begin;
    if (threadIdx.x < kGapWords)
      reinterpret_cast<std::uint32_t*>(s_.gaps)[threadIdx.x] =
          reinterpret_cast<const std::uint32_t*>(gaps)[threadIdx.x];
    if (threadIdx.x == kGapWords)
      s_.gaps[df11::kGapBytesPerChunk] = is_last() ? std::uint8_t{0} : gaps[df11::kGapBytesPerChunk];
  }

  /// What the next eight bits say, high to low:
  ///   31..30  number of codes: 0 (see look_up()), 1 or 2
  ///   29..24  bits of them together
  ///   15..8   second exponent
  ///   7..0    first exponent
  struct Look {
    static constexpr std::uint32_t kCountShift = 30, kBitsShift = 24;

    std::uint32_t packed;
    __device__ std::uint32_t num_codes() const { return packed >> kCountShift; }
    __device__ std::uint32_t num_bits() const {
      return packed >> kBitsShift & ((1u << (kCountShift - kBitsShift)) - 1);
    }
  };
  static_assert(df11::kMaxCodeBits < 1u << (Look::kCountShift - Look::kBitsShift));

  __device__ void make_looks() {
    if (threadIdx.x >= kNumSymbols) return;
    const std::uint8_t* const lengths = s_.luts + num_tables_ * kNumSymbols;
    const std::uint32_t first = s_.luts[threadIdx.x];
    const std::uint32_t length = first < df11::kFirstPointer ? lengths[first] : 0;
    std::uint32_t look = length == 0 ? 0 : 1u << Look::kCountShift | length << Look::kBitsShift | first;
    // A second code, if the bits left decide it: whatever follows them, the entry is the same. (Where the
    // first one leaves less than three bits, that is seldom so.)
    if (length != 0 && length <= 5) {
      const std::uint32_t num_entries = 1u << length;
      const std::uint32_t begin = threadIdx.x << length & (kNumSymbols - 1);
      const std::uint32_t changes = s_.changes[begin / 32] >> begin % 32 & ((1u << (num_entries - 1)) - 1);
      const std::uint32_t second = s_.luts[begin];
      const std::uint32_t second_length = second < df11::kFirstPointer ? lengths[second] : 0;
      if (changes == 0 && second_length != 0 && length + second_length <= 8)
        look = 2u << Look::kCountShift | (length + second_length) << Look::kBitsShift | second << 8 | first;
    }
    s_.looks[threadIdx.x] = look;
  }

  /// Of the chunk's window `index`, or of the one after them all.
  __device__ std::uint32_t gap(std::uint32_t index) const {
    const std::uint32_t bit = index * df11::kGapBits, offset = bit % 8;
    std::uint32_t two = std::uint32_t{s_.gaps[bit / 8]} << 8;
    if (offset > 8 - df11::kGapBits) two |= s_.gaps[bit / 8 + 1];
    return two >> (16 - df11::kGapBits - offset) & ((1u << df11::kGapBits) - 1);
  }

  /// Four bytes of the slab, zeros after its end. offset: a multiple of 4.
  __device__ std::uint32_t load_word(std::uint64_t offset) const {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(p_.d_encoded_exponent) + offset;
    if (offset + 4 <= p_.available_bytes)
      return __byte_perm(*reinterpret_cast<const std::uint32_t*>(bytes), 0, 0x0123);
    std::uint32_t word = 0;
    for (std::uint32_t i = 0; i < 4; ++i) word = word << 8 | (offset + i < p_.available_bytes ? bytes[i] : 0);
    return word;
  }

  __device__ WindowBits load_window() {
    const std::uint64_t offset =
        std::uint64_t{blockIdx.x} * df11::kChunkBytes + threadIdx.x * df11::kWindowBytes;
    WindowBits window;
    if (offset + df11::kWindowBytes <= p_.available_bytes) {
      const uint2 both = *reinterpret_cast<const uint2*>(p_.d_encoded_exponent + offset);
      window.high = __byte_perm(both.x, 0, 0x0123);
      window.low = __byte_perm(both.y, 0, 0x0123);
    } else {
      window.high = load_word(offset);
      window.low = load_word(offset + 4);
    }
    window.after = __shfl_down_sync(kAllLanes, window.high, 1);
    if (threadIdx.x % kLanes == kLanes - 1) {
      window.after = load_word(offset + df11::kWindowBytes);
      if (threadIdx.x + 1 == kWindows) s_.after = as_stored(window.after);
    }
    return window;
  }

  // ---- codes

  /// By the tables. bits: those to come, most significant first.
  __device__ Code look_up(std::uint32_t bits) const {
    std::uint32_t table = 0;
    for (std::uint32_t level = 0; level < df11::kMaxCodeBits / 8; ++level) {
      const std::uint32_t value = s_.luts[table * kNumSymbols + (bits >> (df11::kMaxCodeBits - 8))];
      if (value < df11::kFirstPointer) return {value, s_.luts[num_tables_ * kNumSymbols + value]};
      table = 256 - value;
      if (table >= num_tables_) break;
      bits <<= 8;
    }
    return {0, 0};
  }

  /// One code. Returns its bits; kNowhere: there is none.
  __device__ std::uint32_t step(WindowBits& window, std::uint8_t*& out) const {
    const Code code = look_up(window.high);
    if (code.length == 0) return kNowhere;
    *out++ = static_cast<std::uint8_t>(code.exponent);
    window.skip(code.length);
    return code.length;
  }

  /// Slots are read by words.
  static __device__ void fill_word(std::uint8_t* end) { end[0] = end[1] = end[2] = 0; }

  /// Codes from bit `bit` on, until they pass the window's end; into its slot. Returns where the last one
  /// ends.
  __device__ std::uint32_t decode_window(WindowBits window, std::uint32_t bit, std::uint32_t& count) {
    std::uint8_t* const slot = s_.exponents + threadIdx.x * (kSlotStride * 4);
    std::uint8_t* out = slot;
    window.skip(bit);
    // A code has a bit at least: 64 steps at most. Both codes of a look start in its eight bits.
    while (bit <= kWindowBits - 8) {
      const Look look = {s_.looks[window.high >> 24]};
      if (look.num_codes() == 0) {
        bit += step(window, out);
        continue;
      }
      out[0] = static_cast<std::uint8_t>(look.packed);
      out[1] = static_cast<std::uint8_t>(look.packed >> 8);
      out += look.num_codes();
      window.skip(look.num_bits());
      bit += look.num_bits();
    }
    while (bit < kWindowBits) bit += step(window, out);
    count = static_cast<std::uint32_t>(out - slot);
    fill_word(out);
    return bit;
  }

  /// Whether a window in which no code starts has the gap that it must have, and the stream its length. bit:
  /// where the last code ends; bytes: of the stream in that window.
  static __device__ bool is_empty_end(std::uint32_t bit, std::uint32_t bytes, std::uint32_t gap) {
    return bit < df11::kMaxCodeBits && (bit + 7) / 8 == bytes && gap == (bit % 8 == 0 ? 0 : bit);
  }

  /// Whether a full window ends where the next one begins. end: of its last code, in its own bits.
  __device__ bool links(std::uint32_t index, std::uint32_t end) {
    const std::uint32_t bit = end - kWindowBits;
    if (index + 1 < num_full_windows_) return bit == gap(index + 1);
    if (is_last()) {
      s_.last_bit = bit;  // for decode_end()
      return true;
    }
    return crossing_bytes_ != 0 ? is_empty_end(bit, crossing_bytes_, gap(kWindows)) : bit == gap(kWindows);
  }

  /// The unit's last window with a byte of the stream: so many weights are left for it.
  __device__ bool decode_end(WindowBits window, std::uint32_t num_weights, OfficialKernel& kernel) {
    const std::uint32_t index = threadIdx.x;
    const std::uint32_t bytes = last_bytes_ - index * df11::kWindowBytes;
    const std::uint32_t own_gap = gap(index);
    const std::uint32_t begin = index == 0 ? own_gap : s_.last_bit;
    if (num_weights == 0) {
      // Where no code starts in a whole chunk, the chunk before knows where the last one ends; a gap of 0
      // says that it is on a byte border.
      const bool is_crossed = index == 0;
      const std::uint32_t end = is_crossed && own_gap == 0 ? 8 * bytes : begin;
      if (!is_empty_end(end, bytes, own_gap)) return false;
    } else if (begin != own_gap) {
      return false;
    }
    // The weights; then what the official kernel does with the rest of the window, and with an empty one.
    std::uint8_t* out = s_.exponents + index * (kSlotStride * 4);
    std::uint32_t bit = own_gap;
    window.skip(bit);
    for (; num_weights > 0; --num_weights) {
      const Code code = look_up(window.high);
      if (bit >= 8 * bytes || code.length == 0) return false;
      *out++ = static_cast<std::uint8_t>(code.exponent);
      window.skip(code.length);
      bit += code.length;
      if (num_weights == 1 && (bit + 7) / 8 != bytes) return false;
    }
    fill_word(out);
    const bool ends = kernel_ends(window, bit) && (index + 1 == kWindows || kernel_ends({0, 0, 0}, 0));
    kernel = ends ? OfficialKernel::kEnds : OfficialKernel::kNeverEnds;
    return true;
  }

  __device__ bool kernel_ends(WindowBits window, std::uint32_t bit) const {
    while (bit < kWindowBits) {
      const Code code = look_up(window.high);
      if (code.length == 0) return false;
      window.skip(code.length);
      bit += code.length;
    }
    return true;
  }

  // ---- output

  /// From the first weight of the chunk back to a border of eight in the output.
  __device__ std::uint32_t phase() const { return slab_offset_ % kOutputWeights; }

  /// From slots to exponents without holes, from phase() on. All threads.
  __device__ void close_up(std::uint32_t place, std::uint32_t count) {
    std::uint32_t words[kSlotWords];
#pragma unroll
    for (std::uint32_t i = 0; i < kSlotWords; ++i)
      words[i] = 4 * i < count ? s_.slots[threadIdx.x * kSlotStride + i] : 0;
    __syncthreads();
    std::uint8_t* const out = s_.exponents + phase() + place;
#pragma unroll
    for (std::uint32_t i = 0; i < kSlotWords; ++i) {
      if (4 * i >= count) break;
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k)
        if (4 * i + k < count) out[4 * i + k] = static_cast<std::uint8_t>(words[i] >> (8 * k));
    }
    __syncthreads();
  }

  // One instruction each. ptxas makes the first two of what nvcc writes anyway; the third one takes two
  // additions otherwise.
  /// Those of `a` where the mask has ones, those of `b` elsewhere.
  static __device__ std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
    std::uint32_t selected;
    asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
    return selected;
  }
  /// different |= a ^ b
  static __device__ void note_difference(std::uint32_t& different, std::uint32_t a, std::uint32_t b) {
    asm("lop3.b32 %0, %1, %2, %0, 0xBE;" : "+r"(different) : "r"(a), "r"(b));
  }
  static __device__ void add_to_long(std::uint64_t& sum, std::uint32_t value) {
    asm("mad.wide.u32 %0, %1, 1, %0;" : "+l"(sum) : "r"(value));
  }

  /// Four weights, from one a byte.
  static __device__ uint2 join_four(std::uint32_t exponents, std::uint32_t sign_mantissas) {
    constexpr std::uint32_t kSigns = 0x8080'8080;
    const std::uint32_t high_bytes = select_bits(kSigns, sign_mantissas, exponents >> 1);
    const std::uint32_t low_bytes = select_bits(kSigns, exponents << 7, sign_mantissas);
    return {__byte_perm(low_bytes, high_bytes, 0x5140), __byte_perm(low_bytes, high_bytes, 0x7362)};
  }

  /// Weights from exponents and sign_mantissa: written, compared with the source (kCompares), or both.
  /// Returns whether those of this thread are the source's.
  template <bool kCompares>
  __device__ bool join(std::uint32_t num_weights, Sums& sums) const {
    // Index 0 is a border of eight in the output.
    const std::uint32_t begin = phase(), end = begin + num_weights;
    const std::uint64_t base = slab_offset_ - begin;
    const auto* const sign_mantissa = reinterpret_cast<const std::uint8_t*>(p_.d_sign_mantissa) + base;
    const auto* const source = reinterpret_cast<const std::uint16_t*>(p_.d_source) + base;
    auto* const weights = reinterpret_cast<std::uint16_t*>(p_.d_weights) + base;
    std::uint32_t different = 0;
    for (std::uint32_t i = threadIdx.x * kOutputWeights; i < end; i += Kernel::kThreads * kOutputWeights) {
      if (i >= begin && i + kOutputWeights <= end) {
        const uint2 exponents = *reinterpret_cast<const uint2*>(s_.exponents + i);
        const uint2 halves = *reinterpret_cast<const uint2*>(sign_mantissa + i);
        const uint2 low = join_four(exponents.x, halves.x), high = join_four(exponents.y, halves.y);
        const uint4 joined = {low.x, low.y, high.x, high.y};
        if constexpr (kCompares) {
          const uint4 expected = *reinterpret_cast<const uint4*>(source + i);
          note_difference(different, joined.x, expected.x);
          note_difference(different, joined.y, expected.y);
          note_difference(different, joined.z, expected.z);
          note_difference(different, joined.w, expected.w);
          add_to_long(sums.source, expected.x);
          add_to_long(sums.source, expected.y);
          add_to_long(sums.source, expected.z);
          add_to_long(sums.source, expected.w);
        }
        sums.sign_mantissa += halves.x + halves.y;
        if (!kCompares || p_.d_weights != 0) {
          *reinterpret_cast<uint4*>(weights + i) = joined;
          sums.weights += joined.x + joined.y + joined.z + joined.w;
        }
      } else {  // the chunk's first or last eight
        for (std::uint32_t k = i < begin ? begin : i; k < i + kOutputWeights && k < end; ++k) {
          const std::uint16_t joined = df11::join_bf16(s_.exponents[k], sign_mantissa[k]);
          if constexpr (kCompares) {
            different |= joined ^ source[k];
            sums.source += std::uint32_t{source[k]} << (16 * (k % 2));
          }
          sums.sign_mantissa += std::uint32_t{sign_mantissa[k]} << (8 * (k % 4));
          if (!kCompares || p_.d_weights != 0) {
            weights[k] = joined;
            sums.weights += std::uint32_t{joined} << (16 * (k % 2));
          }
        }
      }
    }
    return different == 0;
  }

  // ---- the result's sums

  /// Four bytes of the stream as they lie in memory.
  static __device__ std::uint32_t as_stored(std::uint32_t bits) { return __byte_perm(bits, 0, 0x0123); }

  /// A chunk's, to the result. All threads; the slots are free.
  __device__ void add_up(const Sums& sums) {
    const std::uint32_t index = threadIdx.x, warp = index / kLanes;
    // A warp adds up what all threads put down: less than if each warp did its own.
    auto* const longs = reinterpret_cast<std::uint64_t*>(s_.slots + 3 * kWindows);
    s_.slots[index] = sums.encoded_exponent;
    s_.slots[kWindows + index] = sums.sign_mantissa;
    s_.slots[2 * kWindows + index] = sums.weights;
    if (p_.d_source != 0) longs[index] = sums.source;
    __syncthreads();
    constexpr std::uint32_t kSumWarps = 7;
    if (warp >= kSumWarps) return;
    auto& to = result();
    switch (warp) {
      case 0:
        return add_to(&to.encoded_exponent_sum, sum_of_all(s_.slots) + (ends_slab() ? s_.after : 0));
      case 1:
        return add_to(&to.sign_mantissa_sum, sum_of_all(s_.slots + kWindows));
      case 2:
        return add_to(&to.weights_sum, sum_of_all(s_.slots + 2 * kWindows));
      case 3:
        if (p_.d_source != 0) add_to(&to.source_sum, warp_sum<std::uint64_t>(longs, kWindows));
        return;
      case 4: {
        const auto* const gaps = reinterpret_cast<const std::uint32_t*>(s_.gaps);
        const std::uint32_t next = ends_slab() ? s_.gaps[df11::kGapBytesPerChunk] : 0;
        return add_to(&to.gaps_sum, warp_sum<std::uint32_t>(gaps, kGapWords) + next);
      }
      case 5: {
        const auto* const luts = reinterpret_cast<const std::uint32_t*>(s_.luts);
        return add_to(&to.luts_sum, warp_sum<std::uint64_t>(luts, (num_tables_ + 1) * (kNumSymbols / 4)));
      }
      default:
        add_to(&to.positions_sum, first_weight_);
        add_to(&to.num_chunks, 1u);
        if (index % kLanes == 0 && ends_slab()) to.end_weight = end_weight_;
    }
  }

  // In the first lane of a warp:

  /// Of a word a thread.
  static __device__ std::uint32_t sum_of_all(const std::uint32_t* words) {
    const auto* const fours = reinterpret_cast<const uint4*>(words) + threadIdx.x % kLanes;
    std::uint32_t sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kWindows / 4 / kLanes; ++i) {
      const uint4 four = fours[i * kLanes];
      sum += four.x + four.y + (four.z + four.w);
    }
    return reduce(sum);
  }

  template <class Sum, class Value>
  static __device__ Sum warp_sum(const Value* values, std::uint32_t count) {
    Sum sum = 0;
#pragma unroll 4
    for (std::uint32_t i = threadIdx.x % kLanes; i < count; i += kLanes) sum += values[i];
    return reduce(sum);
  }

  template <class Sum>
  static __device__ Sum reduce(Sum sum) {
    typename cub::WarpReduce<Sum>::TempStorage storage;  // empty: shuffles
    return cub::WarpReduce<Sum>(storage).Sum(sum);
  }

  static __device__ void add_to(std::uint32_t* to, std::uint32_t of_warp) {
    if (threadIdx.x % kLanes == 0) atomicAdd(to, of_warp);
  }
  static __device__ void add_to(std::uint64_t* to, std::uint64_t of_warp) {
    if (threadIdx.x % kLanes == 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(of_warp));
  }

  const Parameters& p_;
  Storage& s_;
  const std::uint64_t chunk_;  // of the unit
  std::uint64_t last_chunk_;
  std::uint32_t first_weight_, end_weight_;  // of the unit
  std::uint32_t slab_offset_;                // of first_weight_ in the slab
  std::uint32_t last_bytes_ = 0;             // of the stream in this chunk, if it is the unit's last
  std::uint32_t crossing_bytes_ = 0;  // of the stream beyond this chunk, if its last code goes on there
  std::uint32_t num_full_windows_;    // every code that starts in them is a weight's
  std::uint32_t num_tables_ = 0;
};

}  // namespace weightpress::device
