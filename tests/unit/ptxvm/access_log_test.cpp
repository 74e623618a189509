#include "ptxvm/access_log.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace weightpress::ptxvm {
namespace {

using Kind = AccessLog::Kind;

void expect_equal(const Counters& counted, const Counters& expected) {
  EXPECT_EQ(counted.lane_instructions, 0);
  EXPECT_EQ(counted.global_load_bytes, expected.global_load_bytes);
  EXPECT_EQ(counted.global_store_bytes, expected.global_store_bytes);
  EXPECT_EQ(counted.global_load_sectors, expected.global_load_sectors);
  EXPECT_EQ(counted.global_store_sectors, expected.global_store_sectors);
  EXPECT_EQ(counted.shared_instructions, expected.shared_instructions);
  EXPECT_EQ(counted.shared_bank_words, expected.shared_bank_words);
  EXPECT_EQ(counted.atomic_instructions, expected.atomic_instructions);
  EXPECT_EQ(counted.atomic_lanes, expected.atomic_lanes);
}

/// The definition: every access is kept, and all is counted at the end, byte by byte.
class SlowLog {
 public:
  explicit SlowLog(std::uint32_t num_threads) : last_rendezvous_(num_threads), num_executions_(num_threads) {}

  void add(std::uint32_t thread, std::uint32_t instruction, Kind kind, std::uint64_t address,
           std::uint32_t bytes) {
    const std::uint32_t n = num_executions_[thread][instruction]++;
    together_[{thread / 32, last_rendezvous_[thread], instruction, n}].push_back({kind, address, bytes});
  }
  void rendezvous(std::uint32_t warp, std::uint32_t lanes) {
    ++num_rendezvous_;
    for (std::uint32_t t = 0; t < last_rendezvous_.size(); ++t) {
      if (t / 32 != warp || (lanes >> t % 32 & 1) == 0) continue;
      last_rendezvous_[t] = num_rendezvous_;
      num_executions_[t].clear();
    }
  }
  void end_block() {
    for (std::uint32_t w = 0; w * 32 < last_rendezvous_.size(); ++w) rendezvous(w, 0xffffffff);
  }

  Counters count() const {
    Counters result;
    for (const auto& [key, accesses] : together_) {
      std::set<std::uint64_t> load_sectors, store_sectors, words;
      std::map<std::pair<bool, std::uint64_t>, std::uint64_t> lanes_at;
      for (const AccessOfALane& access : accesses) {
        const bool is_global = access.kind == Kind::kGlobalLoad || access.kind == Kind::kGlobalStore ||
                               access.kind == Kind::kGlobalAtomic;
        const bool is_atomic = access.kind == Kind::kGlobalAtomic || access.kind == Kind::kSharedAtomic;
        if (is_atomic) ++lanes_at[{is_global, access.address}];
        for (std::uint64_t at = access.address; at < access.address + access.bytes; ++at) {
          if (!is_global) {
            words.insert(at / 4);
            continue;
          }
          if (access.kind != Kind::kGlobalStore) load_sectors.insert(at / 32), ++result.global_load_bytes;
          if (access.kind != Kind::kGlobalLoad) store_sectors.insert(at / 32), ++result.global_store_bytes;
        }
      }
      result.global_load_sectors += load_sectors.size();
      result.global_store_sectors += store_sectors.size();
      if (!words.empty()) {
        std::array<std::uint64_t, 32> in_bank{};
        for (const std::uint64_t word : words) ++in_bank[word % 32];
        ++result.shared_instructions;
        result.shared_bank_words += *std::ranges::max_element(in_bank);
      }
      if (lanes_at.empty()) continue;
      ++result.atomic_instructions;
      std::uint64_t most = 0;
      for (const auto& [where, lanes] : lanes_at) most = std::max(most, lanes);
      result.atomic_lanes += most;
    }
    return result;
  }

