#include "model/config_object.h"

#include <algorithm>
#include <utility>

#include "model/foreign_file.h"
#include "model/json_depth.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using namespace std::string_literals;

constexpr unsigned kMaxDepth = 256;

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

}  // namespace

Result<nlohmann::json> parse_config_object(std::string_view text, const std::string& file_name) {
  const auto corrupt = [&](const std::string& what) {
    return Unexpected(ErrorCode::kCorruptFile, printable(file_name) + ": " + what);
  };
  // The parser would take a byte order mark as nothing and a NUL as the end of the text.
  if (text.starts_with("\xEF\xBB\xBF"))
    return corrupt("begins with a byte order mark, which loaders refuse: save it as plain UTF-8");
  if (auto other = recognise_foreign_file(text.substr(0, kForeignHeadBytes), file_name))
    return std::move(*other);
  if (text.find('\0') != text.npos) return corrupt("holds a NUL byte: it is not JSON");
  if (is_nested_deeper(text, kMaxDepth)) return corrupt("is nested too deeply");
  nlohmann::json root =
      nlohmann::json::parse(without_python_words(text), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return corrupt("is not valid JSON");
  if (!root.is_object()) return corrupt("is not a JSON object");
  return root;
}

}  // namespace weightpress::model
