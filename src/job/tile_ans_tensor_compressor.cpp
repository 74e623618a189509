#include "job/tile_ans_tensor_compressor.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <weightpress/error.h>

#include "format/tile_ans_tables.h"
#include "job/parallel_io.h"
#include "model/text.h"
#include "model/tile_ans_header.h"

namespace weightpress::job {
namespace {

using model::in_quotes;
using model::printable;
using tile_ans::Buffer;
using tile_ans::LaneMode;
using tile_ans::Layout;
using tile_ans::TileRange;

std::string header_of(const model::SourceTensor& tensor) {
  return model::write_tile_ans_header({.dtype = tensor.dtype, .shape = tensor.shape});
}

template <class T>
std::span<const std::uint8_t> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

template <class T>
std::span<const std::uint8_t> bytes_of(const std::vector<T>& values) {
  return bytes_of(std::span<const T>(values));
}

StoredBuffers stored_at(const TileAnsPlaces& places) {
  StoredBuffers stored;
  for (std::size_t b = 0; b < tile_ans::kNumBuffers; ++b)
    stored.places[b] = {&places.file, places.offsets_bytes[b]};
  return stored;
}

}  // namespace

std::uint64_t PlannedTileAns::payload_words() const {
  return std::accumulate(lane_words.begin(), lane_words.end(), std::uint64_t{0});
}

Layout layout_before_plan(const tile_ans::Settings& settings, const model::SourceTensor& tensor) {
  Layout layout;
  layout.tile_elements = settings.tile_elements != 0 ? settings.tile_elements
                                                     : tile_ans::automatic_tile_elements(tensor.size_bytes);
  layout.probability_bits =
      settings.probability_bits != 0 ? settings.probability_bits : tile_ans::kMinProbabilityBits;
  layout.num_lanes = model::dtype_bits(tensor.dtype) / 8;
  layout.num_elements = tensor.num_elements();
  return layout;
}

std::uint64_t least_stored_bytes(const tile_ans::Settings& settings, const model::SourceTensor& tensor) {
  const Layout layout = layout_before_plan(settings, tensor);
  return 4 * layout.num_offsets() + 4 * std::uint64_t{layout.num_lanes} * layout.table_size() +
         layout.num_lanes + 8 * tile_ans::kLayoutNumbers + header_of(tensor).size();
}

std::uint64_t TileAnsTensorCompressor::slab_tiles(const Layout& layout) const {
  return tiles_in(layout, memory_.size_bytes(), [&](std::uint64_t num_tiles) {
    return encode_bytes(layout, num_tiles, options_.reads_back);
  });
}

std::span<const std::uint8_t> TileAnsTensorCompressor::read(const model::SourceTensor& tensor,
                                                            const Layout& layout, const TileRange& tiles) {
  const std::uint64_t bytes = layout.num_lanes * layout.elements_of(tiles.first_tile, tiles.num_tiles);
  const StageTimer timer(options_.times, Stage::kRead, bytes);
  const auto elements = memory_.take<std::uint8_t>(bytes);
  const std::uint64_t first = layout.num_lanes * layout.first_element(tiles.first_tile);
  transfer_in_pieces(bytes, options_.num_threads, [&](std::uint64_t offset, std::uint64_t count) {
    source_.read(tensor, first + offset, count, elements.data() + offset);
  });
  return elements;
}

std::optional<PlannedTileAns> TileAnsTensorCompressor::plan(std::size_t tensor_index, const OnSlab& on_slab) {
  const model::SourceTensor& tensor = source_.tensors()[tensor_index];
  const Layout layout = layout_before_plan(options_.settings, tensor);
  const std::uint64_t num_tiles = layout.num_tiles(), step = slab_tiles(layout);
  const auto for_each_slab = [&](const auto& run) {
    for (std::uint64_t first = 0; first < num_tiles; first += step) {
      const TileRange tiles{first, std::min(step, num_tiles - first)};
      run(tiles);
      on_slab(layout.num_lanes * layout.elements_of(tiles.first_tile, tiles.num_tiles));
    }
  };

  std::vector<tile_ans::Histogram> histograms(layout.num_lanes);
  std::span<const std::uint8_t> elements;
  for_each_slab([&](const TileRange& tiles) {
    memory_.reset();
    elements = read(tensor, layout, tiles);
    const StageTimer timer(options_.times, Stage::kHistogram, elements.size());
    stages_.histogram({elements, layout.num_lanes, histograms}).wait();
  });

  PlannedTileAns planned{.tensor = tensor_index,
                         .plan = tile_ans::plan_tensor(options_.settings, histograms).value(),
                         .header = header_of(tensor)};
  const tile_ans::TensorPlan& plan = planned.plan;
  std::vector<tile_ans::LaneOutput> outputs;
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
    if (plan.lanes[l].mode == LaneMode::kAns) {
      outputs.push_back({.lane = l, .stream_words = {}, .words = {}, .states = {}});
    } else {
      planned.lane_words[l] = layout.raw_lane_words();
    }
  }
  // Whatever their words are, the rest may be too much.
  if (planned.stored_bytes() >= tensor.size_bytes) outputs.clear();
  const bool is_whole = is_one_slab(layout);
  if (outputs.empty()) {
    on_slab(tensor.size_bytes);
  } else {
    for_each_slab([&](const TileRange& tiles) {
      if (!is_whole) {
        memory_.reset();
        elements = read(tensor, layout, tiles);
      }
      for (tile_ans::LaneOutput& output : outputs)
        output.stream_words = memory_.take<std::uint32_t>(tiles.num_tiles);
      const StageTimer timer(options_.times, Stage::kEncode, elements.size());
      if (!stages_.sizes({&plan, tiles, elements, outputs}).wait().ok()) fail_changed(tensor_index);
      for (const tile_ans::LaneOutput& output : outputs)
        for (const std::uint32_t words : output.stream_words) planned.lane_words[output.lane] += words;
    });
  }
  const bool fits = planned.payload_words() < tile_ans::kPayloadWordsLimit;
  if (!fits || planned.stored_bytes() >= tensor.size_bytes) return std::nullopt;
  return planned;
}

