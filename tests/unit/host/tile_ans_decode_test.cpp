// Decoding what strangers wrote: every fault at its place, every bit of small containers, arbitrary bytes;
// the same verdict for all threads, slabs and SIMD levels.
#include <gtest/gtest.h>

#include "host/tile_ans_stages.h"
#include "support/tile_ans_random.h"

namespace weightpress::host {
namespace {

using namespace testing;
using tile_ans::LaneMode;
using tile_ans::StageCode;
using tile_ans::StageStatus;

/// A small container and what it holds.
struct Stored {
  Stored(std::vector<std::uint8_t> of, std::uint32_t lanes, std::uint64_t tile, int bits,
         std::vector<std::uint8_t> modes)
      : bytes(std::move(of)), num_lanes(lanes), shape{bytes.size() / lanes} {
    std::vector<SlowTileAns::Frequencies> frequencies;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      std::vector<std::uint8_t> symbols;
      for (std::size_t i = lane; i < bytes.size(); i += lanes) symbols.push_back(bytes[i]);
      frequencies.push_back(SlowTileAns::normalise(count(symbols), bits));
    }
    buffers = SlowTileAns::encode(bytes, lanes, tile, bits, modes, frequencies);
  }

  Decoded decode(int threads = 1, SimdLevel simd = SimdLevel::kPortable, const Slabs& slabs = {},
                 std::span<const std::uint8_t> source = {}, bool want_bytes = true) const {
    HostTileAnsDecodeStage stage(threads, simd);
    return decode_with(stage, buffers, shape, num_lanes, slabs, source, want_bytes);
  }

