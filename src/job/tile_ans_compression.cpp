#include "job/tile_ans_compression.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "host/host_stages.h"
#include "job/free_memory.h"
#include "job/model_plan.h"
#include "job/process_memory.h"
#include "job/tile_ans_jobs.h"
#include "job/tile_ans_memory.h"
#include "job/tile_ans_model.h"
#include "job/tile_ans_record.h"
#include "model/checkpoint_index.h"
#include "model/name_pattern.h"
#include "model/safetensors_header.h"
#include "model/text.h"
#include "model/tile_ans_header.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::in_quotes;
using model::printable;
using tile_ans::Buffer;

// With the longest of what follows it, "._entropack.buffers.decode_tables", a name must still be readable.
constexpr std::size_t kMaxTensorNameBytes = model::kMaxNameBytes - 64;

tile_ans::Settings settings_of(const TileAnsOptions& options) {
  return {options.tile_elements, options.probability_bits, options.raw_lane_threshold};
}

std::vector<model::NamePattern> compile(const char* option, const std::vector<std::string>& patterns) {
  std::vector<model::NamePattern> compiled;
  for (const std::string& text : patterns) {
    auto pattern = model::NamePattern::compile(text);
    if (!pattern) {
      throw Error(ErrorCode::kUsage, std::string(option) + " " + in_quotes(text) +
                                         " is no regular expression: " + pattern.error().message);
    }
    compiled.push_back(std::move(*pattern));
  }
  return compiled;
}

/// Nothing: there is no such dtype.
std::optional<model::Dtype> dtype_of(const std::string& name) {
  if (const auto dtype = model::parse_dtype(name)) return dtype;
  return model::parse_torch_dtype(name);
}

/// What DF11 alone has.
const char* df11_option(const CompressOptions& options) {
  if (options.arch != "auto") return "--arch";
  if (!options.layout.empty()) return "--layout";
  if (options.luts != LutFill::kCompat) return "--luts";
  if (options.strict_identity) return "--strict-identity";
  if (options.keep_unencodable) return "--keep-unencodable";
  if (options.cast_to_bf16) return "--cast-to-bf16";
  if (options.with_config) return "--with-config";
  if (options.hashes) return "--hashes";
  if (options.verifier != Verifier::kAuto) return "--verifier";
  return nullptr;
}

std::string buffer_name(const std::string& tensor, Buffer buffer) {
  return tensor + std::string(model::kTileAnsPrefix) + std::string(model::kTileAnsBuffersPrefix) +
         std::string(tile_ans::kBufferNames[static_cast<std::size_t>(buffer)]);
}

/// In their order, and the header.
std::vector<model::TensorSpec> specs_of(const std::string& tensor, const PlannedTileAns& planned) {
  const tile_ans::TensorPlan& plan = planned.plan;
  const tile_ans::Layout& layout = plan.layout;
  const std::vector<std::uint64_t> shapes[tile_ans::kNumBuffers] = {
      {planned.payload_words()},
      {layout.num_offsets()},
      {plan.num_ans_lanes() * layout.num_tiles(), tile_ans::kNumStates},
      {layout.num_lanes, layout.table_size()},
      {layout.num_lanes},
      {tile_ans::kLayoutNumbers}};
  std::vector<model::TensorSpec> specs;
  for (std::size_t b = 0; b < tile_ans::kNumBuffers; ++b) {
    const auto buffer = static_cast<Buffer>(b);
    specs.push_back({buffer_name(tensor, buffer), model::tile_ans_buffer_dtype(buffer), shapes[b]});
  }
  specs.push_back({tensor + std::string(model::kTileAnsPrefix) + std::string(model::kTileAnsHeaderName),
                   model::Dtype::kU8,
                   {planned.header.size()}});
  return specs;
}

}  // namespace

void check_tile_ans_options(const CompressOptions& options) {
  if (options.format == Format::kDf11) {
    if (options.tile_ans == TileAnsOptions()) return;
    throw Error(ErrorCode::kUsage,
                "--tile-elements, --probability-bits, --raw-lane-threshold, --include, --exclude and --dtype "
                "are of use with --format tile-ans only");
  }
  if (const char* option = df11_option(options)) {
    throw Error(
        ErrorCode::kUsage,
        std::string(option) + " is of no use with --format tile-ans, which knows no units: leave it out");
  }
  tile_ans::check_settings(settings_of(options.tile_ans)).value();
  for (const std::string& name : options.tile_ans.dtypes) {
    const auto dtype = dtype_of(name);
    if (dtype && model::is_tile_ans_dtype(*dtype)) continue;
    throw Error(ErrorCode::kUsage, "--dtype " + in_quotes(name) +
                                       " is no dtype that Tile-ANS holds: they are named as in headers, e.g. "
                                       "BF16,F32,F8_E4M3,I8");
  }
}

