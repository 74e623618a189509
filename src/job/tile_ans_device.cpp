#include "job/tile_ans_device.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "device/tile_ans_back_ends.h"
#include "job/column_sums.h"

namespace weightpress::job {
namespace {

using tile_ans::Completion;
using tile_ans::StageStatus;

constexpr const char* kFlipped = "what is in its memory is not what was copied there, or what came back";

/// Whether they are those of these elements, as far as sums tell.
bool counts_agree(const tile_ans::HistogramArguments& arguments, int num_threads) {
  const ColumnSums sums = sum_columns(arguments.elements, num_threads);
  for (std::uint32_t lane = 0; lane < arguments.num_lanes; ++lane) {
    std::uint64_t sum = 0;
    for (std::size_t symbol = 0; symbol < arguments.histograms[lane].size(); ++symbol)
      sum += symbol * arguments.histograms[lane][symbol];
    if (sum != lane_sum(sums, arguments.num_lanes, lane)) return false;
  }
  return true;
}

/// What of raw lanes' faults sums do not show, and what they rely on: every stream has the words that its
/// symbols take, and they are there; what fills the last one up is 0.
bool raw_streams_are_whole(const tile_ans::DecodeArguments& arguments) {
  const tile_ans::TileRange& tiles = arguments.tiles;
  for (const tile_ans::LaneInput& input : arguments.lanes) {
    if (input.mode != tile_ans::LaneMode::kRaw) continue;
    std::uint64_t end = 0;  // in input.words
    for (std::uint64_t i = 0; i < tiles.num_tiles; ++i) {
      const std::uint64_t count = arguments.layout.elements_of(tiles.first_tile + i);
      end += tile_ans::raw_words(count);
      if (input.offsets[i + 1] != input.offsets.front() + end || end > input.words.size()) return false;
      if (count % 2 != 0 && input.words[end - 1] >> 8 != 0) return false;
    }
  }
  return true;
}

}  // namespace

TileAnsDevice::TileAnsDevice(DeviceChoice choice, int num_threads, std::uint64_t device_bytes,
                             OnWarning on_warning)
    : choice_(std::move(choice)),
      num_threads_(num_threads),
      on_warning_(std::move(on_warning)),
      name_(choice_.name),
      why_(choice_.why),
      host_(num_threads),
      host_decode_(num_threads) {
  if (choice_.gpus.empty()) return;
  try {
    std::vector<std::unique_ptr<device::TileAnsBackEnd>> back_ends;
    for (const auto& gpu : choice_.gpus) back_ends.push_back(gpu->make_tile_ans_back_end(device_bytes));
    gpus_ = std::make_shared<device::TileAnsBackEnds>(std::move(back_ends));
  } catch (const Error& error) {
    give_up(error.details());
  }
}

SlabMemory TileAnsDevice::memory() {
  if (!uses_gpu()) return {};
  return [this](std::uint64_t bytes) { return (gpus_ ? gpus_ : given_up_)->pinned(bytes); };
}

void TileAnsDevice::give_up(const ErrorDetails& error) {
  const std::string what = choice_.name + ": " + error.message;
  if (choice_.is_required) throw Error(ErrorCode::kDeviceFailed, what);
  given_up_ = std::move(gpus_);
  name_ = "cpu";
  why_ = what;
  if (on_warning_) on_warning_("the GPU failed, and the CPU goes on: " + what);
}

/// call: a clause on what is wrong with its result, nullptr if it is right.
bool TileAnsDevice::try_gpu(const std::function<const char*()>& call) {
  if (!uses_gpu()) return false;
  std::optional<ErrorDetails> failure;
  try {
    if (const char* const problem = call()) failure = {.code = ErrorCode::kDeviceFailed, .message = problem};
  } catch (const Error& error) {
    failure = error.details();
  }
  if (!failure) return true;
  give_up(*failure);
  return false;
}

Completion TileAnsDevice::histogram(const tile_ans::HistogramArguments& arguments) {
  std::vector<tile_ans::Histogram> counts(arguments.num_lanes);
  const bool is_done = try_gpu([&] {
    const tile_ans::HistogramArguments counted{arguments.elements, arguments.num_lanes, counts};
    gpus_->histogram(counted).wait();
    return counts_agree(counted, num_threads_) ? nullptr : kFlipped;
  });
  if (!is_done) return host_.histogram(arguments);
  for (std::size_t lane = 0; lane < counts.size(); ++lane)
    std::ranges::transform(arguments.histograms[lane], counts[lane], arguments.histograms[lane].begin(),
                           std::plus<>());
  return Completion(StageStatus{});
}

Completion TileAnsDevice::sizes(const tile_ans::EncodeArguments& arguments) {
  StageStatus status;
  const bool is_done = try_gpu([&]() -> const char* {
    status = gpus_->sizes(arguments).wait();
    return nullptr;
  });
  return is_done ? Completion(status) : host_.sizes(arguments);
}

Completion TileAnsDevice::encode(const tile_ans::EncodeArguments& arguments) {
  StageStatus status;
  const bool is_done = try_gpu([&]() -> const char* {
    status = gpus_->encode(arguments).wait();
    return nullptr;
  });
  return is_done ? Completion(status) : host_.encode(arguments);
}

bool TileAnsDevice::decoded_right(const tile_ans::DecodeArguments& arguments) const {
  if (!raw_streams_are_whole(arguments)) return false;
  const std::span<const std::uint8_t> elements =
      arguments.elements.empty() ? arguments.source : arguments.elements;
  if (elements.empty()) return true;
  const std::uint32_t num_lanes = arguments.layout.num_lanes;
  const ColumnSums sums = sum_columns(elements, num_threads_);
  if (element_sum(sums, num_lanes) != gpus_->decoded_sum()) return false;
  if (!arguments.elements.empty() && !arguments.source.empty() &&
      sum_columns(arguments.source, num_threads_) != sums)
    return false;
  for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
    const tile_ans::LaneInput& input = arguments.lanes[lane];
    if (input.mode != tile_ans::LaneMode::kRaw) continue;
    const std::span words(reinterpret_cast<const std::uint8_t*>(input.words.data()),
                          sizeof(std::uint16_t) * (input.offsets.back() - input.offsets.front()));
    const ColumnSums word_sums = sum_columns(words, num_threads_);
    if (lane_sum(word_sums, 1, 0) != lane_sum(sums, num_lanes, lane)) return false;
  }
  return true;
}

Completion TileAnsDevice::decode(const tile_ans::DecodeArguments& arguments) {
  StageStatus status;
  const bool is_done = try_gpu([&]() -> const char* {
    status = gpus_->decode(arguments).wait();
    if (status.ok()) return decoded_right(arguments) ? nullptr : kFlipped;
    const StageStatus found = host_decode_.decode(arguments).wait();
    return found == status ? nullptr : "it finds a fault in a tile that the CPU does not find there";
  });
  return is_done ? Completion(status) : host_decode_.decode(arguments);
}

}  // namespace weightpress::job
