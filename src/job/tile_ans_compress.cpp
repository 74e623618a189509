// The job of compressing to Tile-ANS: file by file, plan, lay out, write each tensor to its place, one rename
// at the end. And its size beforehand.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "job/background_sync.h"
#include "job/block_hash.h"
#include "job/job_fingerprint.h"
#include "job/model_plan.h"
#include "job/output.h"
#include "job/output_errors.h"
#include "job/output_record.h"
#include "job/output_rules.h"
#include "job/parallel_io.h"
#include "job/process_memory.h"
#include "job/tile_ans_compression.h"
#include "job/tile_ans_jobs.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::in_quotes;
using model::printable;
using tile_ans::Buffer;

constexpr std::string_view kFileSuffix = ".safetensors";

class TileAnsCompressJob : private TileAnsCompression {
 public:
  explicit TileAnsCompressJob(const CompressOptions& options) : TileAnsCompression(options) {}

  CompressReport run() {
    const auto start = std::chrono::steady_clock::now();
    const fs::path path = resolve_output(options_.output);
    const bool is_file = path.native().ends_with(kFileSuffix);
    if (is_file) name_single_file(path);
    record_name_ = is_file ? record_name_beside(path) : std::string(kRecordName);
    check_output_is_apart(path, is_file);
    if (is_file) check_not_in_source(options_.output, path, options_.source);
    std::unique_ptr<Output> output;
    if (is_file) {
      output = std::make_unique<OutputFile>(
          path, std::vector<OutputFile::SideFile>{{.name = record_name_, .is_record = true}}, options_.force,
          PartialFolder::Journaled::kYes);
    } else {
      output = std::make_unique<OutputFolder>(path, options_.force);
    }
    take_up_or_begin(*output);
    report_.removed_remains = output->removed_remains();
    if (options_.on_planned && report_.only_renamed) options_.on_planned(report_);
    if (!report_.only_renamed) {
      const auto has_written = [&] { return journal_->has_records(); };
      write_or_discard(*output, AfterTrouble::kResume, has_written, [&] {
        settle(true);
        if (options_.on_planned) options_.on_planned(report_);
        write(*output);
        finish_report();
        // Last: with it the output is complete.
        write_file(*output, record_name_, make_record());
        for (const model::File& file : checkpoint_.files()) file.check_unchanged();
      });
    }
    progress_.phase = CompressPhase::kFinishing;
    show_progress();
    report_.old_output_left = finish_or_tell(*output, AfterTrouble::kResume);
    report_.peak_memory_bytes = peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // ---- before anything is written

  void name_single_file(const fs::path& path) {
    if (file_names_.size() != 1 || index_name_) {
      throw Error(ErrorCode::kUsage, "the output " + printable(options_.output.native()) +
                                         " ends in .safetensors, but Tile-ANS writes as many files as the "
                                         "source has (" +
                                         std::to_string(file_names_.size()) +
                                         (index_name_ ? " and an index" : "") + "): name a folder");
    }
    file_names_[0] = path.filename().string();
    config_.reset();
    generation_config_.reset();
  }

  void check_output_is_apart(const fs::path& output, bool is_file) const {
    std::vector<fs::path> written = {output};
    if (is_file) written.push_back(output.parent_path() / record_name_);
    std::vector<fs::path> inputs = {options_.source};
    for (const model::File& file : checkpoint_.files()) inputs.push_back(file.path());
    if (index_name_) inputs.push_back(checkpoint_.folder() / *index_name_);
    for (const std::string_view name : {kConfigName, kGenerationConfigName})
      if (fs::path path = checkpoint_.folder() / name; fs::exists(path)) inputs.push_back(std::move(path));
    check_inputs_stay(options_.output, written, inputs);
  }

  /// Settles what of an earlier run is of use, and begins or opens the journal.
  void take_up_or_begin(Output& output) {
    PartialFolder& partial = output.partial();
    using State = PartialFolder::State;
    const fs::path journal = output.file(kJournalName);
    const std::string fingerprint =
        make_tile_ans_fingerprint(checkpoint_, options_, config_, generation_config_);
    if (partial.state() != State::kFresh && !options_.resume) partial.start_over();
    const std::string job_hash = hex16(xxh3(fingerprint));
    output.set_job(job_hash);
    if (partial.state() == State::kComplete) {
      take_complete(output, job_hash);
      return;
    }
    if (partial.state() == State::kFresh) {
      try {
        kept_journal_ = std::make_unique<Journal>(Journal::create(journal, fingerprint));
        // Or a power cut would lose the folder with all that is in it.
        model::sync_folder(partial.path().parent_path());
      } catch (...) {
        output.discard();
        throw;
      }
    } else {
      if (const std::string what = what_changed(read_fingerprint(journal), fingerprint); !what.empty()) {
        refuse("in " + name_of(partial.path()) + " lies what a run of another job has done (" + what +
               "), which this one cannot go on with: run that command again, or start over with "
               "--no-resume");
      }
      std::size_t lines = 0;
      kept_journal_ = std::make_unique<Journal>(
          Journal::open(journal, [&](std::string_view json) { return lines++ == 0 || past_.add(json); }));
      const std::unordered_set<std::string> names(file_names_.begin(), file_names_.end());
      partial.remove_others([&](const std::string& name) { return names.contains(name); });
    }
    journal_ = kept_journal_.get();
    sync_ = std::make_unique<BackgroundSync>(*journal_, partial.path());
  }

  /// A complete output that lacks its name, if it is known to be this job's.
  void take_complete(Output& output, const std::string& job_hash) {
    const PartialFolder& partial = output.partial();
    using Found = PartialFolder::Found;
    std::string what;
    switch (partial.compare_with(job_hash)) {
      case Found::kSameJob:
        break;
      case Found::kOtherJob:
        what = "of another job";
        break;
      case Found::kChanged:
        what = "files in it were added, removed or changed since";
        break;
      case Found::kUnknown:
        what = complete_differs_from_source(output);
        break;
    }
    if (!what.empty()) {
      refuse(name_of(partial.path()) + " holds a complete output, but " + what +
             ": rename it yourself, or make it anew with --no-resume");
    }
    report_.only_renamed = true;
    for (const fs::directory_entry& entry : fs::directory_iterator(partial.path()))
      report_.output_bytes += entry.file_size();
  }

  /// Where the file system does not remember what job it is of. A clause; empty: it is of this one.
  std::string complete_differs_from_source(const Output& output) const try {
    const fs::path folder = output.file(record_name_).parent_path();
    const auto is_same = [&](const std::string& name, const std::optional<std::string>& content) {
      return content && model::read_whole_file(folder / name, content->size()) == *content;
    };
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || entry.is_symlink()) return in_quotes(name) + " does not belong to it";
      if (std::ranges::count(file_names_, name) || name == record_name_ || name == index_name_) continue;
      if (name == kConfigName && is_same(name, config_)) continue;
      if (name == kGenerationConfigName && is_same(name, generation_config_)) continue;
      return in_quotes(name) + " does not belong to it";
    }
    if (!record_begins_like(output.file(record_name_), make_record())) return "it is of another job";
    VerifyOptions check;
    check.path = file_names_.size() == 1 && !index_name_ ? folder / file_names_[0] : folder;
    check.source = options_.source;
    check.num_threads = options_.num_threads;
    const VerifyReport found = verify_tile_ans(check);
    if (found.ok()) return {};
    const VerifyFailure& first = found.failures.front();
    return in_quotes(first.unit.empty() ? first.tensor : first.unit) + " in it is not as in the source";
  } catch (const Error& error) {
    return std::string("it is damaged (") + error.what() + ")";
  }

  // ---- writing

  void write(Output& output) {
    for (std::size_t f = 0; f < file_names_.size(); ++f)
      for_file(f, [&](const PlannedFile& planned) { write_tensors(output, planned); });
    if (const auto index = make_index()) write_file(output, *index_name_, *index);
    if (generation_config_) write_file(output, kGenerationConfigName, *generation_config_);
    if (config_) write_file(output, kConfigName, *config_);
    const StageTimer timer(&times_, Stage::kSync, 0);
    sync_->finish();
  }

  void write_tensors(Output& output, const PlannedFile& planned) {
    output.partial().check_in_place();
    const fs::path path = output.file(planned.name);
    const bool is_there = fs::exists(fs::symlink_status(path));
    auto file = std::make_shared<model::File>(is_there ? model::File::open_readwrite(path)
                                                       : model::File::create(path));
    const std::uint64_t there = is_there ? file->size_bytes() : 0;
    if (planned.layout.file_bytes > there)
      check_free_space(options_.output, output, planned.layout.file_bytes - there);
    file->truncate(planned.layout.file_bytes);
    write_header(*file, planned.layout.header);
    for (const PlannedFile::Container& container : planned.containers) {
      write_container(*file, planned, container);
      sync_->add(file);
    }
    for (const PlannedFile::Copy& copied : planned.copies) {
      copy(*file, planned.offsets_bytes[copied.spec], copied.tensor, is_there);
      sync_->add(file);
    }
    sync_->add(file);
    report_.output_bytes += planned.layout.file_bytes;
  }

  void write_header(model::File& file, const std::string& header) {
    file.write_at(header.data(), header.size(), 0);
    if (!options_.verify) return;
    std::string there(header.size(), '\0');
    file.read_at(there.data(), there.size(), 0);
    if (there != header) fail_copy(file, "its header");
  }

  void write_container(model::File& file, const PlannedFile& planned,
                       const PlannedFile::Container& container) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[container.planned.tensor];
    progress_.phase = CompressPhase::kCompressing;
    progress_.unit = tensor.name;
    show_progress();
    TileAnsPlaces places{.file = file};
    const std::uint64_t* const offsets = &planned.offsets_bytes[container.first_spec];
    std::copy_n(offsets, tile_ans::kNumBuffers, places.offsets_bytes.begin());
    places.header_offset_bytes = offsets[tile_ans::kNumBuffers];
    const std::uint64_t before = progress_.bytes_done;
    if (past_.written(tensor.name) && compressor_->is_written(container.planned, places, on_slab())) {
      ++report_.resumed_units;
      ++progress_.units_resumed;
      progress_.bytes_resumed += tensor.size_bytes;
    } else {
      progress_.bytes_done = before;
      compressor_->encode(container.planned, places, on_slab());
      journal_->append(written_tile_ans_line(tensor.name));
    }
    ++progress_.units_done;
    show_progress();
  }

  /// was_there: an earlier run may have written it already.
  void copy(model::File& file, std::uint64_t place, std::size_t index, bool was_there) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[index];
    progress_.phase = CompressPhase::kCopying;
    progress_.unit.clear();
    const StageTimer timer(&times_, Stage::kCopy, tensor.size_bytes);
    transfer_in_pieces(tensor.size_bytes, num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
      thread_local std::vector<std::uint8_t> piece,
          there;  // kept: fresh memory costs a page fault every 4 KiB
      piece.resize(std::max<std::size_t>(piece.size(), bytes));
      checkpoint_.read(tensor, offset, bytes, piece.data());
      const auto is_same = [&] {
        there.resize(std::max<std::size_t>(there.size(), bytes));
        file.read_at(there.data(), bytes, place + offset);
        return std::memcmp(there.data(), piece.data(), bytes) == 0;
      };
      if (was_there && is_same()) return;
      file.write_at(piece.data(), bytes, place + offset);
      if (options_.verify && !is_same()) fail_copy(file, "tensor " + in_quotes(tensor.name));
    });
    progress_.bytes_done += tensor.size_bytes;
    show_progress();
  }

  [[noreturn]] static void fail_copy(const model::File& file, const std::string& what) {
    throw Error(
        ErrorCode::kVerificationFailed,
        printable(file.path().native()) + ": " + what +
            " does not read back as it was written; the disk or the memory of this machine is faulty");
  }

  void write_file(Output& output, std::string_view name, std::string_view content) {
    output.partial().check_in_place();
    model::write_whole_file(output.file(name), content);
    report_.output_bytes += content.size();
  }

  std::string record_name_;
  std::unique_ptr<Journal> kept_journal_;
  std::unique_ptr<BackgroundSync> sync_;
};

