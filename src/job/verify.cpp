// include/weightpress/verify.h: every unit through the decoder, tensors and hashes beside it.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>

#include <weightpress/verify.h>

#include "format/luts_check.h"
#include "host/decode.h"
#include "host/host_stages.h"
#include "job/checkpoint_source.h"
#include "job/chunk_sample.h"
#include "job/decode_device.h"
#include "job/interpreted_kernel.h"
#include "job/machine_trouble.h"
#include "job/official_decoder.h"
#include "job/official_kernel.h"
#include "job/official_kernel_on_gpu.h"
#include "job/parallel_io.h"
#include "job/process_memory.h"
#include "job/record_file.h"
#include "job/source_match.h"
#include "job/stored_hashes.h"
#include "job/tile_ans_jobs.h"
#include "job/tile_ans_model.h"
#include "job/unit_decoder.h"
#include "model/checkpoint.h"
#include "model/df11_model.h"
#include "model/tensor_hashes.h"
#include "model/text.h"

namespace weightpress {
namespace {

namespace fs = std::filesystem;
using job::UnitFault;
using model::in_quotes;
using model::printable;

// Of each end of a tensor outside units, at the level of samples.
constexpr std::uint64_t kSampledBytes = std::uint64_t{64} << 10;

std::optional<std::uint64_t> known(std::uint64_t place) {
  return place == UnitFault::kNowhere ? std::nullopt : std::optional(place);
}

class VerifyJob {
 public:
  explicit VerifyJob(const VerifyOptions& options)
      : options_(options),
        output_(model::Checkpoint::open(options.path, model::Df11Policy::kAccept)),
        survey_(model::survey_df11_model(output_)),
        num_threads_(host::usable_num_threads(options.num_threads)) {}

