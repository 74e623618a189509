// Decodes tiles, from the last group of 32 symbols to the first, all lanes of a group at once, so that whole
// elements are written or compared.
//
// Streams are read backwards. In shared memory a warp has a ring of 64 words a stream: the 32 that the next
// word to read is among and the 32 before, whatever is taken next; the 32 before these are under way. All is
// a stranger's: nothing outside the words that are there is read, and a tile's groups are counted beforehand,
// so decoding ends.
#pragma once

#include <cstdint>

#include "kernels/tile_ans_warp.cuh"

namespace weightpress::device {

/// One block of threads. Every one of them calls run() once.
template <class Kernel, std::uint32_t kLanes>
class TileAnsTileDecoder {
  using Parameters = typename Kernel::Parameters;
  using Status = TileAnsStatusWord;
  using Element = typename TileAnsElement<kLanes>::Type;
  static constexpr std::uint32_t kStates = tile_ans::kNumStates;
  static constexpr std::uint32_t kRingMask = Kernel::kRingWords - 1;

 public:
  /// shared: dynamic, aligned to 4.
  static __device__ void run(const Parameters& parameters, char* shared) {
    const std::uint32_t table_bytes = Kernel::table_bytes(parameters.probability_bits);
    const std::uint32_t tables_bytes = parameters.num_tables * table_bytes;
    const auto* const from = device_pointer<const std::uint32_t>(parameters.d_tables);
    for (std::uint32_t i = threadIdx.x; i < tables_bytes / 4; i += Kernel::kThreads)
      reinterpret_cast<std::uint32_t*>(shared)[i] = from[i];
    __syncthreads();
    auto* const rings = reinterpret_cast<std::uint16_t*>(shared + tables_bytes) +
                        threadIdx.x / kStates * parameters.num_tables * Kernel::kRingWords;
    TileAnsTileDecoder decoder(parameters, shared, rings);
    const std::uint64_t stride = std::uint64_t{gridDim.x} * Kernel::kTilesOfBlock;
    for (std::uint64_t tile = std::uint64_t{blockIdx.x} * Kernel::kTilesOfBlock + threadIdx.x / kStates;
         tile < parameters.num_tiles; tile += stride)
      decoder.decode(tile);
    decoder.add_sum();
  }

 private:
  __device__ TileAnsTileDecoder(const Parameters& parameters, const char* tables, std::uint16_t* rings)
      : p_(parameters), tables_(tables), rings_(rings) {}

  static __device__ std::uint32_t thread() { return threadIdx.x % kStates; }
  __device__ bool is_raw(std::uint32_t lane) const { return p_.lanes[lane].d_states == 0; }
  // Of each lane, four bits.
  __device__ std::uint32_t code(std::uint32_t lane) const { return codes_ >> (4 * lane) & 15; }
  __device__ void set_code(std::uint32_t lane, std::uint32_t code) { codes_ |= code << (4 * lane); }

  __device__ const std::uint16_t* words(std::uint32_t lane) const {
    return device_pointer<const std::uint16_t>(p_.lanes[lane].d_words);
  }
  __device__ std::uint16_t* ring(std::uint32_t lane) const {
    return rings_ + p_.lanes[lane].table * Kernel::kRingWords;
  }

  __device__ void decode(std::uint64_t tile) {
    const std::uint32_t count = tile_elements(p_, tile);
    const std::uint64_t first = tile * p_.tile_elements;
    codes_ = 0;
    differs_ = false;
    __syncwarp();  // the rings are free
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      set_code(lane, find_words(lane, tile, count));
      if (code(lane) == 0 && !is_raw(lane)) set_code(lane, begin(lane, tile));
    }
    __syncwarp();

    for (std::uint32_t at = (count - 1) / kStates * kStates;; at -= kStates) {
      group(first, at, count);
      if (at == 0) break;
    }

