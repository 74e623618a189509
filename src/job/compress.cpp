// The main job: model -> units -> files -> one rename.
//
// Folder layouts read, plan and write one unit after the other. Single-file layouts plan all units first:
// every refusal, every unit that is kept and every size is settled before the first byte of the output is
// written. What is done is noted in a journal, with which the next run of the same job goes on.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include <sys/stat.h>

#include <weightpress/compress.h>
#include <weightpress/verify.h>

#include "host/decode.h"
#include "job/background_sync.h"
#include "job/block_hash.h"
#include "job/compression.h"
#include "job/job_fingerprint.h"
#include "job/machine_trouble.h"
#include "job/output.h"
#include "job/output_errors.h"
#include "job/output_rules.h"
#include "job/process_memory.h"
#include "job/tile_ans_jobs.h"
#include "job/unit_verifier.h"
#include "model/architectures.h"
#include "model/text.h"

namespace weightpress {
namespace {

namespace fs = std::filesystem;
using job::kConfigName;
using job::kGenerationConfigName;
using model::in_quotes;
using model::printable;

constexpr std::string_view kFileSuffix = ".safetensors";
// Tensors are hashed together once there are so many bytes of them for each thread, or so many open files:
// the buffers of one unit, of which one is by far the longest, would keep few threads busy. Little enough to
// be read back from memory.
constexpr std::uint64_t kHashBatchBytesPerThread = std::uint64_t{128} << 20;
constexpr std::size_t kMaxHashBatchFiles = 64;

/// Bytes that a file takes on the disk; 0 if there is none.
std::uint64_t allocated_bytes(const fs::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
}

class CompressJob : private job::Compression {
 public:
  explicit CompressJob(const CompressOptions& options) : Compression(options, job::Purpose::kWrite) {}

