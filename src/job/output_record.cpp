#include "job/output_record.h"

#include <algorithm>
#include <map>
#include <optional>

#include "model/file.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

using model::JsonWriter;
constexpr JsonWriter::Style kOneLine = JsonWriter::Style::kOneLine;
constexpr std::string_view kFirstKey = "weightpress";
constexpr std::string_view kSourceFilesKey = "source_files", kVerificationKey = "verification";

/// What became of each source tensor.
class Fates {
 public:
  explicit Fates(const RecordContent& content)
      : content_(content), tensors_(content.checkpoint.tensors().size()) {
    const auto& view = content.plan.view;
    for (std::size_t t = 0; t < view.tensors.size(); ++t)
      if (!view.tensors[t].is_tied_copy) tensors_[view.tensors[t].source_index].view_index = t;
    for (const model::DroppedTensor& dropped : view.dropped)
      tensors_[dropped.source_index].dropped = &dropped;
    units_.resize(view.tensors.size());
    for (const model::Unit& unit : content.plan.assignment.units)
      for (const std::size_t tensor : unit.tensors) units_[tensor] = &unit;
  }

  void write(JsonWriter& json, std::size_t source_index) const {
    const model::SourceTensor& source = content_.checkpoint.tensors()[source_index];
    json.begin_object(kOneLine).member("name", source.name).member("dtype", model::dtype_name(source.dtype));
    json.key("shape").begin_array();
    for (const std::uint64_t dimension : source.shape) json.value(dimension);
    json.end_array();
    const Fate& fate = tensors_[source_index];
    if (fate.dropped != nullptr && !fate.dropped->tied_to.empty()) {
      json.member("tied_to", fate.dropped->tied_to);
      if (fate.view_index) write_cast(json, source, content_.plan.view.tensors[*fate.view_index]);
    } else if (fate.dropped != nullptr) {
      json.member("dropped", fate.dropped->reason);
    } else if (fate.view_index) {
      const model::ModelTensor& tensor = content_.plan.view.tensors[*fate.view_index];
      if (const model::Unit* unit = units_[*fate.view_index]) json.member("unit", unit->name);
      if (tensor.name != source.name) json.member("renamed", tensor.name);
      write_cast(json, source, tensor);
    }
    json.end_object();
  }

 private:
  static void write_cast(JsonWriter& json, const model::SourceTensor& source,
                         const model::ModelTensor& tensor) {
    if (tensor.dtype != source.dtype) json.member("cast", model::dtype_name(tensor.dtype));
  }

  struct Fate {
    std::optional<std::size_t> view_index;
    const model::DroppedTensor* dropped = nullptr;
  };

  const RecordContent& content_;
  std::vector<Fate> tensors_;              // by source tensor
  std::vector<const model::Unit*> units_;  // by tensor of the view
};

void write_definition(JsonWriter& json, const model::ModelDefinition& definition) {
  json.key("definition").begin_object();
  json.member("name", definition.name).member("format_version", definition.format_version);
  json.key("pattern_dict").begin_object();
  for (const auto& [pattern, attributes] : definition.pattern_dict) {
    json.key(pattern).begin_array(kOneLine);
    for (const std::string& attribute : attributes) json.value(attribute);
    json.end_array();
  }
  json.end_object().end_object();
}

void write_options(JsonWriter& json, const CompressOptions& options) {
  json.key("options").begin_object(kOneLine);
  json.member("luts", options.luts == LutFill::kSafe ? "safe" : "compat");
  json.member("strict-identity", options.strict_identity);
  json.member("keep-unencodable", options.keep_unencodable);
  json.member("cast-to-bf16", options.cast_to_bf16);
  json.member("with-config", options.with_config);
  json.member("hashes", options.hashes);
  json.end_object();
}

