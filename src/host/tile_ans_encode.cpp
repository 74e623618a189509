// Sizes and encoding: tiles in batches, block by block, each lane by its own encoder.
//
// Where a batch's words go is known once those of the batches before it are. One thread goes through them in
// order. Several write each batch to where it would begin if all words before it were needed, and the words
// are moved together afterwards, which is a small part of the work.
#include <array>
#include <cassert>
#include <cstring>

#include "host/tile_ans_lane_bytes.h"
#include "host/tile_ans_stages.h"
#include "host/tile_ans_tile_batches.h"

namespace weightpress::host {
namespace {

using tile_ans::EncodeArguments;
using tile_ans::kMaxLanes;
using tile_ans::kNumStates;
using tile_ans::LaneMode;
using tile_ans::LaneOutput;
using tile_ans::Layout;
using tile_ans::TileRange;

/// Ends of each lane's words, by index in EncodeArguments::lanes.
using WordEnds = std::array<std::uint16_t*, kMaxLanes>;

class TileEncoder {
 public:
  /// tables: of the arguments' lanes.
  TileEncoder(const EncodeArguments& arguments, std::span<const StreamEncodeTable> tables, SimdLevel simd,
              FirstFault& fault)
      : a_(arguments), layout_(arguments.plan->layout), tables_(tables), simd_(simd), fault_(fault) {}

  bool is_raw(std::size_t index) const { return a_.plan->lanes[a_.lanes[index].lane].mode == LaneMode::kRaw; }

  /// Where the words of these tiles begin if all tiles before need all words they can.
  WordEnds worst_places(const TileRange& tiles) const {
    WordEnds places{};
    const std::uint64_t before = tiles.first_tile - a_.tiles.first_tile;
    for (std::size_t i = 0; i < a_.lanes.size(); ++i) {
      places[i] = a_.lanes[i].words.data() +
                  before * (is_raw(i) ? tile_ans::raw_words(layout_.tile_elements) : layout_.tile_elements);
    }
    return places;
  }

  /// ends: moved on behind the tile's words; without: only sizes.
  void encode(std::uint64_t tile, WordEnds* ends) const {
    const std::uint64_t first = layout_.first_element(tile) - layout_.first_element(a_.tiles.first_tile);
    const std::uint64_t count = layout_.elements_of(tile);
    const std::uint64_t index = tile - a_.tiles.first_tile;
    StreamEncoder encoders[kMaxLanes];
    LaneBlock symbols;
    std::uint16_t unwanted[kBlockElements];
    std::array<std::uint64_t, kMaxLanes> num_words{};
    for (std::uint64_t done = 0; done < count; done += kBlockElements) {
      const std::size_t block =
          static_cast<std::size_t>(std::min<std::uint64_t>(kBlockElements, count - done));
      split_lanes(a_.elements.data() + (first + done) * layout_.num_lanes, block, layout_.num_lanes, symbols);
      for (std::size_t i = 0; i < a_.lanes.size(); ++i) {
        const std::uint8_t* const of_lane = symbols[a_.lanes[i].lane];
        std::uint16_t* const begin = ends != nullptr ? (*ends)[i] : unwanted;
        std::uint16_t* end = begin;
        if (!is_raw(i)) {
          end = encoders[i].encode(tables_[i], of_lane, block, begin, simd_);
        } else {
          end += tile_ans::raw_words(block);
          if (ends != nullptr) {
            if (block % 2 != 0) end[-1] = 0;
            std::memcpy(begin, of_lane, block);
          }
        }
        num_words[i] += static_cast<std::uint64_t>(end - begin);
        if (ends != nullptr) (*ends)[i] = end;
      }
    }
    for (std::size_t i = 0; i < a_.lanes.size(); ++i) {
      const LaneOutput& lane = a_.lanes[i];
      lane.stream_words[index] = static_cast<std::uint32_t>(num_words[i]);
      if (is_raw(i)) continue;
      if (encoders[i].flags & tile_ans::EncodeEntry::kAbsent)
        fault_.report(tile, lane.lane, tile_ans::StageCode::kSourceChanged);
      if (ends != nullptr)
        std::memcpy(lane.states.data() + index * kNumStates, encoders[i].states, sizeof encoders[i].states);
    }
  }