TileAnsCompression::TileAnsCompression(const CompressOptions& options)
    : options_(options),
      settings_(settings_of(options.tile_ans)),
      checkpoint_(model::Checkpoint::open(options.source)),
      source_is_folder_(fs::is_directory(options.source)),
      choice_(choose_device(options.device)) {
  index_name_ = find_index_name(options.source);
  if (source_is_folder_ || index_name_) {
    config_ = read_beside_source(checkpoint_, kConfigName);
    generation_config_ = read_beside_source(checkpoint_, kGenerationConfigName);
  }
  by_file_.resize(checkpoint_.files().size());
  for (std::size_t t = 0; t < checkpoint_.tensors().size(); ++t)
    by_file_[checkpoint_.tensors()[t].file_index].push_back(t);
  for (const model::File& file : checkpoint_.files()) file_names_.push_back(file.path().filename().string());
  choose_tensors();
}

void TileAnsCompression::choose_tensors() {
  const auto include = compile("--include", options_.tile_ans.include);
  const auto exclude = compile("--exclude", options_.tile_ans.exclude);
  std::vector<model::Dtype> dtypes;
  for (const std::string& name : options_.tile_ans.dtypes) dtypes.push_back(*dtype_of(name));
  is_candidate_.assign(checkpoint_.tensors().size(), false);
  is_compressed_ = is_candidate_;
  bool any_named = false;
  for (std::size_t t = 0; t < is_candidate_.size(); ++t) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[t];
    const auto matches = [&](const model::NamePattern& pattern) { return pattern.matches(tensor.name); };
    if (!include.empty() && !std::ranges::any_of(include, matches)) continue;
    any_named = true;
    if (std::ranges::any_of(exclude, matches)) continue;
    if (!dtypes.empty() && !std::ranges::count(dtypes, tensor.dtype)) continue;
    any_chosen_ = true;
    is_candidate_[t] = tensor.name.size() <= kMaxTensorNameBytes && model::is_tile_ans_dtype(tensor.dtype) &&
                       !tensor.shape.empty() && tensor.size_bytes != 0 &&
                       tensor.num_elements() <= tile_ans::kMaxElements &&
                       least_stored_bytes(settings_, tensor) < tensor.size_bytes;
  }
  if (!include.empty() && !any_named) {
    throw Error(ErrorCode::kUsage, "--include " + in_quotes(options_.tile_ans.include[0]) +
                                       ": no tensor has a name that matches as a whole ('.*' stands for "
                                       "anything)");
  }
}

void TileAnsCompression::settle(bool writes) {
  plan_memory_use(writes);
  report_.device = device_->name();
  report_.why_device = device_->why();
  if (writes && options_.verify) report_.verifier = "host decoder";
  report_.num_threads = num_threads_;
  report_.source_bytes = checkpoint_.total_bytes();
  for (std::size_t t = 0; t < is_candidate_.size(); ++t) {
    const std::uint64_t bytes = checkpoint_.tensors()[t].size_bytes;
    if (is_candidate_[t]) {
      ++progress_.num_units;
      progress_.total_bytes += 2 * bytes;
    }
    if (writes) progress_.total_bytes += bytes;
  }
}

