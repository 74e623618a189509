// The slow decoder of Tile-ANS, which `weightpress selftest` trusts: all golden tensors; every bit of small
// containers, of which it must say what an encoder that shares no code with it says.
#include "selftest/slow_tile_ans.h"

#include <string>

#include <gtest/gtest.h>

#include "support/tile_ans_golden.h"
#include "support/tile_ans_slow_model.h"

namespace weightpress::selftest {
namespace {

using namespace testing;

template <class T>
std::span<const std::uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(T)};
}

SlowTileAnsDecoding decode(const TileAnsBuffers& stored) {
  return slow_tile_ans_decode({.payload = bytes_of(stored.payload),
                               .offsets = bytes_of(stored.offsets),
                               .states = bytes_of(stored.states),
                               .decode_tables = bytes_of(stored.decode_tables),
                               .lane_modes = stored.lane_modes,
                               .layout = bytes_of(stored.layout)});
}

TEST(SlowTileAns, AllGoldenTensors) {
  for (const std::string& name : GoldenTileAns::coded_tensors()) {
    const GoldenTileAns golden(name);
    const SlowTileAnsDecoding decoding = decode(golden.stored);
    EXPECT_TRUE(decoding.ok) << name << ": " << decoding.problem;
    EXPECT_TRUE(decoding.elements == golden.bytes) << name;
  }
}

TEST(SlowTileAns, EveryBufferTooShortOrTooLong) {
  const TileAnsBuffers good = SlowTileAns::encode(std::vector<std::uint8_t>(2'000, 5), 2, {500, 9, 7.9});
  const auto expect_problem = [&](const char* name, auto TileAnsBuffers::* buffer) {
    for (const int change : {-1, 1}) {
      TileAnsBuffers stored = good;
      if ((stored.*buffer).empty() && change < 0) continue;
      (stored.*buffer).resize((stored.*buffer).size() + static_cast<std::size_t>(change));
      const SlowTileAnsDecoding decoding = decode(stored);
      EXPECT_FALSE(decoding.ok) << name;
      EXPECT_TRUE(decoding.problem.starts_with(name)) << decoding.problem;
    }
  };
  EXPECT_TRUE(decode(good).ok);
  expect_problem("payload", &TileAnsBuffers::payload);
  expect_problem("offsets", &TileAnsBuffers::offsets);
  expect_problem("states", &TileAnsBuffers::states);
  expect_problem("decode_tables", &TileAnsBuffers::decode_tables);
  expect_problem("lane_modes", &TileAnsBuffers::lane_modes);
  expect_problem("layout", &TileAnsBuffers::layout);
}

// A bit that is flipped is found, or gives the one encoding of other bytes by the same tables.
TEST(SlowTileAns, EveryBitOfASmallContainer) {
  std::vector<std::uint8_t> bytes(2 * 140);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i % 23);
  std::vector<SlowTileAns::Frequencies> frequencies;
  for (std::size_t lane = 0; lane < 2; ++lane) {
    SlowTileAns::Counts counts(256, 0);
    for (std::size_t i = lane; i < bytes.size(); i += 2) ++counts[bytes[i]];
    frequencies.push_back(SlowTileAns::normalise(counts, 9));
  }
  const TileAnsBuffers good = SlowTileAns::encode(bytes, 2, 65, 9, {1, 0}, frequencies);
  ASSERT_TRUE(decode(good).ok);
  int accepted = 0;
  const auto flip_all = [&](auto TileAnsBuffers::* buffer, unsigned bits, bool may_pass) {
    for (std::size_t i = 0; i < (good.*buffer).size(); ++i) {
      for (unsigned bit = 0; bit < bits; ++bit) {
        TileAnsBuffers stored = good;
        auto& value = (stored.*buffer)[i];
        value = static_cast<std::remove_reference_t<decltype(value)>>(value ^ (1ull << bit));
        const SlowTileAnsDecoding decoding = decode(stored);
        ASSERT_FALSE(decoding.ok && decoding.elements == bytes) << i << " " << bit;
        if (!decoding.ok) continue;
        ASSERT_TRUE(may_pass) << i << " " << bit;
        ++accepted;
        ASSERT_TRUE(SlowTileAns::encode(decoding.elements, 2, 65, 9, {1, 0}, frequencies) == stored);
      }
    }
  };
  flip_all(&TileAnsBuffers::payload, 16, true);
  flip_all(&TileAnsBuffers::offsets, 32, false);
  flip_all(&TileAnsBuffers::states, 32, true);
  flip_all(&TileAnsBuffers::decode_tables, 32, false);
  flip_all(&TileAnsBuffers::lane_modes, 8, false);
  flip_all(&TileAnsBuffers::layout, 64, false);
  EXPECT_GE(accepted, 16 * 66);  // raw words hold what they hold
}

}  // namespace
}  // namespace weightpress::selftest
