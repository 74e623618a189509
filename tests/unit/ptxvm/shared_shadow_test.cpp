#include "ptxvm/shared_shadow.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weightpress::ptxvm {
namespace {

using Access = SharedShadow::Access;
using Lanes = std::vector<std::uint32_t>;

constexpr std::uint32_t kAllLanes = 0xffffffff;

/// Happens-before by its definition: a full vector clock for each thread, and every access kept.
class SlowModel {
 public:
  SlowModel(std::uint64_t shared_bytes, std::uint32_t num_threads)
      : bytes_(shared_bytes), clocks_(num_threads, std::vector<std::uint32_t>(num_threads)) {
    for (std::uint32_t t = 0; t < num_threads; ++t) clocks_[t][t] = 1;
  }

  /// Whether an earlier access of this kind by `other` (any, if nullopt) to the byte races with this one.
  bool races(std::uint32_t thread, std::uint64_t offset, Access access,
             std::optional<std::uint32_t> other = {}, std::optional<Access> other_access = {}) const {
    return std::ranges::any_of(bytes_[offset], [&](const Entry& entry) {
      if (other && entry.thread != *other) return false;
      if (other_access && entry.access != *other_access) return false;
      const bool conflict = (access == Access::kWrite || entry.access == Access::kWrite) ||
                            (access != entry.access);  // a read with an atomic
      return conflict && entry.thread != thread && clocks_[thread][entry.thread] < entry.clock;
    });
  }
  void note(std::uint32_t thread, std::uint64_t offset, Access access) {
    bytes_[offset].push_back({thread, clocks_[thread][thread], access});
  }
  void meet(const std::vector<std::uint32_t>& threads) {
    std::vector<std::uint32_t> joined(clocks_.size());
    for (const std::uint32_t t : threads)
      for (std::size_t i = 0; i < joined.size(); ++i) joined[i] = std::max(joined[i], clocks_[t][i]);
    for (const std::uint32_t t : threads) {
      clocks_[t] = joined;
      ++clocks_[t][t];
    }
  }

