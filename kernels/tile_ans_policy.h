// What the Tile-ANS kernels and the host code that launches them must agree on:
// src/device/tile_ans_launches.h.
//
// Addresses are those of device memory. A slab is a run of whole tiles (the last may be short), as in
// format/tile_ans_stages.h; elements, tiles and words count from the slab's first one. A warp goes through a
// tile, all its lanes at once: thread i of it is state i.
#pragma once

#include "format/host_device.h"
#include "format/tile_ans_constants.h"
#include "kernels/kernel_description.h"

namespace weightpress::device {

/// The outcome of a slab: the lowest (tile of the tensor << 16 | lane << 8 | StageCode), or kOk. In device
/// memory, aligned to 8; the caller writes kOk before the launch.
struct TileAnsStatusWord {
  static constexpr std::uint64_t kOk = ~std::uint64_t{0};
  // The codes: numbers of tile_ans::StageCode.
  static constexpr std::uint32_t kSourceChanged = 1;
  static constexpr std::uint32_t kBadOffsets = 2;
  static constexpr std::uint32_t kBadLength = 3;
  static constexpr std::uint32_t kBadPadding = 4;
  static constexpr std::uint32_t kBadState = 5;
  static constexpr std::uint32_t kTruncated = 6;
  static constexpr std::uint32_t kUnreadWords = 7;
  static constexpr std::uint32_t kBadEnd = 8;
  static constexpr std::uint32_t kDiffers = 9;
};

/// Counts the symbols of every lane in one read. A block a run of block_bytes.
struct TileAnsHistogramKernel {
  static constexpr const char* kModule = "tile_ans_encode";
  static constexpr const char* kEntry = "wp_tile_ans_histogram";

  static constexpr std::uint32_t kThreads = tile_ans::kNumSymbols;  // each adds up one symbol at the end
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  /// A column of counters a thread of a warp, shared out among the lanes of the element.
  static constexpr std::uint32_t kColumns = 32;
  static constexpr std::uint32_t kMaxStaticSharedBytes = tile_ans::kNumSymbols * kColumns * 4;
  static constexpr std::uint32_t kItems = 4;  ///< loads of 16 bytes that a thread has under way

  /// A counter has 32 bits; less would make the sums at the end a part of the work.
  static constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 30;
  static constexpr std::uint64_t kMinBlockBytes = std::uint64_t{1} << 18;

  struct Parameters {
    std::uint64_t d_elements = 0;   ///< u8 [num_bytes], any alignment; to 16 is fastest
    std::uint64_t num_bytes = 0;    ///< a multiple of num_lanes
    std::uint64_t block_bytes = 0;  ///< a multiple of 16, at most kMaxBlockBytes
    std::uint64_t d_counts = 0;     ///< u64 [num_lanes][256]: counts are added to it
    std::uint32_t num_lanes = 0;    ///< 1, 2, 4 or 8
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// What coding a symbol takes. Made by src/device/tile_ans_device_tables.h.
struct TileAnsEncodeEntry {
  std::uint32_t multiplier = 0;                       ///< of the reciprocal of the frequency
  std::uint32_t packed = 0;                           ///< see below
  static constexpr std::uint32_t kAbsent = 1u << 31;  ///< the frequency is 0; the other fields are safe
  static constexpr std::uint32_t kShiftAt = 25;       ///< 4 bits: the reciprocal's shift - 31
  static constexpr std::uint32_t kFrequencyAt = 12;   ///< 13 bits
  static constexpr std::uint32_t kStartBits = 12;     ///< from bit 0
};

/// Encodes the wanted lanes of a slab. Blocks take batches of kTilesOfBatch tiles in ascending order, by
/// tickets. A warp encodes its tile to shared memory; how many words come before, the block learns from the
/// blocks before it, all of which run already (decoupled look-back); then the words go to their place. What
/// shared memory does not hold is encoded a second time, when the place is known.
struct TileAnsEncodeKernel {
  static constexpr const char* kModule = "tile_ans_encode";
  static constexpr const char* kEntry = "wp_tile_ans_encode";

  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 3;
  static constexpr std::uint32_t kMaxRegisters = 80;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 2 * 1024;

  static constexpr std::uint32_t kTilesOfBatch = kThreads / tile_ans::kNumStates;
  static_assert(kTilesOfBatch >= tile_ans::kMaxLanes, "a warp a lane looks back");
  static constexpr std::uint32_t kItems = 4;  ///< elements that a thread has under way
  /// A warp goes on as long as this many words have room in each lane's part of shared memory.
  static constexpr std::uint32_t kStepWords = kItems * tile_ans::kNumStates;
  /// Dynamic shared memory: an encode table a coded lane, then kTilesOfBatch times the parts of the lanes.
  static constexpr std::uint32_t kTableBytes = tile_ans::kNumSymbols * sizeof(TileAnsEncodeEntry);
  static constexpr std::uint32_t kMaxDynamicSharedBytes = 46 * 1024;
  static_assert(kMaxDynamicSharedBytes >=
                tile_ans::kMaxLanes * (kTableBytes + kTilesOfBatch * kStepWords * 2));