void write_source_files(JsonWriter& json, const RecordContent& content) {
  const auto& tensors = content.checkpoint.tensors();
  const Fates fates(content);
  // As they lie in the files.
  std::vector<std::vector<std::size_t>> by_file(content.checkpoint.files().size());
  for (std::size_t t = 0; t < tensors.size(); ++t) by_file[tensors[t].file_index].push_back(t);
  json.key(kSourceFilesKey).begin_array();
  for (std::size_t f = 0; f < by_file.size(); ++f) {
    std::ranges::sort(by_file[f], {}, [&](std::size_t t) {
      return std::tuple(tensors[t].offset_bytes, tensors[t].size_bytes, t);
    });
    const std::string& metadata = content.checkpoint.metadata_json(f);
    json.begin_object().member("name", content.checkpoint.files()[f].path().filename().string());
    json.key("metadata").raw(metadata.empty() ? "null" : metadata);
    json.key("tensors").begin_array();
    for (const std::size_t t : by_file[f]) fates.write(json, t);
    json.end_array().end_object();
  }
  json.end_array();
}

void write_tied_units(JsonWriter& json, const ModelPlan& plan, const model::Checkpoint& checkpoint) {
  json.key("tied_units").begin_array();
  for (const model::Unit& unit : plan.assignment.units) {
    for (const std::size_t index : unit.tensors) {
      const model::ModelTensor& tensor = plan.view.tensors[index];
      if (!tensor.is_tied_copy) continue;
      json.begin_object(kOneLine).member("unit", unit.name);
      json.member("made_from", checkpoint.tensors()[tensor.source_index].name).end_object();
    }
  }
  json.end_array();
}

}  // namespace

std::string record_name_beside(const std::filesystem::path& file) {
  return file.stem().string() + "." + std::string(kRecordName);
}

bool is_output_record(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path))) return false;
  const model::File file = model::File::open_readonly(path);
  std::string head(std::min<std::uint64_t>(file.size_bytes(), 64), '\0');
  file.read_at(head.data(), head.size(), 0);
  const std::size_t quote = head.find_first_not_of("{ \n");
  return head.starts_with('{') && quote != head.npos &&
         head.substr(quote).starts_with("\"" + std::string(kFirstKey) + "\"");
}

std::string make_output_record(const RecordContent& content) {
  JsonWriter json;
  json.begin_object().member(kFirstKey, WP_VERSION).member("format", "df11");
  json.member("layout", content.plan.definition.layout);
  write_definition(json, content.plan.definition);
  write_options(json, content.options);
  write_source_files(json, content);
  write_tied_units(json, content.plan, content.checkpoint);
  json.key("kept_units").begin_array();
  for (const UnitReasons& unit : content.kept_units)
    json.begin_object(kOneLine).member("unit", unit.unit).member("reason", unit.reasons[0]).end_object();
  json.end_array().key("own_coding").begin_array();
  for (const UnitReasons& unit : content.own_coding) {
    json.begin_object(kOneLine).member("unit", unit.unit).key("reasons").begin_array();
    for (const std::string& reason : unit.reasons) json.value(reason);
    json.end_array().end_object();
  }
  json.end_array().member(kVerificationKey, content.options.verify ? "decoded" : "none").end_object();
  return std::move(json).take();
}

bool record_begins_like(const std::filesystem::path& path, std::string_view record) {
  const std::size_t head_bytes = record.find("\"" + std::string(kSourceFilesKey) + "\"");
  const std::size_t tail = record.rfind("\"" + std::string(kVerificationKey) + "\"");
  const model::File file = model::File::open_readonly(path);
  const auto reads = [&](std::string_view text, std::uint64_t offset) {
    std::string there(text.size(), '\0');
    file.read_at(there.data(), there.size(), offset);
    return there == text;
  };
  const std::string_view head = record.substr(0, head_bytes), end = record.substr(tail);
  return file.size_bytes() >= head.size() + end.size() && reads(head, 0) &&
         reads(end, file.size_bytes() - end.size());
}

}  // namespace weightpress::job
