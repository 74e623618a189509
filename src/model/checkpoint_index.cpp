#include "model/checkpoint_index.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include <weightpress/error.h>

#include "model/file.h"
#include "model/foreign_file.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr unsigned kMaxDepth = 64;

// Takes the strings of the top-level weight_map; everything else (metadata) may be anything.
class IndexEvents final : public json::json_sax_t {
 public:
  std::vector<std::pair<std::string, std::string>> weight_map;
  unsigned num_weight_maps = 0;
  std::string failure;

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(json::number_integer_t) override { return scalar(); }
  bool number_unsigned(json::number_unsigned_t) override { return scalar(); }
  bool number_float(json::number_float_t, const std::string&) override { return scalar(); }
  bool binary(json::binary_t&) override { return scalar(); }
  bool string(std::string& value) override {
    if (!in_weight_map()) return scalar();
    weight_map.back().second = std::move(value);
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) {
      at_weight_map_ = name == "weight_map";
      num_weight_maps += at_weight_map_ ? 1 : 0;
    } else if (in_weight_map()) {
      weight_map.emplace_back(std::move(name), std::string());
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (in_weight_map()) return scalar();
    return descend();
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return fail("is not a JSON object");
    if (depth_ == 1 && at_weight_map_) return scalar();
    return start_object(0);
  }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    return fail("is not valid JSON (at byte " + std::to_string(position) + "); download it again");
  }

 private:
  bool in_weight_map() const { return depth_ == 2 && at_weight_map_; }
  bool descend() {
    if (++depth_ > kMaxDepth) return fail("is nested too deeply");
    return true;
  }
  bool scalar() {
    if (depth_ == 0) return fail("is not a JSON object");
    if (in_weight_map() || (depth_ == 1 && at_weight_map_))
      return fail("weight_map must be an object of file names");
    return true;
  }
  bool fail(std::string what) {
    failure = std::move(what);
    return false;
  }

  unsigned depth_ = 0;
  bool at_weight_map_ = false;  // the last key at depth 1
};

}  // namespace

std::vector<std::pair<std::string, std::string>> read_weight_map(const std::filesystem::path& index_path) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kCorruptFile, printable(index_path.native()) + ": " + what);
  };
  const std::string text = read_whole_file(index_path, kMaxIndexBytes);
  if (auto other =
          recognise_foreign_file(std::string_view(text).substr(0, kForeignHeadBytes), index_path.string()))
    throw Error(std::move(other->error()));
  if (text.find('\0') != text.npos) fail("holds a NUL byte: it is not JSON");
  IndexEvents events;
  if (!json::sax_parse(text, &events)) fail(events.failure);
  if (events.num_weight_maps != 1)
    fail(events.num_weight_maps == 0 ? "has no weight_map" : "has a duplicate weight_map");

  auto& map = events.weight_map;
  std::ranges::sort(map);
  const auto twin = std::ranges::adjacent_find(map, {}, [](auto& pair) -> auto& { return pair.first; });
  if (twin != map.end()) fail("duplicate entry for tensor " + in_quotes(twin->first) + " in weight_map");
  for (const auto& [tensor, file] : map) {
    if (!file.ends_with(".safetensors") || file.find('/') != file.npos || file.find('\0') != file.npos)
      fail("tensor " + in_quotes(tensor) + ": " + in_quotes(file) +
           " is not the plain name of a .safetensors file");
  }
  return std::move(map);
}

std::string make_weight_map(const std::vector<std::pair<std::string, std::string>>& weight_map,
                            std::uint64_t total_bytes) {
  std::string text = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total_bytes) +
                     "\n  },\n  \"weight_map\": {";
  for (const auto& [tensor, file] : weight_map) {
    text += text.ends_with('{') ? "\n    " : ",\n    ";
    append_json_ascii(text, tensor);
    text += ": ";
    append_json_ascii(text, file);
  }
  return text + (weight_map.empty() ? "}\n}\n" : "\n  }\n}\n");
}

}  // namespace weightpress::model
