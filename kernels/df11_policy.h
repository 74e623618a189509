// What the DF11 kernels and the host code that launches them must agree on: src/device/df11_launches.h.
//
// Addresses are those of device memory. "Unit" bits, weights and chunks count from the unit's first one; a
// slab's buffers begin at its own first segment (encoding) or chunk (decoding).
#pragma once

#include "format/df11_constants.h"
#include "kernels/kernel_description.h"

namespace weightpress::device {

inline constexpr std::uint32_t kLanes = 32;  ///< of a warp
inline constexpr std::uint32_t kAllLanes = ~std::uint32_t{0};

/// Whole groups of eight windows: 64 bytes of the bitstream, 5 of gaps. What a block of the encoder writes is
/// made of them, and so are the buffers that it writes to.
inline constexpr std::uint32_t kGroupBits = df11::kWindowsPerGapGroup * df11::kWindowBits;
inline constexpr std::uint32_t kGroupBytes = kGroupBits / 8;

/// The outcome of encoding: the lowest (segment of the slab << 8 | code), or kOk. In device memory, aligned
/// to 8; the caller writes kOk before the first launch of a slab.
struct EncodeStatusWord {
  static constexpr std::uint64_t kOk = ~std::uint64_t{0};
  static constexpr std::uint64_t kSourceChanged = 1;  ///< the code
};

/// A codebook for the encoder. Made by src/device/encode_tables.h; aligned to 16 in device memory.
struct EncodeTables {
  /// Codes of 1 to kMaxFastBits bits: the code in the highest bits, its length in the lowest kLengthBits.
  /// Others, and symbols without a code: kSlow.
  static constexpr std::uint32_t kMaxFastBits = 22;
  static constexpr std::uint32_t kLengthBits = 10;
  static constexpr std::uint32_t kSlow = 65;  ///< longer than what a thread's fast path can take
  static_assert(kMaxFastBits + kLengthBits <= 32);
  std::uint32_t fast[df11::kNumSymbols] = {};
  std::uint32_t codes[df11::kNumSymbols] = {};   ///< right-aligned
  std::uint8_t lengths[df11::kNumSymbols] = {};  ///< 0: no code
};

/// Counts exponents, one histogram a segment. A block a segment.
struct HistogramKernel {
  static constexpr const char* kModule = "df11_encode";
  static constexpr const char* kEntry = "wp_histogram";

  static constexpr std::uint32_t kThreads = df11::kNumSymbols;  // each adds up one symbol at the end
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  // A column of counters a lane: no two lanes of a warp ever meet, in an address or a bank, whatever the
  // data.
  static constexpr std::uint32_t kMaxStaticSharedBytes = df11::kNumSymbols * kLanes * 4;
  static constexpr std::uint32_t kItems = 4;  ///< loads of 16 bytes that a thread has under way

  struct Parameters {
    std::uint64_t d_weights = 0;  ///< u16 [num_weights], aligned to 2; to 16 is fastest
    std::uint64_t num_weights = 0, segment_weights = 0;
    std::uint64_t d_histograms = 0;  ///< out: u32 [num_segments][256]
    /// u64 [256], or 0. Counts of the whole slab are added to it: that of a unit, from all its slabs.
    std::uint64_t d_unit_histogram = 0;
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// Bits of each segment: the dot product of its histogram and the code lengths. A warp a segment.
struct SegmentBitsKernel {
  static constexpr const char* kModule = "df11_encode";
  static constexpr const char* kEntry = "wp_segment_bits";

  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 0;
  static constexpr std::uint32_t kSegmentsOfBlock = kThreads / kLanes;

  struct Parameters {
    /// As for the histogram: the last one of each segment is looked at. 0: they are not there.
    std::uint64_t d_weights = 0;
    std::uint64_t num_weights = 0, segment_weights = 0, num_segments = 0;
    std::uint64_t d_histograms = 0;  ///< u32 [num_segments][256], aligned to 16
    std::uint64_t d_tables = 0;      ///< EncodeTables
    std::uint64_t d_bits = 0;        ///< out: u64 [num_segments + 1], all but the last one
    std::uint64_t d_status = 0;
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// From bits to first bits, in place: an exclusive prefix sum. One block.
struct SegmentOffsetsKernel {
  static constexpr const char* kModule = "df11_encode";
  static constexpr const char* kEntry = "wp_segment_offsets";

  static constexpr std::uint32_t kThreads = 512;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 2;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 8 * 1024;
  static constexpr std::uint32_t kItems = 4;  ///< segments of a thread in one step

  struct Parameters {
    std::uint64_t d_bits = 0;  ///< u64 [num_segments + 1]: bits in; first bits in the unit, and the end, out
    std::uint64_t num_segments = 0;
    std::uint64_t first_bit = 0;  ///< of the slab in the unit
    // What the end of the unit must be, to be checked with its last slab. expected_end 0: another slab.
    std::uint64_t expected_end = 0;
    std::uint64_t d_last_weight = 0, d_tables = 0;
    std::uint64_t expected_last_length = 0;
    std::uint64_t d_status = 0;
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// Split, bitstream, gaps and output positions. A block a segment: it writes the groups whose first bit is
/// one of its own, and to complete the last of them looks at most kGroupBits - 1 weights into what follows.
/// So all that it writes is whole and aligned, and has one owner.
struct EncodeKernel {
  static constexpr const char* kModule = "df11_encode";
  static constexpr const char* kEntry = "wp_encode";

  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 20 * 1024;

