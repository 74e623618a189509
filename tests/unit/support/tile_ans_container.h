// Whole containers in memory, made and read by the stages slab by slab.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "format/tile_ans_container.h"
#include "format/tile_ans_stages.h"
#include "format/tile_ans_tables.h"
#include "support/tile_ans_slow_model.h"

namespace weightpress::testing {

/// How a tensor is cut; nothing of it may change a byte.
struct Slabs {
  std::uint64_t tiles = ~std::uint64_t{0};  ///< of a slab
  bool lane_by_lane = false;                ///< one lane a call of encode()
  std::uint64_t histogram_elements = ~std::uint64_t{0};
  bool all_words = false;  ///< decoding gets all words of the payload from a slab's first on

  std::vector<tile_ans::TileRange> ranges(const tile_ans::Layout& layout) const {
    std::vector<tile_ans::TileRange> all;
    for (std::uint64_t first = 0; first < layout.num_tiles();) {
      const std::uint64_t count = std::min(tiles, layout.num_tiles() - first);
      all.push_back({first, count});
      first += count;
    }
    return all;
  }
};

inline std::span<const std::uint8_t> slab_bytes(std::span<const std::uint8_t> bytes,
                                                const tile_ans::Layout& layout,
                                                const tile_ans::TileRange& tiles) {
  return bytes.subspan(layout.first_element(tiles.first_tile) * layout.num_lanes,
                       layout.elements_of(tiles.first_tile, tiles.num_tiles) * layout.num_lanes);
}

inline tile_ans::TensorPlan plan_with(tile_ans::TileAnsStages& stages, std::span<const std::uint8_t> bytes,
                                      std::uint32_t num_lanes, const tile_ans::Settings& settings,
                                      const Slabs& slabs = {}) {
  std::vector<tile_ans::Histogram> histograms(num_lanes);
  const std::uint64_t n = bytes.size() / num_lanes;
  for (std::uint64_t first = 0; first < n;) {
    const std::uint64_t count = std::min(slabs.histogram_elements, n - first);
    stages.histogram({bytes.subspan(first * num_lanes, count * num_lanes), num_lanes, histograms}).wait();
    first += count;
  }
  return tile_ans::plan_tensor(settings, histograms).value();
}

/// Sizes first, for all ANS lanes, then each lane to its place, as whoever writes a file does it.
inline TileAnsBuffers encode_with(tile_ans::TileAnsStages& stages, std::span<const std::uint8_t> bytes,
                                  const tile_ans::TensorPlan& plan, const Slabs& slabs = {}) {
  using namespace tile_ans;
  const Layout& layout = plan.layout;
  TileAnsBuffers out;
  out.layout = {static_cast<std::int64_t>(layout.tile_elements), layout.probability_bits, layout.num_lanes,
                static_cast<std::int64_t>(layout.num_elements)};
  out.decode_tables.resize(layout.num_lanes * layout.table_size());
  for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
    out.lane_modes.push_back(static_cast<std::uint8_t>(plan.lanes[lane].mode));
    write_decode_table(plan.lanes[lane].frequencies,
                       std::span(out.decode_tables).subspan(lane * layout.table_size(), layout.table_size()));
  }
  const auto must = [](const StageStatus& status) {
    if (!status.ok()) throw std::runtime_error(stage_code_text(status.code));
  };

  // Sizes.
  std::vector<std::uint32_t> sizes(layout.num_streams());
  for (const TileRange& tiles : slabs.ranges(layout)) {
    std::vector<LaneOutput> outputs;
    for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
      outputs.push_back({.lane = lane,
                         .stream_words = std::span(sizes).subspan(layout.stream_of(lane, tiles.first_tile),
                                                                  tiles.num_tiles)});
    }
    must(stages.sizes({&plan, tiles, slab_bytes(bytes, layout, tiles), outputs}).wait());
  }
  out.offsets.resize(layout.num_offsets());
  std::uint64_t end = 0;
  if (!add_offsets(sizes, end, std::span(out.offsets).subspan(1))) throw std::runtime_error("too many words");
  out.payload.resize(out.offsets.back());
  out.states.resize(plan.num_ans_lanes() * layout.num_tiles() * kNumStates);

  for (const TileRange& tiles : slabs.ranges(layout)) {
    std::vector<std::vector<std::uint16_t>> words(layout.num_lanes);
    std::vector<std::uint32_t> stream_words(layout.num_lanes * tiles.num_tiles);
    std::vector<LaneOutput> outputs;
    for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
      words[lane].assign(lane_words_capacity(plan, lane, tiles), 0xABCD);
      LaneOutput& output = outputs.emplace_back();
      output.lane = lane;
      output.stream_words = std::span(stream_words).subspan(lane * tiles.num_tiles, tiles.num_tiles);
      output.words = words[lane];
      if (plan.lanes[lane].mode == LaneMode::kAns) {
        output.states =
            std::span(out.states)
                .subspan((plan.ans_rank(lane) * layout.num_tiles() + tiles.first_tile) * kNumStates,
                         tiles.num_tiles * kNumStates);
      }
    }
    const std::span<const std::uint8_t> elements = slab_bytes(bytes, layout, tiles);
    if (slabs.lane_by_lane) {
      for (const LaneOutput& output : outputs)
        must(stages.encode({&plan, tiles, elements, {&output, 1}}).wait());
    } else {
      must(stages.encode({&plan, tiles, elements, outputs}).wait());
    }
    for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
      const std::uint64_t stream = layout.stream_of(lane, tiles.first_tile);
      for (std::uint64_t i = 0; i < tiles.num_tiles; ++i) {
        if (sizes[stream + i] != outputs[lane].stream_words[i]) throw std::runtime_error("sizes() lied");
      }
      std::copy_n(words[lane].begin(), out.offsets[stream + tiles.num_tiles] - out.offsets[stream],
                  out.payload.begin() + out.offsets[stream]);
    }
  }
  return out;
}

