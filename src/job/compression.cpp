#include "job/compression.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "host/decode.h"
#include "job/coding_options.h"
#include "job/free_memory.h"
#include "job/process_memory.h"
#include "job/tile_ans_jobs.h"
#include "model/architectures.h"
#include "model/config_json.h"
#include "model/safetensors_header.h"
#include "model/safetensors_layout.h"
#include "model/tensor_hashes.h"
#include "model/text.h"

namespace weightpress {

std::string_view stage_name(Stage stage) {
  static constexpr std::array<std::string_view, kNumStages> kNames = {
      "read", "histogram", "encode", "verify", "write", "copy", "sync"};
  return kNames[static_cast<std::size_t>(stage)];
}

namespace job {
namespace {

namespace fs = std::filesystem;
using model::in_quotes;
using model::printable;

/// What a unit of its own cannot hold. --keep-unencodable stores such a unit as it is.
bool is_unencodable(ErrorCode code) {
  return code == ErrorCode::kUnsupportedDtype || code == ErrorCode::kExponentTooLarge ||
         code == ErrorCode::kUnitTooLarge || code == ErrorCode::kStreamTooLong ||
         code == ErrorCode::kEmptyUnit;
}

// docs/benchmarking.md, "Tuned constants": 256 MiB, which most layers fit.
constexpr std::uint64_t kMaxHeldOfCached = std::uint64_t{128} << 20;

// More than the disk brings while a unit is encoded, and less than a page cache that is short would drop
// again.
constexpr std::uint64_t kMaxReadAheadBytes = std::uint64_t{256} << 20;

}  // namespace

Compression::Compression(const CompressOptions& options, Purpose purpose)
    : options_(options),
      purpose_(purpose),
      checkpoint_(model::Checkpoint::open(options.source)),
      plan_(plan_model(checkpoint_, {options.arch, options.layout, options.cast_to_bf16})) {
  compressor_options_.coding = coding_options(options.luts, options.strict_identity);
}

bool Compression::is_single_file() const {
  return model::is_single_file(plan_.definition.layout);
}

// ---- before a weight is read

void Compression::settle() {
  device_ = choose_device(options_.device);
  settle_units();
  make_config();
  plan_memory_use();
  begin_report();
}

void Compression::settle_units() {
  std::vector<std::size_t> kept;
  for (std::size_t u = 0; u < plan_.assignment.units.size(); ++u) {
    const model::Unit& unit = plan_.assignment.units[u];
    if (const auto other = model::find_not_bf16(unit, plan_.view.tensors)) {
      keep_or_throw(unit, dtype_error(unit, *other));
    } else if (auto sizes = df11::check_num_weights(printable(unit.name), unit.num_weights,
                                                    compressor_options_.coding.limits);
               !sizes) {
      keep_or_throw(unit, with_advice(std::move(sizes.error())));
    } else {
      continue;
    }
    kept.push_back(u);
  }
  model::keep_units(kept, plan_.assignment);
  check_something_is_left();
  check_header_size();
}

/// A single file of too many units is refused before they are counted.
void Compression::check_header_size() const {
  if (!is_single_file()) return;
  constexpr std::uint64_t kEntryBytes = 50;  // of a header, at least, without the name
  const auto entry_bytes = [&](const std::string& name) {
    return kEntryBytes + name.size() + (options_.hashes ? model::hash_member_bytes(name) : 0);
  };
  std::uint64_t bytes = 0;
  for (const model::ModelTensor& tensor : plan_.view.tensors) bytes += entry_bytes(tensor.name);
  for (const model::Unit& unit : plan_.assignment.units) {
    bytes += model::kNumDf11Buffers * entry_bytes(unit.name);
    for (const std::size_t index : unit.tensors) bytes -= entry_bytes(plan_.view.tensors[index].name);
  }
  if (bytes <= model::kMaxHeaderBytes) return;
  throw Error(ErrorCode::kUnitTooLarge,
              printable(options_.source.native()) + ": one file of " +
                  std::to_string(plan_.assignment.units.size()) + " units would need a header of more than " +
                  std::to_string(model::kMaxHeaderBytes) +
                  " bytes, which no reader takes: choose a layout of folders (--layout diffusers)" +
                  (options_.hashes ? ", or leave out --hashes" : ""));
}

ErrorDetails Compression::dtype_error(const model::Unit& unit, std::size_t tensor_index) const {
  const model::ModelTensor& tensor = plan_.view.tensors[tensor_index];
  const model::SourceTensor& source = checkpoint_.tensors()[tensor.source_index];
  const std::string dtype(model::dtype_name(tensor.dtype));
  const auto others = std::ranges::count_if(unit.tensors, [&](std::size_t index) {
    return plan_.view.tensors[index].dtype != model::Dtype::kBf16;
  });
  std::string message = "unit " + in_quotes(unit.name) + ": its tensor " + in_quotes(source.name) + " in " +
                        file_of(source) + " is " + dtype;
  if (others > 1)
    message += " (as are others: " + std::to_string(others) + " of its " +
               std::to_string(unit.tensors.size()) + " tensors are not BF16)";
  message += ", and DF11 holds only BF16 weights";
  ErrorDetails error{.code = ErrorCode::kUnsupportedDtype, .unit = unit.name, .tensor = source.name};
  const bool can_cast = model::can_cast_to_bf16(tensor.dtype);
  // Of no help if nothing would be left to compress.
  const bool keep_helps = !options_.keep_unencodable &&
                          std::ranges::any_of(plan_.assignment.units, [&](const model::Unit& other_unit) {
                            return !model::find_not_bf16(other_unit, plan_.view.tensors);
                          });
  const std::string keep = keep_helps ? ", --keep-unencodable stores such units as they are" : "";
  if (options_.keep_unencodable) {
    error.message = message;
  } else if (can_cast && !options_.cast_to_bf16) {
    error.message = message + ": --cast-to-bf16 rounds all F32 and F16 tensors (a loss)" + keep;
  } else if (model::dtype_bits(tensor.dtype) <= 8) {
    error.message = message + ": compress the original checkpoint, not one that is quantised" + keep;
  } else {
    error.message =
        message + (can_cast ? " (the definition's rule keep_dtype excludes it from the cast)" : "") + keep;
  }
  return error;
}

/// The file of a tensor, for messages. Reasons that are recorded hold no paths.
std::string Compression::file_of(const model::SourceTensor& tensor) const {
  const fs::path& path = checkpoint_.files()[tensor.file_index].path();
  return printable(options_.keep_unencodable ? path.filename().native() : path.native());
}

/// Notes that a unit is kept, if that is asked for and possible.
void Compression::keep_or_throw(const model::Unit& unit, ErrorDetails error) {
  if (!options_.keep_unencodable || !is_unencodable(error.code)) throw Error(std::move(error));
  kept_units_.push_back({unit.name, {error.message}});
}

void Compression::check_something_is_left() const {
  if (!plan_.assignment.units.empty()) return;
  throw Error(ErrorCode::kUnsupportedDtype,
              printable(options_.source.native()) +
                  ": none of its units can be compressed, so there is nothing to do; the first: " +
                  kept_units_.front().reasons.front());
}

void Compression::make_config() {
  const std::string& layout = plan_.definition.layout;
  const bool is_spliced = layout == "transformers" || options_.with_config;
  if (layout == "transformers") generation_config_ = read_beside_source(checkpoint_, kGenerationConfigName);
  if (layout == "comfyui" && !options_.with_config) return;
  if (is_spliced && !plan_.config && layout == "comfyui") plan_.config = read_source_config(checkpoint_);
  report_.lacks_source_config = is_spliced && !plan_.config;
  if (layout == "transformers" && !plan_.config && fs::is_directory(options_.source)) {
    throw Error(ErrorCode::kNotFound, "the folder " + printable(options_.source.native()) + " has no " +
                                          std::string(kConfigName) +
                                          ", which the transformers layout needs: copy the model's there");
  }
  if (is_spliced) {
    config_ = model::splice_dfloat11_config(plan_.config ? std::optional(plan_.config->text) : std::nullopt,
                                            plan_.definition, (checkpoint_.folder() / kConfigName).string())
                  .value();
    return;
  }
  std::optional<std::string> model_type;
  if (plan_.config && plan_.config->strings.contains("model_type"))
    model_type = plan_.config->strings.at("model_type");
  config_ = model::make_diffusers_config(model_type, plan_.definition);
}

/// At most, of lists that grow with the model: tensors' places, headers and records as text, plans of units.
std::uint64_t Compression::lists_bytes() const {
  const auto escaped_bytes = [](const std::string& name) {
    std::uint64_t bytes = name.size();
    for (const char c : name)
      if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\') bytes += 5;
    return bytes;
  };
  // A text that grows takes three times its length while it moves.
  constexpr std::uint64_t kGrowth = 3;
  std::uint64_t bytes = std::uint64_t{1} << 20;
  for (const model::SourceTensor& tensor : checkpoint_.tensors())
    bytes += kGrowth * (2 * escaped_bytes(tensor.name) + 200);  // in weightpress.json
  for (const model::DroppedTensor& dropped : plan_.view.dropped)
    bytes += (kGrowth + 2) * (escaped_bytes(dropped.reason) + escaped_bytes(dropped.tied_to)) + 300;
  const auto header_bytes = [&](const std::string& name) {
    return (kGrowth + 1) *
               (escaped_bytes(name) + 100 + (options_.hashes ? 6 * model::hash_member_bytes(name) : 0)) +
           name.size() + 300;
  };
  for (const model::ModelTensor& tensor : plan_.view.tensors)
    bytes += header_bytes(tensor.name) + kGrowth * escaped_bytes(tensor.name);
  const std::uint64_t unit_bytes = is_single_file() ? 16'000 : 3'000;
  for (const model::Unit& unit : plan_.assignment.units)
    bytes += model::kNumDf11Buffers * header_bytes(unit.name) + 4 * unit.name.size() + unit_bytes;
  for (std::size_t file = 0; file < checkpoint_.files().size(); ++file)
    bytes += (kGrowth + 1) * checkpoint_.metadata_json(file).size();
  return bytes;
}

/// What a GPU's driver takes of the host's memory is in use already. Where that leaves too little, the CPU
/// does the work, unless the GPU was asked for.
MemoryPlan Compression::plan_memory_beside_gpu(MemoryRequest request) {
  if (!device_.gpus.empty()) {
    MemoryRequest beside = request;
    beside.held_weights = 0;  // units stay in the GPU's memory
    auto plan = job::plan_memory(beside);
    if (plan) return *plan;
    if (device_.is_required) {
      throw Error(plan.error().code,
                  plan.error().message + " (with the GPU's driver, which is in it; --device cpu needs less)");
    }
    device_.gpus.clear();
    device_.why = device_.name + " leaves too little of the memory that may be used";
    device_.name = "cpu";
    request.resident_bytes = resident_memory_bytes();
    plan = job::plan_memory(request);
    if (plan) return *plan;
    throw Error(plan.error().code,
                plan.error().message + " (a GPU's driver was loaded before; --device cpu needs less)");
  }
  return job::plan_memory(request).value();
}

void Compression::plan_memory_use() {
  const int wanted_threads = host::usable_num_threads(options_.num_threads);
  const FreeMemory free = find_free_memory();
  MemoryRequest request;
  request.ram_bytes = options_.ram_bytes;
  report_.memory.why = "it was given";
  if (options_.ram_bytes == 0) {
    request.ram_bytes = free.bytes / 10 * 6;
    report_.memory.why = "60% of what is free (" + free.source + ")";
  }
  request.peak_bytes = peak_memory_bytes();
  request.resident_bytes = resident_memory_bytes();
  request.lists_bytes = lists_bytes();
  request.num_threads = wanted_threads;
  const bool writes = purpose_ == Purpose::kWrite;
  request.decodes = writes && options_.verify;
  request.holds_many_units = writes && is_single_file();
  for (const model::Unit& unit : plan_.assignment.units) {
    request.longest_unit_weights = std::max(request.longest_unit_weights, unit.num_weights);
    request.held_weights += unit.num_weights;
  }
  if (!is_single_file()) request.held_weights = request.longest_unit_weights;
  if (!writes) request.held_weights = 0;  // they are read once
  // A source that the page cache keeps beside all else is cheaper to read from there again than to copy into
  // fresh memory; one that it cannot keep would come from the disk twice.
  const bool is_cached = free.bytes / 3 >= checkpoint_.total_bytes();
  if (is_cached) request.held_weights = std::min(request.held_weights, kMaxHeldOfCached);
  memory_ = plan_memory_beside_gpu(request);
  num_threads_ = memory_.num_threads;
  compressor_options_.slab_weights = memory_.slab_weights;
  compressor_options_.times = &times_;
  make_stages();
  held_ = std::make_unique<HeldWeights>(memory_.held_bytes);
  report_.memory.ram_bytes = memory_.ram_bytes;
  report_.memory.needed_bytes = memory_.needed_bytes;
  report_.memory.slab_weights = memory_.slab_weights;
  report_.memory.hold_bytes = memory_.held_bytes;
  if (num_threads_ < wanted_threads) {
    report_.notes.push_back("the memory that may be used is enough for " + std::to_string(num_threads_) +
                            " of " + std::to_string(wanted_threads) + " threads");
  }
}

// ---- units

Compression::PlannedUnit::PlannedUnit(model::Unit planned_unit, Compression& job)
    : unit(std::move(planned_unit)),
      name(printable(unit.name)),
      source(job.checkpoint_, job.plan_.view, unit, job.num_threads_, job.journal_ != nullptr),
      compressor(name, source, *job.stages_, job.buffers_, job.compressor_options_) {}

std::unique_ptr<Compression::PlannedUnit> Compression::plan_unit(std::size_t unit_index,
                                                                 CompressPhase phase) {
  const model::Unit& unit = plan_.assignment.units[unit_index];
  if (const std::string* reason = past_.kept(unit.name); reason != nullptr && options_.keep_unencodable) {
    keep_or_throw(unit, {.code = ErrorCode::kUnsupportedDtype, .message = *reason, .unit = unit.name});
    return nullptr;
  }
  std::unique_ptr<PlannedUnit> planned;
  if (const auto begun = ahead_.extract(unit_index)) {
    planned = std::move(begun.mapped());
  } else {
    planned = std::make_unique<PlannedUnit>(unit, *this);
  }
  begin_unit(unit, phase);
  if (!is_single_file()) held_->clear();
  if (const PlannedRecord* past = past_.planned(unit.name)) {
    if (auto plan = plan_again(planned->name, unit.num_weights, past->counts, compressor_options_.coding)) {
      planned->plan = std::move(*plan);
      planned->source_hash = past->source_hash;
      planned->is_from_past = true;
      cast_counts_ += past->cast;
      progress_.bytes_done += 2 * unit.num_weights;
      progress_.bytes_resumed += 2 * unit.num_weights;
    }
  }
  if (!planned->is_from_past) {
    Result<df11::UnitPlan> plan = count_and_plan(*planned, unit_index);
    if (!plan) {
      leave_gpu(*planned);
      keep_or_throw(unit, located(std::move(plan.error()), unit, planned->source));
      if (journal_ != nullptr) journal_->append(kept_line(unit.name, kept_units_.back().reasons.front()));
      return nullptr;
    }
    planned->plan = std::move(*plan);
    planned->source_hash = planned->source.source_hash();
    cast_counts_ += planned->source.cast_counts();
    if (journal_ != nullptr) {
      journal_->append(
          planned_line(unit.name, {planned->counts, planned->source.cast_counts(), planned->source_hash}));
    }
  }
  account(*planned);
  return planned;
}

void Compression::read_ahead(std::size_t unit_index) const {
  if (unit_index >= plan_.assignment.units.size()) return;
  const model::Unit& unit = plan_.assignment.units[unit_index];
  if (past_.planned(unit.name) != nullptr) return;
  std::uint64_t bytes = kMaxReadAheadBytes;
  for (const std::size_t index : unit.tensors) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[plan_.view.tensors[index].source_index];
    checkpoint_.will_need(tensor, bytes);
    bytes -= std::min(bytes, tensor.size_bytes);
    if (bytes == 0) return;
  }
}

std::vector<std::unique_ptr<Compression::PlannedUnit>> Compression::plan_all_units() {
  std::vector<std::unique_ptr<PlannedUnit>> planned;
  std::vector<std::size_t> kept;
  for (std::size_t u = 0; u < plan_.assignment.units.size(); ++u) {
    auto next = plan_unit(u, CompressPhase::kPlanning);
    if (!next) {
      kept.push_back(u);
      continue;
    }
    histogram_bytes_ += next->compressor.histogram_bytes();
    if (histogram_bytes_ > memory_.histogram_bytes) {
      histogram_bytes_ -= next->compressor.histogram_bytes();
      next->compressor.release_histograms();
    }
    planned.push_back(std::move(next));
    ++progress_.units_done;
  }
  keep_units(kept);
  return planned;
}

void Compression::keep_units(const std::vector<std::size_t>& kept) {
  model::keep_units(kept, plan_.assignment);
  check_something_is_left();
  drop_tied_duplicate();
}

std::unique_ptr<TensorFile> Compression::make_file(fs::path path) const {
  return std::make_unique<TensorFile>(checkpoint_, plan_.view, std::move(path), num_threads_,
                                      options_.verify);
}

std::unique_ptr<TensorFile> Compression::make_unit_file(fs::path path, const PlannedUnit& unit) const {
  auto file = make_file(std::move(path));
  file->add_unit(unit.unit, unit.plan);
  file->lay_out({}, options_.hashes);
  return file;
}

std::unique_ptr<TensorFile> Compression::make_leftover_file(fs::path path) const {
  auto file = make_file(std::move(path));
  file->add_tensors(plan_.assignment.leftover);
  file->lay_out(model::kPytorchMetadata, options_.hashes);
  return file;
}

std::unique_ptr<TensorFile> Compression::make_single_file(
    fs::path path, const std::vector<std::unique_ptr<PlannedUnit>>& units) const {
  auto file = make_file(std::move(path));
  for (const auto& unit : units) file->add_unit(unit->unit, unit->plan);
  file->add_tensors(plan_.assignment.leftover);
  file->lay_out({}, options_.hashes);
  return file;
}

std::string Compression::make_record() const {
  return make_output_record({checkpoint_, plan_, options_, kept_units_, own_coding_});
}

/// A tied lm_head that is stored beside the embedding goes, as save_pretrained does it.
void Compression::drop_tied_duplicate() {
  if (!plan_.config || !plan_.config->ties_word_embeddings()) return;
  std::vector<std::size_t>& leftover = plan_.assignment.leftover;
  const auto find = [&](std::string_view name) {
    return std::ranges::find_if(leftover,
                                [&](std::size_t index) { return plan_.view.tensors[index].name == name; });
  };
  const auto head = find(model::kLmHeadName), embedding = find(model::kEmbeddingName);
  if (head == leftover.end() || embedding == leftover.end()) return;
  const model::ModelTensor& tensor = plan_.view.tensors[*head];
  const std::size_t other = plan_.view.tensors[*embedding].source_index;
  if (!tensor.is_tied_copy) {
    if (!same_content(checkpoint_, tensor, plan_.view.tensors[*embedding])) return;
    plan_.view.dropped.push_back({tensor.source_index,
                                  "it equals " + in_quotes(model::kEmbeddingName) +
                                      ", and config.json ties the two, so that save_pretrained drops it",
                                  checkpoint_.tensors()[other].name});
  }
  progress_.total_bytes -= tensor.size_bytes();
  leftover.erase(head);
}

ErrorDetails Compression::located(ErrorDetails error, const model::Unit& unit,
                                  const CheckpointSource& source) const {
  error.unit = unit.name;
  if (error.offset != ErrorDetails::kNoOffset) {
    const auto [tensor_index, index] = source.locate(error.offset);
    const model::SourceTensor& tensor = checkpoint_.tensors()[tensor_index];
    error.tensor = tensor.name;
    error.message += ": the first is weight " + std::to_string(index) + " of tensor " +
                     printable(tensor.name) + " in " + file_of(tensor);
    error.offset = index;
  }
  return with_advice(std::move(error));
}

ErrorDetails Compression::with_advice(ErrorDetails error) const {
  if (is_unencodable(error.code) && !options_.keep_unencodable)
    error.message += "; --keep-unencodable stores such units as they are";
  return error;
}

void Compression::show_progress() {
  if (options_.on_progress) options_.on_progress(progress_);
}

void Compression::begin_unit(const model::Unit& unit, CompressPhase phase) {
  progress_.phase = phase;
  progress_.unit = unit.name;
  show_progress();
}

UnitCompressor::OnSlab Compression::on_slab() {
  return [this](std::uint64_t num_weights) {
    progress_.bytes_done += 2 * num_weights;
    show_progress();
  };
}

std::uint64_t Compression::kept_bytes(const std::vector<std::size_t>& tensors) const {
  std::uint64_t bytes = 0;
  for (const std::size_t index : tensors) bytes += plan_.view.tensors[index].size_bytes();
  return bytes;
}

void Compression::account(const PlannedUnit& planned) {
  const model::Unit& unit = planned.unit;
  const df11::UnitPlan& plan = planned.plan;
  std::vector<std::string> reasons;
  for (const df11::RescueReason reason : plan.rescues) reasons.emplace_back(df11::rescue_reason_text(reason));
  if (plan.ambiguous_limiter) {
    reasons.emplace_back(
        "codes above 32 bits were shortened, and the official choice among equally rare "
        "exponents depends on numpy's version; this is one of the valid results");
  }
  for (const std::string& reason : reasons) report_.remarks.push_back({unit.name, reason});
  if (!reasons.empty()) own_coding_.push_back({unit.name, std::move(reasons)});
  report_.unit_source_bytes += 2 * unit.num_weights;
  const std::uint64_t output_bytes = plan.tables.size_bytes() + plan.layout.num_bytes +
                                     plan.layout.num_weights + plan.layout.positions_bytes() +
                                     plan.layout.gaps_bytes + 8 * (unit.tensors.size() - 1);
  report_.unit_output_bytes += output_bytes;
  report_.units.push_back({unit.name, unit.num_weights, output_bytes, 2 * unit.num_weights});
}

void Compression::begin_report() {
  report_.definition = plan_.definition.name;
  report_.why = plan_.why;
  for (const model::AlsoFits& other : plan_.also_fits)
    report_.also_fits.push_back({other.name, other.same_bytes, other.difference});
  report_.notes.insert(report_.notes.begin(), plan_.notes.begin(), plan_.notes.end());
  for (const model::DroppedTensor& dropped : plan_.view.dropped)
    report_.dropped.push_back({checkpoint_.tensors()[dropped.source_index].name, dropped.reason});
  report_.layout = plan_.definition.layout;
  report_.num_threads = num_threads_;
  report_.source_bytes = checkpoint_.total_bytes();
  progress_.num_units = plan_.assignment.units.size();
  for (const model::Unit& unit : plan_.assignment.units) progress_.total_bytes += 2 * unit.num_weights;
  if (purpose_ == Purpose::kEstimate) return;
  if (is_single_file()) progress_.total_bytes *= 2;  // planned, then encoded
  progress_.total_bytes += kept_bytes(plan_.assignment.leftover);
  for (const model::Unit& unit : plan_.assignment.units) progress_.total_bytes += kept_bytes(unit.siblings);
}

void Compression::finish_report() {
  const auto count_cast = [&](const std::vector<std::size_t>& tensors) {
    for (const std::size_t index : tensors) {
      const model::ModelTensor& tensor = plan_.view.tensors[index];
      report_.cast.num_tensors +=
          !tensor.is_tied_copy && tensor.dtype != checkpoint_.tensors()[tensor.source_index].dtype;
    }
  };
  report_.stages = times_.all();
  report_.num_units = plan_.assignment.units.size();
  report_.num_kept_tensors = plan_.assignment.leftover.size();
  count_cast(plan_.assignment.leftover);
  for (const model::Unit& unit : plan_.assignment.units) {
    report_.num_kept_tensors += unit.siblings.size();
    count_cast(unit.tensors);
    count_cast(unit.siblings);
  }
  report_.cast.changed = cast_counts_.changed;
  report_.cast.overflowed = cast_counts_.overflowed;
  report_.cast.flushed_to_zero = cast_counts_.flushed_to_zero;
  for (const UnitReasons& unit : kept_units_) report_.kept_units.push_back({unit.unit, unit.reasons.front()});
  for (std::size_t i = report_.dropped.size(); i < plan_.view.dropped.size(); ++i) {
    const model::DroppedTensor& dropped = plan_.view.dropped[i];
    report_.dropped.push_back({checkpoint_.tensors()[dropped.source_index].name, dropped.reason});
  }
  if (report_.cast.num_tensors != 0 && plan_.config && plan_.definition.layout != "comfyui") {
    for (const char* key : {"torch_dtype", "dtype"}) {
      const auto found = plan_.config->strings.find(key);
      if (found != plan_.config->strings.end() && found->second != "bfloat16")
        report_.notes.push_back("config.json still says " + in_quotes(key) + ": " + in_quotes(found->second));
    }
  }
  if (report_.output_bytes > report_.source_bytes)
    report_.notes.emplace_back("the output is larger than the source");
}

void check_compress_options(const CompressOptions& options) {
  check_tile_ans_options(options);
  check_identity_options(options.luts, options.strict_identity);
  if (options.strict_identity && options.hashes) {
    throw Error(ErrorCode::kUsage,
                "--strict-identity and --hashes contradict each other, since official files hold no hashes: "
                "leave one out");
  }
  if (!options.layout.empty() && !std::ranges::count(model::kLayouts, options.layout)) {
    throw Error(ErrorCode::kUsage, "there is no layout " + in_quotes(options.layout) +
                                       ": it must be transformers, diffusers, diffusers-single or comfyui");
  }
}

}  // namespace job
}  // namespace weightpress
