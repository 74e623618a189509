// Decoding: tiles in batches, each tile block by block from its end, all lanes of a block and then the
// elements.
#include <cassert>
#include <cstring>

#include "host/tile_ans_lane_bytes.h"
#include "host/tile_ans_stages.h"
#include "host/tile_ans_tile_batches.h"

namespace weightpress::host {
namespace {

using tile_ans::DecodeArguments;
using tile_ans::kMaxLanes;
using tile_ans::kNumStates;
using tile_ans::LaneInput;
using tile_ans::LaneMode;
using tile_ans::Layout;
using tile_ans::StageCode;
using tile_ans::TileRange;

class TileDecoder {
 public:
  TileDecoder(const DecodeArguments& arguments, std::span<const StreamDecodeTable* const> tables,
              SimdLevel simd, FirstFault& fault)
      : a_(arguments), layout_(arguments.layout), tables_(tables), simd_(simd), fault_(fault) {}

  void decode(std::uint64_t tile) const {
    const std::uint64_t index = tile - a_.tiles.first_tile;
    const std::uint64_t first = layout_.first_element(tile) - layout_.first_element(a_.tiles.first_tile);
    const std::uint64_t count = layout_.elements_of(tile);
    const std::uint32_t num_lanes = layout_.num_lanes;

    // A lane's fault must not hide one of a lower lane that is found later, so all go on; those at fault do
    // nothing.
    StageCode codes[kMaxLanes] = {};
    std::span<const std::uint16_t> words[kMaxLanes];
    StreamDecoder decoders[kMaxLanes];
    for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
      codes[lane] = find_words(lane, index, count, words[lane]);
      if (codes[lane] == StageCode::kOk && is_ans(lane)) {
        codes[lane] = decoders[lane].begin(*tables_[lane], words[lane],
                                           a_.lanes[lane].states.data() + index * kNumStates, simd_);
      }
    }

    LaneBlock symbols;
    bool all_same = true;
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t left = count - done;
      const std::size_t block = static_cast<std::size_t>((left - 1) % kBlockElements + 1);
      const std::uint64_t begin = left - block;
      for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
        if (codes[lane] != StageCode::kOk) continue;
        if (!is_ans(lane)) {
          std::memcpy(symbols[lane], reinterpret_cast<const std::uint8_t*>(words[lane].data()) + begin,
                      block);
        } else if (!decoders[lane].decode(block, symbols[lane])) {
          codes[lane] = StageCode::kTruncated;
        }
      }
      if (all_ok(codes)) all_same &= deliver(symbols, first + begin, block);
      done += block;
    }
    for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
      if (codes[lane] == StageCode::kOk && is_ans(lane)) codes[lane] = decoders[lane].end();
      if (codes[lane] != StageCode::kOk) return fault_.report(tile, lane, codes[lane]);
    }
    if (!all_same) fault_.report(tile, 0, StageCode::kDiffers);
  }

 private:
  bool is_ans(std::uint32_t lane) const { return a_.lanes[lane].mode == LaneMode::kAns; }

  bool all_ok(const StageCode* codes) const {
    for (std::uint32_t lane = 0; lane < layout_.num_lanes; ++lane)
      if (codes[lane] != StageCode::kOk) return false;
    return true;
  }

  StageCode find_words(std::uint32_t lane, std::uint64_t index, std::uint64_t count,
                       std::span<const std::uint16_t>& words) const {
    const LaneInput& input = a_.lanes[lane];
    const std::uint64_t base = input.offsets.front();
    const std::uint64_t begin = input.offsets[index];
    const std::uint64_t end = input.offsets[index + 1];
    if (begin < base || end < begin) return StageCode::kBadOffsets;
    const std::uint64_t num_words = end - begin;
    if (!is_ans(lane) && num_words != tile_ans::raw_words(count)) return StageCode::kBadLength;
    if (num_words > count || end - base > input.words.size()) return StageCode::kBadOffsets;
    words = input.words.subspan(begin - base, num_words);
    if (is_ans(lane)) return StageCode::kOk;
    if (count % 2 != 0 && words.back() >> 8 != 0) return StageCode::kBadPadding;
    return StageCode::kOk;
  }

  /// Returns whether the elements are the source's, if there is one. first: in the slab.
  bool deliver(const LaneBlock& symbols, std::uint64_t first, std::size_t count) const {
    const std::uint64_t begin = first * layout_.num_lanes;
    const std::size_t num_bytes = count * layout_.num_lanes;
    if (!a_.elements.empty()) {
      std::uint8_t* const elements = a_.elements.data() + begin;
      join_lanes(symbols, count, layout_.num_lanes, elements);
      return a_.source.empty() || std::memcmp(elements, a_.source.data() + begin, num_bytes) == 0;
    }
    if (a_.source.empty()) return true;
    std::uint8_t elements[sizeof(LaneBlock)];
    join_lanes(symbols, count, layout_.num_lanes, elements);
    return std::memcmp(elements, a_.source.data() + begin, num_bytes) == 0;
  }

  const DecodeArguments& a_;
  const Layout& layout_;
  std::span<const StreamDecodeTable* const> tables_;
  SimdLevel simd_;
  FirstFault& fault_;
};

}  // namespace

tile_ans::Completion HostTileAnsDecodeStage::decode(const DecodeArguments& arguments) {
  const Layout& layout = arguments.layout;
  const TileRange& tiles = arguments.tiles;
  assert(tiles.num_tiles > 0 && tiles.first_tile + tiles.num_tiles <= layout.num_tiles());
  assert(arguments.lanes.size() == layout.num_lanes);
  [[maybe_unused]] const std::uint64_t num_bytes =
      layout.num_lanes * layout.elements_of(tiles.first_tile, tiles.num_tiles);
  assert(arguments.source.empty() || arguments.source.size() == num_bytes);
  assert(arguments.elements.empty() || arguments.elements.size() == num_bytes);

  tables_.clear();
  tables_.reserve(layout.num_lanes);
  const StreamDecodeTable* tables[kMaxLanes] = {};
  for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
    const LaneInput& input = arguments.lanes[lane];
    assert(input.offsets.size() == tiles.num_tiles + 1);
    if (input.mode == LaneMode::kRaw) continue;
    assert(input.states.size() == kNumStates * tiles.num_tiles);
    tables[lane] = &tables_.emplace_back(*input.frequencies, layout.probability_bits);
  }

  FirstFault fault;
  const TileDecoder decoder(arguments, tables, simd_, fault);
  const TileBatches batches(layout, tiles);
#pragma omp parallel for num_threads(batches.threads(num_threads_)) schedule(dynamic)
  for (std::uint64_t index = 0; index < batches.size(); ++index) {
    const TileRange batch = batches.batch(index);
    for (std::uint64_t i = 0; i < batch.num_tiles; ++i) decoder.decode(batch.first_tile + i);
  }
  return tile_ans::Completion(fault.status());
}

}  // namespace weightpress::host