  struct Lane {
    std::uint64_t d_stream_words = 0;  ///< out: u32 [num_tiles]
    std::uint64_t d_words = 0;  ///< out: u16, room for what the lane can take; aligned to 4, to 32 is fastest
    std::uint64_t d_states = 0;  ///< out: u32 [32 * num_tiles], of a coded lane
    // Of a coded lane, in a warp's words in shared memory; kStepWords or more of them. 64 bits, or nvcc loads
    // them in pairs and says which half it uses, which takes newer drivers.
    std::uint64_t room_begin = 0, room_words = 0;  ///< both even
  };
  /// In d_chain: a batch's words of a lane, its own or with all before it.
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kWithAllBefore = std::uint64_t{2} << 62;
  static constexpr std::uint64_t kValueMask = kOwn - 1;

  struct Parameters {
    std::uint64_t d_elements = 0;  ///< aligned to the element's size
    std::uint64_t num_elements = 0, tile_elements = 0, num_tiles = 0;
    std::uint64_t first_tile = 0;   ///< of the slab in the tensor
    std::uint64_t d_tables = 0;     ///< TileAnsEncodeEntry [num_tables][256], aligned to 8
    std::uint64_t d_chain = 0;      ///< u64 [8][num_batches], all 0
    std::uint64_t num_batches = 0;  ///< below 2^31
    std::uint64_t d_ticket = 0;     ///< u32, 0
    std::uint64_t d_totals = 0;     ///< out: u64 [8], words of each coded lane
    std::uint64_t d_status = 0;
    std::uint32_t num_lanes = 0, probability_bits = 0;
    /// Lanes that are wanted, a bit each: those to be coded, which have the tables in this order, and raw
    /// ones.
    std::uint32_t coded_lanes = 0, raw_lanes = 0;
    std::uint32_t num_tables = 0;  ///< coded lanes
    std::uint32_t warp_words = 0;  ///< the rooms of all lanes
    Lane lanes[tile_ans::kMaxLanes];
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// Counts words only. Takes TileAnsEncodeKernel::Parameters, with no outputs but d_stream_words and the
/// status.
struct TileAnsSizesKernel {
  static constexpr const char* kModule = "tile_ans_encode";
  static constexpr const char* kEntry = "wp_tile_ans_sizes";

  static constexpr std::uint32_t kThreads = TileAnsEncodeKernel::kThreads;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 3;
  static constexpr std::uint32_t kMaxRegisters = 80;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 0;

  using Parameters = TileAnsEncodeKernel::Parameters;
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// Decodes a slab with all checks. A warp a tile.
struct TileAnsDecodeKernel {
  static constexpr const char* kModule = "tile_ans_decode";
  static constexpr const char* kEntry = "wp_tile_ans_decode";

  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 3;
  static constexpr std::uint32_t kMaxRegisters = 80;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 0;
  static constexpr std::uint32_t kTilesOfBlock = kThreads / tile_ans::kNumStates;

  /// A coded lane's table: by symbol, frequency in bits 12-0 and start from bit 16 on; then the symbol of
  /// each slot.
  static constexpr std::uint32_t kStartAt = 16;
  WP_HOST_DEVICE static constexpr std::uint32_t table_bytes(std::uint32_t probability_bits) {
    return tile_ans::kNumSymbols * 4 + (1u << probability_bits);
  }
  /// Words of a stream that a warp has in shared memory.
  static constexpr std::uint32_t kRingWords = 2 * tile_ans::kNumStates;
  /// Dynamic: tables, then a ring a warp and coded lane.
  static constexpr std::uint32_t shared_bytes(std::uint32_t num_tables, std::uint32_t probability_bits) {
    return num_tables * (table_bytes(probability_bits) + kTilesOfBlock * kRingWords * 2);
  }
  static_assert(tile_ans::kMaxLanes *
                    (tile_ans::kNumSymbols * 4 + tile_ans::kMaxTableSize + kTilesOfBlock * kRingWords * 2) <=
                48 * 1024);

  struct Lane {
    std::uint64_t d_offsets = 0;  ///< u32 [num_tiles + 1], any numbers
    std::uint64_t d_words = 0;  ///< u16 [num_words], from the first offset on; aligned to 2, to 32 is fastest
    std::uint64_t num_words = 0;  ///< at most 2^32 - 1
    std::uint64_t d_states = 0;   ///< u32 [32 * num_tiles]; 0: the lane is raw
    std::uint32_t table = 0;      ///< of a coded lane: the number of its table
    std::uint32_t unused = 0;
  };
  struct Parameters {
    std::uint64_t num_elements = 0, tile_elements = 0, num_tiles = 0;
    std::uint64_t first_tile = 0;  ///< of the slab in the tensor
    std::uint64_t d_tables = 0;    ///< [num_tables], aligned to 4
    // Aligned to the element's size; 0: not there.
    std::uint64_t d_source = 0, d_elements = 0;
    std::uint64_t d_status = 0;
    /// In, out: the elements that were decoded are added, as numbers, modulo 2^64; those of tiles at fault
    /// with any value.
    std::uint64_t d_sum = 0;
    std::uint32_t num_lanes = 0, probability_bits = 0, num_tables = 0;
    std::uint32_t unused = 0;
    Lane lanes[tile_ans::kMaxLanes];
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

}  // namespace weightpress::device
