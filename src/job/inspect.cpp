// include/weightpress/inspect.h: what a checkpoint or an output holds.
#include <algorithm>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include <weightpress/inspect.h>

#include "format/df11_constants.h"
#include "job/model_plan.h"
#include "job/record_file.h"
#include "job/tile_ans_jobs.h"
#include "job/tile_ans_model.h"
#include "model/checkpoint.h"
#include "model/df11_model.h"
#include "model/file.h"
#include "model/record_reader.h"
#include "model/text.h"

namespace weightpress {
namespace {

constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{64} << 20;

std::vector<InspectedFile> list_files(const model::Checkpoint& checkpoint) {
  std::vector<InspectedFile> files;
  for (std::size_t f = 0; f < checkpoint.files().size(); ++f) {
    const model::File& file = checkpoint.files()[f];
    files.push_back(
        {file.path().filename().string(), file.size_bytes(), 0, !checkpoint.metadata_json(f).empty()});
  }
  for (const model::SourceTensor& tensor : checkpoint.tensors()) ++files[tensor.file_index].num_tensors;
  return files;
}

std::vector<DtypeTotal> totals_by_dtype(const model::Checkpoint& checkpoint,
                                        const std::vector<std::size_t>& indices) {
  std::map<model::Dtype, DtypeTotal> by_dtype;
  for (const std::size_t index : indices) {
    const model::SourceTensor& tensor = checkpoint.tensors()[index];
    DtypeTotal& total = by_dtype[tensor.dtype];
    total.num_tensors += 1;
    total.num_elements += tensor.num_elements();
    total.size_bytes += tensor.size_bytes;
  }
  std::vector<DtypeTotal> totals;
  for (auto& [dtype, total] : by_dtype) {
    total.dtype = model::dtype_name(dtype);
    totals.push_back(std::move(total));
  }
  std::ranges::sort(totals, [](const DtypeTotal& a, const DtypeTotal& b) {
    return std::tie(b.size_bytes, a.dtype) < std::tie(a.size_bytes, b.dtype);
  });
  return totals;
}

InspectedUnit describe_unit(const model::StoredUnit& stored) {
  InspectedUnit unit;
  unit.name = stored.name;
  unit.num_weights = stored.num_weights;
  unit.num_tensors = stored.num_tensors();
  unit.size_bytes = stored.size_bytes;
  unit.num_tables = stored.num_tables;
  for (const unsigned length : stored.code_lengths) {
    if (length == 0) continue;
    unit.shortest_code_bits = unit.num_exponents == 0 ? length : std::min(unit.shortest_code_bits, length);
    unit.longest_code_bits = std::max(unit.longest_code_bits, length);
    ++unit.num_exponents;
  }
  return unit;
}

// What a decoder could read and no loader does.
void note_unusable(const std::vector<model::StoredUnit>& units, InspectReport& report) {
  for (const model::StoredUnit& unit : units) {
    std::string what;
    if (unit.num_tables > df11::kMaxTables)
      what = std::to_string(unit.num_tables) + " tables; more than " + std::to_string(df11::kMaxTables);
    if (unit.num_weights >= df11::kMaxUnitWeights)
      what = std::to_string(unit.num_weights) + " weights; 2^31 - 4096 and more";
    if (unit.stream_bytes >= df11::kMaxStreamBytes)
      what = std::to_string(unit.stream_bytes) + " bytes of bitstream; 2^31 - 4096 and more";
    if (!what.empty())
      report.notes.push_back("unit " + model::in_quotes(unit.name) + " has " + what +
                             " are of no use to any loader");
  }
}

// Which definition compress would choose, and the units it makes. Nothing if none fits.
std::optional<InspectedSource> detect_source(const model::Checkpoint& checkpoint) {
  try {
    const job::ModelPlan plan = job::plan_model(checkpoint, {});
    InspectedSource source{plan.definition.name, plan.assignment.units.size(), 0};
    for (const model::Unit& unit : plan.assignment.units) source.unit_weights += unit.num_weights;
    return source;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What lies beside the tensors. Nothing in here may fail the inspection.
class SideFiles {
 public:
  SideFiles(const model::Checkpoint& checkpoint, const std::filesystem::path& path, InspectReport& report)
      : checkpoint_(checkpoint), path_(path), report_(report) {}

  void read_record() {
    // One file of a folder layout holds a part of what the folder's record lists.
    const auto [path, is_complete] = job::find_record_file(checkpoint_, path_);
    if (!path.empty()) use_record(path, is_complete);
  }

  void read_config() {
    const std::filesystem::path path = checkpoint_.folder() / "config.json";
    const auto text = read(path, model::kMaxConfigBytes);
    if (!text) return;
    auto config = model::parse_dfloat11_config(*text, path.string());
    if (config) {
      report_.config = InspectedConfig{std::move(config->version), config->num_patterns};
    } else if (config.error().code != ErrorCode::kNotFound) {
      note_unused(config.error().message);
    }
  }

 private:
  std::optional<std::string> read(const std::filesystem::path& path, std::uint64_t max_bytes) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return std::nullopt;
    try {
      return model::read_whole_file(path, max_bytes);
    } catch (const Error& error) {
      note_unused(error.what());
      return std::nullopt;
    }
  }

  void use_record(const std::filesystem::path& path, bool is_complete) {
    const auto text = read(path, kMaxRecordBytes);
    if (!text) return;
    auto parsed = model::parse_output_record(*text, path.string());
    if (!parsed) return note_unused(parsed.error().message);
    model::OutputRecord& from = *parsed;
    if (is_complete) note_missing(path, from);
    InspectedRecord& record = report_.record.emplace();
    record.file = path.filename().string();
    record.weightpress = std::move(from.weightpress);
    record.definition = std::move(from.definition);
    record.format_version = std::move(from.format_version);
    record.num_patterns = from.num_patterns;
    record.layout = std::move(from.layout);
    for (auto& kept : from.kept_units)
      record.kept_units.push_back({std::move(kept.unit), std::move(kept.reason)});
    for (auto& own : from.own_coding)
      record.own_coding.push_back({std::move(own.unit), std::move(own.reasons)});
  }

  void note_unused(const std::string& problem) {
    report_.notes.push_back(problem + "; what it says is left out here");
  }

  // A file that was lost takes its units along without a trace in the others.
  void note_missing(const std::filesystem::path& path, const model::OutputRecord& record) {
    std::vector<std::string> missing_units, missing_tensors;
    std::vector<std::string> here;
    for (const InspectedUnit& unit : report_.units) here.push_back(unit.name);
    std::ranges::sort(here);
    std::ranges::set_difference(record.units, here, std::back_inserter(missing_units));
    std::ranges::copy_if(record.tensors, std::back_inserter(missing_tensors),
                         [&](const std::string& name) { return checkpoint_.find(name) == nullptr; });
    for (const auto& [missing, what] :
         {std::pair(&missing_units, "unit"), std::pair(&missing_tensors, "tensor outside units")}) {
      if (missing->empty()) continue;
      report_.notes.push_back(
          model::printable(path.native()) + ": lists " + what + " " + model::in_quotes(missing->front()) +
          (missing->size() == 1 ? "" : " and " + std::to_string(missing->size() - 1) + " more") +
          ", which the files given do not hold; is a file missing?");
    }
  }

  const model::Checkpoint& checkpoint_;
  const std::filesystem::path& path_;
  InspectReport& report_;
};

template <class Element>
std::uint64_t sum(const std::vector<Element>& elements, std::uint64_t Element::* member) {
  return std::accumulate(
      elements.begin(), elements.end(), std::uint64_t{0},
      [&](std::uint64_t total, const Element& element) { return total + element.*member; });
}

}  // namespace

std::uint64_t InspectReport::file_bytes() const {
  return sum(files, &InspectedFile::size_bytes);
}

std::uint64_t InspectReport::num_weights() const {
  return sum(units, &InspectedUnit::num_weights);
}

std::uint64_t InspectReport::unit_bytes() const {
  return sum(units, &InspectedUnit::size_bytes);
}

std::uint64_t InspectReport::tensor_bytes() const {
  return sum(tensors, &DtypeTotal::size_bytes);
}

std::uint64_t InspectReport::bf16_bytes() const {
  return 2 * num_weights() + tensor_bytes();
}

double InspectReport::ratio() const {
  const std::uint64_t before = bf16_bytes();
  return before == 0 ? 1.0 : static_cast<double>(unit_bytes() + tensor_bytes()) / static_cast<double>(before);
}

InspectReport inspect(const InspectOptions& options) try {
  if (job::is_tile_ans_output(options.path)) return job::inspect_tile_ans(options);
  const auto checkpoint = model::Checkpoint::open(options.path, model::Df11Policy::kAccept);
  const model::Df11Model found = model::read_df11_model(checkpoint).value();

  InspectReport report;
  report.files = list_files(checkpoint);
  for (const model::StoredUnit& unit : found.units) report.units.push_back(describe_unit(unit));
  note_unusable(found.units, report);
  report.tensors = totals_by_dtype(checkpoint, found.kept);
  if (report.is_df11()) {
    SideFiles side_files(checkpoint, options.path, report);
    side_files.read_record();
    side_files.read_config();
  } else {
    report.source = detect_source(checkpoint);
  }
  return report;
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::kOutOfMemory, model::printable(options.path.native()) +
                                           ": there is not enough memory for what its headers list");
}

}  // namespace weightpress