  std::vector<std::uint8_t> bytes;
  std::uint32_t num_lanes;
  std::vector<std::uint64_t> shape;
  TileAnsBuffers buffers;
};

/// Two lanes, the lower one raw, tiles of 101, the last of 97 elements.
Stored raw_and_coded() {
  Random random(1);
  return {RandomTensor::gaussian_bytes(random, 400, 2, 9), 2, 101, 10, {1, 0}};
}

Stored all_coded(std::uint64_t tile = 100, std::size_t num_elements = 1000) {
  Random random(2);
  return {RandomTensor::gaussian_bytes(random, num_elements, 4, 20), 4, tile, 11, {0, 0, 0, 0}};
}

TEST(TileAnsDecode, EveryFaultAtItsPlace) {
  // Streams of raw_and_coded(): 0 to 3 raw, 4 to 7 coded. Tiles have 101, 101, 101, 97 elements.
  const struct {
    const char* what;
    std::function<void(TileAnsBuffers&)> spoil;
    StageStatus expected;
  } cases[] = {
      {"nothing", [](TileAnsBuffers&) {}, {}},
      {"a raw stream that is short",
       [](TileAnsBuffers& b) { --b.offsets[2]; },
       {StageCode::kBadLength, 1, 0}},
      {"a raw stream that is long", [](TileAnsBuffers& b) { ++b.offsets[2]; }, {StageCode::kBadLength, 1, 0}},
      {"raw offsets that fall", [](TileAnsBuffers& b) { b.offsets[2] = 7; }, {StageCode::kBadOffsets, 1, 0}},
      {"a raw stream beyond the payload",
       [](TileAnsBuffers& b) { b.offsets[2] = 0xFFFFFFFF; },
       {StageCode::kBadLength, 1, 0}},
      {"padding",
       [](TileAnsBuffers& b) { b.payload[b.offsets[3] - 1] |= 0x100; },
       {StageCode::kBadPadding, 2, 0}},
      {"coded offsets that fall",
       [](TileAnsBuffers& b) { b.offsets[6] = 9; },
       {StageCode::kBadOffsets, 1, 1}},
      {"coded offsets beyond the payload",
       [](TileAnsBuffers& b) { b.offsets[7] = 0xFFFFFFFF; },
       {StageCode::kBadOffsets, 2, 1}},
      {"a coded stream longer than its symbols",
       [](TileAnsBuffers& b) { b.offsets[6] = b.offsets[5] + 102; },
       {StageCode::kBadOffsets, 1, 1}},
      {"a coded stream that is short",
       [](TileAnsBuffers& b) { b.offsets[6] -= 9; },
       {StageCode::kTruncated, 1, 1}},
      {"another word",
       [](TileAnsBuffers& b) { b.payload[b.offsets[5]] ^= 0x4000; },
       {StageCode::kBadEnd, 1, 1}},
      {"no words at all",
       [](TileAnsBuffers& b) { b.offsets[5] = b.offsets[4]; },
       {StageCode::kTruncated, 0, 1}},
      {"a word too many before it",
       [](TileAnsBuffers& b) {
         b.payload.insert(b.payload.begin() + b.offsets[6], 7);
         ++b.offsets[7];
         ++b.offsets[8];
       },
       {StageCode::kUnreadWords, 2, 1}},
      {"a small state", [](TileAnsBuffers& b) { b.states[32 + 31] = 0x7FFF; }, {StageCode::kBadState, 1, 1}},
      {"a large state", [](TileAnsBuffers& b) { b.states[0] = 0x80000000; }, {StageCode::kBadState, 0, 1}},
      {"two faults in one lane: the state is looked at first",
       [](TileAnsBuffers& b) {
         b.states[32] = 1;
         b.payload[b.offsets[5]] ^= 1;
       },
       {StageCode::kBadState, 1, 1}},
      {"two lanes: the lower one",
       [](TileAnsBuffers& b) {
         b.states[0] = 1;
         b.payload[b.offsets[1] - 1] |= 0x8000;
       },
       {StageCode::kBadPadding, 0, 0}},
      {"two tiles: the lower one",
       [](TileAnsBuffers& b) {
         b.states[64] = 1;
         b.payload[b.offsets[4] - 1] |= 0x100;
       },
       {StageCode::kBadState, 2, 1}},
  };
  for (const auto& [what, spoil, expected] : cases) {
    Stored stored = raw_and_coded();
    spoil(stored.buffers);
    for (const SimdLevel simd : simd_levels()) {
      for (const std::uint64_t slab : {1, 2, 3, 4}) {
        const Decoded decoded =
            stored.decode(1 + static_cast<int>(slab % 3), simd, {.tiles = slab, .all_words = slab % 2 == 0});
        EXPECT_EQ(decoded.error, "") << what;
        EXPECT_EQ(decoded.status, expected)
            << what << ": " << stage_code_text(decoded.status.code) << ", tile " << decoded.status.tile
            << ", lane " << decoded.status.lane;
      }
    }
  }
}

TEST(TileAnsDecode, ComparesWithTheSource) {
  const Stored stored = all_coded();
  for (const SimdLevel simd : simd_levels()) {
    for (const bool want_bytes : {false, true}) {
      EXPECT_TRUE(stored.decode(2, simd, {.tiles = 3}, stored.bytes, want_bytes).ok());
      for (const std::size_t byte : {std::size_t{0}, std::size_t{1999}, stored.bytes.size() - 1}) {
        std::vector<std::uint8_t> source = stored.bytes;
        source[byte] ^= 0x10;
        const Decoded decoded = stored.decode(2, simd, {.tiles = 3}, source, want_bytes);
        EXPECT_EQ(decoded.status, (StageStatus{StageCode::kDiffers, byte / 400, 0}));
      }
    }
  }
}

// What a fault may do: be found, change nothing, or make the container that the slow model makes of other
// bytes with the same tables, which no reader can tell from a good one.
void check_fault(const Stored& stored, const TileAnsBuffers& good, int& accepted) {
  const Decoded first = stored.decode();
  if (simd_levels().size() > 1) {
    const Decoded second = stored.decode(1, SimdLevel::kAvx2, {.tiles = 1});
    ASSERT_EQ(first.error, second.error);
    ASSERT_EQ(first.status, second.status);
    if (first.ok()) {
      ASSERT_EQ(first.bytes, second.bytes);
    }
  }
  if (!first.ok()) return;
  ++accepted;
  if (first.bytes == stored.bytes) {
    // Only another tile that cuts the elements alike.
    TileAnsBuffers same = stored.buffers;
    same.layout[0] = good.layout[0];
    ASSERT_EQ(same, good);
    return;
  }
  ASSERT_TRUE(is_encoding_of(stored.buffers, first.bytes));
}

template <class T>
void flip_every_bit(Stored& stored, std::vector<T> TileAnsBuffers::* buffer, int& accepted, int& tried) {
  const TileAnsBuffers good = stored.buffers;
  for (std::size_t i = 0; i < (good.*buffer).size(); ++i) {
    for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit) {
      T& number = (stored.buffers.*buffer)[i];
      const T before = number;
      number = static_cast<T>(number ^ (T{1} << bit));
      check_fault(stored, good, accepted);
      if (::testing::Test::HasFatalFailure()) FAIL() << "number " << i << ", bit " << bit;
      number = before;
      ++tried;
    }
  }
}