 private:
  struct Entry {
    std::uint32_t thread, clock;
    Access access;
  };
  std::vector<std::vector<Entry>> bytes_;
  std::vector<std::vector<std::uint32_t>> clocks_;
};

std::vector<std::uint32_t> threads_of(const Lanes& lanes, std::uint32_t num_threads) {
  std::vector<std::uint32_t> threads;
  for (std::uint32_t t = 0; t < num_threads; ++t)
    if (lanes[t / 32] >> t % 32 & 1) threads.push_back(t);
  return threads;
}

struct Shape {
  std::string name;
  std::uint32_t num_threads;
  std::uint64_t shared_bytes;
  bool partial_syncs, partial_barriers, whole_warps;
  int num_programs;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

class SharedShadowRandom : public testing::TestWithParam<Shape> {};

TEST_P(SharedShadowRandom, AgreesWithTheDefinition) {
  const Shape& shape = GetParam();
  SharedShadow shadow(shape.shared_bytes, shape.num_threads);  // one for all programs
  const std::uint32_t num_warps = (shape.num_threads + 31) / 32;
  std::uint64_t num_races = 0;
  std::uint64_t num_orders = 0;
  for (int program = 0; program < shape.num_programs; ++program) {
    const auto seed = static_cast<std::uint32_t>(program);
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const auto mask = [&] { return static_cast<std::uint32_t>(random()); };
    SlowModel model(shape.shared_bytes, shape.num_threads);
    shadow.begin_block();

    // A few threads do most, so that they meet and collide.
    std::vector<std::uint32_t> active(2 + below(12));
    for (std::uint32_t& t : active) t = below(shape.num_threads);
    const std::uint32_t race_percent = below(3);
    const std::uint32_t sync_percent = 2 + below(30);
    const std::uint32_t write_percent = 5 + below(60);
    const bool bytes_only = below(4) == 0;
    bool raced = false;
    for (int step = 0; step < 400 && !raced; ++step) {
      if (below(100) < sync_percent) {
        ++num_orders;
        const std::uint32_t kind = below(8);
        Lanes lanes(num_warps, 0);
        if (kind == 0 || (kind <= 3 && !shape.partial_barriers)) {
          if (kind > 1) continue;
          std::ranges::fill(lanes, kAllLanes);
          shadow.barrier(lanes);
        } else if (kind <= 3) {
          for (std::uint32_t& l : lanes) {
            l = below(2) == 0 ? 0 : kAllLanes;
            if (!shape.whole_warps && below(2) == 0) l = mask() | mask();
          }
          shadow.barrier(lanes);
        } else {
          const std::uint32_t warp = active[below(static_cast<std::uint32_t>(active.size()))] / 32;
          lanes[warp] = kAllLanes;
          if (shape.partial_syncs && below(4) != 0) {
            lanes[warp] = below(2) == 0 ? mask() | mask() : mask() & mask();
            for (const std::uint32_t t : active)  // of those that matter too
              if (t / 32 == warp && below(2) == 0) lanes[warp] |= std::uint32_t{1} << t % 32;
          }
          shadow.warp_sync(warp, lanes[warp]);
        }
        model.meet(threads_of(lanes, shape.num_threads));
        continue;
      }
      const std::uint32_t thread = below(10) == 0 ? below(shape.num_threads)
                                                  : active[below(static_cast<std::uint32_t>(active.size()))];
      const std::uint32_t bytes = bytes_only ? 1 : 1u << below(5);
      const std::uint64_t offset =
          below(static_cast<std::uint32_t>(shape.shared_bytes - bytes + 1)) / bytes * bytes;
      const auto access = below(100) < write_percent ? Access::kWrite
                          : below(4) == 0            ? Access::kAtomic
                                                     : Access::kRead;
      bool expected = false;
      for (std::uint64_t at = offset; at < offset + bytes; ++at)
        expected = expected || model.races(thread, at, access);
      if (expected && below(100) >= race_percent) continue;

      const auto race = shadow.access(thread, offset, bytes, access);
      ASSERT_EQ(race.has_value(), expected) << "step " << step << " thread " << thread << " offset " << offset
                                            << " bytes " << bytes << " access " << static_cast<int>(access);
      if (race) {
        EXPECT_GE(race->offset_bytes, offset);
        EXPECT_LT(race->offset_bytes, offset + bytes);
        EXPECT_TRUE(model.races(thread, race->offset_bytes, access, race->other_thread, race->other))
            << "step " << step << " thread " << thread << " other " << race->other_thread;
        ++num_races;
        raced = true;
      }
      for (std::uint64_t at = offset; at < offset + bytes; ++at) model.note(thread, at, access);
    }
  }
  // The programs are such that both answers are common.
  EXPECT_GT(num_races, static_cast<std::uint64_t>(shape.num_programs) / 20);
  EXPECT_LT(num_races, static_cast<std::uint64_t>(shape.num_programs));
  EXPECT_GT(num_orders, 0);
}

INSTANTIATE_TEST_SUITE_P(Programs, SharedShadowRandom,
                         testing::Values(Shape{"FullBarriers", 128, 16, false, false, true, 400},
                                         Shape{"OneWarp", 32, 16, true, false, true, 1000},
                                         Shape{"PartOfAWarp", 7, 18, true, true, false, 1000},
                                         Shape{"WarpSyncs", 96, 16, true, false, true, 1000},
                                         Shape{"NamedBarriers", 100, 16, false, true, true, 1000},
                                         Shape{"Everything", 100, 24, true, true, false, 1500},
                                         Shape{"LargeBlock", 1024, 16, true, true, false, 6}),
                         [](const testing::TestParamInfo<Shape>& shape) { return shape.param.name; });

Lanes all(std::uint32_t num_warps) {
  return Lanes(num_warps, kAllLanes);
}

TEST(SharedShadow, WriteThenReadNeedsABarrier) {
  SharedShadow shadow(64, 64);
  EXPECT_FALSE(shadow.access(3, 8, 4, Access::kWrite));
  EXPECT_FALSE(shadow.access(3, 8, 4, Access::kRead));
  const auto race = shadow.access(40, 10, 2, Access::kRead);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->offset_bytes, 10);
  EXPECT_EQ(race->other_thread, 3);
  EXPECT_EQ(race->other, Access::kWrite);

