// Runs the lanes of one block: one at a time, each until it has to meet others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "ptxvm/access_log.h"
#include "ptxvm/launch.h"
#include "ptxvm/meetings.h"
#include "ptxvm/program.h"
#include "ptxvm/shared_shadow.h"

namespace weightpress::ptxvm {

constexpr std::uint32_t kWarpSize = 32;

/// What all blocks of a launch share.
struct LaunchState {
  const Program* program = nullptr;
  Handlers handlers = Handlers::kFast;
  LaunchConfig config;
  LaunchOptions options;
  std::vector<AllocationBounds> bounds;
  std::vector<const Memory::Allocation*> details;
  std::vector<std::uint8_t> parameters;
  std::uint64_t shared_bytes = 0;
};

class BlockRunner {
 public:
  /// edges: one a basic block, of the host thread. log: of the host thread, or nullptr.
  BlockRunner(const LaunchState& launch, std::vector<std::uint64_t>& edges, AccessLog* log);

  void begin(std::uint64_t block_number);

  enum class Progress : std::uint8_t { kSome, kNone, kDone, kFault };
  /// Every lane runs until it waits, ends, or has taken many branches. kNone: those that do not wait seem to
  /// wait for something in memory, which another block may have to write. progress: any number that changes
  /// when blocks of the launch get on; then such lanes may wait again.
  Progress run_round(std::uint64_t progress);

  const Fault& fault() const { return *fault_; }

 private:
  enum class State : std::uint8_t { kReady, kGaveWay, kWaits, kEnded };
  struct Lane {
    const MicroOp* pc = nullptr;
    State state = State::kReady;
    std::uint64_t branches = 0;  ///< since the last meeting
  };
  struct Barrier {
    std::uint64_t num_threads = 0;              ///< that have arrived; whole warps
    std::vector<std::uint32_t> lanes;           ///< by warp, of those
    std::vector<std::uint32_t> waiting;         ///< by warp, of those that wait
    std::optional<std::uint64_t> num_expected;  ///< nothing: all that have not ended
    bool is_in_use = false;
  };

  std::uint64_t* frame(std::uint32_t thread) { return frames_begin_ + std::size_t{thread} * stride_; }
  const MicroOp& met(std::uint32_t thread) const { return lanes_[thread].pc[-1]; }
  static MeetingKind kind_of(const MicroOp& op) {
    return static_cast<MeetingKind>(op.bits & kMeetingKindMask);
  }
  std::uint32_t first_thread(std::uint32_t warp) const { return warp * kWarpSize; }
  void shuffle(std::vector<std::uint32_t>& order);

  bool run_warp(std::uint32_t warp);
  bool run_lane(std::uint32_t thread);
  bool meet_in_warp(std::uint32_t warp);
  bool try_meeting(std::uint32_t warp, std::uint32_t lane);
  bool meet_active(std::uint32_t warp);
  void do_meeting(std::uint32_t warp, std::uint32_t lanes, MeetingKind kind);
  void count_meeting(std::uint32_t thread);
  bool arrive_at_barriers();
  bool complete_barriers();
  bool complete(std::uint32_t number, Barrier& barrier);
  void reduce(const Barrier& barrier);
  void release(std::uint32_t thread);

  void fail(FaultKind kind, std::uint32_t thread, const MicroOp& op, const std::string& what);
  void fail_waiting();
  std::string place_of(const MicroOp& op) const;
  std::string where_waits(std::uint32_t thread) const;
  Dim3 thread_index(std::uint32_t thread) const;

  const LaunchState& launch_;
  const std::vector<MicroOp>& ops_;
  const std::uint32_t num_threads_, num_warps_;
  AccessLog* const log_;
  Machine machine_;
  std::size_t stride_ = 0;  // of frames, in slots
  std::vector<std::uint64_t> frames_;
  std::uint64_t* frames_begin_ = nullptr;  // on a cache line
  std::vector<std::uint64_t> shared_;      // as 64-bit words, for their alignment
  std::uint8_t* shared_begin_ = nullptr;
  std::vector<std::uint8_t> shared_marks_, local_;
  std::unique_ptr<SharedShadow> shadow_;
  std::uint64_t local_stride_ = 0;

  std::uint64_t block_number_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> exists_, ended_;  // by warp: lanes
  std::vector<Barrier> barriers_;
  std::vector<std::uint32_t> warp_order_, lane_order_;
  std::mt19937_64 random_;
  std::uint32_t num_ended_ = 0;
  std::uint64_t progress_ = 0, num_meetings_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace weightpress::ptxvm