  VerifyReport run() {
    const auto start = std::chrono::steady_clock::now();
    read_record();
    settle_level();
    settle_device();
    if (options_.engine == VerifyEngine::kOfficial) load_kernel();
    match_source();
    count();
    for (const ErrorDetails& broken : survey_.broken) fail_unit(broken.unit, "header", broken.message);
    for (std::size_t u = 0; u < units().size(); ++u) check_unit(u);
    check_tensors();
    check_hashes();
    // What was written to meanwhile may have looked wrong, or right.
    for (const model::File& file : output_.files()) file.check_unchanged();
    if (source_)
      for (const model::File& file : source_->files()) file.check_unchanged();
    sort_failures();
    report_device();
    report_.num_threads = num_threads_;
    report_.peak_memory_bytes = job::peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  const std::vector<model::StoredUnit>& units() const { return survey_.model.units; }

  // ---- before anything is decoded

  void settle_level() {
    if (units().empty() && survey_.broken.empty()) {
      throw Error(ErrorCode::kUsage,
                  printable(options_.path.native()) +
                      " holds no DF11 units and no Tile-ANS tensors, so there is nothing to "
                      "verify: name what 'weightpress compress' or another compressor wrote");
    }
    const bool is_official = options_.engine == VerifyEngine::kOfficial;
    report_.engine = options_.engine;
    report_.level = options_.level;
    if (report_.level == VerifyLevel::kDefault)
      report_.level = options_.source || is_official ? VerifyLevel::kFull : VerifyLevel::kStructure;
    if (is_official && report_.level == VerifyLevel::kStructure) {
      throw Error(
          ErrorCode::kUsage,
          "the level structure runs no kernel: choose --level sample or full for the engine official");
    }
    if (!is_official && options_.kernel)
      throw Error(ErrorCode::kUsage, "a kernel (--kernel) is of use to --engine=official only");
    hashes_ = job::find_stored_hashes(output_);
    if (report_.level == VerifyLevel::kSample && !options_.source && !is_official) {
      throw Error(
          ErrorCode::kUsage,
          "the level sample compares with the source: name it with --source, or choose --level structure");
    }
    const bool should_have_hashes = record_ && record_->has_hashes;  // those that lack are a failure then
    if (report_.level == VerifyLevel::kFull && !options_.source && !is_official && !should_have_hashes &&
        hashes_.num_files < output_.files().size()) {
      throw Error(ErrorCode::kUsage, printable(options_.path.native()) +
                                         ": the level full needs the source (--source), or hashes stored in "
                                         "every file (compress --hashes), which are not there: --level "
                                         "structure checks what can be checked without");
    }
    if (report_.level == VerifyLevel::kSample) {
      std::random_device device;
      report_.seed = options_.seed ? *options_.seed : device();
    }
    if (options_.source) source_.emplace(model::Checkpoint::open(*options_.source));
  }

  void settle_device() {
    job::DeviceChoice choice;
    if (options_.engine == VerifyEngine::kOfficial) {
      // The official kernel's; our own decoder, which goes ahead, stays on the CPU.
      official_device_ = job::choose_device(options_.device);
      choice = job::choose_device("cpu");
    } else {
      choice = job::choose_decode_device(options_.engine, options_.device);
    }
    device_.emplace(std::move(choice), num_threads_, options_.on_warning);
  }

  void report_device() {
    if (kernel_) {
      const bool is_interpreted = kernel_->is_interpreter();
      report_.device = is_interpreted ? "cpu" : kernel_->name();
      report_.why_device = official_device_.why;
      report_.verifier = is_interpreted ? "decode, interpreted" : "decode";
      report_.official->is_interpreted = is_interpreted;
      return;
    }
    report_.device = device_->name();
    report_.why_device = device_->why();
    report_.verifier = device_->decoder();
    report_.engine = device_->uses_gpu() ? VerifyEngine::kCuda : VerifyEngine::kCpu;
  }

  void load_kernel() {
    job::KernelFile file = job::find_kernel(options_.kernel, job::places_of_this_process());
    report_.notes.insert(report_.notes.end(), file.notes.begin(), file.notes.end());
    kernel_file_ = std::move(file);
    load_kernel_on_gpu();
    if (!kernel_) interpret_kernel();
    report_.official.emplace();
    report_.official->kernel = kernel_file_.path;
    report_.official->kernel_sha256 = kernel_file_.sha256;
    report_.official->is_known_kernel = kernel_file_.is_known;
  }

  void load_kernel_on_gpu() {
    if (official_device_.gpus.empty()) return;
    if (!kernel_file_.is_known && !official_device_.is_required) {
      official_device_.why = "a kernel that is not the official one is interpreted";
      return;
    }
    try {
      kernel_ = std::make_unique<job::OfficialKernelOnGpu>(*official_device_.gpus.front(), kernel_file_);
    } catch (const Error& error) {
      give_up_official_gpu(error);
    }
  }

  /// The interpreter takes over, unless the GPU was asked for.
  void give_up_official_gpu(const Error& error) {
    const std::string what = official_device_.name + ": " + error.what();
    if (official_device_.is_required) throw Error(error.code(), what);
    official_device_.why = what;
    kernel_.reset();
    if (options_.on_warning)
      options_.on_warning("the GPU failed, and the official kernel is interpreted instead: " + what);
  }

  void interpret_kernel() {
    auto kernel = job::InterpretedKernel::load(kernel_file_.text);
    if (!kernel) {
      throw Error(ErrorCode::kUsage, printable(kernel_file_.path.native()) +
                                         " cannot be run as the decode kernel: " + kernel.error().message +
                                         "; name dfloat11's decode.ptx");
    }
    kernel_ = std::move(*kernel);
  }

  void read_record() {
    const job::RecordFile file = job::find_record_file(output_, options_.path);
    if (file.path.empty()) return;
    record_name_ = file.path.filename().string();
    try {
      auto record = model::parse_source_record(
          model::read_whole_file(file.path, model::kMaxSourceRecordBytes), file.path.string());
      // One file of several holds a part of what the folder's record lists.
      if (record && !file.is_of_these_files && !model::is_single_file(record->layout)) return;
      if (record) {
        record_ = std::move(*record);
      } else {
        note_unused(record.error().message);
      }
    } catch (const Error& error) {
      note_unused(error.what());
    }
  }

  void note_unused(const std::string& problem) {
    report_.notes.push_back(problem + "; what it says was not used");
  }

  void match_source() {
    failed_.assign(units().size(), false);
    sources_.resize(units().size());
    mismatches_.resize(units().size());
    for (std::size_t u = 0; u < units().size(); ++u) unit_index_.emplace(units()[u].name, u);
    if (source_ && report_.level != VerifyLevel::kStructure) {
      match_ = job::match_source(
          {output_, survey_, *source_, record_ ? &*record_ : nullptr, record_name_, options_.arch});
      for (const std::string& note : match_->notes) report_.notes.push_back(note);
      add_failures(match_->failures);
      for (const auto& unit : match_->units) sources_[unit.stored] = &unit.unit;
    } else if (record_) {
      try {
        add_failures(job::compare_with_record(output_, survey_, *record_, record_name_));
      } catch (const Error& error) {  // a pattern that runs for ever
        note_unused(record_name_ + ": " + error.what());
        record_.reset();
      }
    }
  }

  /// Those of units are told in their turn.
  void add_failures(const std::vector<VerifyFailure>& failures) {
    for (const VerifyFailure& failure : failures) {
      if (const auto unit = unit_index_.find(failure.unit); unit != unit_index_.end()) {
        mismatches_[unit->second] = failure;
      } else {
        report_.failures.push_back(failure);
      }
    }
  }

  void count() {
    report_.num_units = units().size() + survey_.broken.size();
    report_.num_tensors = survey_.model.kept.size();
    report_.num_files = output_.files().size();
    for (const model::StoredUnit& unit : units()) {
      report_.num_weights += unit.num_weights;
      report_.num_chunks += unit.num_chunks;
    }
    progress_.num_units = units().size();
    if (report_.level == VerifyLevel::kSample) {
      choose_samples();
      for (std::size_t u = 0; u < units().size(); ++u)
        progress_.total_bytes += 2 * units()[u].num_weights * samples_[u].size() / units()[u].num_chunks;
      return;
    }
    progress_.total_bytes = 2 * report_.num_weights + hashes_.tensor_bytes;
    if (match_)
      for (const auto& tensor : match_->tensors)
        progress_.total_bytes += match_->view.tensors[tensor.tensor].size_bytes();
  }

  void choose_samples() {
    std::vector<std::vector<std::uint64_t>> must_have;
    std::vector<std::uint64_t> num_chunks;
    for (const model::StoredUnit& unit : units()) {
      std::vector<std::uint64_t>& chunks = must_have.emplace_back();
      chunks = {0, unit.num_chunks - 1};
      num_chunks.push_back(unit.num_chunks);
      if (unit.split_positions.empty()) continue;
      std::vector<std::uint32_t> positions(unit.num_positions);
      job::CheckpointUnit(output_, unit, num_threads_)
          .read(job::UnitBuffer::kOutputPositions, 0,
                {reinterpret_cast<std::uint8_t*>(positions.data()), 4 * positions.size()});
      // Whatever the positions are: a place among them is a chunk, or the one behind the last.
      const auto chunk_of = [&](std::uint64_t weight) {
        const auto after = std::upper_bound(positions.begin(), positions.end(), weight) - positions.begin();
        return std::min<std::uint64_t>(static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(after, 1)) - 1,
                                       unit.num_chunks - 1);
      };
      for (const std::uint64_t split : unit.split_positions) {
        chunks.push_back(chunk_of(split));
        if (split > 0) chunks.push_back(chunk_of(split - 1));
      }
    }
    samples_ = job::choose_chunks(std::move(must_have), num_chunks, options_.samples, report_.seed);
  }

