// A Tile-ANS output, of any maker, back into a checkpoint: names, dtypes and shapes stand in its containers,
// files stay as they are grouped.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "host/host_stages.h"
#include "job/model_plan.h"
#include "job/output.h"
#include "job/output_rules.h"
#include "job/parallel_io.h"
#include "job/process_memory.h"
#include "job/restored_files.h"
#include "job/tile_ans_device.h"
#include "job/tile_ans_jobs.h"
#include "job/tile_ans_model.h"
#include "job/tile_ans_slab.h"
#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::printable;

constexpr std::string_view kFileSuffix = ".safetensors";

class TileAnsDecompressJob {
 public:
  explicit TileAnsDecompressJob(const DecompressOptions& options)
      : options_(options),
        checkpoint_(model::Checkpoint::open(options.source, model::Df11Policy::kAccept)),
        survey_(survey_tile_ans(checkpoint_)),
        num_threads_(host::usable_num_threads(options.num_threads)),
        device_(choose_device(options.device), num_threads_, 0, options.on_warning) {}

  DecompressReport run() {
    const auto start = std::chrono::steady_clock::now();
    const fs::path path = resolve_output(options_.output);
    const bool is_file = path.native().ends_with(kFileSuffix);
    if (!survey_.broken.empty()) throw Error(survey_.broken.front());
    make_plan();
    if (is_file) {
      name_single_file(path);
    } else {
      read_side_files();
    }
    RestoredFiles files(plan_);
    begin_report();
    check_output_is_apart(path);
    if (is_file) check_not_in_source(options_.output, path, options_.source);
    std::unique_ptr<Output> output;
    if (is_file) {
      output = std::make_unique<OutputFile>(path, std::vector<OutputFile::SideFile>(), options_.force,
                                            PartialFolder::Journaled::kNo);
    } else {
      output = std::make_unique<OutputFolder>(path, options_.force, own_names());
    }
    report_.removed_remains = output->removed_remains();
    if (options_.on_planned) options_.on_planned(report_);

    bool has_written = false;
    const auto was_written = [&] { return has_written; };
    write_or_discard(*output, AfterTrouble::kRemove, was_written, [&] {
      check_free_space(options_.output, *output, files.total_bytes());
      memory_ = std::make_unique<TileAnsSlabMemory>(
          decode_memory_bytes(checkpoint_, survey_.containers, num_threads_), device_.memory());
      has_written = true;
      files.create(*output);
      for (std::size_t c = 0; c < survey_.containers.size(); ++c)
        decode(survey_.containers[c], places_[c], files);
      for (const RestoredCopy& kept : plan_.copies) copy(kept.tensor, kept.places.front(), files);
      files.finish();
      report_.output_bytes += files.total_bytes();
      for (const auto& [name, content] : side_files_) {
        model::write_whole_file(output->file(name), content);
        report_.output_bytes += content.size();
      }
      check_unchanged();
    });
    tell_device();
    report_.old_output_left = finish_or_tell(*output, AfterTrouble::kRemove);
    report_.peak_memory_bytes = peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // ---- before anything is written

  void make_plan() {
    index_name_ = find_index_name(options_.source);
    for (std::size_t f = 0; f < checkpoint_.files().size(); ++f) {
      plan_.files.push_back({.name = checkpoint_.files()[f].path().filename().string(),
                             .metadata_json = checkpoint_.metadata_json(f),
                             .tensors = {}});
    }
    for (const StoredTileAns& stored : survey_.containers)
      places_.push_back(add({stored.name, stored.header.dtype, stored.header.shape}, stored.header_tensor));
    for (const std::size_t t : survey_.kept) {
      const model::SourceTensor& tensor = checkpoint_.tensors()[t];
      plan_.copies.push_back({t, {add({tensor.name, tensor.dtype, tensor.shape}, t)}});
    }
    if (options_.arch != "auto" || !options_.source_shapes.empty())
      plan_.notes.emplace_back(
          "Tile-ANS stores names and shapes: --arch and --source-shapes are not looked at");
  }

  /// A tensor goes into the file that `like` is in.
  TensorPlace add(model::TensorSpec spec, std::size_t like) {
    const std::size_t f = checkpoint_.tensors()[like].file_index;
    plan_.files[f].tensors.push_back(std::move(spec));
    return {f, plan_.files[f].tensors.size() - 1};
  }

  void name_single_file(const fs::path& path) {
    if (plan_.files.size() != 1 || index_name_) {
      throw Error(ErrorCode::kUsage, "the output " + printable(options_.output.native()) +
                                         " is to be one file, but the source has " +
                                         std::to_string(plan_.files.size()) +
                                         (index_name_ ? " and an index" : "") + ": name a folder");
    }
    plan_.files[0].name = path.filename().string();
  }

  /// Beside a single file lies what may be of another model.
  void read_side_files() {
    if (index_name_) side_files_.emplace_back(*index_name_, make_index(plan_));
    if (!fs::is_directory(options_.source) && !index_name_) return;
    for (const std::string_view name : {kConfigName, kGenerationConfigName})
      if (auto content = read_beside_source(checkpoint_, name))
        side_files_.emplace_back(name, std::move(*content));
  }

  /// What a run over this source may have written before.
  std::vector<std::string> own_names() const {
    std::vector<std::string> names;
    for (const auto& [name, content] : side_files_) names.push_back(name);
    for (const RestoredFile& file : plan_.files) names.push_back(file.name);
    return names;
  }

  void check_output_is_apart(const fs::path& output) const {
    std::vector<fs::path> inputs = {options_.source};
    for (const model::File& file : checkpoint_.files()) inputs.push_back(file.path());
    if (index_name_) inputs.push_back(checkpoint_.folder() / *index_name_);
    for (const std::string_view name : {kConfigName, kGenerationConfigName})
      if (fs::path path = checkpoint_.folder() / name; fs::exists(path)) inputs.push_back(std::move(path));
    check_inputs_stay(options_.output, {output}, inputs);
  }

  void begin_report() {
    report_.is_tile_ans = true;
    for (const RestoredFile& file : plan_.files) {
      report_.files.push_back(file.name);
      report_.num_tensors += file.tensors.size();
    }
    report_.num_units = survey_.containers.size();
    report_.notes = plan_.notes;
    report_.source_bytes = checkpoint_.total_bytes();
    tell_device();
    report_.num_threads = num_threads_;
    progress_.num_units = survey_.containers.size();
    for (const StoredTileAns& stored : survey_.containers) progress_.total_bytes += stored.size_bytes();
    for (const RestoredCopy& kept : plan_.copies)
      progress_.total_bytes += checkpoint_.tensors()[kept.tensor].size_bytes;
  }

  void tell_device() {
    report_.device = device_.name();
    report_.why_device = device_.why();
    report_.decoder = device_.decoder();
  }

  // ---- writing

  void decode(const StoredTileAns& stored, TensorPlace place, RestoredFiles& files) {
    progress_.unit = stored.name;
    show_progress(0);
    if (stored.is_raw()) {
      copy(stored.data, place, files);
    } else {
      const OpenedTileAns opened = open_container(checkpoint_, stored).value();
      const tile_ans::Layout& layout = opened.plan.layout;
      const std::uint64_t num_tiles = layout.num_tiles();
      const std::uint64_t step = tiles_in(layout, memory_->size_bytes(),
                                          [&](std::uint64_t tiles) { return decode_bytes(layout, tiles); });
      for (std::uint64_t first = 0; first < num_tiles; first += step) {
        const tile_ans::TileRange tiles{first, std::min(step, num_tiles - first)};
        memory_->reset();
        const auto elements = memory_->take<std::uint8_t>(
            layout.num_lanes * layout.elements_of(tiles.first_tile, tiles.num_tiles));
        const auto status = decode_slab({.plan = opened.plan,
                                         .payload_words = opened.payload_words,
                                         .buffers = opened.buffers,
                                         .tiles = tiles,
                                         .elements = elements},
                                        device_, *memory_, num_threads_);
        if (!status.ok()) {
          check_unchanged();  // what was written to meanwhile is not corrupt
          throw Error(container_error(
              checkpoint_, stored.header_tensor, stored.name, ErrorCode::kCorruptFile,
              describe_fault(status) + "; the file is damaged: download it or make it again"));
        }
        const std::uint64_t begin = layout.num_lanes * layout.first_element(first);
        transfer_in_pieces(elements.size(), num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
          files.write(place, begin + offset, elements.data() + offset, bytes);
        });
        show_progress(elements.size());
      }
    }
    ++progress_.units_done;
  }

