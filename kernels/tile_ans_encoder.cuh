// Encodes tiles: each element is read once for all its lanes.
//
// The 32 threads of a warp are the 32 states of each of the tile's streams. A group of 32 symbols leaves its
// words in ascending order of states: a ballot says which states move one out, and a population count each
// one's place. Words collect in shared memory, where a lane has a part of the warp's room. When the tile is
// done, or a part is full (from then on words are only counted), the block adds up its words and learns by
// decoupled look-back how many come before them; then words leave in whole words of four bytes, and what was
// only counted is encoded from where the room ended, room by room. Nothing is written twice, and there is no
// scratch memory.
#pragma once

#include <cstdint>

#include "kernels/tile_ans_warp.cuh"

namespace weightpress::device {

/// Of a block, beside its dynamic shared memory.
struct TileAnsEncodeStorage {
  static constexpr std::uint32_t kWarps = TileAnsEncodeKernel::kTilesOfBatch;
  std::uint64_t places[tile_ans::kMaxLanes][kWarps];     ///< of the next words of each tile, in the slab's
  std::uint64_t before[tile_ans::kMaxLanes];             ///< words of the slab before the batch
  std::uint32_t counts[tile_ans::kMaxLanes][kWarps];     ///< words of each tile
  std::uint32_t collected[tile_ans::kMaxLanes][kWarps];  ///< of these, those in shared memory
  std::uint32_t ticket;
};

/// One warp's tile.
template <class Kernel, std::uint32_t kLanes>
class TileAnsTileEncoder {
  using Parameters = typename Kernel::Parameters;
  using Entry = TileAnsEncodeEntry;
  using Element = typename TileAnsElement<kLanes>::Type;
  static constexpr std::uint32_t kStates = tile_ans::kNumStates;
  // Large elements have more of them under way, and more to do for each.
  static constexpr std::uint32_t kItems = kLanes <= 2 ? Kernel::kItems : Kernel::kItems * 2 / kLanes;
  static constexpr std::uint32_t kStepElements = kItems * kStates;
  static_assert(kStepElements <= Kernel::kStepWords);

 public:
  /// tables: in shared memory. words: the warp's room, if words are wanted. count: elements of the tile.
  __device__ TileAnsTileEncoder(const Parameters& parameters, const uint2* tables, std::uint16_t* words,
                                std::uint64_t tile, std::uint32_t count)
      : p_(parameters),
        tables_(tables),
        words_(words),
        tile_(tile),
        elements_(device_pointer<const Element>(parameters.d_elements) + tile * parameters.tile_elements),
        count_(count) {
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      states_[lane] = tile_ans::kMinState;
      num_words_[lane] = 0;
    }
  }

  static __device__ bool is_coded(const Parameters& p, std::uint32_t lane) {
    return (p.coded_lanes >> lane & 1) != 0;
  }
  static __device__ bool is_raw(const Parameters& p, std::uint32_t lane) {
    return (p.raw_lanes >> lane & 1) != 0;
  }

  /// Goes on to the end of the tile; if it collects words: or until a lane's room might be too small for the
  /// next step. with_raw: writes the streams of raw lanes. Not templates: code of four element sizes is long
  /// enough.
  __device__ void run(bool collects, bool with_raw) {
    const std::uint32_t raw_lanes = with_raw ? p_.raw_lanes : 0;
    while (at_ < count_) {
      if (collects && !has_room()) return;
      Element items[kItems];
      const Element* const from = elements_ + at_ + thread();
      if (kItems > 1 && count_ - at_ >= kStepElements) {
#pragma unroll
        for (std::uint32_t i = 0; i < kItems; ++i) items[i] = from[i * kStates];
#pragma unroll
        for (std::uint32_t i = 0; i < kItems; ++i)
          group<true>(items[i], at_ + i * kStates + thread(), collects, raw_lanes);
        at_ += kStepElements;
      } else {
        const std::uint32_t index = at_ + thread();
        group<false>(index < count_ ? *from : Element{0}, index, collects, raw_lanes);
        at_ = count_ - at_ > kStates ? at_ + kStates : count_;
      }
    }
  }

  __device__ bool is_done() const { return at_ >= count_; }
  __device__ std::uint32_t num_words(std::uint32_t lane) const { return num_words_[lane]; }

