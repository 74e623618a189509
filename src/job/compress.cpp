// The main job: model -> units -> shards, leftover, config.json -> one rename.
#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include <weightpress/compress.h>

#include "host/host_stages.h"
#include "job/coding_options.h"
#include "job/output_folder.h"
#include "job/unit_shard.h"
#include "model/checkpoint.h"
#include "model/config_json.h"
#include "model/definition.h"
#include "model/safetensors_layout.h"
#include "model/text.h"
#include "model/units.h"

namespace weightpress {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigFile = "config.json";
constexpr std::string_view kGenerationConfigFile = "generation_config.json";
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 20;

/// What this version does not do yet is refused, not ignored: it would change what is written.
void check_supported(const model::ModelDefinition& definition, const fs::path& path) {
  std::string what;
  if (definition.layout != "transformers") what = "the layout " + model::in_quotes(definition.layout);
  if (!definition.strip_prefixes.empty()) what = "strip_prefixes";
  if (!definition.drop.empty()) what = "the rule drop";
  if (!definition.rename.empty()) what = "the rule rename";
  if (!definition.keep_only_prefix.empty()) what = "the rule keep_only_prefix";
  if (!definition.file.empty()) what = "the rule file";
  if (!what.empty()) {
    throw Error(ErrorCode::kBadDefinition,
                "the definition " + model::printable(path.native()) + " asks for " + what +
                    ", which this version cannot do: only the transformers layout without "
                    "changes of names is supported");
  }
}

class CompressJob {
 public:
  explicit CompressJob(const CompressOptions& options)
      : options_(options),
        definition_(model::load_definition(options.definition)),
        checkpoint_(model::Checkpoint::open(options.source)),
        num_threads_(host::usable_num_threads(options.num_threads)),
        stages_(num_threads_) {}

