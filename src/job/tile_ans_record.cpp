#include "job/tile_ans_record.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "job/output_record.h"
#include "model/dtype.h"
#include "model/file.h"
#include "model/json_writer.h"

namespace weightpress::job {
namespace {

using model::JsonWriter;
constexpr JsonWriter::Style kOneLine = JsonWriter::Style::kOneLine;

void write_list(JsonWriter& json, const char* key, const std::vector<std::string>& texts) {
  json.key(key).begin_array(kOneLine);
  for (const std::string& text : texts) json.value(text);
  json.end_array();
}

}  // namespace

std::string make_tile_ans_record(const model::Checkpoint& checkpoint, const CompressOptions& options,
                                 const std::vector<bool>& is_compressed) {
  const TileAnsOptions& given = options.tile_ans;
  JsonWriter json;
  // As records of DF11 begin and end (output_record.h).
  json.begin_object().member("weightpress", WP_VERSION).member("format", "tile-ans").key("options");
  json.begin_object().member("tile-elements", given.tile_elements);
  json.member("probability-bits", given.probability_bits);
  json.member("raw-lane-threshold", given.raw_lane_threshold);
  write_list(json, "include", given.include);
  write_list(json, "exclude", given.exclude);
  write_list(json, "dtype", given.dtypes);
  json.end_object().key("source_files").begin_array();
  const auto& tensors = checkpoint.tensors();
  std::vector<std::vector<std::size_t>> by_file(checkpoint.files().size());
  for (std::size_t t = 0; t < tensors.size(); ++t) by_file[tensors[t].file_index].push_back(t);
  for (std::size_t f = 0; f < by_file.size(); ++f) {
    std::ranges::sort(by_file[f], {}, [&](std::size_t t) {  // as they lie in the files
      return std::tuple(tensors[t].offset_bytes, tensors[t].size_bytes, t);
    });
    const std::string& metadata = checkpoint.metadata_json(f);
    json.begin_object().member("name", checkpoint.files()[f].path().filename().string());
    json.key("metadata").raw(metadata.empty() ? "null" : metadata).key("tensors").begin_array();
    for (const std::size_t t : by_file[f]) {
      json.begin_object(kOneLine).member("name", tensors[t].name);
      json.member("dtype", model::dtype_name(tensors[t].dtype)).key("shape").begin_array();
      for (const std::uint64_t size : tensors[t].shape) json.value(size);
      json.end_array().member("stored", is_compressed[t] ? "tile-ans" : "as it was").end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().member("verification", options.verify ? "decoded" : "none").end_object();
  return std::move(json).take();
}

bool is_tile_ans_record(const std::filesystem::path& path) {
  if (!is_output_record(path)) return false;
  const model::File file = model::File::open_readonly(path);
  std::string head(std::min<std::uint64_t>(file.size_bytes(), 256), '\0');
  file.read_at(head.data(), head.size(), 0);
  std::erase_if(head, [](char c) { return c == ' ' || c == '\n'; });
  // The second member of all of ours.
  const std::size_t second = head.find(',');
  return second != head.npos &&
         std::string_view(head).substr(second + 1).starts_with(R"("format":"tile-ans")");
}

}  // namespace weightpress::job
