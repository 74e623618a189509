// Slabs of Tile-ANS tensors: how much memory they take, and strangers' containers read out of files into no
// more than that.
#include "job/tile_ans_slab.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "host/tile_ans_stages.h"
#include "model/model_test_support.h"
#include "support/guarded_slab_memory.h"
#include "support/tile_ans_faults.h"

namespace weightpress::job {
namespace {

using namespace testing;
using tile_ans::Buffer;
using tile_ans::Layout;

TEST(TileAnsSlabMemory, IsTakenInAlignedPieces) {
  for (const std::uint64_t size : {1u, 63u, 64u, 65u, 1'000u}) {
    TileAnsSlabMemory memory(size);
    EXPECT_GE(memory.size_bytes(), size);
    EXPECT_LT(memory.size_bytes(), size + 64);
  }
  std::uint64_t asked = 0;
  GuardedSlabMemory guarded(10 * 64);
  TileAnsSlabMemory& memory = guarded.get();
  EXPECT_EQ(memory.size_bytes(), 640u);
  for (int round = 0; round < 2; ++round) {
    memory.reset();
    const auto bytes = memory.take<std::uint8_t>(65);
    const auto none = memory.take<std::uint64_t>(0);
    const auto words = memory.take<std::uint16_t>(32);
    const auto numbers = memory.take<std::uint32_t>(7 * 16);
    const auto* const begin = bytes.data();
    EXPECT_EQ(bytes.size(), 65u);
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(reinterpret_cast<const std::uint8_t*>(words.data()) - begin, 128);
    EXPECT_EQ(reinterpret_cast<const std::uint8_t*>(numbers.data()) - begin, 192);
    std::ranges::fill(numbers, ~0u);
    EXPECT_TRUE(guarded.is_intact());
  }
  const TileAnsSlabMemory other(100, [&](std::uint64_t bytes) {
    asked = bytes;
    return std::shared_ptr<void>(new char[128], [](void* p) { delete[] static_cast<char*>(p); });
  });
  EXPECT_EQ(asked, 128u);
}

TEST(TileAnsSlabMemory, TheMostTilesThatFit) {
  Random random(1);
  for (int run = 0; run < 300; ++run) {
    const Layout layout{1 + random.below(300), 9, 1u << random.below(4), 1 + random.below(5'000)};
    const auto bytes_of = [&](std::uint64_t tiles) { return encode_bytes(layout, tiles, run % 2 == 0); };
    const std::uint64_t most = layout.num_tiles();
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t tiles = 1 + random.below(most);
      EXPECT_EQ(tiles_in(layout, bytes_of(tiles), bytes_of), tiles);
      EXPECT_EQ(tiles_in(layout, bytes_of(tiles) - 1, bytes_of), std::max<std::uint64_t>(tiles - 1, 1));
    }
    EXPECT_EQ(tiles_in(layout, 0, bytes_of), 1u);
    EXPECT_EQ(tiles_in(layout, ~std::uint64_t{0}, bytes_of), most);
  }
}

/// A container in a file, each buffer somewhere.
class StoredFile {
 public:
  StoredFile(const TileAnsBuffers& buffers, Random& random) : file_(model::File::create(folder_ / ("f"))) {
    std::uint64_t offset = 0;
    const auto put = [&](Buffer buffer, const auto& values) {
      offset += random.below(70);
      stored_.places[static_cast<std::size_t>(buffer)] = {&file_, offset};
      file_.write_at(values.data(), values.size() * sizeof values[0], offset);
      offset += values.size() * sizeof values[0];
    };
    put(Buffer::kPayload, buffers.payload);
    put(Buffer::kStates, buffers.states);
    put(Buffer::kOffsets, buffers.offsets);
  }
  const StoredBuffers& stored() const { return stored_; }

 private:
  model::TempFolder folder_;
  model::File file_;
  StoredBuffers stored_;
};

/// Tiles of any size with coded lanes, which we do not write, and any offsets.
TEST(TileAnsSlab, StrangersContainersInAsMuchMemoryAsIsCounted) {
  Random random(2);
  int num_faulty = 0;
  for (int run = 0; run < 400; ++run) {
    SCOPED_TRACE(run);
    const StoredTileAns sound = random_container(random);
    StoredTileAns container = sound;
    for (std::uint64_t faults = random.below(3); faults > 0; --faults) spoil(random, container.buffers);
    const TileAnsBuffers& buffers = container.buffers;
    tile_ans::TensorPlan plan;
    plan.layout = {static_cast<std::uint64_t>(buffers.layout[0]),
                   static_cast<std::uint32_t>(buffers.layout[1]), container.num_lanes, container.shape[0]};
    const Layout& layout = plan.layout;
    for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
      plan.lanes[l].mode = static_cast<tile_ans::LaneMode>(buffers.lane_modes[l]);
      plan.lanes[l].frequencies = *tile_ans::read_decode_table(
          std::span(buffers.decode_tables).subspan(l * layout.table_size(), layout.table_size()));
    }
    const StoredFile file(buffers, random);
    host::HostTileAnsDecodeStage host(1);
    const std::uint64_t most = std::max<std::uint64_t>(layout.num_tiles() / 20, 1) + random.below(5);
    GuardedSlabMemory guarded(decode_bytes(layout, most));
    TileAnsSlabMemory& memory = guarded.get();
    const std::uint64_t step = tiles_in(layout, memory.size_bytes(),
                                        [&](std::uint64_t tiles) { return decode_bytes(layout, tiles); });
    EXPECT_GE(step, std::min(most, layout.num_tiles()));

    const bool compares = random.below(2) == 0;
    const Decoded expected = container.decode(
        host, {.tiles = step},
        compares ? std::span<const std::uint8_t>(sound.bytes) : std::span<const std::uint8_t>(), !compares);
    if (!expected.error.empty()) continue;  // not even to be opened
    std::vector<std::uint8_t> bytes;
    tile_ans::StageStatus status;
    for (std::uint64_t first = 0; first < layout.num_tiles() && status.ok(); first += step) {
      const tile_ans::TileRange tiles{first, std::min(step, layout.num_tiles() - first)};
      memory.reset();
      const std::span<const std::uint8_t> source = slab_bytes(sound.bytes, layout, tiles);
      const auto elements = memory.take<std::uint8_t>(source.size());
      if (compares) std::ranges::copy(source, elements.begin());
      status = decode_slab({.plan = plan,
                            .payload_words = buffers.payload.size(),
                            .buffers = file.stored(),
                            .tiles = tiles,
                            .source = compares ? elements : std::span<std::uint8_t>(),
                            .elements = compares ? std::span<std::uint8_t>() : elements},
                           host, memory, 2);
      bytes.insert(bytes.end(), elements.begin(), elements.end());
    }
    EXPECT_TRUE(guarded.is_intact());
    EXPECT_EQ(status, expected.status);
    num_faulty += status.ok() ? 0 : 1;
    if (status.ok()) {
      EXPECT_TRUE(bytes == (compares ? sound.bytes : expected.bytes));
    }
  }
  EXPECT_GT(num_faulty, 100);
}

}  // namespace
}  // namespace weightpress::job
