#include "job/tile_ans_slab.h"

#include <algorithm>

#include "job/parallel_io.h"

namespace weightpress::job {
namespace {

using tile_ans::Buffer;
using tile_ans::LaneMode;
using tile_ans::Layout;

// What TileAnsSlabMemory rounds up, for at most 8 lanes with at most 8 spans each.
constexpr std::uint64_t kRoundingBytes = 64 * 64;

// With at most so many elements in a tile, a lane has no states: all lanes are raw (effective_threshold() is
// 0 or less). Only for what we encode; strangers may do otherwise.
constexpr std::uint64_t kStatelessTileElements = 128;

struct SlabSizes {
  std::uint64_t element_bytes, word_bytes, state_bytes, stream_bytes;
};

SlabSizes sizes_of(const Layout& layout, std::uint64_t num_tiles) {
  const std::uint64_t tile = std::min(layout.tile_elements, layout.num_elements);
  const std::uint64_t symbols = num_tiles * tile * layout.num_lanes, streams = num_tiles * layout.num_lanes;
  return {symbols, 2 * symbols, 4 * tile_ans::kNumStates * streams, 4 * streams};
}

}  // namespace

TileAnsSlabMemory::TileAnsSlabMemory(std::uint64_t size_bytes, const SlabMemory& memory)
    : blocks_((size_bytes + kBlockBytes - 1) / kBlockBytes),
      memory_(memory ? std::static_pointer_cast<std::byte[]>(memory(blocks_ * kBlockBytes))
                     : std::shared_ptr<std::byte[]>(new std::byte[blocks_ * kBlockBytes])) {}

std::uint64_t encode_bytes(const Layout& layout, std::uint64_t num_tiles, bool reads_back) {
  const SlabSizes sizes = sizes_of(layout, num_tiles);
  const std::uint64_t states = layout.tile_elements > kStatelessTileElements ? sizes.state_bytes : 0;
  // Offsets for writing are made lane by lane, from the words of streams.
  std::uint64_t bytes =
      sizes.element_bytes + sizes.word_bytes + states + 2 * sizes.stream_bytes + kRoundingBytes;
  if (reads_back) bytes += sizes.word_bytes + states + sizes.stream_bytes + kRoundingBytes;
  return bytes;
}

std::uint64_t decode_bytes(const Layout& layout, std::uint64_t num_tiles) {
  const SlabSizes sizes = sizes_of(layout, num_tiles);
  return sizes.element_bytes + sizes.word_bytes + sizes.state_bytes + sizes.stream_bytes + kRoundingBytes;
}

void StoredBuffers::read_bytes(Buffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> data,
                               int num_threads) const {
  const Place& place = (*this)[buffer];
  transfer_in_pieces(data.size(), num_threads, [&](std::uint64_t offset, std::uint64_t bytes) {
    place.file->read_at(data.data() + offset, bytes, place.offset_bytes + offset_bytes + offset);
  });
}

tile_ans::StageStatus decode_slab(const StoredSlab& slab, tile_ans::TileAnsDecodeStage& stage,
                                  TileAnsSlabMemory& memory, int num_threads) {
  const Layout& layout = slab.plan.layout;
  const std::uint64_t num_tiles = layout.num_tiles();
  std::array<tile_ans::LaneInput, tile_ans::kMaxLanes> lanes;
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
    const tile_ans::LanePlan& plan = slab.plan.lanes[l];
    const auto offsets = memory.take<std::uint32_t>(slab.tiles.num_tiles + 1);
    slab.buffers.read(Buffer::kOffsets, layout.stream_of(l, slab.tiles.first_tile), offsets, num_threads);
    const tile_ans::WordRange range =
        tile_ans::lane_words(layout, plan.mode, slab.tiles, offsets, slab.payload_words);
    const auto words = memory.take<std::uint16_t>(range.count);
    slab.buffers.read(Buffer::kPayload, range.first, words, num_threads);
    std::span<std::uint32_t> states;
    if (plan.mode == LaneMode::kAns) {
      states = memory.take<std::uint32_t>(tile_ans::kNumStates * slab.tiles.num_tiles);
      const std::uint64_t row = slab.plan.ans_rank(l) * num_tiles + slab.tiles.first_tile;
      slab.buffers.read(Buffer::kStates, tile_ans::kNumStates * row, states, num_threads);
    }
    lanes[l] = {plan.mode, &plan.frequencies, offsets, words, states};
  }
  return stage
      .decode({.layout = layout,
               .tiles = slab.tiles,
               .lanes = std::span(lanes.data(), layout.num_lanes),
               .source = slab.source,
               .elements = slab.elements})
      .wait();
}

}  // namespace weightpress::job