class TileAnsEstimateJob : private TileAnsCompression {
 public:
  explicit TileAnsEstimateJob(const CompressOptions& options) : TileAnsCompression(options) {}

  SizeEstimate run() {
    const auto start = std::chrono::steady_clock::now();
    settle(false);
    if (options_.on_planned) options_.on_planned(report_);
    for (std::size_t f = 0; f < file_names_.size(); ++f) {
      for_file(f, [&](const PlannedFile& planned) { add(planned.layout.file_bytes); });
      progress_.units_done = report_.num_units;
    }
    if (const auto index = make_index()) add(index->size());
    if (generation_config_) add(generation_config_->size());
    if (config_) add(config_->size());
    finish_report();
    add(make_record().size());
    report_.output_bytes = estimate_.output_bytes;
    report_.peak_memory_bytes = peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    estimate_.report = std::move(report_);
    return std::move(estimate_);
  }

 private:
  void add(std::uint64_t file_bytes) {
    estimate_.output_bytes += file_bytes;
    ++estimate_.num_files;
  }

  SizeEstimate estimate_;
};

}  // namespace

CompressReport compress_tile_ans(const CompressOptions& options) {
  return TileAnsCompressJob(options).run();
}

SizeEstimate estimate_tile_ans(const CompressOptions& options) {
  return TileAnsEstimateJob(options).run();
}

}  // namespace weightpress::job
