// Encodes a segment: sign_mantissa, bitstream, gaps and output positions, or the positions alone.
//
// A block goes through its segment tile by tile: a thread merges the codes of 16 weights in registers, a scan
// of their bits gives its place, words are put together in shared memory (zeroed, by atomic or) and leave in
// stores of 16 bytes. Beside the codes lies a mark for the first bit of each: the gap of a window is the
// place of its first mark. Whole groups of eight windows leave, the unfinished one is carried to the front of
// the other of two buffers; meanwhile the one that was written out is zeroed.
//
// State, the same in all threads:
//   cursor    the next weight of the slab
//   bit       where its code starts, in the unit
//   base      of the unit's bits, that of the buffer's first; a group's border, and no more than kGroupBits -
//   1
//             below `bit`
// Groups outside the block's domain [domain_begin, domain_end) are never written, so that whatever the
// weights are, nothing outside the outputs is.
#pragma once

#include <cstdint>

#include <cub/warp/warp_scan.cuh>

#include "format/bf16_fields.h"
#include "format/open_windows.h"
#include "kernels/df11_policy.h"
#include "kernels/df11_segment_places.cuh"
#include "kernels/df11_weight_run.cuh"

namespace weightpress::device {

/// What a kernel that only looks for the chunks' starts has in shared memory.
struct RunPlacesStorage {
  std::uint32_t fast[df11::kNumSymbols];
  alignas(16) std::uint32_t warp_bits[EncodeKernel::kWarps];
};

template <class Kernel>
struct alignas(16) SegmentEncoderStorage {
  static_assert(Kernel::kBufferWords % 4 == 0);
  struct alignas(16) Buffer {
    std::uint32_t codes[Kernel::kBufferWords];
    std::uint32_t starts[Kernel::kBufferWords];
  };
  Buffer buffers[2];
  RunPlacesStorage places;
};

/// One block of threads. Every one of them constructs one and calls run() once.
template <class Kernel, bool kWritesStream>
class SegmentEncoder {
  using Parameters = typename Kernel::Parameters;
  using Run = WeightRun<Kernel>;
  static constexpr std::uint32_t kGroupWords = kGroupBits / 32;
  static constexpr std::uint32_t kWindowWords = df11::kWindowBits / 32;

 public:
  using Storage = SegmentEncoderStorage<Kernel>;
  using Buffer = typename Storage::Buffer;

  /// buffers: [2], or nullptr if there is no stream to write.
  __device__ SegmentEncoder(const Parameters& parameters, RunPlacesStorage& places, Buffer* buffers)
      : p_(parameters),
        places_(places),
        buffers_(buffers),
        tables_(reinterpret_cast<const EncodeTables*>(parameters.d_tables)),
        weights_(reinterpret_cast<const std::uint16_t*>(parameters.d_weights)),
        warp_(threadIdx.x / kLanes) {
    const auto* const bits = reinterpret_cast<const std::uint64_t*>(p_.d_bits);
    const std::uint64_t segment = blockIdx.x;
    begin_ = segment * p_.segment_weights;
    end_ = p_.num_weights - begin_ < p_.segment_weights ? p_.num_weights : begin_ + p_.segment_weights;
    first_bit_ = bits[segment];
    end_bit_ = bits[segment + 1];
    slab_base_ = group_floor(bits[0]);
    domain_begin_ = segment == 0 ? slab_base_ : group_ceil(first_bit_);
    domain_end_ = group_ceil(end_bit_);
    const std::uint64_t room_end = slab_base_ + p_.num_groups * kGroupBits;
    if (domain_end_ > room_end) domain_end_ = room_end;
    // To the end of the last group: a row, since each of its bits may be a weight's.
    static_assert(Kernel::kRowWeights >= kGroupBits - 1);
    const bool looks_on = domain_begin_ < domain_end_ && domain_end_ > end_bit_;
    stop_ = !looks_on                                     ? end_
            : p_.num_weights - end_ < Kernel::kRowWeights ? p_.num_weights
                                                          : end_ + Kernel::kRowWeights;
  }

