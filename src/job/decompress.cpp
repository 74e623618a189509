// A DF11 output back into a checkpoint: record or names -> plan -> files laid out -> units decoded to their
// places -> the rest copied -> one rename.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <weightpress/decompress.h>

#include "host/host_stages.h"
#include "job/decode_device.h"
#include "job/machine_trouble.h"
#include "job/model_plan.h"
#include "job/output.h"
#include "job/output_record.h"
#include "job/output_rules.h"
#include "job/parallel_io.h"
#include "job/process_memory.h"
#include "job/record_file.h"
#include "job/restore_by_names.h"
#include "job/restore_by_record.h"
#include "job/restored_files.h"
#include "job/stored_unit.h"
#include "job/tile_ans_jobs.h"
#include "job/tile_ans_model.h"
#include "job/unit_decoder.h"
#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/config_json.h"
#include "model/df11_model.h"
#include "model/file.h"
#include "model/source_config.h"
#include "model/source_record.h"
#include "model/text.h"

namespace weightpress {
namespace {

namespace fs = std::filesystem;
using job::kConfigName;
using job::kGenerationConfigName;
using model::in_quotes;
using model::printable;

constexpr std::string_view kFileSuffix = ".safetensors";

class DecompressJob {
 public:
  explicit DecompressJob(const DecompressOptions& options)
      : options_(options),
        checkpoint_(model::Checkpoint::open(options.source, model::Df11Policy::kAccept)),
        model_(std::move(model::read_df11_model(checkpoint_).value())),
        source_is_folder_(fs::is_directory(options.source)),
        num_threads_(host::usable_num_threads(options.num_threads)) {}