  CompressReport run() {
    const auto start = std::chrono::steady_clock::now();
    job::check_identity_options(options_.luts, options_.strict_identity);
    check_supported(definition_, options_.definition);
    const model::UnitAssignment assignment = model::assign_units(checkpoint_.tensors(), definition_).value();
    check_complete(assignment);
    const std::string config = make_config();
    const std::optional<std::string> generation_config = read_beside_source(kGenerationConfigFile);
    begin_report(assignment);

    const fs::path path = job::resolve_output(options_.output);
    check_output_is_apart(path);
    job::OutputFolder output(path, options_.force);
    report_.removed_remains = output.removed_remains();
    for (const model::Unit& unit : assignment.units) compress_unit(unit, output);
    write_leftover(assignment.leftover, output);
    if (generation_config) write_file(output, kGenerationConfigFile, *generation_config);
    write_file(output, kConfigFile, config);  // last: it makes the folder a DF11 model
    for (const model::File& file : checkpoint_.files()) file.check_unchanged();
    report_.old_output_left = output.finish();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  /// A pattern without a module means a model that lacks a part, or the wrong definition.
  void check_complete(const model::UnitAssignment& assignment) const {
    for (const std::size_t index : assignment.unmatched_patterns) {
      throw Error(ErrorCode::kNotFound,
                  "no module in " + model::printable(options_.source.native()) + " matches the pattern " +
                      model::in_quotes(definition_.pattern_dict[index].pattern) + " of the definition " +
                      model::printable(options_.definition.native()) +
                      ": the model lacks this part, or another definition is the right one");
    }
  }

  /// An output that is replaced is deleted: no input may lie in it, neither the file itself nor the link that
  /// names it.
  void check_output_is_apart(const fs::path& output) const {
    const auto check = [&](const fs::path& input) {
      const fs::path above = input.has_parent_path() ? input.parent_path() : fs::path(".");
      for (const fs::path& path : {fs::weakly_canonical(input), fs::weakly_canonical(above)}) {
        if (std::mismatch(output.begin(), output.end(), path.begin(), path.end()).first == output.end()) {
          throw Error(ErrorCode::kUsage, "the output " + model::printable(options_.output.native()) +
                                             " holds the input " + model::printable(input.native()) +
                                             ": name another output");
        }
      }
    };
    check(options_.source);
    check(options_.definition);
    for (const model::File& file : checkpoint_.files()) check(file.path());
  }

  void begin_report(const model::UnitAssignment& assignment) {
    report_.definition = definition_.name;
    report_.num_units = assignment.units.size();
    report_.num_kept_tensors = assignment.leftover.size();
    report_.num_threads = num_threads_;
    report_.source_bytes = checkpoint_.total_bytes();
    for (const model::Unit& unit : assignment.units) {
      report_.unit_source_bytes += 2 * unit.num_weights;
      report_.num_kept_tensors += unit.siblings.size();
    }
  }

  void compress_unit(const model::Unit& unit, job::OutputFolder& output) {
    job::UnitCompressorOptions compressor;
    compressor.coding = job::coding_options(options_.luts, options_.strict_identity);

    job::CheckpointSource source(checkpoint_, unit, num_threads_);
    job::UnitShard shard(checkpoint_, unit, output.file(model::unit_file_name(unit.name)), num_threads_);
    Result<df11::UnitPlan> plan =
        job::compress_unit(model::printable(unit.name), source, shard, stages_, buffers_, compressor);
    if (!plan) throw Error(located(std::move(plan.error()), unit, source));
    shard.finish();

    for (const df11::RescueReason reason : plan->rescues) {
      report_.remarks.push_back({unit.name, std::string(df11::rescue_reason_text(reason))});
    }
    if (plan->ambiguous_limiter) {
      report_.remarks.push_back(
          {unit.name,
           "codes above 32 bits were shortened, and the official choice among equally rare "
           "exponents depends on numpy's version; this is one of the valid results"});
    }
    report_.unit_output_bytes += shard.file_bytes();
    report_.output_bytes += shard.file_bytes();
    progress_.unit = unit.name;
    progress_.num_units = report_.num_units;
    progress_.source_bytes = report_.unit_source_bytes;
    ++progress_.units_done;
    progress_.source_bytes_done += 2 * unit.num_weights;
    if (options_.on_progress) options_.on_progress(progress_);
  }

  /// Names the tensor in errors that point at a weight.
  ErrorDetails located(ErrorDetails error, const model::Unit& unit,
                       const job::CheckpointSource& source) const {
    error.unit = unit.name;
    if (error.offset == ErrorDetails::kNoOffset) return error;
    const auto [tensor, index] = source.locate(error.offset);
    error.tensor = tensor;
    error.message +=
        ": the first is weight " + std::to_string(index) + " of tensor " + model::printable(tensor) + " in " +
        model::printable(checkpoint_.files()[checkpoint_.find(tensor)->file_index].path().native());
    error.offset = index;
    return error;
  }

  void write_leftover(const std::vector<std::size_t>& leftover, job::OutputFolder& output) {
    std::vector<model::TensorSpec> specs;
    for (const std::size_t index : leftover) {
      const model::SourceTensor& tensor = checkpoint_.tensors()[index];
      specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    const model::SafetensorsLayout layout = model::plan_safetensors_layout(specs, "pt").value();
    model::File file = model::File::create(output.file(model::leftover_file_name(definition_)));
    file.write_at(layout.header.data(), layout.header.size(), 0);
    for (const model::TensorPlacement& placement : layout.tensors) {
      job::copy_tensor(checkpoint_, checkpoint_.tensors()[leftover[placement.spec_index]], file,
                       placement.offset_bytes);
    }
    file.sync();
    file.close();
    report_.output_bytes += layout.file_bytes;
  }

  /// A file beside the tensors; nothing if there is none.
  std::optional<std::string> read_beside_source(std::string_view name) const {
    const fs::path path = checkpoint_.folder() / name;
    if (!fs::exists(fs::symlink_status(path))) return std::nullopt;
    if (!fs::exists(path)) {
      throw Error(ErrorCode::kNotFound, model::printable(path.native()) +
                                            " is a link to a file that does not exist: download it again");
    }
    return model::read_whole_file(path, kMaxConfigBytes);
  }

  std::string make_config() {
    const std::optional<std::string> source = read_beside_source(kConfigFile);
    report_.has_source_config = source.has_value();
    if (!source && fs::is_directory(options_.source)) {
      throw Error(ErrorCode::kNotFound, "the folder " + model::printable(options_.source.native()) +
                                            " has no " + std::string(kConfigFile) +
                                            ", which the transformers layout needs: copy the model's there");
    }
    return model::splice_dfloat11_config(source, definition_, (checkpoint_.folder() / kConfigFile).string())
        .value();
  }

  void write_file(job::OutputFolder& output, std::string_view name, std::string_view content) {
    model::write_whole_file(output.file(name), content);
    report_.output_bytes += content.size();
  }

  const CompressOptions& options_;
  const model::ModelDefinition definition_;
  const model::Checkpoint checkpoint_;
  const int num_threads_;
  host::HostStages stages_;
  job::SlabBuffers buffers_;
  CompressReport report_;
  CompressProgress progress_;
};

}  // namespace

CompressReport compress(const CompressOptions& options) {
  try {
    return CompressJob(options).run();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory,
                model::printable(options.source.native()) +
                    ": there is not enough memory to compress it: close other programs or use "
                    "a machine with more");
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kIo, model::printable(error.path1().native()) + ": " + error.code().message());
  }
}

}  // namespace weightpress
