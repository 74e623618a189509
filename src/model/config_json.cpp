#include "model/config_json.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/config_object.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

constexpr std::string_view kKey = "dfloat11_config";
constexpr std::string_view kSpace = " \t\r\n";

// The value as Python's json.dumps(indent=2) prints it one level below the top.
std::string dfloat11_value(const ModelDefinition& definition) {
  std::string out = "{\n    \"version\": ";
  append_json_ascii(out, definition.format_version);
  out += ",\n    \"threads_per_block\": [";
  for (std::size_t i = 0; i < definition.threads_per_block.size(); ++i)
    out += (i == 0 ? "\n      " : ",\n      ") + std::to_string(definition.threads_per_block[i]);
  out += "\n    ],\n    \"bytes_per_thread\": " + std::to_string(definition.bytes_per_thread);
  out += ",\n    \"pattern_dict\": {";
  for (std::size_t p = 0; p < definition.pattern_dict.size(); ++p) {
    const auto& [pattern, attributes] = definition.pattern_dict[p];
    out += p == 0 ? "\n      " : ",\n      ";
    append_json_ascii(out, pattern);
    out += ": [";
    for (std::size_t i = 0; i < attributes.size(); ++i) {
      out += i == 0 ? "\n        " : ",\n        ";
      append_json_ascii(out, attributes[i]);
    }
    out += attributes.empty() ? "]" : "\n      ]";
  }
  return out + "\n    }\n  }";
}

// Position just after the string that begins at `text[position]`. The text is valid JSON.
std::size_t string_end(std::string_view text, std::size_t position) {
  for (++position; text[position] != '"'; ++position)
    if (text[position] == '\\') ++position;
  return position + 1;
}

std::size_t value_end(std::string_view text, std::size_t position) {
  std::size_t depth = 0;
  while (true) {
    const char c = text[position];
    if (c == '"') {
      position = string_end(text, position);
    } else if (c == '{' || c == '[') {
      ++depth, ++position;
    } else if (c == '}' || c == ']') {
      --depth, ++position;
    } else if (depth == 0) {
      return text.find_first_of(" \t\r\n,}]", position);  // a number or a word
    } else {
      ++position;
    }
    if (depth == 0) return position;
  }
}

struct Member {
  std::size_t begin, end;  // from the key to after the value
  bool is_ours;            // its key is kKey
};

std::vector<Member> scan_top_level(std::string_view text) {
  std::vector<Member> members;
  std::size_t position = text.find('{') + 1;
  while (true) {
    position = text.find_first_not_of(kSpace, position);
    if (text[position] == '}') return members;
    if (text[position] == ',') position = text.find_first_not_of(kSpace, position + 1);
    const std::size_t begin = position;
    const std::size_t key_end = string_end(text, position);
    // Parsed, since a key may be spelt with escapes.
    const std::string key = nlohmann::json::parse(text.substr(begin, key_end - begin)).get<std::string>();
    position = value_end(text, text.find_first_not_of(kSpace, text.find(':', key_end) + 1));
    members.push_back({begin, position, key == kKey});
  }
}

// `text` without the members that are ours, each with the comma before it (the first: after it).
std::string without_our_members(std::string_view text) {
  std::string out(text);
  const std::vector<Member> members = scan_top_level(text);
  if (members.empty()) return out;
  if (std::ranges::all_of(members, &Member::is_ours)) {
    const std::size_t begin = text.find('{') + 1;
    return out.erase(begin, members.back().end - begin);
  }
  bool kept_one = false;
  std::vector<std::pair<std::size_t, std::size_t>> cuts;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!members[i].is_ours) {
      kept_one = true;
    } else if (kept_one) {
      cuts.emplace_back(members[i - 1].end, members[i].end);
    } else {
      cuts.emplace_back(members[i].begin, members[i + 1].begin);  // one that is kept follows
    }
  }
  while (!cuts.empty()) {
    out.erase(cuts.back().first, cuts.back().second - cuts.back().first);
    cuts.pop_back();
  }
  return out;
}

std::string our_member(const ModelDefinition& definition) {
  return "\n  \"" + std::string(kKey) + "\": " + dfloat11_value(definition);
}

}  // namespace

std::string make_diffusers_config(const std::optional<std::string>& model_type,
                                  const ModelDefinition& definition) {
  std::string out = "{";
  if (model_type) {
    out += "\n  \"model_type\": ";
    append_json_ascii(out, *model_type);
    out += ',';
  }
  return out + our_member(definition) + "\n}";
}

Result<std::string> splice_dfloat11_config(const std::optional<std::string>& source_config,
                                           const ModelDefinition& definition, const std::string& file_name) {
  const std::string member = our_member(definition);
  if (!source_config) return "{" + member + "\n}";
  const std::string& source = *source_config;

  if (auto parsed = parse_config_object(source, file_name); !parsed)
    return Unexpected(std::move(parsed.error()));

  std::string out = without_our_members(source);
  const std::vector<Member> members = scan_top_level(out);
  const std::size_t end = members.empty() ? out.find('{') + 1 : members.back().end;
  std::string insertion = (members.empty() ? "" : ",") + member;
  const std::size_t brace = out.find_first_not_of(kSpace, end);
  if (out.find('\n', end) >= brace) insertion += '\n';
  out.insert(end, insertion);
  return out;
}

Result<PlainConfig> remove_dfloat11_config(const std::string& config, const std::string& file_name) {
  const auto parsed = parse_config_object(config, file_name);
  if (!parsed) return Unexpected(parsed.error());
  PlainConfig plain{.text = config};
  for (const auto& item : parsed->items())
    plain.describes_model |= item.key() != kKey && item.key() != "model_type";
  const auto ours = parsed->find(kKey);
  if (ours == parsed->end()) return plain;
  plain.had_dfloat11_config = true;
  const auto patterns = ours->find("pattern_dict");
  if (!ours->is_object() || patterns == ours->end() || !patterns->is_object())
    return Unexpected(ErrorCode::kCorruptFile,
                      printable(file_name) + ": dfloat11_config has no pattern_dict");
  for (const auto& item : patterns->items()) {
    UnitPattern& pattern = plain.pattern_dict.emplace_back(UnitPattern{item.key(), {}});
    const bool is_list =
        item.value().is_array() &&
        std::ranges::all_of(item.value(), [](const auto& attribute) { return attribute.is_string(); });
    if (!is_list) {
      return Unexpected(ErrorCode::kCorruptFile, printable(file_name) + ": dfloat11_config: pattern " +
                                                     in_quotes(item.key()) + " must have a list of strings");
    }
    for (const auto& attribute : item.value()) pattern.attributes.push_back(attribute.get<std::string>());
  }
  plain.text = without_our_members(config);
  const std::size_t brace = plain.text.find_last_of('}');
  const std::size_t text_end = plain.text.find_last_not_of(kSpace, brace - 1);
  if (plain.text.find('\n') == text_end + 1) plain.text.erase(text_end + 1, 1);
  return plain;
}

}  // namespace weightpress::model