  DecompressReport run() {
    const auto start = std::chrono::steady_clock::now();
    const fs::path path = job::resolve_output(options_.output);
    const bool is_file = path.native().ends_with(kFileSuffix);
    refuse_what_is_not_df11();
    read_side_files();
    make_plan();
    settle_config();
    if (is_file) name_single_file(path);
    job::RestoredFiles files(plan_);
    device_.emplace(job::choose_device(options_.device), num_threads_, options_.on_warning);
    begin_report();

    check_output_is_apart(path);
    if (is_file) job::check_not_in_source(options_.output, path, options_.source);
    std::unique_ptr<job::Output> output;
    if (is_file) {
      output = std::make_unique<job::OutputFile>(path, std::vector<job::OutputFile::SideFile>(),
                                                 options_.force, job::PartialFolder::Journaled::kNo);
    } else {
      output = std::make_unique<job::OutputFolder>(path, options_.force, own_names());
    }
    report_.removed_remains = output->removed_remains();
    if (options_.on_planned) options_.on_planned(report_);

    bool has_written = false;
    const auto was_written = [&] { return has_written; };
    job::write_or_discard(*output, job::AfterTrouble::kRemove, was_written, [&] {
      job::check_free_space(options_.output, *output, files.total_bytes());
      has_written = true;
      files.create(*output);
      for (const job::RestoredUnit& unit : plan_.units) decode(unit, files);
      for (const job::RestoredCopy& tensor : plan_.copies) copy(tensor, files);
      files.finish();
      report_.output_bytes += files.total_bytes();
      if (!is_file) write_side_files(*output);
      for (const model::File& file : checkpoint_.files()) file.check_unchanged();
    });
    report_.old_output_left = job::finish_or_tell(*output, job::AfterTrouble::kRemove);
    report_device();
    report_.peak_memory_bytes = job::peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // ---- before anything is written

  void refuse_what_is_not_df11() const {
    if (!model_.units.empty()) return;
    throw Error(ErrorCode::kUsage,
                printable(options_.source.native()) +
                    ": holds no DF11 unit and no Tile-ANS tensor, so there is nothing to "
                    "decompress: give the output of a compressor ('weightpress inspect' tells what a file "
                    "holds)");
  }

  /// config.json and generation_config.json go with a folder. Beside a file, config.json may be of another
  /// model: there it is only asked for names.
  void read_side_files() {
    std::optional<std::string> text;
    try {
      text = job::read_beside_source(checkpoint_, kConfigName);
      if (!text) return;
      auto plain =
          model::remove_dfloat11_config(*text, (checkpoint_.folder() / kConfigName).string()).value();
      naming_.pattern_dict = std::move(plain.pattern_dict);
      if (source_is_folder_) config_ = plain.text;
      config_is_models_ = plain.describes_model || !plain.had_dfloat11_config;
      naming_.config = std::move(model::parse_source_config(plain.text, "config.json").value());
    } catch (const Error&) {
      if (source_is_folder_) throw;
    }
    if (source_is_folder_) generation_config_ = job::read_beside_source(checkpoint_, kGenerationConfigName);
  }

  void make_plan() {
    const job::RecordFile file = job::find_record_file(checkpoint_, options_.source);
    if (file.path.empty()) {
      naming_.arch = options_.arch;
      naming_.source_shapes = options_.source_shapes;
      plan_ = job::plan_by_names(checkpoint_, model_, naming_);
      return;
    }
    record_ = file.path;
    plan_by(file);
    if (options_.arch != "auto" || !options_.source_shapes.empty()) {
      plan_.notes.push_back(printable(record_.native()) +
                            " tells names and shapes: --arch and --source-shapes are not looked at");
    }
  }

  /// A record that is of no use is an error: names and shapes are lost without it.
  void plan_by(const job::RecordFile& file) {
    const std::string name = file.path.string();
    const std::string text = model::read_whole_file(file.path, model::kMaxSourceRecordBytes);
    try {
      const model::SourceRecord record = std::move(model::parse_source_record(text, name).value());
      plan_ = job::plan_by_record(checkpoint_, model_, record, name);
      config_is_models_ |= record.layout == "transformers";
    } catch (const Error& error) {
      ErrorDetails details = error.details();
      details.message += file.is_of_these_files
                             ? "; if it is the record of another output, move it away, and the tensors are "
                               "restored without it"
                             : "; it is the record of the whole folder: give the folder, or move the record "
                               "away to restore this file without it";
      throw Error(std::move(details));
    }
  }

  /// In the diffusers layouts config.json is one of DF11's own, which no model needs.
  void settle_config() {
    if (!config_ || config_is_models_) return;
    config_.reset();
    report_.notes.emplace_back(
        "config.json of the output holds nothing of the model's own, and none is written: copy the original "
        "model's");
  }

  void name_single_file(const fs::path& path) {
    if (plan_.files.size() != 1) {
      throw Error(ErrorCode::kUsage, "the output " + printable(options_.output.native()) +
                                         " is to be one file, but the source had " +
                                         std::to_string(plan_.files.size()) + ": name a folder");
    }
    plan_.files[0].name = path.filename().string();
    if (config_) report_.notes.emplace_back("config.json is written with a folder only, not beside a file");
  }

  std::string index_name() const { return plan_.index_stem + ".safetensors.index.json"; }

  /// What a run over this source may have written before.
  std::vector<std::string> own_names() const {
    std::vector<std::string> names = {std::string(kConfigName), std::string(kGenerationConfigName),
                                      index_name()};
    for (const job::RestoredFile& file : plan_.files) names.push_back(file.name);
    return names;
  }

  void check_output_is_apart(const fs::path& output) const {
    std::vector<fs::path> inputs = {options_.source};
    for (const model::File& file : checkpoint_.files()) inputs.push_back(file.path());
    if (!record_.empty()) inputs.push_back(record_);
    if (model::names_definition_file(options_.arch)) inputs.emplace_back(options_.arch);
    if (!options_.source_shapes.empty()) {
      inputs.push_back(options_.source_shapes);
      if (fs::is_directory(options_.source_shapes))
        for (const fs::directory_entry& entry : fs::directory_iterator(options_.source_shapes))
          inputs.push_back(entry.path());
    }
    for (const std::string_view name : {kConfigName, kGenerationConfigName})
      if (fs::path path = checkpoint_.folder() / name; fs::exists(path)) inputs.push_back(std::move(path));
    job::check_inputs_stay(options_.output, {output}, inputs);
  }

  void begin_report() {
    report_.record = record_.string();
    for (const job::RestoredFile& file : plan_.files) {
      report_.files.push_back(file.name);
      report_.num_tensors += file.tensors.size();
    }
    report_.num_units = plan_.units.size();
    report_.dropped = plan_.dropped;
    report_.cast = plan_.cast;
    report_.notes.insert(report_.notes.begin(), plan_.notes.begin(), plan_.notes.end());
    report_.source_bytes = checkpoint_.total_bytes();
    report_.num_threads = num_threads_;
    report_device();
    progress_.num_units = plan_.units.size();
    for (const job::RestoredUnit& unit : plan_.units)
      progress_.total_bytes += 2 * model_.units[unit.unit].num_weights;
    for (const job::RestoredCopy& tensor : plan_.copies)
      progress_.total_bytes += checkpoint_.tensors()[tensor.tensor].size_bytes;
  }

  void report_device() {
    report_.device = device_->name();
    report_.why_device = device_->why();
    report_.decoder = device_->decoder();
  }

  // ---- writing

  void decode(const job::RestoredUnit& restored, job::RestoredFiles& files) {
    const model::StoredUnit& unit = model_.units[restored.unit];
    progress_.unit = unit.name;
    show_progress();
    if (unit.num_tables > df11::kMaxTables) {
      throw_fault(unit, {.kind = "limit",
                         .message = "luts: there are " + std::to_string(unit.num_tables) +
                                    " tables, but pointers reach 17 only, and codes beyond them are lost"});
    }
    std::vector<std::uint64_t> ends = unit.split_positions;
    ends.push_back(unit.num_weights);
    const job::CheckpointUnit bytes(checkpoint_, unit, num_threads_);
    job::UnitDecoder decoder(job::unit_sizes(unit), bytes, device_->stage(), device_->buffers(),
                             job::UnitDecoder::slab_chunks_for(unit.num_chunks, device_->stage()));
    const auto fault = decoder.decode([&](std::uint64_t first, std::span<const std::uint16_t> weights) {
      std::size_t tensor = std::ranges::upper_bound(ends, first) - ends.begin();
      for (std::uint64_t done = 0; done < weights.size(); ++tensor) {
        const std::uint64_t begin = tensor == 0 ? 0 : ends[tensor - 1];
        const std::uint64_t count =
            std::min<std::uint64_t>(ends[tensor] - (first + done), weights.size() - done);
        for (const job::TensorPlace place : restored.places[tensor])
          write_weights(files, place, first + done - begin, weights.subspan(done, count));
        done += count;
      }
      progress_.bytes_done += 2 * weights.size();
      show_progress();
    });
    if (fault) throw_fault(unit, *fault);
    if (!decoder.kernel_ends()) {
      report_.notes.push_back(
          "unit " + in_quotes(unit.name) +
          ": its weights are intact, but the official kernel would not end on its padding "
          "and hang the GPU: do not load this output, compress the model again");
    }
    ++progress_.units_done;
  }

  void write_weights(job::RestoredFiles& files, job::TensorPlace place, std::uint64_t first,
                     std::span<const std::uint16_t> weights) {
    job::transfer_in_pieces(2 * weights.size(), num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
      files.write(place, 2 * first + offset, reinterpret_cast<const std::uint8_t*>(weights.data()) + offset,
                  bytes);
    });
  }