  __device__ void run() {
    places_.fast[threadIdx.x] = tables_->fast[threadIdx.x];
    static_assert(Kernel::kThreads == df11::kNumSymbols);
    if constexpr (kWritesStream) {
      clear(buffers_[0], Kernel::kBufferWords);
      clear(buffers_[1], Kernel::kBufferWords);
    }
    if (threadIdx.x == 0) open_first_chunk();
    __syncthreads();

    // Runs may go on beyond the segment's end only where one of them ends with it.
    const bool runs_on = (end_ - begin_) % Run::kWeights == 0;
    std::uint64_t cursor = begin_, bit = first_bit_;
    base_ = group_floor(bit);
    while (cursor < stop_) {
      std::uint64_t tile_end = cursor + Kernel::kTileWeights;
      if (!runs_on && cursor < end_ && tile_end > end_) tile_end = end_;
      if (tile_end > stop_) tile_end = stop_;
      bit = run_tile(cursor, tile_end, bit);
      cursor = tile_end;
    }
    if (threadIdx.x == 0 && stop_ == end_ && bit != end_bit_) report_changed_source(p_.d_status, blockIdx.x);
  }

 private:
  static __device__ std::uint64_t group_floor(std::uint64_t bit) { return bit / kGroupBits * kGroupBits; }
  static __device__ std::uint64_t group_ceil(std::uint64_t bit) { return group_floor(bit + kGroupBits - 1); }

  // ---- output positions

  __device__ void write_position(std::uint64_t chunk, std::uint64_t slab_weight) const {
    const std::uint64_t index = chunk - p_.first_position;  // huge if it is below
    if (index >= p_.num_positions) return;
    reinterpret_cast<std::uint32_t*>(p_.d_positions)[index] =
        static_cast<std::uint32_t>(p_.first_weight + slab_weight);  // below 2^31: df11::Df11Limits
  }

  /// A chunk that the segment's first code opens: it begins with it or, in the slab's first segment, inside
  /// the code before the slab.
  __device__ void open_first_chunk() const {
    if (blockIdx.x != 0) {
      if (first_bit_ % df11::kChunkBits == 0) write_position(first_bit_ / df11::kChunkBits, begin_);
    } else if (p_.first_position * df11::kChunkBits <= first_bit_) {
      write_position(p_.first_position, begin_);
    }
  }

  /// Chunks that begin after the run's first bit and not after its end: with the first code that starts there
  /// or later. first: of the run; bit: where it starts.
  __device__ void open_chunks(const Run& run, const RunCodes& codes, std::uint64_t first,
                              std::uint64_t bit) const {
    const std::uint64_t end = bit + codes.num_bits;
    std::uint64_t border = (bit / df11::kChunkBits + 1) * df11::kChunkBits;
    if (border > end || border < domain_begin_ || border >= domain_end_)
      return;  // a run is less than a chunk
    const auto before = static_cast<std::uint32_t>(border - bit);
    std::uint32_t num_before = 0;  // codes that start before the border
    if (codes.is_slow) {
      for (std::uint32_t start = 0; num_before < run.num_weights && start < before; ++num_before)
        start += tables_->lengths[df11::exponent_of(weights_[first + num_before])];
    } else {
      num_before = static_cast<std::uint32_t>(__popcll(codes.starts >> (codes.num_bits - before)));
    }
    write_position(border / df11::kChunkBits, first + num_before);
  }

  // ---- a tile

