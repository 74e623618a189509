// What lanes do together: barriers and warp operations (PTX ISA 9.0, "Parallel synchronization" and "Warp
// ...").
#pragma once

#include <cstdint>

namespace weightpress::ptxvm {

/// MicroOp::bits of a kMeet operation. Slots: results d and d2, operands a, b, c; e: the member mask of warp
/// operations. Barriers: a the barrier's number, b the number of threads (not with kCountsAllThreads), c
/// the predicate.
enum class MeetingKind : std::uint8_t {
  kShuffleUp,
  kShuffleDown,
  kShuffleButterfly,
  kShuffleIndex,
  kVoteAll,
  kVoteAny,
  kVoteUniform,
  kBallot,
  kMatchAny,
  kMatchAll,
  kReduceAdd,
  kReduceMinUnsigned,
  kReduceMaxUnsigned,
  kReduceMinSigned,
  kReduceMaxSigned,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kElect,
  kWarpSync,
  kActiveMask,
  kBarrierSync,  // from here on, barriers
  kBarrierArrive,
  kBarrierPopc,
  kBarrierAnd,
  kBarrierOr
};

inline bool is_barrier(MeetingKind kind) {
  return kind >= MeetingKind::kBarrierSync;
}

constexpr std::uint32_t kNumBarriers = 16;  ///< of a block

// Beside the kind, in bits.
constexpr std::uint32_t kMeetingKindMask = 0xFF;
constexpr std::uint32_t kCountsAllThreads = 0x100;  ///< a barrier without a number of threads
constexpr std::uint32_t kHasSecondResult = 0x200;   ///< d2 is written
constexpr std::uint32_t kIsAligned = 0x400;  ///< all lanes of a warp execute the same barrier instruction

}  // namespace weightpress::ptxvm