  // ---- units

  void check_unit(std::size_t index) {
    const model::StoredUnit& unit = units()[index];
    progress_.unit = unit.name;
    show_progress(0);
    if (has_usable_tables(index)) decode_unit(index);
    ++progress_.units_done;
  }

  void decode_unit(std::size_t index) {
    const model::StoredUnit& unit = units()[index];
    const bool is_sampled = report_.level == VerifyLevel::kSample;
    const auto& mismatch = mismatches_[index];
    if (mismatch && is_sampled) return add_mismatch(index);  // there is nothing to compare with
    const job::CheckpointUnit bytes(output_, unit, num_threads_);
    std::optional<UnitFault> fault;
    bool kernel_ends = true;
    std::uint64_t densest_chunk = 0;
    if (kernel_) {
      fault = decode_officially(index, bytes, kernel_ends, densest_chunk);
    } else {
      job::UnitDecoder decoder(job::unit_sizes(unit), bytes, device_->stage(), device_->buffers(),
                               job::UnitDecoder::slab_chunks_for(unit.num_chunks, device_->stage()));
      fault = decode(index, decoder);
      kernel_ends = decoder.kernel_ends();
      densest_chunk = decoder.densest_chunk();
    }
    report_.chunks_checked += is_sampled ? samples_[index].size() : unit.num_chunks;
    if (fault) {
      fail_unit(index, *fault);
    } else if (mismatch) {
      add_mismatch(index);
    } else {
      check_limits(index, kernel_ends, densest_chunk);
    }
  }