  [[noreturn]] void throw_fault(const model::StoredUnit& unit, const job::UnitFault& fault) const {
    // What was written to meanwhile is not corrupt.
    for (const model::File& file : checkpoint_.files()) file.check_unchanged();
    const model::SourceTensor& stream =
        checkpoint_.tensors()[unit.buffer(model::Df11Buffer::kEncodedExponent)];
    throw Error(ErrorDetails{.code = ErrorCode::kCorruptFile,
                             .message = printable(checkpoint_.files()[stream.file_index].path().native()) +
                                        ": unit " + in_quotes(unit.name) + ": " + fault.message +
                                        "; the file is damaged: download it or make it again",
                             .unit = unit.name,
                             .offset = fault.weight});
  }

  void copy(const job::RestoredCopy& restored, job::RestoredFiles& files) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[restored.tensor];
    progress_.phase = DecompressPhase::kCopying;
    progress_.unit.clear();
    job::transfer_in_pieces(tensor.size_bytes, num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
      thread_local std::vector<std::uint8_t> piece;  // kept: fresh memory costs a page fault every 4 KiB
      piece.resize(std::max<std::size_t>(piece.size(), bytes));
      checkpoint_.read(tensor, offset, bytes, piece.data());
      for (const job::TensorPlace place : restored.places) files.write(place, offset, piece.data(), bytes);
    });
    progress_.bytes_done += tensor.size_bytes;
    show_progress();
  }

  void write_side_files(const job::Output& output) {
    const auto write = [&](std::string_view name, const std::string& content) {
      model::write_whole_file(output.file(name), content);
      report_.output_bytes += content.size();
    };
    if (plan_.files.size() > 1) write(index_name(), job::make_index(plan_));
    if (config_) write(kConfigName, *config_);
    if (generation_config_) write(kGenerationConfigName, *generation_config_);
  }

  void show_progress() {
    if (options_.on_progress) options_.on_progress(progress_);
  }

  const DecompressOptions& options_;
  const model::Checkpoint checkpoint_;
  const model::Df11Model model_;
  const bool source_is_folder_;
  const int num_threads_;
  std::optional<job::DecodeDevice> device_;  // once the plan is made

  fs::path record_;
  job::NamingRequest naming_;
  job::RestorePlan plan_;
  std::optional<std::string> config_;             // as it is written
  bool config_is_models_ = false;                 // and not only DF11's
  std::optional<std::string> generation_config_;  // the same
  DecompressReport report_;
  DecompressProgress progress_;
};

}  // namespace

DecompressReport decompress(const DecompressOptions& options) {
  return job::telling_trouble(options.source, "to decompress it", [&] {
    if (job::is_tile_ans_output(options.source)) return job::decompress_tile_ans(options);
    return DecompressJob(options).run();
  });
}

}  // namespace weightpress