void TileAnsCompression::plan_memory_use(bool writes) {
  const int wanted_threads = host::usable_num_threads(options_.num_threads);
  const FreeMemory free = find_free_memory();
  TileAnsMemoryRequest request;
  request.ram_bytes = options_.ram_bytes;
  report_.memory.why = "it was given";
  if (options_.ram_bytes == 0) {
    request.ram_bytes = free.bytes / 10 * 6;
    report_.memory.why = "60% of what is free (" + free.source + ")";
  }
  const bool reads_back = writes && options_.verify;
  std::uint64_t record_bytes = 0, most_plans = 0;
  for (const std::vector<std::size_t>& tensors : by_file_) {
    std::uint64_t plans_bytes = 0;
    for (const std::size_t t : tensors) {
      const model::SourceTensor& tensor = checkpoint_.tensors()[t];
      record_bytes += 2 * (tensor.name.size() + 24 * tensor.shape.size() + 100);
      plans_bytes += 2 * (tensor.name.size() + sizeof(model::TensorSpec) + 100);
      if (!is_candidate_[t]) continue;
      plans_bytes += sizeof(PlannedFile::Container) +
                     (tile_ans::kNumBuffers + 1) * (2 * tensor.name.size() + sizeof(model::TensorSpec) + 300);
      const tile_ans::Layout layout = layout_before_plan(settings_, tensor);
      request.least_slab_bytes = std::max(request.least_slab_bytes, encode_bytes(layout, 1, reads_back));
      request.most_slab_bytes =
          std::max(request.most_slab_bytes, encode_bytes(layout, layout.num_tiles(), reads_back));
    }
    most_plans = std::max(most_plans, plans_bytes);
  }
  request.peak_bytes = peak_memory_bytes();
  request.resident_bytes = resident_memory_bytes();
  request.lists_bytes = record_bytes + most_plans;
  request.num_threads = wanted_threads;
  const TileAnsMemoryPlan plan = plan_tile_ans_memory(request).value();
  num_threads_ = plan.num_threads;
  device_ = std::make_unique<TileAnsDevice>(std::move(choice_), num_threads_, options_.vram_bytes,
                                            options_.on_warning);
  memory_ = std::make_unique<TileAnsSlabMemory>(plan.slab_bytes, device_->memory());
  compressor_ = std::make_unique<TileAnsTensorCompressor>(
      checkpoint_, *device_, device_->host_decode_stage(), *memory_,
      TileAnsTensorCompressor::Options{settings_, num_threads_, reads_back, &times_});
  report_.memory.ram_bytes = request.ram_bytes;
  report_.memory.needed_bytes = plan.needed_bytes;
  report_.memory.slab_weights = plan.slab_bytes;
  if (num_threads_ < wanted_threads) {
    report_.notes.push_back("the memory that may be used is enough for " + std::to_string(num_threads_) +
                            " of " + std::to_string(wanted_threads) + " threads");
  }
}

std::optional<PlannedTileAns> TileAnsCompression::plan_tensor(std::size_t index) {
  const model::SourceTensor& tensor = checkpoint_.tensors()[index];
  progress_.phase = CompressPhase::kPlanning;
  progress_.unit = tensor.name;
  show_progress();
  const auto take_over = [&] {
    progress_.bytes_done += 2 * tensor.size_bytes;
    progress_.bytes_resumed += 2 * tensor.size_bytes;
    show_progress();
  };
  if (trusts_plans_ && past_.would_not_shrink(tensor.name)) {
    take_over();
    return std::nullopt;
  }
  if (auto planned = trusts_plans_ ? past_.planned(settings_, tensor) : std::nullopt) {
    has_unproven_plans_ = true;
    planned->tensor = index;
    take_over();
    return planned;
  }
  if (device_->uses_gpu()) has_unproven_plans_ = true;
  ++(compressor_->is_one_slab(layout_before_plan(settings_, tensor)) ? report_.memory.units_held
                                                                     : report_.memory.units_streamed);
  auto planned = compressor_->plan(index, on_slab());
  if (journal_ != nullptr)
    journal_->append(planned ? planned_tile_ans_line(tensor.name, *planned)
                             : kept_tile_ans_line(tensor.name));
  return planned;
}

void TileAnsCompression::for_file(std::size_t file_index,
                                  const std::function<void(const PlannedFile&)>& done) {
  const CompressProgress progress = progress_;
  const std::uint64_t resumed_units = report_.resumed_units;
  while (true) {
    has_unproven_plans_ = false;
    try {
      const PlannedFile file = plan_file(file_index);
      done(file);
      return add_to_totals(file);
    } catch (const Error& error) {
      if (!may_be_otherwise(error)) throw;
    }
    progress_ = progress;
    report_.resumed_units = resumed_units;
  }
}