 private:
  const EncodeArguments& a_;
  const Layout& layout_;
  std::span<const StreamEncodeTable> tables_;
  SimdLevel simd_;
  FirstFault& fault_;
};

void check_arguments([[maybe_unused]] const EncodeArguments& arguments) {
#ifndef NDEBUG
  const Layout& layout = arguments.plan->layout;
  const TileRange& tiles = arguments.tiles;
  assert(tiles.num_tiles > 0 && tiles.first_tile + tiles.num_tiles <= layout.num_tiles());
  assert(arguments.elements.size() ==
         layout.num_lanes * layout.elements_of(tiles.first_tile, tiles.num_tiles));
  for (std::size_t i = 0; i < arguments.lanes.size(); ++i) {
    assert(arguments.lanes[i].lane < layout.num_lanes);
    assert(i == 0 || arguments.lanes[i - 1].lane < arguments.lanes[i].lane);
    assert(arguments.lanes[i].stream_words.size() == tiles.num_tiles);
  }
#endif
}

void prepare(const EncodeArguments& arguments, std::vector<StreamEncodeTable>& tables) {
  tables.clear();
  tables.reserve(arguments.lanes.size());
  for (const LaneOutput& lane : arguments.lanes) {
    tables.emplace_back(arguments.plan->lanes[lane.lane].frequencies,
                        arguments.plan->layout.probability_bits);
  }
}

}  // namespace

tile_ans::Completion HostTileAnsStages::sizes(const EncodeArguments& arguments) {
  check_arguments(arguments);
  prepare(arguments, tables_);
  FirstFault fault;
  const TileEncoder encoder(arguments, tables_, simd_, fault);
  const TileBatches batches(arguments.plan->layout, arguments.tiles);
#pragma omp parallel for num_threads(batches.threads(num_threads_)) schedule(dynamic)
  for (std::uint64_t index = 0; index < batches.size(); ++index) {
    const TileRange batch = batches.batch(index);
    for (std::uint64_t i = 0; i < batch.num_tiles; ++i) encoder.encode(batch.first_tile + i, nullptr);
  }
  return tile_ans::Completion(fault.status());
}

tile_ans::Completion HostTileAnsStages::encode(const EncodeArguments& arguments) {
  check_arguments(arguments);
#ifndef NDEBUG
  for (const LaneOutput& lane : arguments.lanes) {
    const bool is_raw = arguments.plan->lanes[lane.lane].mode == LaneMode::kRaw;
    assert(lane.words.size() >= tile_ans::lane_words_capacity(*arguments.plan, lane.lane, arguments.tiles));
    assert(lane.states.size() == (is_raw ? 0 : kNumStates * arguments.tiles.num_tiles));
  }
#endif
  prepare(arguments, tables_);
  FirstFault fault;
  const TileEncoder encoder(arguments, tables_, simd_, fault);
  const TileBatches batches(arguments.plan->layout, arguments.tiles);
  const int threads = batches.threads(num_threads_);
  if (threads == 1) {
    WordEnds ends = encoder.worst_places(batches.batch(0));
    for (std::uint64_t i = 0; i < arguments.tiles.num_tiles; ++i)
      encoder.encode(arguments.tiles.first_tile + i, &ends);
    return tile_ans::Completion(fault.status());
  }

  std::vector<WordEnds> ends(batches.size());
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::uint64_t index = 0; index < batches.size(); ++index) {
    const TileRange batch = batches.batch(index);
    ends[index] = encoder.worst_places(batch);
    for (std::uint64_t i = 0; i < batch.num_tiles; ++i) encoder.encode(batch.first_tile + i, &ends[index]);
  }
  WordEnds to = ends[0];
  for (std::uint64_t index = 1; index < batches.size(); ++index) {
    const WordEnds from = encoder.worst_places(batches.batch(index));
    for (std::size_t i = 0; i < arguments.lanes.size(); ++i) {
      const std::size_t count = static_cast<std::size_t>(ends[index][i] - from[i]);
      if (to[i] != from[i]) std::memmove(to[i], from[i], count * sizeof *from[i]);
      to[i] += count;
    }
  }
  return tile_ans::Completion(fault.status());
}

}  // namespace weightpress::host
