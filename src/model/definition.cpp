#include "model/definition.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include <weightpress/error.h>

#include "model/file.h"
#include "model/name_pattern.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxDefinitionBytes = std::uint64_t{4} << 20;
constexpr int kMaxDepth = 16;
constexpr std::array<std::string_view, 10> kTopLevelKeys = {
    "name",         "layout", "family",     "detection", "strip_prefixes",
    "pattern_dict", "rules",  "provenance", "$schema",   "description"};
constexpr std::array<std::string_view, 3> kDetectionKeys = {"all", "none", "config"};
// The second half are notes for people.
constexpr std::array<std::string_view, 16> kRuleKeys = {
    "format_version",   "threads_per_block", "bytes_per_thread",   "drop",
    "rename",           "keep_only_prefix",  "tied_lm_head",       "file",
    "keep_dtype",       "rename_evidence",   "source_dtype",       "also_used_by",
    "release_revision", "observed_release",  "extended_model_key", "format_version_note"};

class DefinitionReader {
 public:
  explicit DefinitionReader(const std::string& source_name) : source_name_(source_name) {}

  ModelDefinition read(const std::string& text) {
    const Json root = parse(text);
    check_keys(root, kTopLevelKeys, "");
    ModelDefinition definition;
    definition.name = required_string(root, "name");
    definition.layout = required_string(root, "layout");
    if (!std::ranges::count(kLayouts, definition.layout)) {
      fail("layout", "is " + in_quotes(definition.layout) +
                         "; it must be transformers, diffusers, diffusers-single or comfyui");
    }
    if (root.contains("family")) definition.family = string(root["family"], "family");
    if (root.contains("detection")) read_detection(root["detection"], definition);
    if (root.contains("strip_prefixes"))
      definition.strip_prefixes = strings(root["strip_prefixes"], "strip_prefixes");
    read_pattern_dict(root, definition);
    if (root.contains("rules")) read_rules(root["rules"], definition);
    return definition;
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    throw Error(ErrorCode::kBadDefinition, printable(source_name_) + ": " + printable(key) + " " + what);
  }