void TileAnsTensorCompressor::encode(const PlannedTileAns& planned, const TileAnsPlaces& places,
                                     const OnSlab& on_slab) {
  const model::SourceTensor& tensor = source_.tensors()[planned.tensor];
  const tile_ans::TensorPlan& plan = planned.plan;
  const Layout& layout = plan.layout;
  const std::uint64_t num_tiles = layout.num_tiles(), step = slab_tiles(layout);
  for (const SmallBuffer& buffer : small_buffers(planned, places)) {
    places.file.write_at(buffer.bytes.data(), buffer.bytes.size(), buffer.offset_bytes);
    if (options_.reads_back && !holds(places.file, buffer))
      fail_read_back(planned, places, "its tables or its header are not as they were written");
  }

  const StoredBuffers stored = stored_at(places);
  std::array<std::uint64_t, tile_ans::kMaxLanes> ends{}, limits{};  // of what each lane has written
  std::uint64_t words = 0;
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
    ends[l] = words;
    words += planned.lane_words[l];
    limits[l] = words;
  }

  for (std::uint64_t first = 0; first < num_tiles; first += step) {
    const TileRange tiles{first, std::min(step, num_tiles - first)};
    memory_.reset();
    const std::span<const std::uint8_t> elements = read(tensor, layout, tiles);
    std::vector<tile_ans::LaneOutput> outputs;
    for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
      const bool is_ans = plan.lanes[l].mode == LaneMode::kAns;
      outputs.push_back(
          {.lane = l,
           .stream_words = memory_.take<std::uint32_t>(tiles.num_tiles),
           .words = memory_.take<std::uint16_t>(tile_ans::lane_words_capacity(plan, l, tiles)),
           .states = memory_.take<std::uint32_t>(is_ans ? tile_ans::kNumStates * tiles.num_tiles : 0)});
    }
    {
      const StageTimer timer(options_.times, Stage::kEncode, elements.size());
      if (!stages_.encode({&plan, tiles, elements, outputs}).wait().ok()) fail_changed(planned.tensor);
    }
    {
      const StageTimer timer(options_.times, Stage::kWrite, elements.size());
      for (const tile_ans::LaneOutput& output : outputs) {
        const std::uint32_t l = output.lane;
        const std::uint64_t begin = ends[l];
        const auto offsets = memory_.take<std::uint32_t>(tiles.num_tiles);
        if (!tile_ans::add_offsets(output.stream_words, ends[l], offsets) || ends[l] > limits[l])
          fail_changed(planned.tensor);
        write(places, places.of(Buffer::kPayload) + 2 * begin,
              bytes_of<std::uint16_t>(output.words.first(ends[l] - begin)));
        write(places, places.of(Buffer::kOffsets) + 4 * (layout.stream_of(l, first) + 1),
              bytes_of<std::uint32_t>(offsets));
        const std::uint64_t row = plan.ans_rank(l) * num_tiles + first;
        write(places, places.of(Buffer::kStates) + 4 * tile_ans::kNumStates * row,
              bytes_of<std::uint32_t>(output.states));
      }
    }
    if (options_.reads_back) {
      const tile_ans::StageStatus status = compare(planned, stored, tiles, elements);
      if (!status.ok()) {
        fail_read_back(planned, places,
                       "lane " + std::to_string(status.lane) + ", tile " + std::to_string(status.tile) +
                           ": " + tile_ans::stage_code_text(status.code));
      }
    }
    on_slab(elements.size());
  }
  if (ends != limits) fail_changed(planned.tensor);
}