  /// At the end of the tile: what is known without a place.
  __device__ void finish_counting() {
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const bool coded = is_coded(p_, lane);
      if (thread() == 0 && (coded || is_raw(p_, lane))) {
        device_pointer<std::uint32_t>(p_.lanes[lane].d_stream_words)[tile_] =
            coded ? num_words_[lane] : raw_stream_words(count_);
      }
      const bool is_absent = coded && (absent_ >> lane & 1) != 0;
      if (__any_sync(kWholeWarp, is_absent) && thread() == 0)
        report_fault(p_, tile_, lane, TileAnsStatusWord::kSourceChanged);
    }
  }
  /// Fills the last byte of raw streams.
  __device__ void finish_raw() const {
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (is_raw(p_, lane) && count_ % 2 != 0 && thread() == 0) raw_bytes(lane)[count_] = 0;
    }
  }
  /// Also half way: the output keeps them until the warp goes on.
  __device__ void store_states() const {
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane)
      if (is_coded(p_, lane)) states_out(lane)[thread()] = states_[lane];
  }
  /// To an element, with the states before it, which were stored. False: it is the end, and nothing is done.
  __device__ bool go_back(std::uint32_t at) {
    if (at >= count_) return false;
    at_ = at;
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane)
      if (is_coded(p_, lane)) states_[lane] = states_out(lane)[thread()];
    return true;
  }
  __device__ void empty_room() {
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) num_words_[lane] = 0;
  }
  __device__ std::uint32_t at() const { return at_; }

 private:
  static __device__ std::uint32_t thread() { return threadIdx.x % kStates; }

  __device__ bool has_room() const {
    bool has = true;
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (is_coded(p_, lane) && num_words_[lane] + kStepElements > p_.lanes[lane].room_words) has = false;
    }
    return has;
  }

  __device__ std::uint8_t* raw_bytes(std::uint32_t lane) const {
    return device_pointer<std::uint8_t>(p_.lanes[lane].d_words) + tile_ * (2 * ((p_.tile_elements + 1) / 2));
  }
  __device__ std::uint32_t* states_out(std::uint32_t lane) const {
    return device_pointer<std::uint32_t>(p_.lanes[lane].d_states) + tile_ * kStates;
  }

  /// A group of 32 symbols of every lane. kFull: all are there; else those with index < count_.
  template <bool kFull>
  __device__ void group(Element element, std::uint32_t index, bool collects, std::uint32_t raw_lanes) {
    const bool is_there = kFull || index < count_;
    const std::uint32_t below = (1u << thread()) - 1;
    const std::uint32_t renormalise_shift = tile_ans::kStateBits - p_.probability_bits;
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t symbol = static_cast<std::uint32_t>(element >> (8 * lane)) & 0xFF;
      if (!is_coded(p_, lane)) {
        if (is_there && (raw_lanes >> lane & 1) != 0)
          raw_bytes(lane)[index] = static_cast<std::uint8_t>(symbol);
        continue;
      }
      const std::uint32_t table = static_cast<std::uint32_t>(__popc(p_.coded_lanes & ((1u << lane) - 1)));
      const uint2 entry = tables_[table * tile_ans::kNumSymbols + symbol];
      const std::uint32_t frequency = entry.y >> Entry::kFrequencyAt & 0x1FFF;
      std::uint32_t x = states_[lane];
      const bool moves = is_there && x >= frequency << renormalise_shift;
      const std::uint32_t moving = __ballot_sync(kWholeWarp, moves);
      if (moves) {
        if (collects)
          words_[p_.lanes[lane].room_begin + num_words_[lane] +
                 static_cast<std::uint32_t>(__popc(moving & below))] = static_cast<std::uint16_t>(x);
        x >>= tile_ans::kWordBits;
      }
      num_words_[lane] += static_cast<std::uint32_t>(__popc(moving));
      // x < 2^31, so twice as much and a shift of 32 + (shift - 31) is the same.
      const std::uint32_t quotient = __umulhi(2 * x, entry.x) >> (entry.y >> Entry::kShiftAt & 15);
      x += quotient * ((1u << p_.probability_bits) - frequency) + (entry.y & ((1u << Entry::kStartBits) - 1));
      if (is_there) {
        states_[lane] = x;
        absent_ |= entry.y >> 31 << lane;
      }
    }
  }

  const Parameters& p_;
  const uint2* const tables_;
  std::uint16_t* const words_;
  const std::uint64_t tile_;
  const Element* const elements_;
  const std::uint32_t count_;
  std::uint32_t at_ = 0;  // a multiple of 32 but at the end
  std::uint32_t states_[kLanes], num_words_[kLanes];
  std::uint32_t absent_ = 0;  // a bit a lane
};