  CompressReport run() {
    const auto start = std::chrono::steady_clock::now();
    const fs::path path = job::resolve_output(options_.output);
    const bool is_file = path.native().ends_with(kFileSuffix);
    if (is_file && !is_single_file()) {
      throw Error(ErrorCode::kUsage, "the output " + printable(options_.output.native()) +
                                         " ends in .safetensors, but the layout " + plan_.definition.layout +
                                         " writes a folder: name a folder, or choose --layout comfyui");
    }
    settle();
    decode_stage_ = std::make_unique<host::HostDecodeStage>(num_threads_);
    record_name_ = is_file ? job::record_name_beside(path) : std::string(job::kRecordName);
    file_name_ = is_file ? path.filename().string() : leftover_file_name(plan_.definition);

    std::vector<job::OutputFile::SideFile> side_files = {{.name = record_name_, .is_record = true}};
    if (config_) side_files.push_back({.name = std::string(kConfigName), .content = *config_});
    check_output_is_apart(path, is_file ? side_files : std::vector<job::OutputFile::SideFile>());
    if (is_file) job::check_not_in_source(options_.output, path, options_.source);
    if (is_file && config_ && fs::weakly_canonical(checkpoint_.folder()) == path.parent_path()) {
      throw Error(
          ErrorCode::kUsage,
          "config.json, which goes beside the output " + printable(options_.output.native()) +
              ", would lie beside the source and be taken for the source's own: write into another folder");
    }
    std::unique_ptr<job::Output> output;
    if (is_file) {
      output = std::make_unique<job::OutputFile>(path, side_files, options_.force,
                                                 job::PartialFolder::Journaled::kYes);
    } else {
      output = std::make_unique<job::OutputFolder>(path, options_.force);
    }
    take_up_or_begin(*output);
    report_.removed_remains = output->removed_remains();

    if (options_.on_planned) options_.on_planned(report_);
    if (!report_.only_renamed) {
      const auto has_written = [&] { return journal_->has_records(); };
      job::write_or_discard(*output, job::AfterTrouble::kResume, has_written, [&] {
        write(*output);
        finish_report();
        // Last: with it the output is complete.
        write_file(*output, record_name_, make_record());
        for (const model::File& file : checkpoint_.files()) file.check_unchanged();
      });
    }
    progress_.phase = CompressPhase::kFinishing;
    show_progress();
    report_.old_output_left = job::finish_or_tell(*output, job::AfterTrouble::kResume);
    report_.peak_memory_bytes = job::peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // ---- before anything is written

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

  /// Settles what of an earlier run is of use, and begins or opens the journal.
  void take_up_or_begin(job::Output& output) {
    job::PartialFolder& partial = output.partial();
    using State = job::PartialFolder::State;
    const fs::path journal = output.file(job::kJournalName);
    const std::string fingerprint =
        job::make_fingerprint(checkpoint_, plan_, options_, config_, generation_config_);
    if (partial.state() != State::kFresh && !options_.resume) partial.start_over();
    const std::string job_hash = job::hex16(job::xxh3(fingerprint));
    output.set_job(job_hash);
    if (partial.state() == State::kComplete) {
      if (const std::string what = complete_differs(output, job_hash); !what.empty()) {
        job::refuse(job::name_of(partial.path()) + " holds a complete output, but " + what +
                    ": rename it yourself, or make it anew with --no-resume");
      }
      report_.only_renamed = true;
      for (const fs::directory_entry& entry : fs::directory_iterator(partial.path()))
        report_.output_bytes += entry.file_size();
      return;
    }
    if (partial.state() == State::kFresh) {
      try {
        kept_journal_ = std::make_unique<job::Journal>(job::Journal::create(journal, fingerprint));
        // Or a power cut would lose the folder with all that is in it.
        model::sync_folder(partial.path().parent_path());
      } catch (...) {
        output.discard();
        throw;
      }
    } else {
      if (const std::string what = job::what_changed(job::read_fingerprint(journal), fingerprint);
          !what.empty()) {
        job::refuse("in " + job::name_of(partial.path()) + " lies what a run of another job has done (" +
                    what +
                    "), which this one cannot go on with: run that command again, or start over with "
                    "--no-resume");
      }
      std::size_t lines = 0;
      kept_journal_ = std::make_unique<job::Journal>(job::Journal::open(
          journal, [&](std::string_view json) { return lines++ == 0 || past_.add(json); }));
      const auto names = tensor_file_names();
      partial.remove_others([&](const std::string& name) { return names.contains(name); });
    }
    journal_ = kept_journal_.get();
    sync_ = std::make_unique<job::BackgroundSync>(*journal_, partial.path());
  }

  /// Why a complete output that was found is not this job's: a clause; empty: it is. Where the file system
  /// does not remember what job it is of, everything is compared with the source.
  std::string complete_differs(job::Output& output, const std::string& job_hash) const {
    using Found = job::PartialFolder::Found;
    switch (output.partial().compare_with(job_hash)) {
      case Found::kSameJob:
        return {};
      case Found::kOtherJob:
        return "of another job";
      case Found::kChanged:
        return "files in it were added, removed or changed since";
      case Found::kUnknown:
        break;
    }
    try {
      return complete_differs_from_source(output);
    } catch (const Error& error) {
      return std::string("it is damaged (") + error.what() + ")";
    }
  }

  std::string complete_differs_from_source(const job::Output& output) const {
    const fs::path folder = output.file(record_name_).parent_path();
    const auto names = tensor_file_names();
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const bool belongs = names.contains(name) || name == record_name_ || name == kConfigName ||
                           name == kGenerationConfigName;
      if (!belongs || !entry.is_regular_file() || entry.is_symlink()) {
        return in_quotes(name) + " does not belong to it";
      }
    }
    if (!job::record_begins_like(output.file(record_name_), make_record())) return "it is of another job";
    const auto holds = [&](std::string_view name, const std::optional<std::string>& content) {
      const fs::path path = output.file(name);
      if (!content || !fs::is_regular_file(path)) return content.has_value() == fs::exists(path);
      return fs::file_size(path) == content->size() &&
             model::read_whole_file(path, content->size()) == *content;
    };
    if (!holds(kConfigName, config_)) return "its config.json is another";
    if (!holds(kGenerationConfigName, generation_config_)) return "its generation_config.json is another";
    VerifyOptions check;
    check.path = folder;
    check.source = options_.source;
    check.level = VerifyLevel::kFull;
    check.num_threads = num_threads_;
    const VerifyReport found = verify(check);
    if (found.ok()) return {};
    const VerifyFailure& first = found.failures.front();
    return in_quotes(first.unit.empty() ? first.tensor : first.unit) + " in it is not as in the source";
  }

  std::unordered_set<std::string> tensor_file_names() const {
    std::unordered_set<std::string> names = {file_name_};
    if (!is_single_file())
      for (const model::Unit& unit : plan_.assignment.units) names.insert(model::unit_file_name(unit.name));
    return names;
  }