  std::optional<UnitFault> decode_officially(std::size_t index, const job::CheckpointUnit& bytes,
                                             bool& kernel_ends, std::uint64_t& densest_chunk) {
    const model::StoredUnit& unit = units()[index];
    const std::uint64_t bytes_before = progress_.bytes_done;
    // Threads that decode a chunk now and then would wait in a loop, beside those that interpret.
    df11::Df11DecodeStage& stage = report_.level == VerifyLevel::kSample ? lone_stage_ : device_->stage();
    const auto run = [&] {
      job::OfficialDecoder decoder(job::unit_sizes(unit), bytes, stage, *kernel_, kernel_buffers_,
                                   num_threads_);
      const auto fault = run_officially(index, decoder);
      add_counts(decoder.counts());
      // Where the kernel ran, it told itself whether it ends.
      kernel_ends = decoder.can_launch() || decoder.own_kernel_ends();
      if (!fault && kernel_ends && !decoder.own_kernel_ends()) {
        report_.notes.push_back("unit " + printable(unit.name) +
                                ": by its tables the kernel would not end on the padding, but it does");
      }
      densest_chunk = decoder.densest_chunk();
      return fault;
    };
    if (kernel_->is_interpreter()) return run();
    const OfficialRun counts_before = *report_.official;
    const auto run_interpreted = [&] {
      *report_.official = counts_before;
      progress_.bytes_done = bytes_before;
      interpret_kernel();
      return run();
    };
    try {
      auto fault = run();
      if (!fault || fault->kind != "kernel") return fault;
      // A wrong weight is the kernel's or the GPU's: the interpreter tells.
      std::unique_ptr<job::OfficialKernelRunner> gpu = std::move(kernel_);
      const auto interpreted = run_interpreted();
      if (interpreted) {
        kernel_ = std::move(gpu);
        return interpreted;
      }
      std::unique_ptr<job::OfficialKernelRunner> interpreter = std::move(kernel_);
      give_up_official_gpu(
          Error(ErrorCode::kDeviceFailed, "unit " + printable(unit.name) + ": " + fault->message +
                                              ", and so does the kernel in the interpreter"));
      kernel_ = std::move(interpreter);
      return interpreted;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDeviceFailed || kernel_ == nullptr || kernel_->is_interpreter()) throw;
      give_up_official_gpu(error);
    }
    return run_interpreted();
  }

  void add_mismatch(std::size_t index) {
    report_.failures.push_back(*mismatches_[index]);
    failed_[index] = true;
  }

  bool has_usable_tables(std::size_t index) {
    const model::StoredUnit& unit = units()[index];
    if (unit.num_tables > df11::kMaxTables) {
      fail_unit(index, {.kind = "limit",
                        .message = "luts: there are " + std::to_string(unit.num_tables) +
                                   " tables, but pointers reach 17 only: loaders decode other weights"});
      return false;
    }
    std::vector<std::uint8_t> luts(job::unit_sizes(unit).luts_bytes());
    job::CheckpointUnit(output_, unit, 1).read(job::UnitBuffer::kLuts, 0, luts);
    const df11::LutsView view(luts);
    const auto lost = df11::find_lost_code(view);
    if (!lost) return true;
    fail_unit(index, {.kind = "table",
                      .message = "luts: no code of " + std::to_string(view.length(*lost)) +
                                 " bits leads to exponent " + std::to_string(*lost) +
                                 ", which has that length in the last row"});
    return false;
  }