template <class Kernel>
__device__ void load_encode_tables(const typename Kernel::Parameters& parameters, uint2* tables) {
  const uint2* const from = device_pointer<const uint2>(parameters.d_tables);
  for (std::uint32_t i = threadIdx.x; i < parameters.num_tables * tile_ans::kNumSymbols;
       i += Kernel::kThreads)
    tables[i] = from[i];
}

/// One block of threads. Every one of them calls run() once.
template <class Kernel, std::uint32_t kLanes>
class TileAnsSlabEncoder {
  using Parameters = typename Kernel::Parameters;
  using TileEncoder = TileAnsTileEncoder<Kernel, kLanes>;
  static constexpr std::uint32_t kStates = tile_ans::kNumStates;

 public:
  /// shared: dynamic, aligned to 8.
  __device__ TileAnsSlabEncoder(const Parameters& parameters, TileAnsEncodeStorage& storage, char* shared)
      : p_(parameters),
        storage_(storage),
        tables_(reinterpret_cast<uint2*>(shared)),
        words_(reinterpret_cast<std::uint16_t*>(shared + parameters.num_tables * Kernel::kTableBytes) +
               warp() * parameters.warp_words) {}

  __device__ void run() {
    load_encode_tables<Kernel>(p_, tables_);
    for (;;) {
      __syncthreads();
      if (threadIdx.x == 0) storage_.ticket = atomicAdd(device_pointer<std::uint32_t>(p_.d_ticket), 1u);
      __syncthreads();
      const std::uint32_t batch = storage_.ticket;
      if (batch >= p_.num_batches) return;
      encode(batch);
    }
  }

 private:
  static __device__ std::uint32_t warp() { return threadIdx.x / kStates; }
  static __device__ std::uint32_t thread() { return threadIdx.x % kStates; }

  __device__ void encode(std::uint32_t batch) {
    const std::uint64_t tile = std::uint64_t{batch} * Kernel::kTilesOfBatch + warp();
    const bool is_there = tile < p_.num_tiles;
    TileEncoder encoder(p_, tables_, words_, tile, is_there ? tile_elements(p_, tile) : 0);
    // A loop with one run() in it, since its code is long: first to where the room is full, then, counting,
    // to the end of the tile; when the place is known, room by room from where the first was full.
    std::uint32_t collected_to = 0;
    bool collects = true, has_place = false;
    for (;;) {
      encoder.run(collects, !has_place);
      if (collects) {
        note_counts(storage_.collected, encoder);
        if (is_there && (!has_place || encoder.is_done())) encoder.store_states();
      }
      if (!has_place) {
        if (collects) collected_to = encoder.at();
        collects = encoder.is_done();
        if (!collects) continue;
        if (is_there) {
          encoder.finish_counting();
          encoder.finish_raw();
        }
        note_counts(storage_.counts, encoder);
        learn_places(batch);  // every warp
        if (!is_there) return;
        if (thread() < kLanes && TileEncoder::is_coded(p_, thread()))
          storage_.places[thread()][warp()] = storage_.before[thread()] + of_lower_warps(thread());
        __syncwarp();
        has_place = true;
        write();
        if (!encoder.go_back(collected_to)) return;
      } else {
        write();
        if (encoder.is_done()) return;
      }
      encoder.empty_room();
    }
  }

  __device__ void note_counts(std::uint32_t (&counts)[tile_ans::kMaxLanes][TileAnsEncodeStorage::kWarps],
                              const TileEncoder& encoder) const {
#pragma unroll
    for (std::uint32_t lane = 0; lane < kLanes; ++lane)
      if (thread() == 0) counts[lane][warp()] = encoder.num_words(lane);
    __syncwarp();
  }