  /// Weights [cursor, tile_end), of which the first starts at `bit`. Returns where the last one ends.
  __device__ std::uint64_t run_tile(std::uint64_t cursor, std::uint64_t tile_end, std::uint64_t bit) {
    const std::uint64_t row = cursor + warp_ * Kernel::kRowWeights;
    Run run;
    run.load(weights_ + row, row < tile_end ? tile_end - row : 0);
    const std::uint64_t first = row + Run::rank() * Run::kWeights;
    if constexpr (kWritesStream) write_sign_mantissa(run, first);
    const RunCodes codes = encode_run(run, weights_ + first, places_.fast, tables_->lengths);
    if (codes.is_slow) find_missing_codes(run, first);

    // Even lanes in the low half, odd lanes, whose runs come after theirs, in the high one.
    const bool is_odd = threadIdx.x % 2 != 0;
    static_assert(kLanes / 2 * Run::kWeights * df11::kMaxCodeBits < 1u << 16);
    const std::uint32_t own = is_odd ? codes.num_bits << 16 : codes.num_bits;
    std::uint32_t before = 0, halves = 0;
    typename cub::WarpScan<std::uint32_t>::TempStorage scan_storage;  // empty: shuffles
    cub::WarpScan<std::uint32_t>(scan_storage).ExclusiveSum(own, before, halves);
    before = is_odd ? (halves & 0xFFFF) + (before >> 16) : before & 0xFFFF;
    if (threadIdx.x % kLanes == 0) places_.warp_bits[warp_] = (halves & 0xFFFF) + (halves >> 16);
    __syncthreads();
    // Every eight lanes add up the warps' bits.
    using WarpsScan = cub::WarpScan<std::uint32_t, Kernel::kWarps>;
    static_assert(kLanes % Kernel::kWarps == 0);
    typename WarpsScan::TempStorage warps_storage;  // empty: shuffles
    std::uint32_t warps_before = 0, tile_bits = 0;
    WarpsScan(warps_storage)
        .ExclusiveSum(places_.warp_bits[threadIdx.x % Kernel::kWarps], warps_before, tile_bits);
    before += __shfl_sync(kAllLanes, warps_before, static_cast<int>(warp_));

    if (run.num_weights != 0) {
      if (first == end_ && bit + before != end_bit_) report_changed_source(p_.d_status, blockIdx.x);
      open_chunks(run, codes, first, bit + before);
    }
    if constexpr (kWritesStream) {
      put_together(run, codes, first, bit, before, tile_bits, tile_end);
    } else {
      __syncthreads();  // before the next tile's bits
    }
    return bit + tile_bits;
  }

  /// Weights without a code: the source changed. Those beyond the segment are for another block to tell.
  __device__ void find_missing_codes(const Run& run, std::uint64_t first) const {
    bool is_changed = false;
    for (std::uint32_t i = 0; i < run.num_weights && first + i < end_; ++i)
      is_changed = is_changed || tables_->lengths[df11::exponent_of(weights_[first + i])] == 0;
    if (is_changed) report_changed_source(p_.d_status, blockIdx.x);
  }

  __device__ void write_sign_mantissa(const Run& run, std::uint64_t first) const {
    auto* const out = reinterpret_cast<std::uint8_t*>(p_.d_sign_mantissa) + first;
    if (run.num_weights == Run::kWeights && first + Run::kWeights <= end_ &&
        reinterpret_cast<std::uintptr_t>(out) % sizeof(uint4) == 0) {
      *reinterpret_cast<uint4*>(out) = {sign_mantissa_of_four(run.pairs[0], run.pairs[1]),
                                        sign_mantissa_of_four(run.pairs[2], run.pairs[3]),
                                        sign_mantissa_of_four(run.pairs[4], run.pairs[5]),
                                        sign_mantissa_of_four(run.pairs[6], run.pairs[7])};
    } else {
#pragma unroll
      for (std::uint32_t i = 0; i < Run::kWeights; ++i)
        if (i < run.num_weights && first + i < end_) out[i] = df11::sign_mantissa_of(run.weight(i));
    }
  }

  // ---- the buffer

  /// num_words: a multiple of 4.
  static __device__ void clear(Buffer& buffer, std::uint32_t num_words) {
    for (std::uint32_t i = threadIdx.x; i < num_words / 4; i += Kernel::kThreads) {
      reinterpret_cast<uint4*>(buffer.codes)[i] = uint4{};
      reinterpret_cast<uint4*>(buffer.starts)[i] = uint4{};
    }
  }

  /// first: weight of this thread's run; before: bits of the tile before it.
  __device__ void put_together(const Run& run, const RunCodes& codes, std::uint64_t first, std::uint64_t bit,
                               std::uint32_t before, std::uint32_t tile_bits, std::uint64_t tile_end) {
    const std::uint32_t warps_at_once = tile_bits <= Kernel::kTileBits ? Kernel::kWarps : 1;
    std::uint64_t end_bit = bit;
    for (std::uint32_t warp = 0; warp < Kernel::kWarps; warp += warps_at_once) {
      Buffer& buffer = buffers_[current_];
      Buffer& other = buffers_[1 - current_];
      if (warp != 0) __syncthreads();
      // What was written out of the other one before.
      clear(other, num_used_words_);

      if (warp_ >= warp && warp_ < warp + warps_at_once)
        place(run, codes, first, static_cast<std::uint32_t>(bit + before - base_), buffer);
      if (warps_at_once == 1) {
        end_bit += places_.warp_bits[warp];
      } else {
        end_bit += tile_bits;
      }
      const bool is_end = tile_end == stop_ && warp + warps_at_once == Kernel::kWarps;
      if (is_end && p_.is_last != 0 && stop_ == p_.num_weights && threadIdx.x == 0)
        place_eof(static_cast<std::uint32_t>(end_bit - base_), buffer);
      __syncthreads();
      write_out(static_cast<std::uint32_t>(end_bit - base_), is_end, buffer, other);
      current_ = 1 - current_;
    }
  }

