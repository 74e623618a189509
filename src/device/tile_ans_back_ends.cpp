#include "device/tile_ans_back_ends.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <weightpress/error.h>

namespace weightpress::device {
namespace {

using tile_ans::Completion;
using tile_ans::kMaxLanes;
using tile_ans::kNumStates;
using tile_ans::LaneInput;
using tile_ans::LaneMode;
using tile_ans::LaneOutput;
using tile_ans::Layout;
using tile_ans::StageStatus;
using tile_ans::TileRange;

/// What of a slab's storage bytes belongs to a part of its tiles.
template <class Byte>
std::span<Byte> elements_of(std::span<Byte> slab, const Layout& layout, const TileRange& tiles,
                            const TileRange& part) {
  if (slab.empty()) return slab;
  const std::uint64_t begin = layout.first_element(part.first_tile) - layout.first_element(tiles.first_tile);
  return slab.subspan(layout.num_lanes * begin,
                      layout.num_lanes * layout.elements_of(part.first_tile, part.num_tiles));
}

/// Where a lane's words of a part go until those before it are known: behind all that these may need.
std::span<std::uint16_t> words_of(const LaneOutput& output, const tile_ans::TensorPlan& plan,
                                  const TileRange& tiles, const TileRange& part) {
  const TileRange before{tiles.first_tile, part.first_tile - tiles.first_tile};
  return output.words.subspan(tile_ans::lane_words_capacity(plan, output.lane, before),
                              tile_ans::lane_words_capacity(plan, output.lane, part));
}

/// Of a part of a slab; they and what they point to stay until the part is done.
struct EncodePart {
  std::array<LaneOutput, kMaxLanes> lanes;
  tile_ans::EncodeArguments arguments;
};
struct DecodePart {
  std::array<LaneInput, kMaxLanes> lanes;
  tile_ans::DecodeArguments arguments;
};

void set_part(EncodePart& of_part, const tile_ans::EncodeArguments& arguments, const TileRange& part,
              bool with_words) {
  const std::uint64_t skipped = part.first_tile - arguments.tiles.first_tile;
  std::array<LaneOutput, kMaxLanes>& outputs = of_part.lanes;
  for (std::size_t i = 0; i < arguments.lanes.size(); ++i) {
    const LaneOutput& whole = arguments.lanes[i];
    outputs[i] = {.lane = whole.lane,
                  .stream_words = whole.stream_words.subspan(skipped, part.num_tiles),
                  .words = {},
                  .states = {}};
    if (!with_words) continue;
    outputs[i].words = words_of(whole, *arguments.plan, arguments.tiles, part);
    if (!whole.states.empty())
      outputs[i].states = whole.states.subspan(kNumStates * skipped, kNumStates * part.num_tiles);
  }
  of_part.arguments = {
      .plan = arguments.plan,
      .tiles = part,
      .elements = elements_of(arguments.elements, arguments.plan->layout, arguments.tiles, part),
      .lanes = std::span(outputs).first(arguments.lanes.size())};
}

bool is_out_of_memory(const std::exception_ptr& failure) try {
  std::rethrow_exception(failure);
} catch (const Error& error) {
  return error.code() == ErrorCode::kOutOfMemory;
} catch (...) {
  return false;
}

}  // namespace

StageStatus TileAnsBackEnds::run(std::uint64_t num_items, const Begin& begin, const End& end) {
  struct UnderWay {
    std::size_t gpu;
    Part part;
    Completion completion;
  };
  std::uint64_t next = 0, most_items = num_items;
  while (next < num_items) {
    // Equal shares, as long as they fit.
    const std::uint64_t left = num_items - next, num_gpus = back_ends_.size();
    const std::uint64_t share = std::min(most_items, (left + num_gpus - 1) / num_gpus);
    std::vector<UnderWay> under_way;
    under_way.reserve(num_gpus);  // nothing may fail between a begin and its note
    std::exception_ptr failure;   // the first that is not about memory, if there is one
    const auto note_failure = [&] {
      if (!failure || is_out_of_memory(failure)) failure = std::current_exception();
    };
    std::uint64_t first = next;
    for (std::size_t gpu = 0; gpu < num_gpus; ++gpu) {
      const Part part{first, std::min(share, num_items - first)};
      if (part.count == 0) break;
      try {
        under_way.push_back({gpu, part, begin(gpu, part)});
      } catch (...) {
        note_failure();
        break;
      }
      first += part.count;
    }
    std::optional<StageStatus> fault;
    bool is_useful = true;  // of what comes behind a failure nothing is
    for (const UnderWay& one : under_way) {
      try {
        const StageStatus status = one.completion.wait();
        if (!is_useful) continue;
        if (!status.ok()) fault = status;
        is_useful = status.ok();
        end(one.gpu, one.part);
        next = one.part.first + one.part.count;
      } catch (...) {
        note_failure();
        is_useful = false;
      }
    }
    if (fault) return *fault;
    if (!failure) continue;
    if (share == 1 || !is_out_of_memory(failure)) std::rethrow_exception(failure);
    most_items = share / 2;
  }
  return {};
}

Completion TileAnsBackEnds::histogram(const tile_ans::HistogramArguments& arguments) {
  const std::uint32_t num_lanes = arguments.num_lanes;
  // Of its own each: a part that fails half way may have added something.
  std::vector<std::array<tile_ans::Histogram, kMaxLanes>> counts(back_ends_.size());
  std::vector<tile_ans::HistogramArguments> parts(back_ends_.size());
  std::array<tile_ans::Histogram, kMaxLanes> sums{};
  const StageStatus status = run(
      arguments.elements.size() / num_lanes,
      [&](std::size_t gpu, const Part& part) {
        counts[gpu] = {};
        parts[gpu] = {arguments.elements.subspan(num_lanes * part.first, num_lanes * part.count), num_lanes,
                      std::span(counts[gpu]).first(num_lanes)};
        return back_ends_[gpu]->histogram(parts[gpu]);
      },
      [&](std::size_t gpu, const Part&) {
        for (std::uint32_t l = 0; l < num_lanes; ++l)
          std::ranges::transform(sums[l], counts[gpu][l], sums[l].begin(), std::plus<>());
      });
  for (std::uint32_t l = 0; l < num_lanes; ++l)
    std::ranges::transform(arguments.histograms[l], sums[l], arguments.histograms[l].begin(), std::plus<>());
  return Completion(status);
}

Completion TileAnsBackEnds::sizes(const tile_ans::EncodeArguments& arguments) {
  std::vector<EncodePart> parts(back_ends_.size());
  return Completion(run(
      arguments.tiles.num_tiles,
      [&](std::size_t gpu, const Part& range) {
        const TileRange part{arguments.tiles.first_tile + range.first, range.count};
        set_part(parts[gpu], arguments, part, false);
        return back_ends_[gpu]->sizes(parts[gpu].arguments);
      },
      [](std::size_t, const Part&) {}));
}

Completion TileAnsBackEnds::encode(const tile_ans::EncodeArguments& arguments) {
  std::vector<EncodePart> parts(back_ends_.size());
  std::array<std::uint64_t, kMaxLanes> num_words{};  // by output, so far
  return Completion(run(
      arguments.tiles.num_tiles,
      [&](std::size_t gpu, const Part& range) {
        const TileRange part{arguments.tiles.first_tile + range.first, range.count};
        set_part(parts[gpu], arguments, part, true);
        return back_ends_[gpu]->encode(parts[gpu].arguments);
      },
      [&](std::size_t, const Part& range) {
        const TileRange part{arguments.tiles.first_tile + range.first, range.count};
        for (std::size_t i = 0; i < arguments.lanes.size(); ++i) {
          const LaneOutput& output = arguments.lanes[i];
          const auto words = words_of(output, *arguments.plan, arguments.tiles, part);
          std::uint64_t count = 0;
          for (const std::uint32_t one : output.stream_words.subspan(range.first, range.count)) count += one;
          count = std::min<std::uint64_t>(count, words.size());  // unspecified after a fault
          std::memmove(output.words.data() + num_words[i], words.data(), count * sizeof(std::uint16_t));
          num_words[i] += count;
        }
      }));
}

Completion TileAnsBackEnds::decode(const tile_ans::DecodeArguments& arguments) {
  const Layout& layout = arguments.layout;
  decoded_sum_ = 0;
  const TileRange& tiles = arguments.tiles;
  std::vector<DecodePart> parts(back_ends_.size());
  return Completion(run(
      tiles.num_tiles,
      [&](std::size_t gpu, const Part& range) {
        const TileRange part{tiles.first_tile + range.first, range.count};
        auto& lanes = parts[gpu].lanes;
        for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
          const LaneInput& whole = arguments.lanes[l];
          LaneInput& lane = lanes[l] = whole;
          lane.offsets = whole.offsets.subspan(range.first, range.count + 1);
          // Offsets may be any numbers: those before what can be true are told by their own part.
          const std::uint64_t base = whole.offsets.front();
          const std::uint64_t begin =
              std::clamp<std::uint64_t>(lane.offsets.front(), base, base + whole.words.size()) - base;
          const std::uint64_t payload_words = base + whole.words.size();
          const tile_ans::WordRange words =
              tile_ans::lane_words(layout, whole.mode, part, lane.offsets, payload_words);
          lane.words =
              whole.words.subspan(begin, std::min<std::uint64_t>(words.count, whole.words.size() - begin));
          if (!whole.states.empty())
            lane.states = whole.states.subspan(kNumStates * range.first, kNumStates * range.count);
        }
        parts[gpu].arguments = {.layout = layout,
                                .tiles = part,
                                .lanes = std::span(lanes).first(layout.num_lanes),
                                .source = elements_of(arguments.source, layout, tiles, part),
                                .elements = elements_of(arguments.elements, layout, tiles, part)};
        return back_ends_[gpu]->decode(parts[gpu].arguments);
      },
      [&](std::size_t gpu, const Part&) { decoded_sum_ += back_ends_[gpu]->decoded_sum(); }));
}

}  // namespace weightpress::device