    bool is_good = true;
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (code(lane) == 0 && !is_raw(lane)) set_code(lane, end(lane));
      if (code(lane) == 0 || !is_good) continue;
      is_good = false;
      if (thread() == 0) report_fault(p_, tile, lane, code(lane));
    }
    if (__any_sync(kWholeWarp, differs_) && is_good && thread() == 0)
      report_fault(p_, tile, 0, Status::kDiffers);
  }

  __device__ void add_sum() const {
    std::uint64_t sum = sum_;
#pragma unroll
    for (std::uint32_t distance = kStates / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kWholeWarp, sum, static_cast<int>(distance));
    if (thread() == 0)
      atomicAdd(device_pointer<unsigned long long>(p_.d_sum), static_cast<unsigned long long>(sum));
  }

  /// Sets begin_ and end_. Returns a code.
  __device__ std::uint32_t find_words(std::uint32_t lane, std::uint64_t tile, std::uint32_t count) {
    const auto* const offsets = device_pointer<const std::uint32_t>(p_.lanes[lane].d_offsets);
    const std::uint32_t base = offsets[0], begin = offsets[tile], end = offsets[tile + 1];
    begin_[lane] = end_[lane] = 0;
    if (begin < base || end < begin) return Status::kBadOffsets;
    const std::uint32_t num_words = end - begin;
    if (is_raw(lane) && num_words != raw_stream_words(count)) return Status::kBadLength;
    if (num_words > count || end - base > p_.lanes[lane].num_words) return Status::kBadOffsets;
    begin_[lane] = begin - base;
    end_[lane] = end - base;
    if (!is_raw(lane)) return 0;
    return count % 2 != 0 && words(lane)[end_[lane] - 1] >> 8 != 0 ? Status::kBadPadding : 0;
  }

  /// A word of a stream, 0 where there is none. index may be below 0.
  __device__ std::uint16_t word_at(std::uint32_t lane, std::int64_t index) const {
    return index >= begin_[lane] && index < end_[lane] ? words(lane)[index] : std::uint16_t{0};
  }

  /// Loads states and the first words of a ring. Returns a code.
  __device__ std::uint32_t begin(std::uint32_t lane, std::uint64_t tile) {
    const std::uint32_t state =
        device_pointer<const std::uint32_t>(p_.lanes[lane].d_states)[tile * kStates + thread()];
    states_[lane] = state;
    const bool is_good = state >= tile_ans::kMinState && state >> tile_ans::kStateBits == 0;
    const std::int64_t top = std::int64_t{end_[lane] / kStates * kStates} + thread();
    ring(lane)[top & kRingMask] = word_at(lane, top);
    ring(lane)[(top - kStates) & kRingMask] = word_at(lane, top - kStates);
    under_way_[lane] = word_at(lane, top - 2 * std::int64_t{kStates});
    return __all_sync(kWholeWarp, is_good) ? 0 : Status::kBadState;
  }

  __device__ std::uint32_t end(std::uint32_t lane) const {
    if (begin_[lane] != end_[lane]) return Status::kUnreadWords;
    return __all_sync(kWholeWarp, states_[lane] == tile_ans::kMinState) ? 0 : Status::kBadEnd;
  }

  /// The 32 elements from `at` on that are below count.
  __device__ void group(std::uint64_t first, std::uint32_t at, std::uint32_t count) {
    const std::uint32_t index = at + thread();
    const bool is_there = index < count;
    Element element = 0;
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (code(lane) != 0) continue;
      std::uint32_t symbol = 0;
      if (!is_raw(lane)) {
        symbol = decode_symbols(lane, is_there);
      } else if (is_there) {
        symbol = reinterpret_cast<const std::uint8_t*>(words(lane) + begin_[lane])[index];
      }
      element = static_cast<Element>(element | static_cast<Element>(symbol) << (8 * lane));
    }
    if (!is_there) return;
    sum_ += element;
    if (p_.d_elements != 0) device_pointer<Element>(p_.d_elements)[first + index] = element;
    if (p_.d_source != 0) differs_ |= device_pointer<const Element>(p_.d_source)[first + index] != element;
  }

  // On entry 2^15 <= x < 2^31, and so afterwards, whatever the words are: f * (x >> bits) + slot - start < f
  // *
  // ((x >> bits) + 1) <= 2^31, and below 2^15 a word is added, which makes it less than 2^31 and, from 2^3
  // on, at least 2^19.
  __device__ std::uint32_t decode_symbols(std::uint32_t lane, bool is_there) {
    const char* const table = tables_ + p_.lanes[lane].table * Kernel::table_bytes(p_.probability_bits);
    const std::uint32_t state = states_[lane];
    const std::uint32_t slot = state & ((1u << p_.probability_bits) - 1);
    const std::uint32_t symbol =
        reinterpret_cast<const std::uint8_t*>(table)[tile_ans::kNumSymbols * 4 + slot];
    const std::uint32_t entry = reinterpret_cast<const std::uint32_t*>(table)[symbol];
    std::uint32_t x = (entry & 0x1FFF) * (state >> p_.probability_bits) + slot - (entry >> Kernel::kStartAt);
    const bool takes = is_there && x < tile_ans::kMinState;
    const std::uint32_t taking = __ballot_sync(kWholeWarp, takes);
    const std::uint32_t num_taken = static_cast<std::uint32_t>(__popc(taking));
    const std::uint32_t end = end_[lane];
    if (num_taken > end - begin_[lane]) {
      set_code(lane, Status::kTruncated);
      return 0;
    }
    if (takes) {
      // Ascending states have their words in ascending order, so the highest takes the last one.
      const std::uint32_t above = static_cast<std::uint32_t>(__popc(taking >> thread()));
      x = x << tile_ans::kWordBits | ring(lane)[(end - above) & kRingMask];
    }
    if (is_there) states_[lane] = x;
    end_[lane] = end - num_taken;
    if (end_[lane] / kStates != end / kStates) {
      // Of the block of words that is used up, the next one but one takes the place.
      const std::int64_t next = std::int64_t{end_[lane] / kStates * kStates} - kStates + thread();
      __syncwarp();
      ring(lane)[next & kRingMask] = under_way_[lane];
      under_way_[lane] = word_at(lane, next - kStates);
      __syncwarp();
    }
    return symbol;
  }

  const Parameters& p_;
  const char* const tables_;
  std::uint16_t* const rings_;
  std::uint32_t codes_ = 0;
  bool differs_ = false;
  std::uint64_t sum_ = 0;  // of the elements that this thread decoded
  // Of words: counted from d_words on.
  std::uint32_t begin_[kLanes], end_[kLanes], states_[kLanes];
  std::uint16_t under_way_[kLanes];
};

}  // namespace weightpress::device
