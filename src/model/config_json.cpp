#include "model/config_json.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/text.h"

namespace weightpress::model {
namespace {

using namespace std::string_literals;

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

// `text` with the words that Python adds to JSON replaced by numbers, outside strings.
std::string without_python_words(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      std::size_t end = i + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      out += text.substr(i, end - i);
      i = end;
      continue;
    }
    std::size_t word = 0;
    for (const std::string_view candidate : {"NaN", "Infinity"})
      if (text.substr(i).starts_with(candidate)) word = candidate.size();
    // Only a whole value is such a word; Infinity may have a sign.
    const bool signed_infinity = word == 8 && i > 0 && text[i - 1] == '-';
    if (i > 0 && !signed_infinity && (" \t\r\n,:["s).find(text[i - 1]) == std::string::npos) word = 0;
    out += word == 0 ? text[i] : '0';
    i += word == 0 ? 1 : word;
  }
  return out;
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

}  // namespace

Result<std::string> splice_dfloat11_config(const std::optional<std::string>& source_config,
                                           const ModelDefinition& definition, const std::string& file_name) {
  const auto corrupt = [&](const std::string& what) {
    return Unexpected(ErrorCode::kCorruptFile, printable(file_name) + ": " + what);
  };
  const std::string member = "\n  \"" + std::string(kKey) + "\": " + dfloat11_value(definition);
  if (!source_config) return "{" + member + "\n}";
  const std::string& source = *source_config;

  // The validator would take a byte order mark as nothing and a NUL as the end of the text.
  if (source.starts_with("\xEF\xBB\xBF"))
    return corrupt("begins with a byte order mark, which loaders refuse: save it as plain UTF-8");
  if (source.find('\0') != source.npos) return corrupt("holds a NUL byte: it is not JSON");
  if (!nlohmann::json::accept(without_python_words(source))) return corrupt("is not valid JSON");
  if (source[source.find_first_not_of(kSpace)] != '{') return corrupt("is not a JSON object");

  std::string out = without_our_members(source);
  const std::vector<Member> members = scan_top_level(out);
  const std::size_t end = members.empty() ? out.find('{') + 1 : members.back().end;
  std::string insertion = (members.empty() ? "" : ",") + member;
  const std::size_t brace = out.find_first_not_of(kSpace, end);
  if (out.find('\n', end) >= brace) insertion += '\n';
  out.insert(end, insertion);
  return out;
}

}  // namespace weightpress::model
