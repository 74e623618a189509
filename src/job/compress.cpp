// The main job: model -> units -> files -> one rename.
//
// Folder layouts read, plan and write one unit after the other. Single-file layouts plan all units first:
// every refusal, every unit that is kept and every size is settled before the first byte of the output is
// written.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <weightpress/compress.h>

#include "host/decode.h"
#include "host/host_stages.h"
#include "job/checkpoint_source.h"
#include "job/coding_options.h"
#include "job/machine_trouble.h"
#include "job/model_plan.h"
#include "job/output.h"
#include "job/output_record.h"
#include "job/output_rules.h"
#include "job/process_memory.h"
#include "job/tensor_file.h"
#include "job/unit_verifier.h"
#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/config_json.h"
#include "model/definition.h"
#include "model/df11_model.h"
#include "model/safetensors_header.h"
#include "model/safetensors_layout.h"
#include "model/tensor_hashes.h"
#include "model/text.h"
#include "model/units.h"

namespace weightpress {
namespace {

namespace fs = std::filesystem;
using job::kConfigName;
using job::kGenerationConfigName;
using model::in_quotes;
using model::printable;

constexpr std::string_view kFileSuffix = ".safetensors";
// Histograms of segments that a plan of many units may keep; beyond it units are counted again.
constexpr std::uint64_t kMaxKeptHistogramBytes = std::uint64_t{64} << 20;
// Tensors are hashed together once there are so many bytes of them for each thread, or so many open files:
// the buffers of one unit, of which one is by far the longest, would keep few threads busy. Little enough to
// be read back from memory.
constexpr std::uint64_t kHashBatchBytesPerThread = std::uint64_t{128} << 20;
constexpr std::size_t kMaxHashBatchFiles = 64;

/// What a unit of its own cannot hold. --keep-unencodable stores such a unit as it is.
bool is_unencodable(ErrorCode code) {
  return code == ErrorCode::kUnsupportedDtype || code == ErrorCode::kExponentTooLarge ||
         code == ErrorCode::kUnitTooLarge || code == ErrorCode::kStreamTooLong ||
         code == ErrorCode::kEmptyUnit;
}

class CompressJob {
 public:
  explicit CompressJob(const CompressOptions& options)
      : options_(options),
        checkpoint_(model::Checkpoint::open(options.source)),
        plan_(job::plan_model(checkpoint_, {options.arch, options.layout, options.cast_to_bf16})),
        num_threads_(host::usable_num_threads(options.num_threads)),
        stages_(num_threads_),
        decode_stage_(num_threads_) {
    compressor_options_.coding = job::coding_options(options.luts, options.strict_identity);
  }