  std::optional<UnitFault> decode(std::size_t index, job::UnitDecoder& decoder) {
    const auto on_slab = [this](std::uint64_t num_weights) { show_progress(2 * num_weights); };
    const model::Unit* source_unit = sources_[index];
    if (source_unit == nullptr) return decoder.check_lengths(on_slab);
    job::CheckpointSource source(*source_, match_->view, *source_unit, num_threads_);
    std::optional<UnitFault> fault;
    if (report_.level == VerifyLevel::kFull) {
      fault = decoder.compare(source, on_slab);
    } else {
      for_each_run(samples_[index], [&](std::uint64_t first, std::uint64_t end) {
        fault = decoder.compare_chunks(first, end, source, on_slab);
        return !fault;
      });
    }
    if (fault) name_tensor(*fault, source, *source_unit);
    return fault;
  }

  std::optional<UnitFault> run_officially(std::size_t index, job::OfficialDecoder& decoder) {
    const auto on_slab = [this](std::uint64_t num_weights) { show_progress(2 * num_weights); };
    const model::Unit* source_unit = sources_[index];
    std::optional<job::CheckpointSource> source;
    if (source_unit != nullptr) source.emplace(*source_, match_->view, *source_unit, num_threads_);
    job::WeightSource* const weights = source ? &*source : nullptr;
    std::optional<UnitFault> fault;
    if (report_.level == VerifyLevel::kFull) {
      fault = decoder.compare_chunks(0, units()[index].num_chunks, weights, on_slab);
    } else {
      for_each_run(samples_[index], [&](std::uint64_t first, std::uint64_t end) {
        fault = decoder.compare_chunks(first, end, weights, on_slab);
        return !fault;
      });
      if (!fault) fault = decoder.check_positions(weights);
    }
    if (fault && source) name_tensor(*fault, *source, *source_unit);
    return fault;
  }

  void name_tensor(UnitFault& fault, const job::CheckpointSource& source, const model::Unit& unit) const {
    if (fault.weight == UnitFault::kNowhere || unit.tensors.size() < 2) return;
    const auto [tensor, weight] = source.locate(fault.weight);
    fault.message +=
        " (" + std::to_string(weight) + " of tensor " + in_quotes(source_->tensors()[tensor].name) + ")";
  }

  void add_counts(const job::KernelCounts& counts) {
    OfficialRun& run = *report_.official;
    run.num_chunks += counts.num_chunks;
    run.num_weights += counts.num_weights;
    run.lane_instructions += counts.lane_instructions;
    run.reads_past_gaps += counts.reads_past_gaps;
    run.reads_past_output_positions += counts.reads_past_positions;
    run.seconds += counts.seconds;
  }

  /// Neighbouring chunks together: visit(first, end) returns whether to go on.
  template <class Visit>
  static void for_each_run(const std::vector<std::uint64_t>& chunks, Visit visit) {
    for (std::size_t i = 0; i < chunks.size();) {
      std::size_t end = i + 1;
      while (end < chunks.size() && chunks[end] == chunks[end - 1] + 1) ++end;
      if (!visit(chunks[i], chunks[end - 1] + 1)) return;
      i = end;
    }
  }

