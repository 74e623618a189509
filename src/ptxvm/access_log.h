// Counts what the lanes of one warp do together: sectors of global memory, banks of shared memory, lanes on
// one address.
//
// Lanes run one after the other. What they do "together" is the n-th execution of an instruction by each
// since their last rendezvous: so accesses are noted with (rendezvous, instruction, n) and counted when all
// lanes have come that far. Lanes whose last rendezvous is not the same one do nothing together.
//
// A warp instruction is kept as the places that it touches, and coalesced ones are a few masks: what waits is
// some bytes for each warp instruction, however many lanes execute it. An instruction with generic addresses
// may reach global memory in one lane and shared memory in another; it then counts as one of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptxvm/launch.h"

namespace weightpress::ptxvm {

class AccessLog {
 public:
  /// Places that may wait, of 24 bytes each. A lane that goes alone for millions of accesses reaches that.
  static constexpr std::size_t kMaxPlaces = std::size_t{1} << 24;

  explicit AccessLog(std::uint32_t num_threads, std::size_t max_places = kMaxPlaces);

  enum class Kind : std::uint8_t {
    kGlobalLoad,
    kGlobalStore,
    kGlobalAtomic,
    kSharedLoad,
    kSharedStore,
    kSharedAtomic
  };
  /// instruction: any number that is its own. address: as the lane computed it, of `bytes` bytes (1 to 16).
  void add(std::uint32_t thread, std::uint32_t instruction, Kind kind, std::uint64_t address,
           std::uint32_t bytes);

  /// Lanes of a warp have met (a warp operation, a barrier), or ended.
  void rendezvous(std::uint32_t warp, std::uint32_t lanes);
  /// The block has ended: all is counted, and the next one can begin.
  void end_block();

  /// All blocks so far. lane_instructions stays 0.
  const Counters& counters() const { return counters_; }
  /// Whether max_places was never reached. Where it was, what waited was counted as it stood: lanes that came
  /// later count as warp instructions of their own, so all counts but the bytes may be too high.
  bool is_exact() const { return is_exact_; }

 private:
  static constexpr std::uint32_t kWarpLanes = 32;
  static constexpr std::uint32_t kNoPlace = 0xffffffff;

  enum class PlaceKind : std::uint8_t {
    kGlobalLoad,  ///< these four: `where` is of 32 sectors or of 32 words, `what` a mask of them
    kGlobalStore,
    kGlobalAtomic,
    kShared,
    kAtomicGlobal,  ///< these two: `where` is the address, `what` the number of lanes
    kAtomicShared
  };
  struct Place {
    std::uint64_t where;
    std::uint32_t what;
    std::uint32_t next;  ///< of the same warp instruction
    PlaceKind kind;
  };
  struct Stream {  ///< executions of one instruction
    std::uint32_t instruction = 0;
    std::array<std::uint32_t, kWarpLanes> num_executions{};  ///< by lane
    std::vector<std::uint32_t> first_place;                  ///< by n
  };
  /// What lanes did since the rendezvous that was the last one for each of them.
  struct Phase {
    std::uint32_t lanes = 0;           ///< for which it still is; 0: free
    std::vector<std::uint32_t> table;  ///< hash of an instruction -> 1 + its stream; 0: none
    std::vector<Stream> streams;
    std::size_t num_streams = 0;  ///< later ones in `streams` are there for their memory
    std::vector<Place> places;
  };
  struct Warp {
    std::uint32_t all_lanes = 0;
    std::array<std::uint32_t, kWarpLanes> phase_of{};
  };

  Stream& find_stream(Phase& phase, std::uint32_t instruction);
  static void grow(Phase& phase);
  void touch(Phase& phase, std::uint32_t& first, PlaceKind kind, std::uint64_t where, std::uint32_t what);
  void touch_units(Phase& phase, std::uint32_t& first, PlaceKind kind, std::uint64_t address,
                   std::uint32_t bytes, std::uint32_t unit_bytes);
  std::uint32_t new_phase();
  void count_early();
  void count(Phase& phase);
  void count_warp_instruction(const std::vector<Place>& places, std::uint32_t first);

  std::vector<Warp> warps_;
  std::vector<Phase> phases_;
  std::vector<std::uint32_t> free_phases_;
  std::size_t num_places_ = 0, max_places_;
  std::vector<Place> merged_;  // of count_warp_instruction()
  bool is_exact_ = true;
  Counters counters_;
};

}  // namespace weightpress::ptxvm
