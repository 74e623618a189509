// The numbers of the Tile-ANS format (docs/format.md, "Tile-ANS"), each derived where it can be.
#pragma once

#include <cstdint>

namespace weightpress::tile_ans {

inline constexpr std::uint32_t kNumSymbols = 256;  // a symbol is one byte of an element
inline constexpr std::uint32_t kMaxLanes = 8;      // bytes of the largest element

// ---- rANS
inline constexpr std::uint32_t kNumStates = 32;  // interleaved in one stream; element i goes to state i % 32
inline constexpr std::uint32_t kWordBits = 16;
inline constexpr std::uint32_t kMinState = 1u << 15;  // where every state begins and ends
inline constexpr std::uint32_t kStateBits = 31;       // a state is below 2^31
inline constexpr std::uint32_t kMinProbabilityBits = 9;
inline constexpr std::uint32_t kMaxProbabilityBits = 12;
inline constexpr std::uint32_t kMaxTableSize = 1u << kMaxProbabilityBits;
// One word brings a state from below kMinState back into [2^15, 2^31), so at most one is moved a symbol:
// encoding f * 2^(31 - bits) <= x gives x >> 16 < 2^15; decoding leaves at least 2^(15 - bits) >= 2^3.
static_assert(kMinState << kWordBits == 1u << kStateBits);
static_assert(kMinState >> kMaxProbabilityBits >= 1);
// Every symbol can have a slot, whatever the table.
static_assert(kNumSymbols <= 1u << kMinProbabilityBits);

// ---- entry of a decode table: bits 31-20 start, 19-8 frequency, 7-0 symbol
inline constexpr std::uint32_t kEntryFrequencyShift = 8;
inline constexpr std::uint32_t kEntryStartShift = 20;
inline constexpr std::uint32_t kEntryFieldMask = 0xFFF;
// Starts always fit; of the frequencies only 4096 itself does not, and is stored as 0.
static_assert(kMaxTableSize == kEntryFieldMask + 1);

// ---- limits
inline constexpr std::uint64_t kMaxTileElements = (std::uint64_t{1} << 31) - 1;
/// A stream has at most a word an element, so a stream's words fit 32 bits.
static_assert(kMaxTileElements <= UINT32_MAX);
/// Words of a payload are below this: offsets are 32-bit.
inline constexpr std::uint64_t kPayloadWordsLimit = std::uint64_t{1} << 32;
/// Elements of a tensor. Far above what a file can hold, and low enough that no size in bytes of any buffer
/// passes 2^63, and that all integers of the size estimate are exact in a double (4 bytes a stream, with
/// one element a tile: 2^47 * 8 * 4 = 2^52).
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 47;

enum class LaneMode : std::uint8_t { kAns = 0, kRaw = 1 };

}  // namespace weightpress::tile_ans
