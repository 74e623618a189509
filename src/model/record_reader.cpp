#include "model/record_reader.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include <weightpress/error.h>

#include "model/json_depth.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using nlohmann::json;

constexpr unsigned kMaxDepth = 64;

// Reads members of the types they should have. Throws Error; the functions below turn it into a Result.
class Reader {
 public:
  explicit Reader(const std::string& file_name) : file_name_(file_name) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kCorruptFile, printable(file_name_) + ": " + what);
  }

  json parse(const std::string& text) const {
    if (text.find('\0') != text.npos) fail("holds a NUL byte: it is not JSON");
    // Not by a callback of the parser, which makes it take quadratic time.
    if (is_nested_deeper(text, kMaxDepth)) fail("is nested too deeply");
    try {
      json root = json::parse(text);
      if (!root.is_object()) fail("is not a JSON object");
      return root;
    } catch (const json::parse_error& error) {
      fail("is not valid JSON (at byte " + std::to_string(error.byte) + ")");
    }
  }

  const json& member(const json& object, const char* key) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) fail("has no " + std::string(key) + " where one is needed");
    return *found;
  }
  const json& object(const json& parent, const char* key) const {
    const json& value = member(parent, key);
    if (!value.is_object()) fail(std::string(key) + " must be an object");
    return value;
  }
  const json& list(const json& parent, const char* key) const {
    const json& value = member(parent, key);
    if (!value.is_array()) fail(std::string(key) + " must be a list");
    return value;
  }
  std::string string(const json& parent, const char* key) const {
    return string_of(member(parent, key), key);
  }
  std::vector<std::string> strings(const json& parent, const char* key) const {
    std::vector<std::string> values;
    for (const json& value : list(parent, key)) values.push_back(string_of(value, key));
    return values;
  }

 private:
  std::string string_of(const json& value, const char* key) const {
    if (!value.is_string()) fail(std::string(key) + " must be a string");
    return value.get<std::string>();
  }

  const std::string& file_name_;
};

// Where a tensor of the source went.
void place_tensor(const Reader& reader, const json& tensor, OutputRecord& record) {
  std::string name = reader.string(tensor, "name");
  if (tensor.contains("unit")) {
    record.units.push_back(reader.string(tensor, "unit"));
  } else if (!tensor.contains("dropped") && !tensor.contains("tied_to")) {
    record.tensors.push_back(tensor.contains("renamed") ? reader.string(tensor, "renamed") : std::move(name));
  }
}

OutputRecord read_record(const Reader& reader, const json& root) {
  OutputRecord record;
  record.weightpress = reader.string(root, "weightpress");
  if (const std::string format = reader.string(root, "format"); format != "df11")
    reader.fail("is about the format " + in_quotes(format));
  record.layout = reader.string(root, "layout");
  const json& definition = reader.object(root, "definition");
  record.definition = reader.string(definition, "name");
  record.format_version = reader.string(definition, "format_version");
  record.num_patterns = reader.object(definition, "pattern_dict").size();
  for (const json& unit : reader.list(root, "kept_units"))
    record.kept_units.push_back({reader.string(unit, "unit"), reader.string(unit, "reason")});
  for (const json& unit : reader.list(root, "own_coding"))
    record.own_coding.push_back({reader.string(unit, "unit"), reader.strings(unit, "reasons")});
  for (const json& file : reader.list(root, "source_files"))
    for (const json& tensor : reader.list(file, "tensors")) place_tensor(reader, tensor, record);
  for (const json& unit : reader.list(root, "tied_units"))
    record.units.push_back(reader.string(unit, "unit"));
  std::ranges::sort(record.units);
  record.units.erase(std::unique(record.units.begin(), record.units.end()), record.units.end());
  std::ranges::sort(record.tensors);
  return record;
}

}  // namespace

Result<OutputRecord> parse_output_record(const std::string& text, const std::string& file_name) try {
  const Reader reader(file_name);
  return read_record(reader, reader.parse(text));
} catch (const Error& error) {
  return Unexpected(error.details());
}

Result<Dfloat11Config> parse_dfloat11_config(const std::string& text, const std::string& file_name) try {
  const Reader reader(file_name);
  const json root = reader.parse(text);
  if (!root.contains("dfloat11_config"))
    return Unexpected(ErrorCode::kNotFound, printable(file_name) + ": has no dfloat11_config");
  const json& config = reader.object(root, "dfloat11_config");
  return Dfloat11Config{reader.string(config, "version"), reader.object(config, "pattern_dict").size()};
} catch (const Error& error) {
  return Unexpected(error.details());
}

}  // namespace weightpress::model