TEST(TileAnsDecode, EveryFlippedBitIsFoundOrHarmless) {
  Random random(3);
  std::vector<std::uint8_t> lopsided(300, 4);
  for (std::size_t i = 0; i < lopsided.size(); i += 1 + random.below(40)) lopsided[i] = 9;
  std::vector<Stored> all = {
      raw_and_coded(),
      {RandomTensor::gaussian_bytes(random, 90, 1, 40), 1, 33, 9, {0}},
      {RandomTensor::gaussian_bytes(random, 20, 2, 3), 2, 20, 9, {0, 0}},
      {std::vector<std::uint8_t>(140, 7), 1, 64, 9, {0}},
      {lopsided, 1, 150, 9, {0}},
  };
  for (Stored& stored : all) {
    int accepted = 0, tried = 0;
    flip_every_bit(stored, &TileAnsBuffers::payload, accepted, tried);
    flip_every_bit(stored, &TileAnsBuffers::offsets, accepted, tried);
    flip_every_bit(stored, &TileAnsBuffers::states, accepted, tried);
    flip_every_bit(stored, &TileAnsBuffers::lane_modes, accepted, tried);
    flip_every_bit(stored, &TileAnsBuffers::layout, accepted, tried);
    EXPECT_LT(accepted, tried);
    if (&stored == &all[0]) flip_every_bit(stored, &TileAnsBuffers::decode_tables, accepted, tried);
  }
}

TEST(TileAnsDecode, BuffersCutShortOrMadeLonger) {
  const Stored good = raw_and_coded();
  const auto faulty = [&](auto buffer, int change) {
    Stored stored = good;
    auto& numbers = stored.buffers.*buffer;
    numbers.resize(static_cast<std::size_t>(static_cast<std::ptrdiff_t>(numbers.size()) + change));
    return stored.decode().ok();
  };
  for (const int change : {-32, -1, 1, 32}) {
    EXPECT_FALSE(faulty(&TileAnsBuffers::payload, change));
    EXPECT_FALSE(faulty(&TileAnsBuffers::states, change));
    EXPECT_FALSE(faulty(&TileAnsBuffers::decode_tables, change));
    if (change == -32) continue;
    EXPECT_FALSE(faulty(&TileAnsBuffers::offsets, change));
    EXPECT_FALSE(faulty(&TileAnsBuffers::lane_modes, change));
    EXPECT_FALSE(faulty(&TileAnsBuffers::layout, change));
  }
}

// Words cut off and added, streams of every length: truncation is found wherever it is, in the words that
// vectors read as in those that are copied.
TEST(TileAnsDecode, EveryLengthOfAStream) {
  Random random(4);
  const Stored good({RandomTensor::gaussian_bytes(random, 700, 1, 30), 1, 700, 12, {0}});
  const std::size_t num_words = good.buffers.payload.size();
  for (std::size_t length = 0; length <= 700; ++length) {
    Stored stored = good;
    std::vector<std::uint16_t>& payload = stored.buffers.payload;
    // From the front: what is read last.
    if (length < num_words) {
      payload.erase(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(num_words - length));
    } else {
      payload.insert(payload.begin(), length - num_words, 3);
    }
    stored.buffers.offsets.back() = static_cast<std::uint32_t>(length);
    for (const SimdLevel simd : simd_levels()) {
      const Decoded decoded = stored.decode(1, simd);
      const StageCode expected = length < num_words   ? StageCode::kTruncated
                                 : length > num_words ? StageCode::kUnreadWords
                                                      : StageCode::kOk;
      ASSERT_EQ(decoded.status.code, expected) << length;
    }
  }
}

TEST(TileAnsDecode, ArbitraryWordsStatesAndOffsets) {
  Random random(5);
  int bad = 0;
  for (int run = 0; run < 400; ++run) {
    Stored stored = run % 2 == 0 ? all_coded(1 + random.below(400), 1 + random.below(900)) : raw_and_coded();
    TileAnsBuffers& b = stored.buffers;
    const std::uint64_t what = 1 + random.below(7);
    if (what & 1) {
      for (std::uint16_t& word : b.payload)
        if (random.below(3) == 0) word = static_cast<std::uint16_t>(random.next());
    }
    if (what & 2) {
      for (std::uint32_t& state : b.states)
        if (random.below(100) == 0)
          state = static_cast<std::uint32_t>(random.next() >> (32 + random.below(2)));
    }
    if (what & 4) {
      for (std::size_t i = 1; i + 1 < b.offsets.size(); ++i) {
        if (random.below(10) != 0) continue;
        b.offsets[i] = static_cast<std::uint32_t>(random.below(3) == 0 ? random.next()
                                                                       : random.below(b.payload.size() + 1));
      }
    }
    const Decoded first = stored.decode();
    bad += !first.ok();
    for (const SimdLevel simd : simd_levels()) {
      for (const int threads : {1, 3}) {
        const Decoded other = stored.decode(threads, simd, random_slabs(random, b.layout[0]));
        ASSERT_EQ(first.error, other.error);
        ASSERT_EQ(first.status, other.status)
            << stage_code_text(first.status.code) << " and " << stage_code_text(other.status.code);
        if (first.ok()) {
          ASSERT_EQ(first.bytes, other.bytes);
        }
      }
    }
  }
  EXPECT_GT(bad, 300);
}

}  // namespace
}  // namespace weightpress::host