  void copy(std::size_t index, TensorPlace place, RestoredFiles& files) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[index];
    transfer_in_pieces(tensor.size_bytes, num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
      thread_local std::vector<std::uint8_t> piece;  // kept: fresh memory costs a page fault every 4 KiB
      piece.resize(std::max<std::size_t>(piece.size(), bytes));
      checkpoint_.read(tensor, offset, bytes, piece.data());
      files.write(place, offset, piece.data(), bytes);
    });
    show_progress(tensor.size_bytes);
  }

  void check_unchanged() const {
    for (const model::File& file : checkpoint_.files()) file.check_unchanged();
  }

  void show_progress(std::uint64_t bytes) {
    progress_.bytes_done += bytes;
    if (progress_.units_done == progress_.num_units) {
      progress_.phase = DecompressPhase::kCopying;
      progress_.unit.clear();
    }
    if (options_.on_progress) options_.on_progress(progress_);
  }

  const DecompressOptions& options_;
  const model::Checkpoint checkpoint_;
  const TileAnsSurvey survey_;
  const int num_threads_;
  TileAnsDevice device_;
  std::unique_ptr<TileAnsSlabMemory> memory_;  // the device's

  RestorePlan plan_;                 // files and copies
  std::vector<TensorPlace> places_;  // by container
  std::optional<std::string> index_name_;
  std::vector<std::pair<std::string, std::string>> side_files_;  // name and content
  DecompressReport report_;
  DecompressProgress progress_;
};

}  // namespace

DecompressReport decompress_tile_ans(const DecompressOptions& options) {
  return TileAnsDecompressJob(options).run();
}

}  // namespace weightpress::job