  // ---- layouts

  void write(job::Output& output) {
    if (is_single_file()) {
      write_single_file(output);
    } else {
      write_folder(output);
    }
    if (generation_config_) write_file(output, kGenerationConfigName, *generation_config_);
    if (config_) write_file(output, kConfigName, *config_);
    const job::StageTimer timer(&times_, Stage::kSync, 0);
    sync_->finish();
  }

  void write_folder(job::Output& output) {
    std::vector<std::size_t> kept;
    for (std::size_t u = 0; u < plan_.assignment.units.size(); ++u)
      if (!write_shard(u, output)) kept.push_back(u);
    keep_units(kept);
    auto file = make_leftover_file(output.file(file_name_));
    create(*file, output);
    copy_tensors(*file);
    finish_file(std::move(file));
    finish_files();
  }

  /// Returns false if the unit is kept.
  bool write_shard(std::size_t unit_index, job::Output& output) {
    const model::Unit& unit = plan_.assignment.units[unit_index];
    const auto planned = plan_unit(unit_index, CompressPhase::kCompressing);
    if (!planned) {
      progress_.total_bytes -= 2 * unit.num_weights;  // its tensors are copied with the rest
      progress_.total_bytes += kept_bytes(unit.tensors);
      return false;
    }
    read_ahead(unit_index + 1);  // while this one is encoded
    auto file = make_unit_file(output.file(model::unit_file_name(unit.name)), *planned);
    create(*file, output);
    write_unit(*planned, unit_index, *file, 0);
    copy_tensors(*file);
    finish_file(std::move(file));
    return true;
  }

  void write_single_file(job::Output& output) {
    std::vector<std::unique_ptr<PlannedUnit>> planned = plan_all_units();
    const fs::path path = output.file(file_name_);
    auto file = make_single_file(path, planned);
    const std::uint64_t there = allocated_bytes(path);
    if (file->file_bytes() > there)
      job::check_free_space(options_.output, output, file->file_bytes() - there);
    create(*file, output);
    progress_.units_done = 0;
    upcoming_ = [&](std::size_t u) {
      const bool is_written = past_.written(planned[u]->unit.name) != nullptr;
      return is_written ? nullptr : planned[u].get();
    };
    for (std::size_t u = 0; u < planned.size(); ++u) {
      begin_unit(planned[u]->unit, CompressPhase::kCompressing);
      write_unit(*planned[u], u, *file, u);
      planned[u].reset();
      if (file->unhashed_bytes() >= hash_batch_bytes())
        job::TensorFile::hash_written(std::array{file.get()}, num_threads_);
    }
    upcoming_ = {};
    copy_tensors(*file);
    finish_file(std::move(file));
    finish_files();
  }

  // ---- parts of both

  /// Writes a unit, or finds it written by an earlier run.
  /// number: of the unit in the file.
  void write_unit(PlannedUnit& unit, std::size_t unit_index, job::TensorFile& file, std::size_t number) {
    const job::WrittenRecord* past = unit.is_from_past ? past_.written(unit.unit.name) : nullptr;
    if (past != nullptr && past->verified == options_.verify && file.takes_over_unit(number, *past)) {
      ++report_.resumed_units;
      ++progress_.units_resumed;
      const std::uint64_t bytes = is_single_file() ? 2 * unit.unit.num_weights : 0;
      progress_.bytes_done += bytes;
      progress_.bytes_resumed += bytes;
    } else {
      encode(unit, unit_index, file, number);
      file.end_unit(number);
      journal_->append(job::written_line(unit.unit.name, file.record_of(number)));
    }
    made_durable(file);
    ++progress_.units_done;
    show_progress();
  }

  /// Writes a unit and, unless that is not wanted, reads it back through the decoder and compares.
  void encode(PlannedUnit& unit, std::size_t unit_index, job::TensorFile& file, std::size_t number) {
    if (uses_gpu()) {
      try {
        encode_on_gpu(unit, unit_index, file, number);
        return;
      } catch (const job::GpuFailure& failure) {
        give_up_gpu(failure);
      }
    }
    encode_on_host(unit, file, number);
  }

