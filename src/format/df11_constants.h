// The numbers of the DF11 format and of the official kernel, each derived where it can be.
//
// docs/format.md explains them. A limit that tests lower is in struct Df11Limits.
#pragma once

#include <cstdint>

namespace weightpress::df11 {

// ---- bitstream
inline constexpr std::uint32_t kWindowBits = 64;        // decoded by one thread of the official kernel
inline constexpr std::uint32_t kWindowsPerChunk = 512;  // decoded by one of its thread blocks
inline constexpr std::uint32_t kWindowBytes = kWindowBits / 8;
inline constexpr std::uint32_t kChunkBytes = kWindowsPerChunk * kWindowBytes;
inline constexpr std::uint32_t kChunkBits = kChunkBytes * 8;
static_assert(kChunkBytes == 4096);

// ---- gaps: one 5-bit number a window, packed; eight of them fill five bytes exactly
inline constexpr std::uint32_t kGapBits = 5;
inline constexpr std::uint32_t kWindowsPerGapGroup = 8;
inline constexpr std::uint32_t kGapGroupBytes = kWindowsPerGapGroup * kGapBits / 8;
inline constexpr std::uint32_t kGapBytesPerChunk = kWindowsPerChunk / kWindowsPerGapGroup * kGapGroupBytes;
static_assert(kWindowsPerGapGroup * kGapBits == kGapGroupBytes * 8);
static_assert(kWindowsPerChunk % kWindowsPerGapGroup == 0);
static_assert(kGapBytesPerChunk == 320);

// ---- codes
inline constexpr std::uint32_t kNumSymbols = 256;
inline constexpr std::uint32_t kMaxCodeBits = 32;  // four look-ups of eight bits
// The first code of a window starts at most kMaxCodeBits - 1 bits into it (the code before it began in an
// earlier window), so a gap fits its five bits, and no window before the stream's last is without a start.
static_assert(kMaxCodeBits - 1 < (1u << kGapBits));
static_assert(2 * kMaxCodeBits <= kWindowBits);

// ---- lookup tables: a value below kFirstPointer is an exponent, one from there on leads to table 256 -
// value
inline constexpr std::uint32_t kFirstPointer = 240;
inline constexpr std::uint32_t kMaxTables = 256 - kFirstPointer + 1;
static_assert(kMaxTables == 17);

// ---- what the official kernel and loader can take
// Indices are 32-bit and signed; one chunk of bytes is kept free for the kernel's rounding up.
inline constexpr std::uint64_t kMaxUnitWeights = (std::uint64_t{1} << 31) - 4096;
inline constexpr std::uint64_t kMaxStreamBytes = (std::uint64_t{1} << 31) - 4096;
// Dynamic shared memory of a block: a 32-bit count a thread, one more, and two bytes a weight of the chunk.
// The official loader never raises CUDA's default of 48 KiB.
constexpr std::uint64_t official_shared_bytes(std::uint64_t chunk_weights) {
  return kWindowsPerChunk * 4 + 4 + 2 * chunk_weights;
}
inline constexpr std::uint32_t kOfficialSharedMemoryBytes = 48 * 1024;
inline constexpr std::uint32_t kMaxChunkWeights = (kOfficialSharedMemoryBytes - official_shared_bytes(0)) / 2;
static_assert(kMaxChunkWeights == 23550);

struct Df11Limits {
  std::uint64_t max_weights = kMaxUnitWeights - 1;  // the limits themselves are excluded
  std::uint64_t max_stream_bytes = kMaxStreamBytes - 1;
  std::uint64_t max_chunk_weights = kMaxChunkWeights;
  std::uint32_t max_tables = kMaxTables;
};

}  // namespace weightpress::df11