bool TileAnsTensorCompressor::is_written(const PlannedTileAns& planned, const TileAnsPlaces& places,
                                         const OnSlab& on_slab) {
  for (const SmallBuffer& buffer : small_buffers(planned, places))
    if (!holds(places.file, buffer)) return false;
  const Layout& layout = planned.plan.layout;
  const StoredBuffers stored = stored_at(places);
  const std::uint64_t num_tiles = layout.num_tiles(), step = slab_tiles(layout);
  for (std::uint64_t first = 0; first < num_tiles; first += step) {
    const TileRange tiles{first, std::min(step, num_tiles - first)};
    memory_.reset();
    const std::span<const std::uint8_t> elements = read(source_.tensors()[planned.tensor], layout, tiles);
    if (!compare(planned, stored, tiles, elements).ok()) return false;
    on_slab(elements.size());
  }
  return true;
}

tile_ans::StageStatus TileAnsTensorCompressor::compare(const PlannedTileAns& planned,
                                                       const StoredBuffers& stored, const TileRange& tiles,
                                                       std::span<const std::uint8_t> elements) {
  const StageTimer timer(options_.times, Stage::kVerify, elements.size());
  return decode_slab({.plan = planned.plan,
                      .payload_words = planned.payload_words(),
                      .buffers = stored,
                      .tiles = tiles,
                      .source = elements},
                     decode_stage_, memory_, options_.num_threads);
}

std::vector<TileAnsTensorCompressor::SmallBuffer> TileAnsTensorCompressor::small_buffers(
    const PlannedTileAns& planned, const TileAnsPlaces& places) {
  const tile_ans::TensorPlan& plan = planned.plan;
  const Layout& layout = plan.layout;
  std::vector<std::uint32_t> tables(std::uint64_t{layout.num_lanes} * layout.table_size());
  std::vector<std::uint8_t> modes;
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
    tile_ans::write_decode_table(
        plan.lanes[l].frequencies,
        std::span(tables).subspan(std::uint64_t{l} * layout.table_size(), layout.table_size()));
    modes.push_back(static_cast<std::uint8_t>(plan.lanes[l].mode));
  }
  const std::vector<std::int64_t> numbers = {
      static_cast<std::int64_t>(layout.tile_elements), static_cast<std::int64_t>(layout.probability_bits),
      static_cast<std::int64_t>(layout.num_lanes), static_cast<std::int64_t>(layout.num_elements)};
  const auto copy_of = [](std::span<const std::uint8_t> bytes) {
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  const std::span<const char> header(planned.header.data(), planned.header.size());
  std::vector<SmallBuffer> buffers = {{places.of(Buffer::kDecodeTables), copy_of(bytes_of(tables))},
                                      {places.of(Buffer::kLaneModes), modes},
                                      {places.of(Buffer::kLayout), copy_of(bytes_of(numbers))},
                                      {places.header_offset_bytes, copy_of(bytes_of(header))}};
  // Where each lane begins is needed to read it back, long before the lane below is complete.
  std::uint64_t words = 0;
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
    const std::vector<std::uint32_t> begin = {static_cast<std::uint32_t>(words)};
    buffers.push_back({places.of(Buffer::kOffsets) + 4 * layout.stream_of(l, 0), copy_of(bytes_of(begin))});
    words += planned.lane_words[l];
  }
  return buffers;
}

bool TileAnsTensorCompressor::holds(const model::File& file, const SmallBuffer& buffer) {
  std::vector<std::uint8_t> there(buffer.bytes.size());
  file.read_at(there.data(), there.size(), buffer.offset_bytes);
  return there == buffer.bytes;
}

void TileAnsTensorCompressor::write(const TileAnsPlaces& places, std::uint64_t offset_bytes,
                                    std::span<const std::uint8_t> bytes) {
  transfer_on_grid(offset_bytes, offset_bytes + bytes.size(), options_.num_threads,
                   [&](std::uint64_t offset, std::uint64_t count) {
                     places.file.write_at(bytes.data() + (offset - offset_bytes), count, offset);
                   });
}

void TileAnsTensorCompressor::fail_changed(std::size_t tensor_index) const {
  const model::SourceTensor& tensor = source_.tensors()[tensor_index];
  const model::File& file = source_.files()[tensor.file_index];
  throw Error(ErrorDetails{.code = ErrorCode::kSourceChanged,
                           .message = printable(file.path().native()) + ": tensor " + in_quotes(tensor.name) +
                                      " was written to while it was compressed: run the command again",
                           .tensor = tensor.name});
}

void TileAnsTensorCompressor::fail_read_back(const PlannedTileAns& planned, const TileAnsPlaces& places,
                                             const std::string& what) const {
  // What was written to meanwhile does not read back as it is now.
  for (const model::File& file : source_.files()) file.check_unchanged();
  const std::string& name = source_.tensors()[planned.tensor].name;
  throw Error(ErrorDetails{
      .code = ErrorCode::kVerificationFailed,
      .message = printable(places.file.path().native()) + ": tensor " + in_quotes(name) +
                 " does not read back as the source (" + what +
                 "); the disk or the memory of this machine is faulty, or this is a bug of weightpress: "
                 "please report it if it happens again",
      .tensor = name});
}

}  // namespace weightpress::job
