#include "model/safetensors_layout.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "model/safetensors_header.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

Unexpected bad_spec(ErrorCode code, const TensorSpec& spec, const std::string& what) {
  return Unexpected(ErrorDetails{
      .code = code, .message = "tensor " + in_quotes(spec.name) + ": " + what, .tensor = spec.name});
}

void append_entry(std::string& json, const TensorSpec& spec, std::uint64_t begin, std::uint64_t end) {
  if (json.size() > 1) json += ',';
  append_json_utf8(json, spec.name);
  json.append(":{\"dtype\":\"").append(dtype_name(spec.dtype)).append("\",\"shape\":[");
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(spec.shape[i]);
  }
  json += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

std::vector<std::size_t> data_order(std::span<const TensorSpec> specs) {
  std::vector<std::size_t> order(specs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (specs[a].dtype != specs[b].dtype) return specs[a].dtype > specs[b].dtype;
    return specs[a].name < specs[b].name;
  });
  return order;
}

Result<SafetensorsLayout> plan_safetensors_layout(std::span<const TensorSpec> specs,
                                                  std::string_view metadata_json) {
  std::vector<std::string_view> names;
  for (const TensorSpec& spec : specs) {
    if (spec.name == kMetadataKey)
      return bad_spec(ErrorCode::kNameConflict, spec, "the name is reserved; rename it");
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end())
    return Unexpected(ErrorCode::kNameConflict,
                      "two tensors of one file would have the name " + in_quotes(*twin));

  SafetensorsLayout layout;
  std::string json = "{";
  if (!metadata_json.empty()) json.append("\"__metadata__\":").append(metadata_json);
  std::uint64_t end = 0;  // in the data area
  for (const std::size_t index : data_order(specs)) {
    const TensorSpec& spec = specs[index];
    const auto size_bytes = checked_size_bytes(spec.dtype, spec.shape);
    if (!size_bytes)
      return bad_spec(ErrorCode::kUsage, spec, "its size overflows or is not a whole number of bytes");
    const std::uint64_t begin = end;
    // Half the range: what follows adds at most a header.
    if (__builtin_add_overflow(end, *size_bytes, &end) || end >> 63 != 0)
      return bad_spec(ErrorCode::kUsage, spec, "the file would be too large");
    append_entry(json, spec, begin, end);
    layout.tensors.push_back({index, begin, *size_bytes});
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes) {
    return Unexpected(ErrorCode::kUsage, "a file of " + std::to_string(specs.size()) +
                                             " tensors would need a header of more than " +
                                             std::to_string(kMaxHeaderBytes) +
                                             " bytes, which no reader takes");
  }

  for (unsigned i = 0; i < 8; ++i) layout.header += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  layout.header += json;
  for (TensorPlacement& tensor : layout.tensors) tensor.offset_bytes += layout.header.size();
  layout.file_bytes = layout.header.size() + end;
  return layout;
}

}  // namespace weightpress::model