  Json parse(const std::string& text) const {
    if (text.find('\0') != text.npos) fail("the file", "holds a NUL byte: it is not JSON");
    // The tree keeps one of two equal keys without a word, so they are looked for on the way.
    std::vector<std::set<std::string>> open_objects;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > kMaxDepth) fail("the file", "is nested too deeply");
      if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
      if (event == Json::parse_event_t::object_end) open_objects.pop_back();
      if (event == Json::parse_event_t::key) {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!open_objects.back().insert(key).second) fail(key, "is a duplicate key");
      }
      return true;
    };
    try {
      Json root = Json::parse(text, watch);
      if (!root.is_object()) fail("the file", "must hold a JSON object");
      return root;
    } catch (const Json::parse_error& error) {
      fail("the file", "is not valid JSON (at byte " + std::to_string(error.byte) + ")");
    }
  }

  template <std::size_t N>
  void check_keys(const Json& object, const std::array<std::string_view, N>& known,
                  const std::string& prefix) const {
    for (const auto& item : object.items())
      if (!std::ranges::count(known, item.key())) fail(prefix + item.key(), "is not a key of a definition");
  }

  std::string string(const Json& value, const std::string& key) const {
    if (!value.is_string()) fail(key, "must be a string");
    return value.get<std::string>();
  }

  std::string required_string(const Json& root, const std::string& key) const {
    if (!root.contains(key)) fail(key, "is missing");
    std::string value = string(root[key], key);
    if (value.empty()) fail(key, "must not be empty");
    return value;
  }

  std::vector<std::string> strings(const Json& value, const std::string& key) const {
    if (!value.is_array()) fail(key, "must be a list of strings");
    std::vector<std::string> list;
    for (const Json& element : value) {
      list.push_back(string(element, key + " (each element)"));
      if (list.back().empty()) fail(key, "must not hold an empty string");
    }
    return list;
  }

  NamePattern check_pattern(const std::string& pattern, const std::string& key) const {
    auto compiled = NamePattern::compile(pattern);
    if (!compiled) fail(key + ":", compiled.error().message);
    return std::move(*compiled);
  }

  void read_detection(const Json& rules, ModelDefinition& definition) const {
    if (!rules.is_array()) fail("detection", "must be a list of rules");
    for (const Json& rule : rules) {
      if (!rule.is_object()) fail("detection", "must be a list of objects");
      check_keys(rule, kDetectionKeys, "detection.");
      DetectionRule& read = definition.detection.emplace_back();
      if (!rule.contains("all")) fail("detection.all", "is missing");
      read.all = strings(rule["all"], "detection.all");
      if (read.all.empty()) fail("detection.all", "must name a tensor");
      if (rule.contains("none")) read.none = strings(rule["none"], "detection.none");
      if (!rule.contains("config")) continue;
      if (!rule["config"].is_object()) fail("detection.config", "must be an object of patterns");
      for (const auto& item : rule["config"].items()) {
        read.config.emplace_back(item.key(), string(item.value(), "detection.config." + item.key()));
        check_pattern(read.config.back().second, "detection.config");
      }
    }
  }

  void read_pattern_dict(const Json& root, ModelDefinition& definition) const {
    if (!root.contains("pattern_dict")) fail("pattern_dict", "is missing");
    const Json& dict = root["pattern_dict"];
    if (!dict.is_object() || dict.empty())
      fail("pattern_dict", "must be an object of patterns with attribute lists");
    for (const auto& item : dict.items()) {
      const std::string key = "pattern_dict: " + in_quotes(item.key());
      check_pattern(item.key(), "pattern_dict");
      UnitPattern pattern{item.key(), strings(item.value(), key)};
      if (std::set(pattern.attributes.begin(), pattern.attributes.end()).size() != pattern.attributes.size())
        fail(key, "names an attribute twice");
      definition.pattern_dict.push_back(std::move(pattern));
    }
  }

  void read_rules(const Json& rules, ModelDefinition& definition) const {
    if (!rules.is_object()) fail("rules", "must be an object");
    check_keys(rules, kRuleKeys, "rules.");
    const auto find = [&](const char* key) -> const Json* {
      const auto found = rules.find(key);
      return found == rules.end() ? nullptr : &*found;
    };
    if (const Json* value = find("format_version"))
      definition.format_version = string(*value, "rules.format_version");
    if (const Json* value = find("threads_per_block"); value && *value != Json{512})
      fail("rules.threads_per_block", "must be [512]: the format allows nothing else");
    if (const Json* value = find("bytes_per_thread"); value && *value != 8)
      fail("rules.bytes_per_thread", "must be 8: the format allows nothing else");
    if (const Json* value = find("drop")) definition.drop = strings(*value, "rules.drop");
    for (const std::string& pattern : definition.drop) check_pattern(pattern, "rules.drop");
    if (const Json* value = find("rename")) {
      if (!value->is_array()) fail("rules.rename", "must be a list of pairs [pattern, replacement]");
      for (const Json& pair : *value) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
          fail("rules.rename", "must be a list of pairs [pattern, replacement]");
        definition.rename.push_back({pair[0].get<std::string>(), pair[1].get<std::string>()});
        const RenameRule& rule = definition.rename.back();
        if (const std::string wrong =
                check_pattern(rule.pattern, "rules.rename").check_replacement(rule.replacement);
            !wrong.empty())
          fail("rules.rename:", "the replacement " + in_quotes(rule.replacement) + " " + wrong);
      }
    }
    if (const Json* value = find("keep_only_prefix"))
      definition.keep_only_prefix = string(*value, "rules.keep_only_prefix");
    if (const Json* value = find("tied_lm_head")) {
      if (!value->is_boolean()) fail("rules.tied_lm_head", "must be true or false");
      definition.tied_lm_head = value->get<bool>();
    }
    if (const Json* value = find("file")) {
      definition.file = string(*value, "rules.file");
      if (!definition.file.ends_with(".safetensors") || definition.file.find('/') != std::string::npos ||
          escaped_for_terminal(definition.file) != definition.file || definition.file.size() > 255)
        fail("rules.file", "must be the plain name of a .safetensors file");
    }
    if (const Json* value = find("keep_dtype")) definition.keep_dtype = strings(*value, "rules.keep_dtype");
    for (const std::string& pattern : definition.keep_dtype) check_pattern(pattern, "rules.keep_dtype");
  }

  const std::string& source_name_;
};

}  // namespace

bool is_single_file(std::string_view layout) {
  return layout == "diffusers-single" || layout == "comfyui";
}

std::string read_definition_text(const std::filesystem::path& path) {
  return read_whole_file(path, kMaxDefinitionBytes);
}

ModelDefinition load_definition(const std::filesystem::path& path) {
  return parse_definition(read_definition_text(path), path.string());
}

ModelDefinition parse_definition(const std::string& text, const std::string& source_name) {
  return DefinitionReader(source_name).read(text);
}

}  // namespace weightpress::model