bool TileAnsCompression::may_be_otherwise(const Error& error) {
  if (error.code() != ErrorCode::kSourceChanged && error.code() != ErrorCode::kVerificationFailed)
    return false;
  if (error.details().tensor.empty() || (!has_unproven_plans_ && !device_->uses_gpu())) return false;
  for (const model::File& file : checkpoint_.files()) file.check_unchanged();
  if (device_->uses_gpu()) {
    device_->give_up({.code = ErrorCode::kDeviceFailed,
                      .message = "what it made of the tensor " + in_quotes(error.details().tensor) +
                                 " is not what the source holds"});
  }
  trusts_plans_ = false;
  return true;
}

TileAnsCompression::PlannedFile TileAnsCompression::plan_file(std::size_t file_index) {
  PlannedFile file;
  file.name = file_names_[file_index];
  for (const std::size_t t : by_file_[file_index]) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[t];
    std::optional<PlannedTileAns> planned;
    if (is_candidate_[t]) planned = plan_tensor(t);
    if (!planned) {
      file.copies.push_back({t, file.specs.size()});
      file.specs.push_back({tensor.name, tensor.dtype, tensor.shape});
      if (is_candidate_[t]) --progress_.num_units;
    } else {
      std::vector<model::TensorSpec> specs = specs_of(tensor.name, *planned);
      file.containers.push_back({std::move(*planned), file.specs.size()});
      std::ranges::move(specs, std::back_inserter(file.specs));
    }
  }
  lay_out(file, checkpoint_.metadata_json(file_index));
  return file;
}

void TileAnsCompression::add_to_totals(const PlannedFile& file) {
  for (const PlannedFile::Container& container : file.containers) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[container.planned.tensor];
    const std::uint64_t bytes = container.planned.stored_bytes();
    is_compressed_[container.planned.tensor] = true;
    report_.unit_source_bytes += tensor.size_bytes;
    report_.unit_output_bytes += bytes;
    report_.units.push_back({tensor.name, tensor.num_elements(), bytes, tensor.size_bytes});
    output_tensor_bytes_ += bytes;
  }
  report_.num_units = report_.units.size();
  report_.num_kept_tensors += file.copies.size();
  for (const PlannedFile::Copy& copy : file.copies)
    output_tensor_bytes_ += checkpoint_.tensors()[copy.tensor].size_bytes;
  if (index_name_)
    for (const model::TensorSpec& spec : file.specs) weight_map_.emplace_back(spec.name, file.name);
}

void TileAnsCompression::lay_out(PlannedFile& file, const std::string& metadata_json) const {
  auto layout = model::plan_safetensors_layout(file.specs, metadata_json);
  if (!layout) {
    throw Error(layout.error().code,
                "the file " + in_quotes(file.name) + " cannot be made: " + layout.error().message);
  }
  file.layout = std::move(*layout);
  if (file.layout.header.size() - 8 > model::kMaxHeaderBytes || file.specs.size() > model::kMaxTensors) {
    throw Error(ErrorCode::kUnitTooLarge,
                "the file " + in_quotes(file.name) + " would need a header of more than " +
                    std::to_string(model::kMaxHeaderBytes) + " bytes or " +
                    std::to_string(model::kMaxTensors) +
                    " tensors, which no reader takes: choose fewer tensors (--include, --exclude)");
  }
  file.offsets_bytes.resize(file.specs.size());
  for (const model::TensorPlacement& placement : file.layout.tensors)
    file.offsets_bytes[placement.spec_index] = placement.offset_bytes;
}

std::optional<std::string> TileAnsCompression::make_index() const {
  if (!index_name_) return std::nullopt;
  auto sorted = weight_map_;
  std::ranges::sort(sorted);
  return model::make_weight_map(sorted, output_tensor_bytes_);
}

std::string TileAnsCompression::make_record() const {
  return make_tile_ans_record(checkpoint_, options_, is_compressed_);
}

void TileAnsCompression::finish_report() {
  report_.stages = times_.all();
  report_.device = device_->name();
  report_.why_device = device_->why();
  if (report_.units.empty())
    report_.notes.emplace_back(
        any_chosen_ || is_candidate_.empty()
            ? "no tensor would shrink, so all are stored as they are"
            : "no tensor of the source is chosen by --include, --exclude and --dtype, so "
              "all are stored as they are");
}

void TileAnsCompression::show_progress() {
  if (options_.on_progress) options_.on_progress(progress_);
}

TileAnsTensorCompressor::OnSlab TileAnsCompression::on_slab() {
  return [this](std::uint64_t num_bytes) {
    progress_.bytes_done += num_bytes;
    show_progress();
  };
}

}  // namespace weightpress::job