  /// What makes a sound unit useless to the official loader.
  void check_limits(std::size_t index, bool kernel_ends, std::uint64_t densest_chunk) {
    const model::StoredUnit& unit = units()[index];
    if (!kernel_ends) {
      fail_unit(index, {.kind = "padding",
                        .message = "luts: the weights are intact, but the official kernel would never end on "
                                   "the bits after the last one, and hang the GPU: compress the unit again"});
    }
    const auto exceeds = [&](const std::string& what) {
      fail_unit(index,
                {.kind = "limit",
                 .message = what + ": the weights are intact, but the official loader cannot decode them"});
    };
    if (densest_chunk > df11::kMaxChunkWeights) {
      exceeds("output_positions: a chunk holds " + std::to_string(densest_chunk) + " weights, more than " +
              std::to_string(df11::kMaxChunkWeights));
    }
    if (unit.num_weights >= df11::kMaxUnitWeights)
      exceeds("sign_mantissa: " + std::to_string(unit.num_weights) + " weights are 2^31 - 4096 or more");
    if (unit.stream_bytes >= df11::kMaxStreamBytes)
      exceeds("encoded_exponent: " + std::to_string(unit.stream_bytes) + " bytes are 2^31 - 4096 or more");
  }

  void fail_unit(std::size_t index, const UnitFault& fault) {
    failed_[index] = true;
    report_.failures.push_back({.unit = units()[index].name,
                                .tensor = {},
                                .kind = fault.kind,
                                .message = fault.message,
                                .chunk = known(fault.chunk),
                                .window = known(fault.window),
                                .weight = known(fault.weight)});
  }

  void fail_unit(const std::string& unit, const char* kind, const std::string& message) {
    report_.failures.push_back({.unit = unit, .tensor = {}, .kind = kind, .message = message});
  }

  // ---- tensors outside units

  void check_tensors() {
    progress_.unit.clear();
    if (!match_) return;
    for (const auto& matched : match_->tensors) {
      const model::ModelTensor& tensor = match_->view.tensors[matched.tensor];
      const auto difference = compare(tensor, output_.tensors()[matched.stored]);
      if (difference)
        fail_tensor(tensor.name, "byte " + std::to_string(*difference) + " differs from the source");
    }
    for (const auto& tie : match_->ties) {
      const auto tensor = [&](std::size_t index) {
        const model::SourceTensor& source = source_->tensors()[index];
        return model::ModelTensor{source.name, index, source.dtype, source.num_elements(), false};
      };
      if (job::same_content(*source_, tensor(tie.tensor), tensor(tie.other))) continue;
      fail_tensor(source_->tensors()[tie.tensor].name, "is not in the output, and differs from " +
                                                           in_quotes(source_->tensors()[tie.other].name) +
                                                           ", which it should be tied to");
    }
  }

  void fail_tensor(const std::string& tensor, std::string message) {
    report_.failures.push_back(
        {.unit = {}, .tensor = tensor, .kind = "tensor", .message = std::move(message)});
  }

  /// The first byte that differs; nothing: none does. At the level of samples both ends are looked at.
  std::optional<std::uint64_t> compare(const model::ModelTensor& tensor, const model::SourceTensor& stored) {
    const std::uint64_t bytes = stored.size_bytes;
    if (report_.level != VerifyLevel::kSample || bytes <= 2 * kSampledBytes)
      return compare(tensor, stored, 0, bytes);
    if (const auto found = compare(tensor, stored, 0, kSampledBytes)) return found;
    return compare(tensor, stored, bytes - kSampledBytes, kSampledBytes);
  }