/// Whether a container passes all checks, and the tensor if it does.
struct Decoded {
  std::string error;  ///< of the container's checks
  tile_ans::StageStatus status;
  std::vector<std::uint8_t> bytes;

  bool ok() const { return error.empty() && status.ok(); }
};

/// The buffers have the shapes that their sizes and the layout allow. source: see DecodeArguments.
inline Decoded decode_with(tile_ans::TileAnsDecodeStage& stage, const TileAnsBuffers& stored,
                           std::span<const std::uint64_t> tensor_shape, std::uint32_t element_bytes,
                           const Slabs& slabs = {}, std::span<const std::uint8_t> source = {},
                           bool want_bytes = true) {
  using namespace tile_ans;
  Decoded decoded;
  const std::uint64_t num_lanes = stored.lane_modes.size();
  const std::uint64_t shapes_of[kNumBuffers][2] = {
      {stored.payload.size(), 0},
      {stored.offsets.size(), 0},
      {stored.states.size() / kNumStates, stored.states.size() % kNumStates == 0 ? kNumStates : 0},
      {num_lanes, num_lanes == 0 || stored.decode_tables.size() % num_lanes != 0
                      ? 0
                      : stored.decode_tables.size() / num_lanes},
      {num_lanes, 0},
      {stored.layout.size(), 0}};
  ContainerShapes shapes;
  for (std::uint32_t i = 0; i < kNumBuffers; ++i) {
    const bool is_matrix = i == static_cast<std::uint32_t>(Buffer::kStates) ||
                           i == static_cast<std::uint32_t>(Buffer::kDecodeTables);
    shapes.buffers[i] = {buffer_type(static_cast<Buffer>(i)), {shapes_of[i], is_matrix ? std::size_t{2} : 1}};
  }
  shapes.tensor_shape = tensor_shape;
  shapes.element_bytes = element_bytes;
  const auto failed = [&](const auto& result) {
    if (!result) decoded.error = result.error().message;
    return !result;
  };
  if (failed(check_layout_buffer(shapes))) return decoded;
  const auto layout = read_layout(
      shapes, std::span<const std::int64_t, kLayoutNumbers>(stored.layout.data(), kLayoutNumbers));
  if (failed(layout)) return decoded;
  const auto plan = read_container(shapes, *layout,
                                   {.lane_modes = stored.lane_modes,
                                    .decode_tables = stored.decode_tables,
                                    .first_offset = stored.offsets.front(),
                                    .last_offset = stored.offsets.back()});
  if (failed(plan)) return decoded;

  if (want_bytes) decoded.bytes.resize(layout->num_bytes());
  for (const TileRange& tiles : slabs.ranges(*layout)) {
    std::vector<LaneInput> lanes;
    std::vector<std::vector<std::uint16_t>> words(layout->num_lanes);
    for (std::uint32_t lane = 0; lane < layout->num_lanes; ++lane) {
      LaneInput& input = lanes.emplace_back();
      input.mode = plan->lanes[lane].mode;
      input.frequencies = &plan->lanes[lane].frequencies;
      input.offsets =
          std::span(stored.offsets).subspan(layout->stream_of(lane, tiles.first_tile), tiles.num_tiles + 1);
      WordRange range = lane_words(*layout, input.mode, tiles, input.offsets, stored.payload.size());
      if (slabs.all_words && range.first < stored.payload.size())
        range.count = stored.payload.size() - range.first;
      // In memory of its own: a sanitizer sees what is read beside it.
      words[lane].assign(
          stored.payload.begin() + static_cast<std::ptrdiff_t>(range.count == 0 ? 0 : range.first),
          stored.payload.begin() +
              static_cast<std::ptrdiff_t>(range.count == 0 ? 0 : range.first + range.count));
      words[lane].shrink_to_fit();
      input.words = words[lane];
      if (input.mode == LaneMode::kAns) {
        input.states =
            std::span(stored.states)
                .subspan((plan->ans_rank(lane) * layout->num_tiles() + tiles.first_tile) * kNumStates,
                         tiles.num_tiles * kNumStates);
      }
    }
    const std::uint64_t first = layout->first_element(tiles.first_tile) * layout->num_lanes;
    const std::uint64_t count = layout->elements_of(tiles.first_tile, tiles.num_tiles) * layout->num_lanes;
    const StageStatus status =
        stage
            .decode({.layout = *layout,
                     .tiles = tiles,
                     .lanes = lanes,
                     .source = source.empty() ? source : source.subspan(first, count),
                     .elements = want_bytes ? std::span(decoded.bytes).subspan(first, count)
                                            : std::span<std::uint8_t>()})
            .wait();
    if (!status.ok()) {
      decoded.status = status;
      return decoded;
    }
  }
  return decoded;
}

/// Whether the slow model, with the modes and tables that are stored, makes these buffers of these bytes.
inline bool is_encoding_of(const TileAnsBuffers& stored, const std::vector<std::uint8_t>& bytes) {
  const std::size_t num_lanes = stored.lane_modes.size();
  const int bits = static_cast<int>(stored.layout[1]);
  std::vector<SlowTileAns::Frequencies> frequencies(num_lanes, SlowTileAns::Frequencies(256, 0));
  for (std::size_t i = 0; i < stored.decode_tables.size(); ++i)
    ++frequencies[i >> bits][stored.decode_tables[i] & 0xFF];
  return SlowTileAns::encode(bytes, num_lanes, static_cast<std::uint64_t>(stored.layout[0]), bits,
                             stored.lane_modes, frequencies) == stored;
}

}  // namespace weightpress::testing
