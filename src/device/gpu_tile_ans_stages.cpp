#include "device/gpu_tile_ans_stages.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>
#include <vector>

#include "device/gpu_stages.h"
#include "device/pinned_memory.h"
#include "device/tile_ans_device_tables.h"

namespace weightpress::device {
namespace {

using tile_ans::EncodeArguments;
using tile_ans::kNumStates;
using tile_ans::LaneInput;
using tile_ans::LaneMode;
using tile_ans::LaneOutput;
using tile_ans::Layout;
using tile_ans::StageCode;
using tile_ans::StageStatus;
using tile_ans::TileRange;

constexpr bool is_number_of(std::uint32_t number, StageCode code) {
  return number == static_cast<std::uint32_t>(code);
}
static_assert(is_number_of(TileAnsStatusWord::kSourceChanged, StageCode::kSourceChanged) &&
              is_number_of(TileAnsStatusWord::kBadOffsets, StageCode::kBadOffsets) &&
              is_number_of(TileAnsStatusWord::kBadLength, StageCode::kBadLength) &&
              is_number_of(TileAnsStatusWord::kBadPadding, StageCode::kBadPadding) &&
              is_number_of(TileAnsStatusWord::kBadState, StageCode::kBadState) &&
              is_number_of(TileAnsStatusWord::kTruncated, StageCode::kTruncated) &&
              is_number_of(TileAnsStatusWord::kUnreadWords, StageCode::kUnreadWords) &&
              is_number_of(TileAnsStatusWord::kBadEnd, StageCode::kBadEnd) &&
              is_number_of(TileAnsStatusWord::kDiffers, StageCode::kDiffers));

// A buffer takes a little more than was asked for.
constexpr std::uint64_t kAllocationBytes = 512;
constexpr std::uint64_t allocated_bytes(std::uint64_t bytes) {
  return (bytes + kAllocationBytes - 1) / kAllocationBytes * kAllocationBytes;
}

constexpr std::uint8_t kEveryBit = 0xFF;  // of TileAnsStatusWord::kOk, byte by byte
static_assert(TileAnsStatusWord::kOk == ~std::uint64_t{0});

StageStatus status_of(std::uint64_t word, const TileRange& tiles, std::uint32_t num_lanes,
                      std::uint32_t lowest_code, std::uint32_t highest_code) {
  if (word == TileAnsStatusWord::kOk) return {};
  const std::uint64_t tile = word >> 16;
  const std::uint32_t lane = word >> 8 & 0xFF, code = word & 0xFF;
  if (tile < tiles.first_tile || tile - tiles.first_tile >= tiles.num_tiles || lane >= num_lanes ||
      code < lowest_code || code > highest_code)
    throw_nonsense("status " + std::to_string(word) + " of " + std::to_string(tiles.num_tiles) +
                   " tiles from " + std::to_string(tiles.first_tile) + " on");
  return {static_cast<StageCode>(code), tile, lane};
}

/// Throws Error if no encoding of these tiles can have so many words.
void check_stream_words(const tile_ans::TensorPlan& plan, const TileRange& tiles, const LaneOutput& output) {
  const bool is_raw = plan.lanes[output.lane].mode == LaneMode::kRaw;
  for (std::uint64_t i = 0; i < tiles.num_tiles; ++i) {
    const std::uint64_t symbols = plan.layout.elements_of(tiles.first_tile + i, 1);
    const std::uint32_t words = output.stream_words[i];
    if (is_raw ? words == (symbols + 1) / 2 : words <= symbols) continue;
    throw_nonsense(std::to_string(words) + " words of a stream of " + std::to_string(symbols) + " symbols");
  }
}

}  // namespace

StageStatus tile_ans_encode_status(std::uint64_t status_word, const TileRange& tiles,
                                   std::uint32_t num_lanes) {
  return status_of(status_word, tiles, num_lanes, TileAnsStatusWord::kSourceChanged,
                   TileAnsStatusWord::kSourceChanged);
}

StageStatus tile_ans_decode_status(std::uint64_t status_word, const TileRange& tiles,
                                   std::uint32_t num_lanes) {
  return status_of(status_word, tiles, num_lanes, TileAnsStatusWord::kBadOffsets,
                   TileAnsStatusWord::kDiffers);
}

GpuTileAnsStages::GpuTileAnsStages(const Gpu& gpu, const GpuKernels& kernels, std::uint64_t device_bytes)
    : gpu_(gpu),
      device_bytes_(device_bytes != 0 ? device_bytes : gpu.memory().free_bytes / 10 * 9),
      launches_(gpu, kernels),
      stream_(gpu),
      returned_(gpu, sizeof(Returned)) {}

GpuTileAnsStages::~GpuTileAnsStages() {
  if (!is_under_way_) return;
  try {
    wait();
  } catch (const Error&) {  // told by the completion, had anyone asked
  }
}

std::shared_ptr<void> GpuTileAnsStages::pinned(std::uint64_t bytes) {
  return pinned_or_ordinary_memory(gpu_, bytes);
}

std::vector<GrowingDeviceBuffer*> GpuTileAnsStages::all_buffers() {
  std::vector<GrowingDeviceBuffer*> buffers = {&d_elements_, &d_source_, &d_counts_, &d_tables_,
                                               &d_chain_,    &d_totals_, &d_status_, &d_sum_};
  for (LaneBuffers& lane : lanes_)
    for (GrowingDeviceBuffer* buffer : {&lane.d_stream_words, &lane.d_words, &lane.d_states, &lane.d_offsets})
      buffers.push_back(buffer);
  return buffers;
}

void GpuTileAnsStages::make_room(const std::vector<Need>& needs) {
  std::uint64_t needed = 0, held = 0;
  for (const Need& need : needs) needed += allocated_bytes(need.bytes);
  if (needed > device_bytes_) {
    throw Error(ErrorCode::kOutOfMemory, "a slab takes " + std::to_string(needed) +
                                             " bytes of the GPU's memory, of which " +
                                             std::to_string(device_bytes_) + " may be used");
  }
  const auto need_of = [&](const GrowingDeviceBuffer* buffer) {
    const auto found = std::ranges::find(needs, buffer, &Need::buffer);
    return found == needs.end() ? 0 : found->bytes;
  };
  const auto buffers = all_buffers();
  for (const GrowingDeviceBuffer* buffer : buffers)
    held += allocated_bytes(std::max(buffer->size_bytes(), need_of(buffer)));
  const auto release_surplus = [&] {
    for (GrowingDeviceBuffer* buffer : buffers)
      if (buffer->size_bytes() > need_of(buffer)) buffer->release();
  };
  const auto grow = [&] {
    for (const Need& need : needs) need.buffer->get(gpu_, need.bytes);
  };
  if (held > device_bytes_) release_surplus();
  try {
    grow();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    release_surplus();
    grow();
  }
}

template <class Enqueue>
void GpuTileAnsStages::call(Enqueue enqueue) {
  if (is_under_way_) wait();
  gpu_.use();
  returned() = {};
  is_under_way_ = true;
  try {
    enqueue();
  } catch (...) {
    try {
      wait();
    } catch (const Error&) {  // the first failure is told
    }
    throw;
  }
}

void GpuTileAnsStages::wait() {
  is_under_way_ = false;
  gpu_.use();
  stream_.wait();
}

template <class T>
CUdeviceptr GpuTileAnsStages::copy_in(GrowingDeviceBuffer& buffer, std::span<const T> values) {
  const CUdeviceptr d_values = buffer.get(gpu_, values.size_bytes());
  if (!values.empty()) stream_.copy_to_device(d_values, values.data(), values.size_bytes());
  return d_values;
}

CUdeviceptr GpuTileAnsStages::new_status() {
  const CUdeviceptr d_status = d_status_.get(gpu_, sizeof(std::uint64_t));
  stream_.fill(d_status, kEveryBit, sizeof(std::uint64_t));
  return d_status;
}

tile_ans::Completion GpuTileAnsStages::histogram(const tile_ans::HistogramArguments& arguments) {
  const std::uint32_t num_lanes = arguments.num_lanes;
  assert(tile_ans::is_lane_count(num_lanes) && arguments.histograms.size() == num_lanes);
  assert(arguments.elements.size() % num_lanes == 0);
  if (arguments.elements.empty()) return tile_ans::Completion(StageStatus{});
  call([&] {
    const std::uint64_t counts_bytes = num_lanes * sizeof(tile_ans::Histogram);
    make_room({{&d_elements_, arguments.elements.size()}, {&d_counts_, counts_bytes}});
    TileAnsHistogramKernel::Parameters parameters;
    parameters.d_elements = copy_in(d_elements_, arguments.elements);
    parameters.num_bytes = arguments.elements.size();
    parameters.num_lanes = num_lanes;
    parameters.d_counts = d_counts_.get(gpu_, counts_bytes);
    stream_.fill(parameters.d_counts, 0, counts_bytes);
    launches_.histogram(stream_, parameters);
    stream_.copy_to_host(returned().histograms, parameters.d_counts, counts_bytes);
  });
  return tile_ans::Completion(
      [this, histograms = arguments.histograms, num_elements = arguments.elements.size() / num_lanes] {
        wait();
        for (std::size_t lane = 0; lane < histograms.size(); ++lane) {
          const tile_ans::Histogram& counted = returned().histograms[lane];
          if (tile_ans::total_count(counted) != num_elements)
            throw_nonsense("counts of lane " + std::to_string(lane) + " that are not those of " +
                           std::to_string(num_elements) + " elements");
          std::transform(counted.begin(), counted.end(), histograms[lane].begin(), histograms[lane].begin(),
                         std::plus<>());
        }
        return StageStatus{};
      });
}

TileAnsEncodeKernel::Parameters GpuTileAnsStages::prepare_encoding(const EncodeArguments& arguments,
                                                                   const std::vector<Need>& more_needs) {
  const Layout& layout = arguments.plan->layout;
  assert(arguments.tiles.num_tiles > 0 &&
         arguments.tiles.first_tile + arguments.tiles.num_tiles <= layout.num_tiles());
  std::vector<TileAnsEncodeEntry> tables;
  std::vector<Need> needs = more_needs;
  for (const LaneOutput& output : arguments.lanes) {
    assert(output.lane < layout.num_lanes && output.stream_words.size() == arguments.tiles.num_tiles);
    needs.push_back({&lanes_[output.lane].d_stream_words, output.stream_words.size_bytes()});
    const tile_ans::LanePlan& plan = arguments.plan->lanes[output.lane];
    if (plan.mode == LaneMode::kRaw) continue;
    needs.push_back(
        {&lanes_[output.lane].d_states, kNumStates * arguments.tiles.num_tiles * sizeof(std::uint32_t)});
    append_encode_table(plan.frequencies, layout.probability_bits, tables);
  }
  needs.insert(needs.end(), {{&d_elements_, arguments.elements.size()},
                             {&d_tables_, tables.size() * sizeof(TileAnsEncodeEntry)},
                             {&d_status_, sizeof(std::uint64_t)}});
  make_room(needs);

  TileAnsEncodeKernel::Parameters parameters;
  parameters.num_elements = layout.elements_of(arguments.tiles.first_tile, arguments.tiles.num_tiles);
  assert(arguments.elements.size() == layout.num_lanes * parameters.num_elements);
  parameters.d_elements = copy_in(d_elements_, arguments.elements);
  parameters.tile_elements = layout.tile_elements;
  parameters.num_tiles = arguments.tiles.num_tiles;
  parameters.first_tile = arguments.tiles.first_tile;
  parameters.num_lanes = layout.num_lanes;
  parameters.probability_bits = layout.probability_bits;
  parameters.d_status = new_status();
  for (const LaneOutput& output : arguments.lanes) {
    TileAnsEncodeKernel::Lane& lane = parameters.lanes[output.lane];
    lane.d_stream_words = lanes_[output.lane].d_stream_words.get();
    if (arguments.plan->lanes[output.lane].mode == LaneMode::kRaw) {
      parameters.raw_lanes |= 1u << output.lane;
      continue;
    }
    parameters.coded_lanes |= 1u << output.lane;
    ++parameters.num_tables;
    lane.d_states = lanes_[output.lane].d_states.get();
  }
  parameters.d_tables = copy_in(d_tables_, std::span<const TileAnsEncodeEntry>(tables));
  return parameters;
}

tile_ans::Completion GpuTileAnsStages::sizes(const EncodeArguments& arguments) {
  call([&] {
    const TileAnsEncodeKernel::Parameters parameters = prepare_encoding(arguments, {});
    launches_.sizes(stream_, parameters);
    for (const LaneOutput& output : arguments.lanes)
      stream_.copy_to_host(output.stream_words.data(), parameters.lanes[output.lane].d_stream_words,
                           output.stream_words.size_bytes());
    stream_.copy_to_host(&returned().status, parameters.d_status, sizeof(std::uint64_t));
  });
  return tile_ans::Completion(
      [this, plan = arguments.plan, tiles = arguments.tiles,
       lanes = std::vector<LaneOutput>(arguments.lanes.begin(), arguments.lanes.end())] {
        wait();
        const StageStatus status = tile_ans_encode_status(returned().status, tiles, plan->layout.num_lanes);
        if (status.ok())
          for (const LaneOutput& output : lanes) check_stream_words(*plan, tiles, output);
        return status;
      });
}

tile_ans::Completion GpuTileAnsStages::encode(const EncodeArguments& arguments) {
  const tile_ans::TensorPlan& plan = *arguments.plan;
  const auto is_raw = [&](const LaneOutput& output) {
    return plan.lanes[output.lane].mode == LaneMode::kRaw;
  };
  call([&] {
    const std::uint64_t num_batches =
        (arguments.tiles.num_tiles - 1) / TileAnsEncodeKernel::kTilesOfBatch + 1;
    // The ticket lies behind the chain.
    const std::uint64_t chain_bytes = tile_ans::kMaxLanes * num_batches * sizeof(std::uint64_t);
    std::vector<Need> needs = {{&d_chain_, chain_bytes + sizeof(std::uint64_t)},
                               {&d_totals_, sizeof(Returned::totals)}};
    for (const LaneOutput& output : arguments.lanes) {
      const std::uint64_t capacity = tile_ans::lane_words_capacity(plan, output.lane, arguments.tiles);
      assert(output.words.size() >= capacity);
      assert(output.states.size() == (is_raw(output) ? 0 : kNumStates * arguments.tiles.num_tiles));
      needs.push_back({&lanes_[output.lane].d_words, 2 * capacity});
    }
    TileAnsEncodeKernel::Parameters parameters = prepare_encoding(arguments, needs);
    for (const LaneOutput& output : arguments.lanes)
      parameters.lanes[output.lane].d_words = lanes_[output.lane].d_words.get();
    share_out_rooms(plan, parameters);
    parameters.num_batches = num_batches;
    parameters.d_chain = d_chain_.get(gpu_, chain_bytes + sizeof(std::uint64_t));
    parameters.d_ticket = parameters.d_chain + chain_bytes;
    stream_.fill(parameters.d_chain, 0, chain_bytes + sizeof(std::uint64_t));
    parameters.d_totals = d_totals_.get(gpu_, sizeof(Returned::totals));
    stream_.fill(parameters.d_totals, 0, sizeof(Returned::totals));
    launches_.encode(stream_, parameters);

    for (const LaneOutput& output : arguments.lanes) {
      const TileAnsEncodeKernel::Lane& lane = parameters.lanes[output.lane];
      stream_.copy_to_host(output.stream_words.data(), lane.d_stream_words, output.stream_words.size_bytes());
      if (!is_raw(output)) {
        stream_.copy_to_host(output.states.data(), lane.d_states, output.states.size_bytes());
      } else {
        stream_.copy_to_host(output.words.data(), lane.d_words,
                             2 * tile_ans::lane_words_capacity(plan, output.lane, arguments.tiles));
      }
    }
    stream_.copy_to_host(returned().totals, parameters.d_totals, sizeof(Returned::totals));
    stream_.copy_to_host(&returned().status, parameters.d_status, sizeof(std::uint64_t));
  });

  return tile_ans::Completion(
      [this, plan = arguments.plan, tiles = arguments.tiles,
       lanes = std::vector<LaneOutput>(arguments.lanes.begin(), arguments.lanes.end())] {
        wait();
        const StageStatus status = tile_ans_encode_status(returned().status, tiles, plan->layout.num_lanes);
        const std::uint64_t num_elements = plan->layout.elements_of(tiles.first_tile, tiles.num_tiles);
        for (const LaneOutput& output : lanes) {
          if (status.ok()) check_stream_words(*plan, tiles, output);
          if (plan->lanes[output.lane].mode == LaneMode::kRaw) continue;
          const std::uint64_t total = returned().totals[output.lane];
          const std::uint64_t sum =
              std::accumulate(output.stream_words.begin(), output.stream_words.end(), std::uint64_t{0});
          if (total != sum || total > num_elements)
            throw_nonsense(std::to_string(total) + " words of lane " + std::to_string(output.lane) +
                           ", whose streams have " + std::to_string(sum));
          if (total == 0) continue;
          is_under_way_ = true;
          stream_.copy_to_host(output.words.data(), lanes_[output.lane].d_words.get(), 2 * total);
        }
        if (is_under_way_) wait();
        return status;
      });
}

tile_ans::Completion GpuTileAnsStages::decode(const tile_ans::DecodeArguments& arguments) {
  const Layout& layout = arguments.layout;
  const TileRange& tiles = arguments.tiles;
  assert(tiles.num_tiles > 0 && tiles.first_tile + tiles.num_tiles <= layout.num_tiles());
  assert(arguments.lanes.size() == layout.num_lanes);
  // Of streams behind the first with wrong offsets no fault is told, so they may go without words.
  const auto words_of = [&](const LaneInput& input) {
    const std::uint64_t payload_words = input.offsets.front() + std::uint64_t{input.words.size()};
    return input.words.first(
        tile_ans::lane_words(layout, input.mode, tiles, input.offsets, payload_words).count);
  };
  call([&] {
    std::vector<std::uint8_t> tables;
    std::vector<Need> needs = {{&d_source_, arguments.source.size()},
                               {&d_elements_, arguments.elements.size()},
                               {&d_status_, sizeof(std::uint64_t)},
                               {&d_sum_, sizeof(std::uint64_t)}};
    for (std::uint32_t i = 0; i < layout.num_lanes; ++i) {
      const LaneInput& input = arguments.lanes[i];
      needs.insert(needs.end(), {{&lanes_[i].d_offsets, input.offsets.size_bytes()},
                                 {&lanes_[i].d_words, words_of(input).size_bytes()},
                                 {&lanes_[i].d_states, input.states.size_bytes()}});
      if (input.mode == LaneMode::kAns)
        append_decode_table(*input.frequencies, layout.probability_bits, tables);
    }
    needs.push_back({&d_tables_, tables.size()});
    make_room(needs);

    TileAnsDecodeKernel::Parameters parameters;
    parameters.num_elements = layout.elements_of(tiles.first_tile, tiles.num_tiles);
    parameters.tile_elements = layout.tile_elements;
    parameters.num_tiles = tiles.num_tiles;
    parameters.first_tile = tiles.first_tile;
    parameters.num_lanes = layout.num_lanes;
    parameters.probability_bits = layout.probability_bits;
    parameters.d_status = new_status();
    parameters.d_sum = d_sum_.get();
    stream_.fill(parameters.d_sum, 0, sizeof(std::uint64_t));
    for (std::uint32_t i = 0; i < layout.num_lanes; ++i) {
      const LaneInput& input = arguments.lanes[i];
      assert(input.offsets.size() == tiles.num_tiles + 1);
      TileAnsDecodeKernel::Lane& lane = parameters.lanes[i];
      lane.d_offsets = copy_in(lanes_[i].d_offsets, input.offsets);
      const auto words = words_of(input);
      lane.d_words = copy_in(lanes_[i].d_words, words);
      lane.num_words = words.size();
      if (input.mode == LaneMode::kRaw) continue;
      assert(input.states.size() == kNumStates * tiles.num_tiles);
      lane.d_states = copy_in(lanes_[i].d_states, input.states);
      lane.table = parameters.num_tables++;
    }
    parameters.d_tables = copy_in(d_tables_, std::span<const std::uint8_t>(tables));
    const std::uint64_t num_bytes = layout.num_lanes * parameters.num_elements;
    if (!arguments.source.empty()) {
      assert(arguments.source.size() == num_bytes);
      parameters.d_source = copy_in(d_source_, arguments.source);
    }
    if (!arguments.elements.empty()) {
      assert(arguments.elements.size() == num_bytes);
      parameters.d_elements = d_elements_.get(gpu_, num_bytes);
    }
    launches_.decode(stream_, parameters);
    if (parameters.d_elements != 0)
      stream_.copy_to_host(arguments.elements.data(), parameters.d_elements, num_bytes);
    stream_.copy_to_host(&returned().sum, parameters.d_sum, sizeof(std::uint64_t));
    stream_.copy_to_host(&returned().status, parameters.d_status, sizeof(std::uint64_t));
  });
  return tile_ans::Completion([this, tiles, num_lanes = layout.num_lanes] {
    wait();
    decoded_sum_ = returned().sum;
    return tile_ans_decode_status(returned().status, tiles, num_lanes);
  });
}

}  // namespace weightpress::device