  /// Up to 32 bits from `offset` on in the buffer. bits: right-aligned.
  static __device__ void place_bits(std::uint32_t* words, std::uint32_t offset, std::uint32_t bits,
                                    std::uint32_t num_bits) {
    const std::uint64_t both = std::uint64_t{bits} << (64 - num_bits - offset % 32);
    const auto high = static_cast<std::uint32_t>(both >> 32), low = static_cast<std::uint32_t>(both);
    if (high != 0) atomicOr(words + offset / 32, high);
    if (low != 0) atomicOr(words + offset / 32 + 1, low);
  }

  /// Up to 64 bits, more than none.
  static __device__ void place_run(std::uint32_t* words, std::uint32_t offset, std::uint64_t bits,
                                   std::uint32_t num_bits) {
    const std::uint64_t aligned = bits << (64 - num_bits);
    const auto high = static_cast<std::uint32_t>(aligned >> 32), low = static_cast<std::uint32_t>(aligned);
    const std::uint32_t first = __funnelshift_r(high, 0, offset);
    const std::uint32_t second = __funnelshift_r(low, high, offset);
    const std::uint32_t third = __funnelshift_r(0, low, offset);
    std::uint32_t* const word = words + offset / 32;
    if (first != 0) atomicOr(word, first);
    if (second != 0) atomicOr(word + 1, second);
    if (third != 0) atomicOr(word + 2, third);
  }

  __device__ void place(const Run& run, const RunCodes& codes, std::uint64_t first, std::uint32_t offset,
                        Buffer& buffer) const {
    if (!codes.is_slow) {
      place_run(buffer.codes, offset, codes.codes, codes.num_bits);
      place_run(buffer.starts, offset, codes.starts, codes.num_bits);
      return;
    }
    for (std::uint32_t i = 0; i < run.num_weights; ++i) {
      const std::uint8_t exponent = df11::exponent_of(weights_[first + i]);
      const std::uint32_t length = tables_->lengths[exponent];
      if (length == 0) continue;  // told by find_missing_codes()
      place_bits(buffer.codes, offset, tables_->codes[exponent], length);
      place_bits(buffer.starts, offset, 1, 1);
      offset += length;
    }
  }

  /// Where the stream ends inside a byte, EOF completes it; and the window in which it ends has that end as
  /// its gap if no weight starts there, as if EOF were one.
  __device__ void place_eof(std::uint32_t offset, Buffer& buffer) const {
    const std::uint32_t free_bits = (8 - offset % 8) % 8;
    if (free_bits == 0) return;
    place_bits(buffer.codes, offset, p_.eof_bits, free_bits);
    place_bits(buffer.starts, offset, 1, 1);
  }

  /// Writes the groups that are whole, or all at the end; what is left goes to the front of the other buffer.
  /// used_bits: of the buffer.
  __device__ void write_out(std::uint32_t used_bits, bool is_end, const Buffer& buffer, Buffer& other) {
    const std::uint32_t whole = used_bits / kGroupBits;
    const std::uint32_t rest = used_bits % kGroupBits;
    // Groups of the domain. Only the first tile's first group can be below it.
    const std::uint32_t first = base_ < domain_begin_ ? 1 : 0;
    std::uint32_t last = is_end && rest != 0 ? whole + 1 : whole;
    const std::uint64_t left = domain_end_ > base_ ? (domain_end_ - base_) / kGroupBits : 0;
    if (last > left) last = static_cast<std::uint32_t>(left);

    if (first < last) {
      write_codes(first, last, buffer);
      write_gaps(first, last, buffer);
    }
    if (threadIdx.x < kGroupWords) {
      const std::uint32_t word = whole * kGroupWords + threadIdx.x;
      other.codes[threadIdx.x] = buffer.codes[word];
      other.starts[threadIdx.x] = buffer.starts[word];
    }
    num_used_words_ = (whole + 1) * kGroupWords;
    base_ += std::uint64_t{whole} * kGroupBits;
  }