  CompressReport run() {
    const auto start = std::chrono::steady_clock::now();
    const fs::path path = job::resolve_output(options_.output);
    const bool is_file = path.native().ends_with(kFileSuffix);
    if (is_file && !model::is_single_file(plan_.definition.layout)) {
      throw Error(ErrorCode::kUsage, "the output " + printable(options_.output.native()) +
                                         " ends in .safetensors, but the layout " + plan_.definition.layout +
                                         " writes a folder: name a folder, or choose --layout comfyui");
    }
    settle_units();
    const std::optional<std::string> config = make_config();
    std::optional<std::string> generation_config;
    if (plan_.definition.layout == "transformers")
      generation_config = job::read_beside_source(checkpoint_, kGenerationConfigName);
    begin_report();

    const std::string record_name = is_file ? job::record_name_beside(path) : std::string(job::kRecordName);
    std::vector<job::OutputFile::SideFile> side_files = {{.name = record_name, .is_record = true}};
    if (config) side_files.push_back({.name = std::string(kConfigName), .content = *config});
    check_output_is_apart(path, is_file ? side_files : std::vector<job::OutputFile::SideFile>());
    if (is_file) job::check_not_in_source(options_.output, path, options_.source);
    if (is_file && config && fs::weakly_canonical(checkpoint_.folder()) == path.parent_path()) {
      throw Error(
          ErrorCode::kUsage,
          "config.json, which goes beside the output " + printable(options_.output.native()) +
              ", would lie beside the source and be taken for the source's own: write into another folder");
    }
    std::unique_ptr<job::Output> output;
    if (is_file) {
      output = std::make_unique<job::OutputFile>(path, side_files, options_.force);
    } else {
      output = std::make_unique<job::OutputFolder>(path, options_.force);
    }
    report_.removed_remains = output->removed_remains();

    if (options_.on_planned) options_.on_planned(report_);
    job::write_or_discard(*output, path, has_written_, [&] {
      write(*output, is_file ? path.filename().string() : leftover_file_name(plan_.definition));
      if (generation_config) write_file(*output, kGenerationConfigName, *generation_config);
      if (config) write_file(*output, kConfigName, *config);
      finish_report();
      write_file(*output, record_name,  // last: with it the output is complete
                 job::make_output_record({checkpoint_, plan_, options_, kept_units_, own_coding_}));
      for (const model::File& file : checkpoint_.files()) file.check_unchanged();
    });
    report_.old_output_left = output->finish();
    report_.peak_memory_bytes = job::peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // ---- before anything is written

  /// Units of which headers tell that they cannot be encoded are refused or kept.
  void settle_units() {
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
  void check_header_size() const {
    if (!model::is_single_file(plan_.definition.layout)) return;
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
                    std::to_string(plan_.assignment.units.size()) +
                    " units would need a header of more than " + std::to_string(model::kMaxHeaderBytes) +
                    " bytes, which no reader takes: choose a layout of folders (--layout diffusers)" +
                    (options_.hashes ? ", or leave out --hashes" : ""));
  }

  ErrorDetails dtype_error(const model::Unit& unit, std::size_t tensor_index) const {
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
  std::string file_of(const model::SourceTensor& tensor) const {
    const fs::path& path = checkpoint_.files()[tensor.file_index].path();
    return printable(options_.keep_unencodable ? path.filename().native() : path.native());
  }

  /// Notes that a unit is kept, if that is asked for and possible.
  void keep_or_throw(const model::Unit& unit, ErrorDetails error) {
    if (!options_.keep_unencodable || !is_unencodable(error.code)) throw Error(std::move(error));
    kept_units_.push_back({unit.name, {error.message}});
  }

  void check_something_is_left() const {
    if (!plan_.assignment.units.empty()) return;
    throw Error(ErrorCode::kUnsupportedDtype,
                printable(options_.source.native()) +
                    ": none of its units can be compressed, so there is nothing to do; the first: " +
                    kept_units_.front().reasons.front());
  }

  std::optional<std::string> make_config() {
    const std::string& layout = plan_.definition.layout;
    const bool is_spliced = layout == "transformers" || options_.with_config;
    if (layout == "comfyui" && !options_.with_config) return std::nullopt;
    if (is_spliced && !plan_.config && layout == "comfyui")
      plan_.config = job::read_source_config(checkpoint_);
    report_.lacks_source_config = is_spliced && !plan_.config;
    if (layout == "transformers" && !plan_.config && fs::is_directory(options_.source)) {
      throw Error(ErrorCode::kNotFound, "the folder " + printable(options_.source.native()) + " has no " +
                                            std::string(kConfigName) +
                                            ", which the transformers layout needs: copy the model's there");
    }
    if (is_spliced) {
      return model::splice_dfloat11_config(plan_.config ? std::optional(plan_.config->text) : std::nullopt,
                                           plan_.definition, (checkpoint_.folder() / kConfigName).string())
          .value();
    }
    std::optional<std::string> model_type;
    if (plan_.config && plan_.config->strings.contains("model_type"))
      model_type = plan_.config->strings.at("model_type");
    return model::make_diffusers_config(model_type, plan_.definition);
  }

  void check_output_is_apart(const fs::path& output,
                             const std::vector<job::OutputFile::SideFile>& side_files) const {
    std::vector<fs::path> written = {output};
    for (const auto& side : side_files) written.push_back(output.parent_path() / side.name);
    std::vector<fs::path> inputs = {options_.source};
    if (model::names_definition_file(options_.arch)) inputs.emplace_back(options_.arch);
    for (const model::File& file : checkpoint_.files()) inputs.push_back(file.path());
    for (const std::string_view name : {kConfigName, kGenerationConfigName})
      if (fs::path path = checkpoint_.folder() / name; fs::exists(path)) inputs.push_back(std::move(path));
    job::check_inputs_stay(options_.output, written, inputs);
  }

  // ---- layouts

  /// single_file: the name of the one file in such layouts.
  void write(job::Output& output, const std::string& single_file) {
    if (model::is_single_file(plan_.definition.layout)) {
      write_single_file(output, single_file);
    } else {
      write_folder(output);
    }
  }

  void write_folder(job::Output& output) {
    std::vector<std::size_t> kept;
    for (std::size_t u = 0; u < plan_.assignment.units.size(); ++u)
      if (!write_shard(plan_.assignment.units[u], output)) kept.push_back(u);
    model::keep_units(kept, plan_.assignment);
    check_something_is_left();
    drop_tied_duplicate();

    auto file = make_file(output, leftover_file_name(plan_.definition));
    file->add_tensors(plan_.assignment.leftover);
    file->lay_out(model::kPytorchMetadata, options_.hashes);
    create(*file);
    copy_tensors(*file);
    finish_file(std::move(file));
    finish_files();
  }

  /// Returns false if the unit is kept.
  bool write_shard(const model::Unit& unit, job::Output& output) {
    job::CheckpointSource source(checkpoint_, plan_.view, unit, num_threads_);
    const std::string name = printable(unit.name);
    job::UnitCompressor compressor(name, source, stages_, buffers_, compressor_options_);
    begin_unit(unit, CompressPhase::kCompressing);
    Result<df11::UnitPlan> plan = compressor.plan();
    if (!plan) {
      keep_or_throw(unit, located(std::move(plan.error()), unit, source));
      progress_.total_bytes -= 2 * unit.num_weights;  // its tensors are copied with the rest
      progress_.total_bytes += kept_bytes(unit.tensors);
      return false;
    }
    cast_counts_ += source.cast_counts();
    auto file = make_file(output, model::unit_file_name(unit.name));
    file->add_unit(unit, *plan);
    file->lay_out({}, options_.hashes);
    create(*file);
    encode(unit, compressor, *plan, *file, 0);
    file->end_unit(0);
    end_unit(unit, *plan);
    copy_tensors(*file);
    finish_file(std::move(file));
    return true;
  }

  /// A unit of a single-file layout between its plan and its turn to be encoded.
  struct PlannedUnit {
    PlannedUnit(model::Unit planned_unit, CompressJob& job)
        : unit(std::move(planned_unit)),
          name(printable(unit.name)),
          source(job.checkpoint_, job.plan_.view, unit, job.num_threads_),
          compressor(name, source, job.stages_, job.buffers_, job.compressor_options_) {}

    const model::Unit unit;  // its own: units that are kept are taken out of the assignment meanwhile
    std::string name;
    job::CheckpointSource source;
    job::UnitCompressor compressor;
    std::optional<df11::UnitPlan> plan;
  };

  void write_single_file(job::Output& output, const std::string& file_name) {
    std::vector<std::unique_ptr<PlannedUnit>> planned;
    std::vector<std::size_t> kept;
    std::uint64_t histogram_bytes = 0;
    for (std::size_t u = 0; u < plan_.assignment.units.size(); ++u) {
      const model::Unit& unit = plan_.assignment.units[u];
      auto next = std::make_unique<PlannedUnit>(unit, *this);
      begin_unit(unit, CompressPhase::kPlanning);
      Result<df11::UnitPlan> plan = next->compressor.plan(on_slab());
      if (!plan) {
        keep_or_throw(unit, located(std::move(plan.error()), unit, next->source));
        kept.push_back(u);
        continue;
      }
      cast_counts_ += next->source.cast_counts();
      next->plan = std::move(*plan);
      histogram_bytes += next->compressor.histogram_bytes();
      if (histogram_bytes > kMaxKeptHistogramBytes) next->compressor.release_histograms();
      planned.push_back(std::move(next));
      ++progress_.units_done;
    }
    model::keep_units(kept, plan_.assignment);
    check_something_is_left();

    drop_tied_duplicate();

    auto file = make_file(output, file_name);
    for (const auto& unit : planned) file->add_unit(unit->unit, *unit->plan);
    file->add_tensors(plan_.assignment.leftover);
    file->lay_out({}, options_.hashes);
    job::check_free_space(options_.output, output, file->file_bytes());
    create(*file);
    progress_.units_done = 0;
    // From the last one, whose weights are still in memory, to the first.
    for (std::size_t u = planned.size(); u-- > 0;) {
      PlannedUnit& next = *planned[u];
      begin_unit(next.unit, CompressPhase::kCompressing);
      encode(next.unit, next.compressor, *next.plan, *file, u);
      file->end_unit(u);
      if (file->unhashed_bytes() >= hash_batch_bytes())
        job::TensorFile::hash_written(std::array{file.get()}, num_threads_);
      end_unit(next.unit, *next.plan);
      planned[u].reset();
    }
    copy_tensors(*file);
    finish_file(std::move(file));
    finish_files();
  }

  // ---- parts of both

  /// Writes a unit and, unless that is not wanted, reads it back through the decoder and compares.
  void encode(const model::Unit& unit, job::UnitCompressor& compressor, const df11::UnitPlan& plan,
              job::TensorFile& file, std::size_t number) {
    std::optional<job::UnitVerifier> verifier;
    job::UnitCompressor::OnWritten on_written;
    if (options_.verify) {
      on_written = [&](std::span<const std::uint16_t> weights,
                       const job::WrittenSoFar& written) -> Result<void> {
        // Once the tables are written, which the verifier reads.
        if (!verifier) verifier.emplace(plan, file.stored(number), decode_stage_, decode_buffers_);
        if (const auto fault = verifier->add(weights, written)) return not_verified(unit, *fault);
        return {};
      };
    }
    if (auto encoded = compressor.encode(plan, file.sink(number), on_slab(), on_written); !encoded)
      throw Error(std::move(encoded.error()));
  }

  static Unexpected not_verified(const model::Unit& unit, const job::UnitFault& fault) {
    return Unexpected(ErrorDetails{
        .code = ErrorCode::kVerificationFailed,
        .message = "unit " + in_quotes(unit.name) +
                   ": what was written does not read back as the source: " + fault.message +
                   "; the disk or the memory of this machine is faulty, or this is a bug of weightpress: "
                   "please report it if it happens again",
        .unit = unit.name,
        .offset = fault.weight});
  }

  /// A tied lm_head that is stored beside the embedding goes, as save_pretrained does it.
  void drop_tied_duplicate() {
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
      if (!job::same_content(checkpoint_, tensor, plan_.view.tensors[*embedding])) return;
      plan_.view.dropped.push_back({tensor.source_index,
                                    "it equals " + in_quotes(model::kEmbeddingName) +
                                        ", and config.json ties the two, so that save_pretrained drops it",
                                    checkpoint_.tensors()[other].name});
    }
    progress_.total_bytes -= tensor.size_bytes();
    leftover.erase(head);
  }

  /// Names the tensor in errors that point at a weight, and the option that helps.
  ErrorDetails located(ErrorDetails error, const model::Unit& unit,
                       const job::CheckpointSource& source) const {
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

  ErrorDetails with_advice(ErrorDetails error) const {
    if (is_unencodable(error.code) && !options_.keep_unencodable)
      error.message += "; --keep-unencodable stores such units as they are";
    return error;
  }

  void copy_tensors(job::TensorFile& file) {
    progress_.phase = CompressPhase::kCopying;
    progress_.unit.clear();
    file.copy_tensors([this](std::uint64_t bytes) {
      progress_.bytes_done += bytes;
      show_progress();
    });
    cast_counts_ += file.cast_counts();
  }

  void create(job::TensorFile& file) {
    has_written_ = true;
    file.create();
  }

  std::unique_ptr<job::TensorFile> make_file(const job::Output& output, std::string_view name) const {
    return std::make_unique<job::TensorFile>(checkpoint_, plan_.view, output.file(name), num_threads_,
                                             options_.verify);
  }

  std::uint64_t hash_batch_bytes() const {
    return kHashBatchBytesPerThread * static_cast<std::uint64_t>(num_threads_);
  }

  /// All of the file but hashes is written. It may be finished together with later ones.
  void finish_file(std::unique_ptr<job::TensorFile> file) {
    report_.output_bytes += file->file_bytes();
    unhashed_bytes_ += file->unhashed_bytes();
    unfinished_.push_back(std::move(file));
    if (!options_.hashes || unhashed_bytes_ >= hash_batch_bytes() || unfinished_.size() == kMaxHashBatchFiles)
      finish_files();
  }

  void finish_files() {
    std::vector<job::TensorFile*> files;
    for (const auto& file : unfinished_) files.push_back(file.get());
    job::TensorFile::hash_written(files, num_threads_);
    for (job::TensorFile* file : files) file->finish();
    unfinished_.clear();
    unhashed_bytes_ = 0;
  }

  void write_file(job::Output& output, std::string_view name, std::string_view content) {
    model::write_whole_file(output.file(name), content);
    report_.output_bytes += content.size();
  }

  // ---- progress and report

  void show_progress() {
    if (options_.on_progress) options_.on_progress(progress_);
  }

  void begin_unit(const model::Unit& unit, CompressPhase phase) {
    progress_.phase = phase;
    progress_.unit = unit.name;
    show_progress();
  }

  job::UnitCompressor::OnSlab on_slab() {
    return [this](std::uint64_t num_weights) {
      progress_.bytes_done += 2 * num_weights;
      show_progress();
    };
  }

  std::uint64_t kept_bytes(const std::vector<std::size_t>& tensors) const {
    std::uint64_t bytes = 0;
    for (const std::size_t index : tensors) bytes += plan_.view.tensors[index].size_bytes();
    return bytes;
  }

  void end_unit(const model::Unit& unit, const df11::UnitPlan& plan) {
    std::vector<std::string> reasons;
    for (const df11::RescueReason reason : plan.rescues)
      reasons.emplace_back(df11::rescue_reason_text(reason));
    if (plan.ambiguous_limiter) {
      reasons.emplace_back(
          "codes above 32 bits were shortened, and the official choice among equally rare "
          "exponents depends on numpy's version; this is one of the valid results");
    }
    for (const std::string& reason : reasons) report_.remarks.push_back({unit.name, reason});
    if (!reasons.empty()) own_coding_.push_back({unit.name, std::move(reasons)});
    report_.unit_source_bytes += 2 * unit.num_weights;
    report_.unit_output_bytes += plan.tables.size_bytes() + plan.layout.num_bytes + plan.layout.num_weights +
                                 plan.layout.positions_bytes() + plan.layout.gaps_bytes +
                                 8 * (unit.tensors.size() - 1);
    ++progress_.units_done;
  }

  void begin_report() {
    report_.definition = plan_.definition.name;
    report_.why = plan_.why;
    for (const model::AlsoFits& other : plan_.also_fits)
      report_.also_fits.push_back({other.name, other.same_bytes, other.difference});
    report_.notes = plan_.notes;
    for (const model::DroppedTensor& dropped : plan_.view.dropped)
      report_.dropped.push_back({checkpoint_.tensors()[dropped.source_index].name, dropped.reason});
    report_.layout = plan_.definition.layout;
    report_.num_threads = num_threads_;
    report_.source_bytes = checkpoint_.total_bytes();
    progress_.num_units = plan_.assignment.units.size();
    progress_.total_bytes = kept_bytes(plan_.assignment.leftover);
    for (const model::Unit& unit : plan_.assignment.units) {
      progress_.total_bytes += (model::is_single_file(plan_.definition.layout) ? 4 : 2) * unit.num_weights;
      progress_.total_bytes += kept_bytes(unit.siblings);
    }
  }

  void finish_report() {
    const auto count_cast = [&](const std::vector<std::size_t>& tensors) {
      for (const std::size_t index : tensors) {
        const model::ModelTensor& tensor = plan_.view.tensors[index];
        report_.cast.num_tensors +=
            !tensor.is_tied_copy && tensor.dtype != checkpoint_.tensors()[tensor.source_index].dtype;
      }
    };
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
    for (const job::UnitReasons& unit : kept_units_)
      report_.kept_units.push_back({unit.unit, unit.reasons.front()});
    for (std::size_t i = report_.dropped.size(); i < plan_.view.dropped.size(); ++i) {
      const model::DroppedTensor& dropped = plan_.view.dropped[i];
      report_.dropped.push_back({checkpoint_.tensors()[dropped.source_index].name, dropped.reason});
    }
    if (report_.cast.num_tensors != 0 && plan_.config && plan_.definition.layout != "comfyui") {
      for (const char* key : {"torch_dtype", "dtype"}) {
        const auto found = plan_.config->strings.find(key);
        if (found != plan_.config->strings.end() && found->second != "bfloat16")
          report_.notes.push_back("config.json still says " + in_quotes(key) + ": " +
                                  in_quotes(found->second));
      }
    }
    if (report_.output_bytes > report_.source_bytes)
      report_.notes.emplace_back("the output is larger than the source");
  }

  const CompressOptions& options_;
  const model::Checkpoint checkpoint_;
  job::ModelPlan plan_;
  const int num_threads_;
  host::HostStages stages_;
  host::HostDecodeStage decode_stage_;
  job::SlabBuffers buffers_;
  job::DecodeBuffers decode_buffers_;
  job::UnitCompressorOptions compressor_options_;
  bool has_written_ = false;
  model::CastCounts cast_counts_;
  std::vector<job::UnitReasons> kept_units_;
  std::vector<job::UnitReasons> own_coding_;
  std::vector<std::unique_ptr<job::TensorFile>> unfinished_;  // written but for their hashes
  std::uint64_t unhashed_bytes_ = 0;                          // in these
  CompressReport report_;
  CompressProgress progress_;
};

}  // namespace

CompressReport compress(const CompressOptions& options) {
  return job::telling_trouble(options.source, "to compress it", [&] {
    job::check_identity_options(options.luts, options.strict_identity);
    if (options.strict_identity && options.hashes) {
      throw Error(
          ErrorCode::kUsage,
          "--strict-identity and --hashes contradict each other, since official files hold no hashes: "
          "leave one out");
    }
    if (!options.layout.empty() && !std::ranges::count(model::kLayouts, options.layout)) {
      throw Error(ErrorCode::kUsage, "there is no layout " + in_quotes(options.layout) +
                                         ": it must be transformers, diffusers, diffusers-single or comfyui");
    }
    return CompressJob(options).run();
  });
}

}  // namespace weightpress
