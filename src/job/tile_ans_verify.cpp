// Verifies a Tile-ANS output, of any maker: that every container is sound, and that all is as in a source.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "host/host_stages.h"
#include "job/chunk_sample.h"
#include "job/parallel_io.h"
#include "job/process_memory.h"
#include "job/tile_ans_device.h"
#include "job/tile_ans_jobs.h"
#include "job/tile_ans_model.h"
#include "job/tile_ans_slab.h"
#include "model/checkpoint.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

using model::in_quotes;
using model::printable;

// Of each end of a tensor that is stored as it was, at the level of samples.
constexpr std::uint64_t kSampledBytes = std::uint64_t{64} << 10;

class TileAnsVerifyJob {
 public:
  explicit TileAnsVerifyJob(const VerifyOptions& options)
      : options_(options),
        output_(model::Checkpoint::open(options.path, model::Df11Policy::kAccept)),
        survey_(survey_tile_ans(output_)),
        num_threads_(host::usable_num_threads(options.num_threads)) {}

  VerifyReport run() {
    const auto start = std::chrono::steady_clock::now();
    settle_level();
    open_all();
    if (report_.level == VerifyLevel::kSample) choose_samples();
    device_ = std::make_unique<TileAnsDevice>(std::move(choice_), num_threads_, 0, options_.on_warning);
    memory_ = std::make_unique<TileAnsSlabMemory>(
        decode_memory_bytes(output_, survey_.containers, num_threads_), device_->memory());
    for (std::size_t c = 0; c < survey_.containers.size(); ++c) check_container(c);
    for (const ErrorDetails& broken : survey_.broken)
      report_.failures.push_back({.unit = broken.tensor, .kind = "header", .message = broken.message});
    check_kept();
    if (source_) find_missing();
    for (const model::File& file : output_.files()) file.check_unchanged();
    if (source_)
      for (const model::File& file : source_->files()) file.check_unchanged();
    report_.engine = device_->uses_gpu() ? VerifyEngine::kCuda : VerifyEngine::kCpu;
    report_.device = device_->name();
    report_.why_device = device_->why();
    report_.verifier = device_->decoder();
    report_.num_threads = num_threads_;
    report_.peak_memory_bytes = peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void settle_level() {
    if (options_.engine == VerifyEngine::kOfficial || options_.kernel) {
      throw Error(ErrorCode::kUsage, printable(options_.path.native()) +
                                         " is Tile-ANS, for which there is no official kernel: leave out "
                                         "--engine and --kernel");
    }
    choice_ = choose_decode_device(options_.engine, options_.device);
    report_.level = options_.level;
    if (report_.level == VerifyLevel::kDefault)
      report_.level = options_.source ? VerifyLevel::kFull : VerifyLevel::kStructure;
    if (!options_.source && report_.level != VerifyLevel::kStructure) {
      throw Error(ErrorCode::kUsage,
                  std::string("the level ") + (report_.level == VerifyLevel::kFull ? "full" : "sample") +
                      " compares with the source: name it with --source, or choose --level structure");
    }
    if (options_.source && report_.level != VerifyLevel::kStructure)
      source_.emplace(model::Checkpoint::open(*options_.source));
  }

  /// Whatever cannot be opened has its failure.
  void open_all() {
    opened_.resize(survey_.containers.size());
    for (std::size_t c = 0; c < opened_.size(); ++c) {
      const StoredTileAns& stored = survey_.containers[c];
      progress_.total_bytes += stored.size_bytes();
      if (stored.is_raw()) continue;
      if (auto opened = open_container(output_, stored)) {
        opened_[c] = std::make_unique<OpenedTileAns>(*opened);
        report_.num_weights += opened_[c]->plan.layout.num_elements;
        report_.num_chunks += opened_[c]->plan.layout.num_tiles();
      } else {
        fail(stored, "table", opened.error().message);
      }
    }
    progress_.num_units = survey_.containers.size();
    report_.num_units = survey_.containers.size() + survey_.broken.size();
    report_.num_tensors = survey_.kept.size();
    report_.num_files = output_.files().size();
  }

  void choose_samples() {
    std::random_device device;
    report_.seed = options_.seed ? *options_.seed : device();
    std::vector<std::vector<std::uint64_t>> must_have;
    std::vector<std::uint64_t> num_tiles;
    for (const auto& opened : opened_) {
      if (!opened) continue;
      num_tiles.push_back(opened->plan.layout.num_tiles());
      must_have.push_back({0, num_tiles.back() - 1});
    }
    auto chosen = choose_chunks(std::move(must_have), num_tiles, options_.samples, report_.seed);
    samples_.resize(opened_.size());
    for (std::size_t c = 0, next = 0; c < opened_.size(); ++c)
      if (opened_[c]) samples_[c] = std::move(chosen[next++]);
  }

  // ---- containers

  void check_container(std::size_t index) {
    const StoredTileAns& stored = survey_.containers[index];
    progress_.unit = stored.name;
    show_progress(0);
    const model::SourceTensor* source = nullptr;
    if (source_) source = find_in_source(stored.name, stored.header.dtype, stored.header.shape, stored.name);
    if (stored.is_raw()) {
      if (source != nullptr) compare(output_.tensors()[stored.data], *source, stored.name);
    } else if (opened_[index]) {
      decode(index, source);
    }
    ++progress_.units_done;
  }

  void decode(std::size_t index, const model::SourceTensor* source) {
    const OpenedTileAns& opened = *opened_[index];
    const tile_ans::Layout& layout = opened.plan.layout;
    const std::uint64_t step = tiles_in(layout, memory_->size_bytes(),
                                        [&](std::uint64_t tiles) { return decode_bytes(layout, tiles); });
    if (report_.level != VerifyLevel::kSample) {
      for (std::uint64_t first = 0; first < layout.num_tiles(); first += step)
        if (!decode(index, {first, std::min(step, layout.num_tiles() - first)}, source)) return;
      return;
    }
    const std::vector<std::uint64_t>& tiles = samples_[index];
    for (std::size_t begin = 0; begin < tiles.size();) {  // runs of neighbours
      std::size_t end = begin + 1;
      while (end < tiles.size() && tiles[end] == tiles[end - 1] + 1 && end - begin < step) ++end;
      if (!decode(index, {tiles[begin], end - begin}, source)) return;
      begin = end;
    }
  }

  bool decode(std::size_t index, const tile_ans::TileRange& tiles, const model::SourceTensor* source) {
    const StoredTileAns& stored = survey_.containers[index];
    const OpenedTileAns& opened = *opened_[index];
    const tile_ans::Layout& layout = opened.plan.layout;
    const std::uint64_t bytes = layout.num_lanes * layout.elements_of(tiles.first_tile, tiles.num_tiles);
    memory_->reset();
    std::span<std::uint8_t> elements;
    if (source != nullptr) {
      elements = memory_->take<std::uint8_t>(bytes);
      const std::uint64_t first = layout.num_lanes * layout.first_element(tiles.first_tile);
      transfer_in_pieces(bytes, num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
        source_->read(*source, first + offset, count, elements.data() + offset);
      });
    }
    const tile_ans::StageStatus status = decode_slab({.plan = opened.plan,
                                                      .payload_words = opened.payload_words,
                                                      .buffers = opened.buffers,
                                                      .tiles = tiles,
                                                      .source = elements},
                                                     *device_, *memory_, num_threads_);
    report_.chunks_checked += tiles.num_tiles;
    show_progress(bytes);
    if (status.ok()) return true;
    VerifyFailure failure{.unit = stored.name,
                          .kind = status.code == tile_ans::StageCode::kDiffers ? "weight" : "stream",
                          .message = describe_fault(status)};
    failure.chunk = status.tile;
    failure.weight = layout.first_element(status.tile);
    report_.failures.push_back(std::move(failure));
    return false;
  }

