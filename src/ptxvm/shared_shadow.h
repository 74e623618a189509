// What is known of each byte of a block's shared memory: who wrote and read it last, and what orders that
// before now.
//
// An access is ordered before another of another thread by a barrier that both took part in after the first
// (bar.sync), by a bar.warp.sync with both, or by a chain of these. shfl, vote and match order nothing (CUDA
// C++ Programming Guide, "Warp shuffle functions"). A thread that has ended took part in no later barrier.
//
// Exact up to the first race: every race is found, none is made up. Vector clocks (as FastTrack, Flanagan and
// Freund 2009, has them), made small by what blocks do:
// - A barrier of all threads orders all before it. So it only counts up the epoch, and a record of an older
//   epoch is an empty one. A new block does the same.
// - Lanes that met know the same, and share one Knowledge: clocks of the lanes of their warp, and of all
//   threads (Remote) only where a barrier of some threads has been.
// - A word is one record until an access touches a part of it; then its bytes have one each.
// - A record keeps the last plain write, and of the reads and atomics since then the last of each lane, less
//   those that a later one of the same warp follows. Lanes of a warp with the same clock are one group; more
//   than one group goes into a pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace weightpress::ptxvm {

class SharedShadow {
 public:
  /// num_threads: 1 to 1024.
  SharedShadow(std::uint64_t shared_bytes, std::uint32_t num_threads);

  /// A new block begins: nothing is written, nobody has read. Costs no pass over the bytes.
  void begin_block();

  enum class Access : std::uint8_t { kRead, kWrite, kAtomic };  ///< atomics do not race with each other
  struct Race {
    std::uint64_t offset_bytes = 0;
    std::uint32_t other_thread = 0;
    Access other = Access::kRead;  ///< the earlier access
  };
  /// Notes an access, and returns the first race with an earlier one. All of it lies inside the shared
  /// memory.
  std::optional<Race> access(std::uint32_t thread, std::uint64_t offset_bytes, std::uint32_t bytes,
                             Access access);

  /// bar.warp.sync of lanes of a warp.
  void warp_sync(std::uint32_t warp, std::uint32_t lanes);
  /// A barrier is complete. took_part: by warp, the lanes that arrived.
  void barrier(const std::vector<std::uint32_t>& took_part);

 private:
  static constexpr std::uint32_t kWarpLanes = 32;
  static constexpr std::uint32_t kMaxThreads = 1024;
  static constexpr std::uint32_t kWordBytes = 4;
  static constexpr std::uint16_t kNoThread = 0xffff;
  static constexpr std::uint32_t kNoRemote = 0xffffffff;

  /// Lanes of a warp that did something when their clock was `clock`.
  struct Group {
    std::uint32_t lanes = 0, clock = 0, warp = 0;
  };
  /// Threads that did something, each with its last clock: one group, or a set in the pool.
  struct Threads {
    std::uint32_t lanes_or_set = 0, clock = 0;
    std::uint16_t warp = 0;
    bool is_set = false;

    bool is_empty() const { return !is_set && lanes_or_set == 0; }
  };
  /// The first num_warps_ groups are by warp, and what follows are further ones of any warp.
  using ThreadSet = std::vector<Group>;

  struct Record {
    std::uint32_t epoch = 0;
    std::uint32_t write_clock = 0;
    std::uint16_t writer = kNoThread;
    bool is_split = false;  ///< a word's: the records of its bytes hold instead
    Threads reads, atomics;
  };

  struct Remote {
    std::vector<std::uint32_t> known;  ///< by thread, the clock up to which all is ordered before now
    std::uint32_t uses = 0;            ///< by a Knowledge
  };
  struct Knowledge {
    std::uint32_t lanes = 0;  ///< that share it; 0: free
    std::uint32_t remote = kNoRemote;
    std::array<std::uint32_t, kWarpLanes> known{};  ///< as Remote, by lane
  };
  struct Warp {
    std::uint32_t all_lanes = 0;
    std::uint32_t time = 1;  ///< the largest clock
    bool is_uneven = false;  ///< its lanes' clocks or knowledge differ, or reach beyond the warp
    std::array<std::uint32_t, kWarpLanes> clock{};
    std::array<std::uint8_t, kWarpLanes> knowledge_of{};
    std::array<Knowledge, kWarpLanes + 1> knowledge{};  // one more than lanes, so that one is free
  };
  /// Who accesses.
  struct Actor {
    std::uint32_t thread, warp, lane, clock;
    const Knowledge* knowledge;
  };

  void begin_epoch();
  std::uint8_t free_knowledge(const Warp& warp) const;
  /// Lanes of a warp share `to` from now on, and have a new clock.
  void share(Warp& warp, std::uint32_t lanes, std::uint8_t to);
  void join_remotes(Warp& warp, std::uint32_t lanes, std::vector<std::uint32_t>& found) const;
  std::uint32_t new_remote();
  void use_remote(std::uint32_t& slot, std::uint32_t remote);

  bool is_before(const Actor& actor, std::uint32_t warp, std::uint32_t lane, std::uint32_t clock) const;
  std::uint32_t lanes_not_before(const Actor& actor, const Group& group) const;
  std::optional<std::uint32_t> find_unordered(const Actor& actor, const Threads& threads) const;
  void note(const Actor& actor, Threads& threads);
  void note_in_set(const Actor& actor, ThreadSet& set);
  std::uint32_t new_set();
  void clear(Threads& threads);
  Threads copy(const Threads& threads);

  /// Returns whether the record was of an older epoch, and is empty now.
  bool refresh(Record& record) const {
    if (record.epoch == epoch_) return false;
    record = Record{};
    record.epoch = epoch_;
    return true;
  }
  void split(std::uint64_t word);
  /// other_thread and other of the race; its offset is the caller's.
  std::optional<Race> find_race(const Actor& actor, const Record& record, Access access) const;
  std::optional<Race> touch(const Actor& actor, Record& record, Access access);

  std::uint32_t num_threads_, num_warps_;
  std::uint32_t epoch_ = 1;
  std::vector<Record> words_, bytes_;
  std::vector<Warp> warps_;
  std::vector<Remote> remotes_;
  std::vector<std::uint32_t> free_remotes_;
  std::vector<ThreadSet> sets_;
  std::size_t num_sets_ = 0;  ///< of this epoch; later ones in sets_ are there for their memory
  std::vector<std::uint32_t> free_sets_;
  std::vector<std::uint32_t> joined_;  // of warp_sync() and barrier()
};

}  // namespace weightpress::ptxvm