  shadow.begin_block();
  EXPECT_FALSE(shadow.access(3, 8, 4, Access::kWrite));
  shadow.barrier(all(2));
  EXPECT_FALSE(shadow.access(40, 10, 2, Access::kRead));
}

TEST(SharedShadow, ReadByAllThenWrite) {
  SharedShadow shadow(4, 256);
  for (std::uint32_t t = 0; t < 256; ++t) EXPECT_FALSE(shadow.access(t, 0, 4, Access::kRead));
  const auto race = shadow.access(17, 0, 4, Access::kWrite);
  ASSERT_TRUE(race);
  EXPECT_NE(race->other_thread, 17);
  EXPECT_EQ(race->other, Access::kRead);

  shadow.begin_block();
  for (std::uint32_t t = 0; t < 256; ++t) EXPECT_FALSE(shadow.access(t, 0, 4, Access::kRead));
  shadow.barrier(all(8));
  EXPECT_FALSE(shadow.access(17, 0, 4, Access::kWrite));
}

TEST(SharedShadow, NeighbouringBytesAreTheirOwn) {
  SharedShadow shadow(8, 32);
  for (std::uint32_t t = 0; t < 8; ++t) EXPECT_FALSE(shadow.access(t, t, 1, Access::kWrite));
  EXPECT_FALSE(shadow.access(5, 5, 1, Access::kRead));
  const auto race = shadow.access(4, 4, 2, Access::kRead);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->offset_bytes, 5);
  EXPECT_EQ(race->other_thread, 5);
}

TEST(SharedShadow, AtomicsRaceWithPlainAccessesOnly) {
  SharedShadow shadow(4, 64);
  for (std::uint32_t t = 0; t < 64; ++t) EXPECT_FALSE(shadow.access(t, 0, 4, Access::kAtomic));
  const auto read = shadow.access(0, 0, 4, Access::kRead);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->other, Access::kAtomic);

  shadow.begin_block();
  EXPECT_FALSE(shadow.access(9, 0, 4, Access::kAtomic));
  const auto write = shadow.access(8, 0, 4, Access::kWrite);
  ASSERT_TRUE(write);
  EXPECT_EQ(write->other, Access::kAtomic);

  shadow.begin_block();
  EXPECT_FALSE(shadow.access(9, 0, 4, Access::kRead));
  const auto atomic = shadow.access(8, 0, 4, Access::kAtomic);
  ASSERT_TRUE(atomic);
  EXPECT_EQ(atomic->other, Access::kRead);
}

TEST(SharedShadow, WarpSyncOrdersItsLanesOnly) {
  SharedShadow shadow(8, 64);
  EXPECT_FALSE(shadow.access(0, 0, 4, Access::kWrite));
  EXPECT_FALSE(shadow.access(0, 4, 4, Access::kWrite));
  shadow.warp_sync(0, 0b11);
  shadow.warp_sync(0, 0b110);
  EXPECT_FALSE(shadow.access(1, 0, 4, Access::kRead));
  EXPECT_FALSE(shadow.access(2, 0, 4, Access::kRead));  // by way of lane 1
  EXPECT_TRUE(shadow.access(3, 0, 4, Access::kRead));
  EXPECT_TRUE(shadow.access(32, 4, 4, Access::kRead));
}

TEST(SharedShadow, NamedBarrierOrdersItsWarpsOnly) {
  SharedShadow shadow(12, 128);
  for (std::uint64_t at = 0; at < 12; at += 4) EXPECT_FALSE(shadow.access(5, at, 4, Access::kWrite));
  shadow.barrier({kAllLanes, kAllLanes, 0, 0});
  EXPECT_FALSE(shadow.access(40, 0, 4, Access::kRead));
  EXPECT_TRUE(shadow.access(70, 4, 4, Access::kRead));
  shadow.barrier({0, kAllLanes, kAllLanes, 0});
  EXPECT_FALSE(shadow.access(71, 8, 4, Access::kRead));  // by way of warp 1
}

TEST(SharedShadow, ThreadsThatHaveEndedTakeNoPart) {
  SharedShadow shadow(8, 64);
  EXPECT_FALSE(shadow.access(63, 0, 4, Access::kWrite));
  EXPECT_FALSE(shadow.access(1, 4, 4, Access::kWrite));
  shadow.barrier({kAllLanes, kAllLanes >> 1});  // thread 63 is gone
  EXPECT_FALSE(shadow.access(2, 4, 4, Access::kRead));
  const auto race = shadow.access(2, 0, 4, Access::kRead);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->other_thread, 63);
}

}  // namespace
}  // namespace weightpress::ptxvm