  std::optional<std::uint64_t> compare(const model::ModelTensor& tensor, const model::SourceTensor& stored,
                                       std::uint64_t first, std::uint64_t bytes) {
    const model::SourceTensor& from = source_->tensors()[tensor.source_index];
    const bool is_cast = tensor.dtype != from.dtype;
    std::mutex mutex;
    std::optional<std::uint64_t> difference;
    job::transfer_in_pieces(bytes, num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
      thread_local std::vector<std::uint8_t> a, b;
      a.resize(std::max<std::size_t>(a.size(), count));
      b.resize(a.size());
      const std::uint64_t begin = first + offset;
      output_.read(stored, begin, count, a.data());
      if (is_cast) {
        job::read_elements(*source_, tensor, begin / 2, count / 2, b.data());
      } else {
        source_->read(from, begin, count, b.data());
      }
      if (count == 0 || std::memcmp(a.data(), b.data(), count) == 0) return;
      const auto same = std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin());
      const std::uint64_t place = begin + static_cast<std::uint64_t>(same.first - a.begin());
      const std::lock_guard lock(mutex);
      difference = std::min(difference.value_or(place), place);
    });
    show_progress(bytes);
    return difference;
  }

  // ---- hashes

  void check_hashes() {
    if (report_.level == VerifyLevel::kSample) return;
    if (record_ && record_->has_hashes) miss_hashes();
    if (hashes_.num_files == 0) return;
    const job::StoredHashesReport checked = job::check_stored_hashes(
        output_, num_threads_, [this](std::uint64_t bytes) { show_progress(bytes); });
    report_.num_hashed_files = checked.extent.num_files;
    if (report_.num_hashed_files < report_.num_files) {
      report_.notes.push_back(std::to_string(report_.num_files - report_.num_hashed_files) + " of " +
                              std::to_string(report_.num_files) + " files hold no hashes");
    }
    for (const job::HashFailure& failure : checked.failures) {
      const auto unit = unit_of_buffer(failure.tensor);
      // A unit has one failure, and what the decoder found tells more.
      if (unit && failed_[*unit]) continue;
      if (unit) failed_[*unit] = true;
      report_.failures.push_back({.unit = unit ? units()[*unit].name : "",
                                  .tensor = failure.tensor,
                                  .kind = "hash",
                                  .message = failure.message});
    }
  }

  /// The record says that every file has hashes.
  void miss_hashes() {
    for (std::size_t f = 0; f < output_.files().size(); ++f) {
      if (model::has_stored_hashes(output_.metadata_json(f))) continue;
      report_.failures.push_back({.kind = "hash",
                                  .message = printable(output_.files()[f].path().native()) +
                                             ": holds no hashes, but " + record_name_ +
                                             " says that it does"});
    }
  }

  std::optional<std::size_t> unit_of_buffer(std::string_view tensor) const {
    const std::size_t dot = tensor.rfind('.');
    if (dot == tensor.npos) return std::nullopt;
    const auto unit = unit_index_.find(tensor.substr(0, dot));
    if (unit == unit_index_.end()) return std::nullopt;
    for (const std::size_t buffer : units()[unit->second].buffers)
      if (output_.tensors()[buffer].name == tensor) return unit->second;
    return std::nullopt;
  }

  /// Those of units first.
  void sort_failures() {
    std::vector<VerifyFailure> others;
    std::erase_if(report_.failures, [&](const VerifyFailure& failure) {
      if (failure.unit.empty()) others.push_back(failure);
      return failure.unit.empty();
    });
    report_.failures.insert(report_.failures.end(), others.begin(), others.end());
  }

  void show_progress(std::uint64_t bytes) {
    progress_.bytes_done += bytes;
    if (options_.on_progress) options_.on_progress(progress_);
  }

  const VerifyOptions& options_;
  const model::Checkpoint output_;
  const model::Df11Survey survey_;
  const int num_threads_;
  std::optional<job::DecodeDevice> device_;  // once the level is settled
  host::HostDecodeStage lone_stage_{1};
  // Of the engine kOfficial:
  job::DeviceChoice official_device_;
  job::KernelFile kernel_file_;
  std::unique_ptr<job::OfficialKernelRunner> kernel_;
  job::KernelBuffers kernel_buffers_;

  job::StoredHashesExtent hashes_;
  std::optional<model::Checkpoint> source_;
  std::string record_name_;
  std::optional<model::SourceRecord> record_;
  std::optional<job::SourceMatch> match_;
  std::map<std::string_view, std::size_t> unit_index_;
  std::vector<std::optional<VerifyFailure>> mismatches_;  // by unit: its shape is not the source's
  std::vector<const model::Unit*> sources_;               // by unit; nullptr: not known
  std::vector<std::vector<std::uint64_t>> samples_;       // by unit
  std::vector<bool> failed_;                              // by unit
  VerifyReport report_;
  VerifyProgress progress_;
};

}  // namespace

VerifyReport verify(const VerifyOptions& options) {
  return job::telling_trouble(options.path, "for what its headers list", [&] {
    if (job::is_tile_ans_output(options.path)) return job::verify_tile_ans(options);
    return VerifyJob(options).run();
  });
}

}  // namespace weightpress
