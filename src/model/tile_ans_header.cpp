#include "model/tile_ans_header.h"

#include <algorithm>
#include <array>
#include <cassert>

#include <nlohmann/json.hpp>

#include "model/json_depth.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using Json = nlohmann::json;

constexpr unsigned kMaxDepth = 32;

struct TorchName {
  Dtype dtype;
  std::string_view name;
  bool is_tile_ans;
};

constexpr TorchName kTorchNames[] = {{Dtype::kF32, "float32", true},
                                     {Dtype::kF16, "float16", true},
                                     {Dtype::kBf16, "bfloat16", true},
                                     {Dtype::kF8E4m3, "float8_e4m3fn", true},
                                     {Dtype::kF8E4m3fnuz, "float8_e4m3fnuz", true},
                                     {Dtype::kF8E5m2, "float8_e5m2", true},
                                     {Dtype::kF8E5m2fnuz, "float8_e5m2fnuz", true},
                                     {Dtype::kI64, "int64", true},
                                     {Dtype::kI32, "int32", true},
                                     {Dtype::kI16, "int16", true},
                                     {Dtype::kI8, "int8", true},
                                     {Dtype::kU64, "uint64", true},
                                     {Dtype::kU32, "uint32", true},
                                     {Dtype::kU16, "uint16", true},
                                     {Dtype::kU8, "uint8", true},
                                     {Dtype::kBool, "bool", true},
                                     {Dtype::kF64, "float64", false},
                                     {Dtype::kC64, "complex64", false},
                                     {Dtype::kF8E8m0, "float8_e8m0fnu", false}};

const TorchName* find(Dtype dtype) {
  const auto* const found = std::find_if(std::begin(kTorchNames), std::end(kTorchNames),
                                         [dtype](const TorchName& entry) { return entry.dtype == dtype; });
  return found == std::end(kTorchNames) ? nullptr : found;
}

std::string_view method_name(TileAnsHeader::Method method) {
  return method == TileAnsHeader::Method::kRaw ? "raw" : "tile_ans";
}

std::vector<std::string_view> buffer_names(TileAnsHeader::Method method) {
  if (method == TileAnsHeader::Method::kRaw) return {kRawBufferName};
  return {std::begin(tile_ans::kBufferNames), std::end(tile_ans::kBufferNames)};
}

Unexpected corrupt(std::string what) {
  return Unexpected(ErrorCode::kCorruptFile, std::move(what));
}

const std::string* text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

Result<void> check_buffer_names(const Json& names, TileAnsHeader::Method method) {
  if (!names.is_array()) return corrupt("'buffer_names' in its header is not a list");
  std::vector<std::string_view> found;
  for (const Json& name : names) {
    const std::string* const text = name.get_ptr<const std::string*>();
    if (text == nullptr) return corrupt("'buffer_names' in its header holds something that is no name");
    found.push_back(*text);
  }
  std::vector<std::string_view> expected = buffer_names(method);
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  if (found != expected)
    return corrupt("its header does not name the buffers of a " + std::string(method_name(method)) +
                   " container");
  return {};
}

Result<std::vector<std::uint64_t>> read_shape(const Json& sizes) {
  if (!sizes.is_array()) return corrupt("'shape' in its header is not a list");
  std::vector<std::uint64_t> shape;
  for (const Json& size : sizes) {
    // Integers that are not negative are unsigned here; sizes in PyTorch are signed.
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > INT64_MAX)
      return corrupt("'shape' in its header holds something that is no size");
    shape.push_back(size.get<std::uint64_t>());
  }
  return shape;
}

}  // namespace

bool is_tile_ans_dtype(Dtype dtype) {
  const TorchName* const found = find(dtype);
  return found != nullptr && found->is_tile_ans;
}

std::optional<std::string_view> torch_dtype_name(Dtype dtype) {
  const TorchName* const found = find(dtype);
  return found != nullptr ? std::optional(found->name) : std::nullopt;
}