  // ---- tensors that are stored as they were, and what lacks

  void check_kept() {
    progress_.unit.clear();
    for (const std::size_t t : survey_.kept) {
      const model::SourceTensor& tensor = output_.tensors()[t];
      if (!source_) continue;
      if (const auto* source = find_in_source(tensor.name, tensor.dtype, tensor.shape, ""))
        compare(tensor, *source, "");
    }
  }

  /// unit: whose failure it is, if there is one; empty: the tensor's own.
  const model::SourceTensor* find_in_source(const std::string& name, model::Dtype dtype,
                                            const std::vector<std::uint64_t>& shape,
                                            const std::string& unit) {
    const model::SourceTensor* const source = source_->find(name);
    const char* what = nullptr;
    if (source == nullptr) {
      what = "the source has no tensor of this name";
    } else if (source->dtype != dtype) {
      what = "the source's tensor has another dtype";
    } else if (source->shape != shape) {
      what = "the source's tensor has another shape";
    }
    if (what == nullptr) return source;
    report_.failures.push_back({.unit = unit,
                                .tensor = unit.empty() ? name : std::string(),
                                .kind = source == nullptr || unit.empty() ? "tensor" : "shape",
                                .message = what});
    return nullptr;
  }

  void compare(const model::SourceTensor& stored, const model::SourceTensor& source,
               const std::string& unit) {
    std::optional<std::uint64_t> first_wrong;
    std::mutex mutex;
    const auto compare_range = [&](std::uint64_t begin, std::uint64_t end) {
      transfer_on_grid(begin, end, num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
        thread_local std::vector<std::uint8_t> a, b;
        a.resize(std::max<std::size_t>(a.size(), bytes));
        b.resize(a.size());
        output_.read(stored, offset, bytes, a.data());
        source_->read(source, offset, bytes, b.data());
        if (std::memcmp(a.data(), b.data(), bytes) == 0) return;
        const auto differs =
            std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(bytes), b.begin());
        const std::uint64_t place = offset + static_cast<std::uint64_t>(differs.first - a.begin());
        const std::lock_guard lock(mutex);
        first_wrong = std::min(first_wrong.value_or(place), place);
      });
    };
    const std::uint64_t size = stored.size_bytes;
    if (report_.level == VerifyLevel::kFull || size <= 2 * kSampledBytes) {
      compare_range(0, size);
    } else {
      compare_range(0, kSampledBytes);
      compare_range(size - kSampledBytes, size);
    }
    show_progress(size);
    if (!first_wrong) return;
    report_.failures.push_back(
        {.unit = unit,
         .tensor = unit.empty() ? stored.name : std::string(),
         .kind = unit.empty() ? "tensor" : "weight",
         .message = "its byte " + std::to_string(*first_wrong) + " is not as in the source"});
  }

  void find_missing() {
    std::vector<std::string_view> here;
    for (const StoredTileAns& stored : survey_.containers) here.emplace_back(stored.name);
    for (const ErrorDetails& broken : survey_.broken) here.emplace_back(broken.tensor);
    for (const std::size_t t : survey_.kept) here.emplace_back(output_.tensors()[t].name);
    std::ranges::sort(here);
    for (const model::SourceTensor& tensor : source_->tensors()) {
      if (std::ranges::binary_search(here, std::string_view(tensor.name))) continue;
      report_.failures.push_back(
          {.tensor = tensor.name, .kind = "tensor", .message = "the output does not hold it"});
    }
  }

  void fail(const StoredTileAns& stored, const char* kind, const std::string& message) {
    report_.failures.push_back({.unit = stored.name, .kind = kind, .message = message});
  }

  void show_progress(std::uint64_t bytes) {
    progress_.bytes_done += bytes;
    if (options_.on_progress) options_.on_progress(progress_);
  }

  const VerifyOptions& options_;
  const model::Checkpoint output_;
  const TileAnsSurvey survey_;
  const int num_threads_;
  DeviceChoice choice_;  // until there is a device
  std::unique_ptr<TileAnsDevice> device_;
  std::unique_ptr<TileAnsSlabMemory> memory_;  // the device's
  std::optional<model::Checkpoint> source_;
  std::vector<std::unique_ptr<OpenedTileAns>> opened_;  // by container
  std::vector<std::vector<std::uint64_t>> samples_;     // tiles, by container
  VerifyReport report_;
  VerifyProgress progress_;
};

}  // namespace

VerifyReport verify_tile_ans(const VerifyOptions& options) {
  return TileAnsVerifyJob(options).run();
}

}  // namespace weightpress::job
