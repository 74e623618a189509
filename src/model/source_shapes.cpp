#include "model/source_shapes.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/file.h"
#include "model/json_depth.h"
#include "model/model_view.h"
#include "model/safetensors_header.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxShapesBytes = 100'000'000;
constexpr unsigned kMaxDepth = 16;

bool is_index_name(std::string_view name) {
  return name.find(".safetensors.index.") != name.npos;
}

}  // namespace

Result<SourceShapes> parse_source_shapes(const std::string& text, const std::string& file_name) {
  const auto corrupt = [&](const std::string& what) {
    return Unexpected(ErrorCode::kCorruptFile, printable(file_name) + ": " + what);
  };
  if (text.find('\0') != text.npos) return corrupt("holds a NUL byte: it is not JSON");
  if (is_nested_deeper(text, kMaxDepth)) return corrupt("is nested too deeply");
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return corrupt("is not valid JSON");
  if (!root.is_object()) return corrupt("must hold a JSON object of tensors and their shapes");
  SourceShapes shapes;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadataKey) continue;  // of a header that was saved as JSON
    const json& list = value.is_object() && value.contains("shape") ? value["shape"] : value;
    if (!list.is_array())
      return corrupt("tensor " + in_quotes(name) +
                     " must have a list as shape, [2, 3] or {\"shape\": [2, 3]}");
    std::vector<std::uint64_t>& shape = shapes[name];
    for (const json& dimension : list) {
      if (!dimension.is_number_unsigned())
        return corrupt("tensor " + in_quotes(name) + ": a dimension must be a whole number of 0 or more");
      shape.push_back(dimension.get<std::uint64_t>());
    }
    if (shape.size() > kMaxDimensions || !checked_num_elements(shape))
      return corrupt("tensor " + in_quotes(name) + " has a shape that no tensor can have");
  }
  return shapes;
}

SourceShapes read_source_shapes(const std::filesystem::path& path, const ModelDefinition* definition) {
  const std::string name = path.filename().string();
  if (name.ends_with(".json") && !is_index_name(name))
    return std::move(parse_source_shapes(read_whole_file(path, kMaxShapesBytes), path.string()).value());
  const Checkpoint checkpoint = Checkpoint::open(path);
  SourceShapes shapes;
  if (definition != nullptr) {
    // Rules that do not fit, e.g. since they make two names one, leave the tensors' own names.
    if (const auto view = apply_key_rules(checkpoint, *definition)) {
      for (const ModelTensor& tensor : view->tensors)
        shapes[tensor.name] = checkpoint.tensors()[tensor.source_index].shape;
    }
  }
  for (const SourceTensor& tensor : checkpoint.tensors()) shapes.emplace(tensor.name, tensor.shape);
  return shapes;
}

}  // namespace weightpress::model