  /// The same, by a GPU, which also reads back.
  void encode_on_gpu(PlannedUnit& unit, std::size_t unit_index, job::TensorFile& file, std::size_t number) {
    feed_all(unit);
    make_way_for_encoding(unit);
    unit.on_gpu->encode(unit.plan, file.sink(number), options_.verify, [&] {
      feed_ahead(unit_index);
      encode_ahead(unit_index);
    });
    leave_gpu(unit);
    check_source(unit, false);
    if (is_single_file()) on_slab()(unit.unit.num_weights);
  }

  /// The same by the CPU; read back from the file.
  void encode_on_host(PlannedUnit& unit, job::TensorFile& file, std::size_t number) {
    std::optional<job::UnitVerifier> verifier;
    job::UnitCompressor::OnWritten on_written;
    if (options_.verify) {
      on_written = [&](std::span<const std::uint16_t> weights,
                       const job::WrittenSoFar& written) -> Result<void> {
        // Once the tables are written, which the verifier reads.
        if (!verifier)
          verifier.emplace(unit.plan, file.stored(number), *decode_stage_, decode_buffers_,
                           memory_.slab_chunks);
        if (const auto fault = verifier->add(weights, written)) return not_verified(unit.unit, *fault);
        return {};
      };
    }
    if (unit.is_from_past && !is_single_file()) unit.compressor.hold(held_->take(unit.unit.num_weights));
    // In a folder the plan's bytes count for both.
    const bool counts = is_single_file();
    const auto encoded = unit.compressor.encode(
        unit.plan, file.sink(number), counts ? on_slab() : job::UnitCompressor::OnSlab(), on_written);
    const bool is_changed = !encoded && encoded.error().code == ErrorCode::kSourceChanged;
    if (!encoded && !(unit.is_from_past && is_changed)) throw Error(encoded.error());
    check_source(unit, is_changed);
  }

  /// Of a unit whose plan is an earlier run's.
  static void check_source(const PlannedUnit& unit, bool is_changed) {
    if (!unit.is_from_past || (!is_changed && unit.source.source_hash() == unit.source_hash)) return;
    throw Error(ErrorDetails{.code = ErrorCode::kSourceChanged,
                             .message = "unit " + in_quotes(unit.unit.name) +
                                        ": its weights are not those that an earlier run has counted, though "
                                        "size and time of the source are the same",
                             .unit = unit.unit.name});
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

  void copy_tensors(job::TensorFile& file) {
    progress_.phase = CompressPhase::kCopying;
    progress_.unit.clear();
    const std::string name = file.path().filename().native();
    job::StageTimer timer(&times_, Stage::kCopy, 0);
    file.copy_tensors([&](const std::string& tensor) { return past_.copied(name, tensor); },
                      [&](const job::TensorFile::Copied& copied) {
                        if (!copied.taken_over)
                          journal_->append(job::copied_line(copied.name, copied.record));
                        made_durable(file);
                        times_.add(Stage::kCopy, 0, copied.size_bytes);
                        progress_.bytes_done += copied.size_bytes;
                        if (copied.taken_over) progress_.bytes_resumed += copied.size_bytes;
                        show_progress();
                      });
    cast_counts_ += file.cast_counts();
  }

  void made_durable(const job::TensorFile& file) { sync_->add(file.file()); }

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
    for (job::TensorFile* file : files) {
      file->finish();
      made_durable(*file);
    }
    unfinished_.clear();
    unhashed_bytes_ = 0;
  }

  /// What has the name of OUT.partial may be another folder by now.
  static void create(job::TensorFile& file, job::Output& output) {
    output.partial().check_in_place();
    file.create();
  }

  void write_file(job::Output& output, std::string_view name, std::string_view content) {
    output.partial().check_in_place();
    model::write_whole_file(output.file(name), content);
    report_.output_bytes += content.size();
  }

  std::string record_name_, file_name_;
  std::unique_ptr<host::HostDecodeStage> decode_stage_;
  job::DecodeBuffers decode_buffers_;
  std::unique_ptr<job::Journal> kept_journal_;
  std::unique_ptr<job::BackgroundSync> sync_;
  std::vector<std::unique_ptr<job::TensorFile>> unfinished_;  // written but for their hashes
  std::uint64_t unhashed_bytes_ = 0;                          // in these
};

}  // namespace

CompressReport compress(const CompressOptions& options) {
  return job::telling_trouble(options.source, "to compress it", [&] {
    job::check_compress_options(options);
    if (options.format == Format::kTileAns) return job::compress_tile_ans(options);
    return CompressJob(options).run();
  });
}

}  // namespace weightpress