  static constexpr std::uint32_t kRunWeights = 16;                    ///< consecutive ones, of a thread
  static constexpr std::uint32_t kRowWeights = kLanes * kRunWeights;  ///< of a warp
  static constexpr std::uint32_t kTileWeights = kThreads * kRunWeights;
  static constexpr std::uint32_t kWarps = kThreads / kLanes;
  /// Bits of a tile that are put together at once; a tile of longer codes goes warp by warp.
  static constexpr std::uint32_t kTileBits = kTileWeights * 8;
  static_assert(kRowWeights * df11::kMaxCodeBits <= kTileBits);
  /// With the unfinished group of the tile before, rounded up to whole groups with EOF's bits in the last.
  static constexpr std::uint32_t kBufferWords = (kTileBits + 2 * kGroupBits) / 32;
  static_assert(kTileBits % kGroupBits == 0);

  struct Parameters {
    std::uint64_t d_weights = 0;  ///< u16 [num_weights], of the slab; aligned to 2, to 16 is fastest
    std::uint64_t num_weights = 0, segment_weights = 0;
    std::uint64_t d_bits = 0;             ///< u64 [num_segments + 1], of SegmentOffsetsKernel
    std::uint64_t d_tables = 0;           ///< EncodeTables
    std::uint64_t first_weight = 0;       ///< of the slab, in the unit
    std::uint64_t first_open_window = 0;  ///< of the slab: format/open_windows.h
    std::uint64_t d_sign_mantissa = 0;    ///< out: u8 [num_weights]
    /// Out, both from the group of the slab's first bit on, to the end of that of its last one; bits and gaps
    /// that are not the slab's are 0. u8 [64 * num_groups] aligned to 16, u8 [5 * num_groups].
    std::uint64_t d_encoded_exponent = 0, d_gaps = 0;
    std::uint64_t num_groups =
        0;  ///< that there is room for: no more are written, whatever the histograms are
    std::uint64_t d_positions = 0;  ///< out: u32 [num_positions]
    std::uint64_t first_position = 0,
                  num_positions = 0;  ///< chunks that the slab opens, without the unit's end
    std::uint32_t is_last = 0;        ///< the slab ends with the unit's last weight
    std::uint32_t eof_bits = 0;       ///< then: the bits that complete the last byte, right-aligned
    std::uint64_t d_status = 0;
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// The output positions alone. Takes EncodeKernel::Parameters, with no outputs but d_positions.
struct ChunkStartsKernel {
  static constexpr const char* kModule = "df11_encode";
  static constexpr const char* kEntry = "wp_chunk_starts";

  static constexpr std::uint32_t kThreads = EncodeKernel::kThreads;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 4 * 1024;

  using Parameters = EncodeKernel::Parameters;
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

/// Decodes chunks, a block each, and checks all that format/decode_stage.h promises.
struct DecodeKernel {
  static constexpr const char* kModule = "df11_decode";
  static constexpr const char* kEntry = "wp_decode";

  static constexpr std::uint32_t kThreads = df11::kWindowsPerChunk;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 2;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 46 * 1024;

  /// In device memory, aligned to 8. Launches add to it: the caller writes the default value before the first
  /// one.
  struct Result {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t first_fault = kNone;    ///< the lowest chunk of the unit that is not as it should be
    std::uint64_t kernel_never_ends = 0;  ///< 1: the official kernel would not end in the unit's last chunk
    // Sums, once no chunk is at fault. Whoever has what was read or written can tell whether it is the same.
    /// Of the source's weights that were compared, if there is one: each, shifted by 16 bits where its place
    /// from d_source on is odd.
    std::uint64_t source_sum = 0;
    /// Of what was read of the buffers, by words of four bytes from their begins on, modulo 2^32: with the
    /// four bytes of the stream and the byte of gaps after the slab's chunks, which are used too, and without
    /// the last position.
    std::uint32_t sign_mantissa_sum = 0, encoded_exponent_sum = 0, gaps_sum = 0, positions_sum = 0;
    /// Of the rows that pointers can reach and the one of lengths (those above kMaxCodeBits as 0), by words
    /// too, but not modulo; each chunk adds it.
    std::uint64_t luts_sum = 0;
    std::uint32_t weights_sum = 0;  ///< of the weights that were written, by words of two, modulo 2^32
    std::uint32_t num_chunks = 0;   ///< that were decoded
    std::uint32_t end_weight = 0;   ///< the last position
    /// 1: the official kernel ends in the unit's last chunk, which is one of these.
    std::uint32_t kernel_ends = 0;
  };

  struct Parameters {
    std::uint64_t d_luts = 0;  ///< u8 [num_tables + 1][256], aligned to 4
    std::uint64_t num_tables = 0;
    std::uint64_t num_weights = 0, stream_bytes = 0;  ///< of the unit
    std::uint64_t first_chunk = 0, num_chunks = 0;    ///< of the slab
    std::uint64_t d_positions = 0;                    ///< u32 [num_chunks + 1]
    std::uint64_t d_encoded_exponent = 0;             ///< u8 [available_bytes], aligned to 8
    std::uint64_t available_bytes = 0;
    std::uint64_t d_gaps = 0;  ///< aligned to 4
    /// Of what follows, in the unit: not above positions[0], and a multiple of 8 or just that.
    std::uint32_t first_weight = 0;
    // From that weight on; 0: not there. Aligned to 16, sign_mantissa to 8. Without source and weights, only
    // lengths are checked.
    std::uint64_t d_sign_mantissa = 0, d_source = 0, d_weights = 0;
    std::uint64_t d_result = 0;
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

}  // namespace weightpress::device