 private:
  struct AccessOfALane {
    Kind kind;
    std::uint64_t address;
    std::uint32_t bytes;
  };
  std::vector<std::uint64_t> last_rendezvous_;
  std::vector<std::map<std::uint32_t, std::uint32_t>> num_executions_;
  std::uint64_t num_rendezvous_ = 0;
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint32_t>, std::vector<AccessOfALane>>
      together_;
};

TEST(AccessLog, AgreesWithTheDefinition) {
  for (const std::uint32_t num_threads : {1u, 31u, 32u, 33u, 96u, 120u}) {
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE("threads " + std::to_string(num_threads) + " seed " + std::to_string(seed));
      std::mt19937 random(seed);
      const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
      AccessLog log(num_threads);
      SlowLog model(num_threads);
      const std::uint32_t num_warps = (num_threads + 31) / 32;
      const std::uint32_t rendezvous_percent = below(20);
      // Each instruction has a kind, a size and a pattern; some have generic addresses.
      struct Instruction {
        std::uint32_t number;
        Kind kind, other_kind;
        std::uint32_t bytes, stride, range;
        bool misaligned;
      };
      std::vector<Instruction> instructions(1 + below(90));
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const auto kind = static_cast<Kind>(below(6));
        const bool is_generic = below(5) == 0;
        instructions[i] = {static_cast<std::uint32_t>(i) * (seed % 2 == 0 ? 1 : 0x10001),
                           kind,
                           is_generic ? static_cast<Kind>((static_cast<std::uint32_t>(kind) + 3) % 6) : kind,
                           1u << below(5),
                           std::array{0u, 1u, 2u, 32u, 33u}[below(5)],
                           1 + below(300),
                           below(4) == 0};
      }

      for (int block = 0; block < 2; ++block) {
        for (int step = 0; step < 300; ++step) {
          if (below(100) < rendezvous_percent) {
            const std::uint32_t warp = below(num_warps);
            const auto some = static_cast<std::uint32_t>(random());
            const std::uint32_t lanes = below(3) == 0 ? 0xffffffff : below(2) == 0 ? some : 1u << some % 32;
            log.rendezvous(warp, lanes);
            model.rendezvous(warp, lanes);
            continue;
          }
          // One lane runs alone for a while.
          const std::uint32_t thread = below(num_threads);
          for (std::uint32_t left = below(12); left > 0; --left) {
            const Instruction& chosen = instructions[below(
                static_cast<std::uint32_t>(std::min<std::size_t>(instructions.size(), 1 + below(90))))];
            const bool is_first = below(2) == 0;
            const std::uint64_t base = (std::uint64_t{5} << 36) + below(chosen.range) * 128;
            const std::uint64_t address =
                base + thread % 32 * chosen.stride * chosen.bytes + (chosen.misaligned ? below(64) : 0);
            log.add(thread, chosen.number, is_first ? chosen.kind : chosen.other_kind, address, chosen.bytes);
            model.add(thread, chosen.number, is_first ? chosen.kind : chosen.other_kind, address,
                      chosen.bytes);
          }
        }
        log.end_block();
        model.end_block();
      }
      EXPECT_TRUE(log.is_exact());
      expect_equal(log.counters(), model.count());
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// 32 lanes execute one instruction once, lane l at base + l * stride.
Counters one_warp_instruction(Kind kind, std::uint64_t base, std::uint64_t stride, std::uint32_t bytes) {
  AccessLog log(32);
  for (std::uint32_t lane = 0; lane < 32; ++lane) log.add(lane, 7, kind, base + lane * stride, bytes);
  log.end_block();
  return log.counters();
}

TEST(AccessLog, SectorsOfOneWarpInstruction) {
  const auto sectors = [](std::uint64_t base, std::uint64_t stride, std::uint32_t bytes) {
    return one_warp_instruction(Kind::kGlobalLoad, base, stride, bytes).global_load_sectors;
  };
  EXPECT_EQ(sectors(0x1000, 4, 4), 4);  // coalesced
  EXPECT_EQ(sectors(0x1000, 2, 2), 2);
  EXPECT_EQ(sectors(0x1000, 16, 16), 16);
  EXPECT_EQ(sectors(0x1010, 4, 4), 5);    // begins inside a sector
  EXPECT_EQ(sectors(0x13f0, 4, 4), 5);    // over the border of the masks
  EXPECT_EQ(sectors(0x1000, 0, 4), 1);    // broadcast
  EXPECT_EQ(sectors(0x1000, 32, 4), 32);  // one each
  EXPECT_EQ(sectors(0x1000, 4096, 4), 32);
  EXPECT_EQ(sectors(0x101c, 64, 8), 64);  // each in two
}

TEST(AccessLog, BytesAndSectorsByKind) {
  expect_equal(one_warp_instruction(Kind::kGlobalLoad, 0x1000, 4, 4),
               {.global_load_bytes = 128, .global_load_sectors = 4});
  expect_equal(one_warp_instruction(Kind::kGlobalStore, 0x1000, 8, 8),
               {.global_store_bytes = 256, .global_store_sectors = 8});
  expect_equal(one_warp_instruction(Kind::kGlobalAtomic, 0x1000, 0, 4), {.global_load_bytes = 128,
                                                                         .global_store_bytes = 128,
                                                                         .global_load_sectors = 1,
                                                                         .global_store_sectors = 1,
                                                                         .atomic_instructions = 1,
                                                                         .atomic_lanes = 32});
  expect_equal(one_warp_instruction(Kind::kGlobalAtomic, 0x1000, 4, 4), {.global_load_bytes = 128,
                                                                         .global_store_bytes = 128,
                                                                         .global_load_sectors = 4,
                                                                         .global_store_sectors = 4,
                                                                         .atomic_instructions = 1,
                                                                         .atomic_lanes = 1});
  expect_equal(
      one_warp_instruction(Kind::kSharedAtomic, 64, 128, 4),
      {.shared_instructions = 1, .shared_bank_words = 32, .atomic_instructions = 1, .atomic_lanes = 1});
}

TEST(AccessLog, BankWordsOfOneWarpInstruction) {
  const auto words = [](std::uint64_t stride, std::uint32_t bytes) {
    const Counters counters = one_warp_instruction(Kind::kSharedLoad, 256, stride, bytes);
    EXPECT_EQ(counters.shared_instructions, 1);
    return counters.shared_bank_words;
  };
  EXPECT_EQ(words(4, 4), 1);
  EXPECT_EQ(words(0, 4), 1);     // broadcast
  EXPECT_EQ(words(1, 1), 1);     // four lanes a word
  EXPECT_EQ(words(8, 4), 2);     // stride of two words
  EXPECT_EQ(words(128, 4), 32);  // all in one bank
  EXPECT_EQ(words(132, 4), 1);   // padded
  EXPECT_EQ(words(8, 8), 2);
  EXPECT_EQ(words(16, 16), 4);
}

TEST(AccessLog, TheNthExecutionsGoTogether) {
  // Each lane loops 10 times over a row of its own, at its own pace: the n-th words are what is coalesced.
  AccessLog log(32);
  for (std::uint32_t lane = 32; lane-- > 0;)
    for (std::uint64_t n = 0; n < 10; ++n) log.add(lane, 1, Kind::kGlobalLoad, 4096 + n * 128 + lane * 4, 4);
  log.end_block();
  EXPECT_EQ(log.counters().global_load_sectors, 40);

  // A lane that is one execution behind is so in all that follow.
  AccessLog shifted(2);
  for (std::uint64_t n = 0; n < 10; ++n) shifted.add(0, 1, Kind::kGlobalLoad, 4096 + n * 32, 4);
  for (std::uint64_t n = 1; n < 10; ++n) shifted.add(1, 1, Kind::kGlobalLoad, 4096 + n * 32, 4);
  shifted.end_block();
  EXPECT_EQ(shifted.counters().global_load_sectors, 1 + 9 * 2);
}

TEST(AccessLog, LanesOfDifferentRendezvousDoNotGoTogether) {
  AccessLog log(32);
  log.rendezvous(0, 0x0000ffff);
  for (std::uint32_t lane = 0; lane < 32; ++lane) log.add(lane, 1, Kind::kSharedLoad, 0, 4);
  EXPECT_EQ(log.counters().shared_instructions, 0);  // more lanes may come
  log.rendezvous(0, 0xffff0000);
  EXPECT_EQ(log.counters().shared_instructions, 1);
  log.rendezvous(0, 0x00000fff);
  EXPECT_EQ(log.counters().shared_instructions, 1);  // four lanes are not there yet
  log.rendezvous(0, 0x0000f000);
  EXPECT_EQ(log.counters().shared_instructions, 2);
}

TEST(AccessLog, ThousandsOfAccessesWithoutARendezvousAreExact) {
  AccessLog log(32);
  const std::uint64_t count = 20'000;
  for (std::uint64_t lane = 0; lane < 32; ++lane)
    for (std::uint64_t n = 0; n < count; ++n)
      log.add(static_cast<std::uint32_t>(lane), 1, Kind::kGlobalStore, (n * 32 + lane) * 4, 4);
  log.end_block();
  EXPECT_TRUE(log.is_exact());
  EXPECT_EQ(log.counters().global_store_sectors, 4 * count);
}

TEST(AccessLog, SaysWhenItHadToCountEarly) {
  AccessLog log(32, 100);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint64_t n = 0; n < 99; ++n) log.add(lane, 1, Kind::kGlobalLoad, n * 128 + lane * 4, 4);
  EXPECT_TRUE(log.is_exact());  // 99 places, of 32 lanes each
  for (std::uint64_t n = 99; n < 150; ++n) log.add(0, 1, Kind::kGlobalLoad, n * 128, 4);
  log.end_block();
  EXPECT_FALSE(log.is_exact());
  EXPECT_EQ(log.counters().global_load_bytes, 99 * 128 + 51 * 4);
  EXPECT_EQ(log.counters().global_load_sectors, 99 * 4 + 51);
}

TEST(AccessLog, WhatIsCountedWaitsNoLonger) {
  AccessLog log(64, 100);
  for (int block = 0; block < 10; ++block) {
    for (std::uint32_t thread = 0; thread < 64; ++thread)
      for (std::uint64_t n = 0; n < 40; ++n) log.add(thread, 1, Kind::kGlobalLoad, n * 256 + thread * 4, 4);
    log.rendezvous(1, 0xffffffff);
    for (std::uint32_t thread = 32; thread < 64; ++thread)
      for (std::uint64_t n = 0; n < 40; ++n) log.add(thread, 1, Kind::kGlobalLoad, n * 256 + thread * 4, 4);
    log.end_block();
  }
  EXPECT_TRUE(log.is_exact());
  EXPECT_EQ(log.counters().global_load_sectors, 10 * 3 * 40 * 4);
}

}  // namespace
}  // namespace weightpress::ptxvm