  __device__ void write_codes(std::uint32_t first_group, std::uint32_t last_group,
                              const Buffer& buffer) const {
    constexpr std::uint32_t kWords16 = kGroupWords / 4;
    const auto* const words = reinterpret_cast<const uint4*>(buffer.codes);
    auto* const out =
        reinterpret_cast<uint4*>(p_.d_encoded_exponent + (base_ - slab_base_) / 8);  // of the buffer's first
    for (std::uint32_t i = first_group * kWords16 + threadIdx.x; i < last_group * kWords16;
         i += Kernel::kThreads) {
      const uint4 four = words[i];
      out[i] = {__byte_perm(four.x, 0, 0x0123), __byte_perm(four.y, 0, 0x0123),
                __byte_perm(four.z, 0, 0x0123), __byte_perm(four.w, 0, 0x0123)};
    }
  }

  /// A lane a window. A code starts in the first 32 bits of every window but those at the stream's end.
  __device__ void write_gaps(std::uint32_t first_group, std::uint32_t last_group,
                             const Buffer& buffer) const {
    constexpr std::uint32_t kGroupWindows = df11::kWindowsPerGapGroup;
    static_assert(kGroupWindows == 8 && kLanes % kGroupWindows == 0);
    const std::uint32_t end = last_group * kGroupWindows;
    auto* const out =
        reinterpret_cast<std::uint8_t*>(p_.d_gaps) +
        (base_ - slab_base_) / kGroupBits * df11::kGapGroupBytes;  // of the buffer's first group
    const std::uint64_t num_closed = p_.first_open_window * df11::kWindowBits > base_
                                         ? p_.first_open_window - base_ / df11::kWindowBits
                                         : 0;  // windows that the slab before decided
    const std::uint32_t in_group = threadIdx.x % kGroupWindows;
    for (std::uint32_t begin = first_group * kGroupWindows; begin < end; begin += Kernel::kThreads) {
      const std::uint32_t window = begin + threadIdx.x;
      if (begin + warp_ * kLanes >= end) break;  // whole warps
      std::uint32_t gap = 0;
      if (window < end && window >= num_closed) {
        const std::uint32_t starts = buffer.starts[window * kWindowWords];
        gap = starts == 0 ? 0 : static_cast<std::uint32_t>(__clz(static_cast<int>(starts)));
      }
      // Four gaps to 20 bits, two of these to five bytes.
      std::uint32_t four = gap << (df11::kGapBits * (3 - in_group % 4));
      four |= __shfl_xor_sync(kAllLanes, four, 1);
      four |= __shfl_xor_sync(kAllLanes, four, 2);
      const std::uint32_t others = __shfl_xor_sync(kAllLanes, four, 4);
      const std::uint64_t group =
          in_group < 4 ? std::uint64_t{four} << 20 | others : std::uint64_t{others} << 20 | four;
      if (window < end && in_group < df11::kGapGroupBytes)
        out[window / kGroupWindows * df11::kGapGroupBytes + in_group] =
            static_cast<std::uint8_t>(group >> (8 * (df11::kGapGroupBytes - 1 - in_group)));
    }
  }

  const Parameters& p_;
  RunPlacesStorage& places_;
  Buffer* const buffers_;
  const EncodeTables* const tables_;
  const std::uint16_t* const weights_;
  const std::uint32_t warp_;

  std::uint64_t begin_, end_, stop_;  // of the segment's weights in the slab, and of those that are looked at
  std::uint64_t first_bit_, end_bit_;
  std::uint64_t slab_base_;
  std::uint64_t domain_begin_, domain_end_;

  std::uint64_t base_ = 0;
  std::uint32_t current_ = 0;         // of the buffers
  std::uint32_t num_used_words_ = 0;  // of the other one, not 0
};

}  // namespace weightpress::device