  __device__ std::uint32_t of_lower_warps(std::uint32_t lane) const {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < warp(); ++i) sum += storage_.counts[lane][i];
    return sum;
  }

  /// The whole block: counts to before. A warp a lane.
  __device__ void learn_places(std::uint32_t batch) const {
    __syncthreads();
    if (warp() < kLanes && TileEncoder::is_coded(p_, warp())) {
      std::uint64_t own = 0;
      for (std::uint32_t i = 0; i < TileAnsEncodeStorage::kWarps; ++i) own += storage_.counts[warp()][i];
      const std::uint64_t before = look_back(batch, own);
      if (thread() == 0) {
        storage_.before[warp()] = before;
        if (batch + 1 == p_.num_batches) device_pointer<std::uint64_t>(p_.d_totals)[warp()] = before + own;
      }
    }
    __syncthreads();
  }

  /// Words of the warp's lane in all batches before. Each of these has its ticket, so a block works on it.
  __device__ std::uint64_t look_back(std::uint32_t batch, std::uint64_t own) const {
    // A word says all that is to be known, so nothing but it has to be in order.
    volatile std::uint64_t* const chain =
        device_pointer<volatile std::uint64_t>(p_.d_chain) + warp() * p_.num_batches;
    if (thread() == 0) chain[batch] = (batch == 0 ? Kernel::kWithAllBefore : Kernel::kOwn) | own;
    std::uint64_t before = 0;
    // The thread looks at the batch `ahead` before this one.
    for (std::uint64_t ahead = 1 + thread(), end = 1; end <= batch; ahead += kStates, end += kStates) {
      std::uint64_t word = Kernel::kWithAllBefore;
      do {
        if (ahead <= batch) word = chain[batch - ahead];
      } while (__any_sync(kWholeWarp, word == 0));
      const std::uint32_t last = __ballot_sync(kWholeWarp, (word & Kernel::kWithAllBefore) != 0);
      // Of the nearest batch that knows all before it and those behind it.
      const std::uint32_t counts =
          last == 0 ? kStates : static_cast<std::uint32_t>(__ffs(static_cast<int>(last)));
      std::uint64_t value = thread() < counts ? word & Kernel::kValueMask : 0;
#pragma unroll
      for (std::uint32_t step = kStates / 2; step != 0; step /= 2)
        value += __shfl_xor_sync(kWholeWarp, value, static_cast<int>(step));
      before += value;
      if (last != 0) break;
    }
    if (thread() == 0 && batch != 0) chain[batch] = Kernel::kWithAllBefore | (before + own);
    return before;
  }

  /// Writes what was collected, and moves the places on.
  __device__ void write() const {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!TileEncoder::is_coded(p_, lane)) continue;
      const std::uint32_t count = storage_.collected[lane][warp()];
      copy_words(device_pointer<std::uint16_t>(p_.lanes[lane].d_words) + storage_.places[lane][warp()],
                 words_ + p_.lanes[lane].room_begin, count);
    }
    __syncwarp();
    if (thread() < kLanes && TileEncoder::is_coded(p_, thread()))
      storage_.places[thread()][warp()] += storage_.collected[thread()][warp()];
    __syncwarp();
  }

  static __device__ void copy_words(std::uint16_t* to, const std::uint16_t* from, std::uint32_t count) {
    // head: words before the first whole sector.
    constexpr std::uint32_t kSectorWords = 32 / sizeof(std::uint16_t);
    const std::uint32_t to_border =
        static_cast<std::uint32_t>(0 - reinterpret_cast<std::uintptr_t>(to) / sizeof *to) % kSectorWords;
    const std::uint32_t head = to_border < count ? to_border : count;
    if (thread() < head) to[thread()] = from[thread()];
    const std::uint32_t pairs = (count - head) / 2;
    auto* const to_pairs = reinterpret_cast<std::uint32_t*>(to + head);
    for (std::uint32_t i = thread(); i < pairs; i += kStates)
      to_pairs[i] = std::uint32_t{from[head + 2 * i + 1]} << 16 | from[head + 2 * i];
    if ((count - head) % 2 != 0 && thread() == 0) to[count - 1] = from[count - 1];
  }

  const Parameters& p_;
  TileAnsEncodeStorage& storage_;
  uint2* const tables_;
  std::uint16_t* const words_;  // the warp's room
};

/// Counts the words of tiles; a warp goes from tile to tile. Every thread of a block calls it once.
template <class Kernel, std::uint32_t kLanes>
__device__ void count_tile_ans_words(const typename Kernel::Parameters& parameters, char* shared) {
  auto* const tables = reinterpret_cast<uint2*>(shared);
  load_encode_tables<Kernel>(parameters, tables);
  __syncthreads();
  const std::uint64_t stride = std::uint64_t{gridDim.x} * Kernel::kTilesOfBatch;
  for (std::uint64_t tile =
           std::uint64_t{blockIdx.x} * Kernel::kTilesOfBatch + threadIdx.x / tile_ans::kNumStates;
       tile < parameters.num_tiles; tile += stride) {
    TileAnsTileEncoder<Kernel, kLanes> encoder(parameters, tables, nullptr, tile,
                                               tile_elements(parameters, tile));
    encoder.run(false, false);
    encoder.finish_counting();
  }
}

}  // namespace weightpress::device