std::optional<Dtype> parse_torch_dtype(std::string_view name) {
  for (const TorchName& entry : kTorchNames)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

std::string write_tile_ans_header(const TileAnsHeader& header) {
  std::string out = "{\"buffer_names\":[";
  for (const std::string_view name : buffer_names(header.method)) {
    if (out.back() != '[') out += ',';
    append_json_ascii(out, name);
  }
  const auto member = [&out](const char* before, std::string_view text) {
    out += before;
    append_json_ascii(out, text);
  };
  const std::optional<std::string_view> dtype = torch_dtype_name(header.dtype);
  assert(dtype);
  member("],\"compress_method\":", method_name(header.method));
  member(",\"dtype\":", dtype.value_or(""));
  member(",\"header\":{\"compress_method\":", method_name(header.method));
  if (!header.reason.empty()) {
    member(",\"reason\":", header.reason);
    member(",\"requested\":", method_name(TileAnsHeader::Method::kTileAns));
  }
  out += "},\"shape\":[";
  for (const std::uint64_t size : header.shape) {
    if (out.back() != '[') out += ',';
    out += std::to_string(size);
  }
  return out + "]}";
}

Result<TileAnsHeader> parse_tile_ans_header(std::string_view json) {
  if (json.size() > kMaxTileAnsHeaderBytes)
    return corrupt("its header has more than " + std::to_string(kMaxTileAnsHeaderBytes) + " bytes");
  if (is_nested_deeper(json, kMaxDepth)) return corrupt("its header is nested too deeply");
  const Json root = Json::parse(json, nullptr, false);
  if (root.is_discarded() || !root.is_object()) return corrupt("its header is not a JSON object");
  for (const char* const key : {"buffer_names", "compress_method", "dtype", "header", "shape"})
    if (!root.contains(key)) return corrupt("its header has no '" + std::string(key) + "'");

  TileAnsHeader header;
  const Json& inner = root["header"];
  const std::string* const method = inner.is_object() ? text_of(inner, "compress_method") : nullptr;
  if (method == nullptr) return corrupt("its header does not say how the tensor is stored");
  if (*method == method_name(TileAnsHeader::Method::kRaw)) {
    header.method = TileAnsHeader::Method::kRaw;
    if (const std::string* const reason = text_of(inner, "reason")) header.reason = *reason;
  } else if (*method != method_name(TileAnsHeader::Method::kTileAns)) {
    return corrupt("it is stored as " + in_quotes(*method) + ", which is neither 'tile_ans' nor 'raw'");
  }

  const std::string* const dtype = text_of(root, "dtype");
  if (dtype == nullptr) return corrupt("'dtype' in its header is not a text");
  const std::optional<Dtype> parsed = parse_torch_dtype(*dtype);
  if (!parsed || (header.method == TileAnsHeader::Method::kTileAns && !is_tile_ans_dtype(*parsed))) {
    return Unexpected(ErrorCode::kUnsupportedDtype, "its dtype is " + in_quotes(*dtype) + ", which " +
                                                        std::string(method_name(header.method)) +
                                                        " containers do not have");
  }
  header.dtype = *parsed;
  if (auto names = check_buffer_names(root["buffer_names"], header.method); !names)
    return Unexpected(names.error());
  auto shape = read_shape(root["shape"]);
  if (!shape) return Unexpected(shape.error());
  header.shape = std::move(*shape);
  return header;
}

Result<void> check_raw_container(const TileAnsHeader& header, Dtype data_dtype,
                                 std::span<const std::uint64_t> data_shape) {
  if (data_dtype != header.dtype) {
    return corrupt("its data are " + std::string(dtype_name(data_dtype)) + ", but its header says " +
                   std::string(dtype_name(header.dtype)));
  }
  if (!std::equal(data_shape.begin(), data_shape.end(), header.shape.begin(), header.shape.end()))
    return corrupt("its data have another shape than its header says");
  return {};
}

tile_ans::BufferType tile_ans_buffer_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
      return tile_ans::BufferType::kU8;
    case Dtype::kU16:
      return tile_ans::BufferType::kU16;
    case Dtype::kU32:
      return tile_ans::BufferType::kU32;
    case Dtype::kI64:
      return tile_ans::BufferType::kI64;
    default:
      return tile_ans::BufferType::kOther;
  }
}

Dtype tile_ans_buffer_dtype(tile_ans::Buffer buffer) {
  switch (tile_ans::buffer_type(buffer)) {
    case tile_ans::BufferType::kU16:
      return Dtype::kU16;
    case tile_ans::BufferType::kU32:
      return Dtype::kU32;
    case tile_ans::BufferType::kI64:
      return Dtype::kI64;
    default:
      return Dtype::kU8;
  }
}

}  // namespace weightpress::model
