#include "model/name_pattern.h"

#include <cstdint>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::model {
namespace {

// Steps and memory a match may take. Real patterns and names need fewer than a hundred steps.
constexpr std::uint32_t kMatchLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 4096;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

template <class T>
std::unique_ptr<T, Free> owned(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return std::unique_ptr<T, Free>(pointer);
}

/// The characters that a pattern begins with and that stand for themselves. Most names of a model differ from
/// most patterns there, and need no matching.
std::string literal_prefix_of(std::string_view pattern) {
  if (pattern.find('|') != pattern.npos) return {};
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::string prefix;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool escaped = pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.';
    if (!escaped && !is_word(pattern[i])) {
      // A quantifier makes the last character optional or repeats it.
      if (std::string_view("*+?{").find(pattern[i]) != std::string_view::npos && !prefix.empty())
        prefix.pop_back();
      break;
    }
    if (escaped) ++i;
    prefix += pattern[i];
  }
  return prefix;
}

}  // namespace

struct NamePattern::Compiled {
  std::string text;
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits;
  std::uint32_t num_groups = 0;
  std::string literal_prefix;  // what every name that matches as a whole begins with

  /// Whether it matches; `groups` then holds where.
  bool match(std::string_view name, pcre2_match_data* groups) const;
};

NamePattern::NamePattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
NamePattern::NamePattern(NamePattern&&) noexcept = default;
NamePattern& NamePattern::operator=(NamePattern&&) noexcept = default;
NamePattern::~NamePattern() = default;

Result<NamePattern> NamePattern::compile(std::string_view pattern, Match match) {
  const auto bad = [&](const std::string& why) {
    return Unexpected(ErrorCode::kBadDefinition, "pattern " + in_quotes(pattern) + " is not valid: " + why);
  };
  // PCRE2's own verbs; Python has nothing of the kind.
  if (pattern.starts_with("(*")) return bad("there is nothing to repeat before '*'");

  // For a whole match both ends are anchored, so that alternatives are tried until one spans the name. `$`
  // keeps Python's meaning (also before a final line break), which is PCRE2's default; `.` is anything but a
  // line feed.
  // With PCRE2_ALT_BSUX \uXXXX is a character, as in Python.
  std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_ALT_BSUX;
  if (match == Match::kWhole) options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
  const auto context = owned(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* code =
      pcre2_compile(bytes_of(pattern), pattern.size(), options, &error, &error_offset, context.get());
  if (code == nullptr) return bad(pcre2_message(error) + " (at byte " + std::to_string(error_offset) + ")");

  auto compiled = std::make_unique<Compiled>();
  compiled->code = owned(code);
  compiled->text = pattern;
  compiled->limits = owned(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(compiled->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKib);
  if (match == Match::kWhole) compiled->literal_prefix = literal_prefix_of(pattern);
  pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_CAPTURECOUNT, &compiled->num_groups);
  return NamePattern(std::move(compiled));
}

bool NamePattern::Compiled::match(std::string_view name, pcre2_match_data* groups) const {
  if (!name.starts_with(literal_prefix)) return false;
  const int status =
      pcre2_match(code.get(), bytes_of(name), name.size(), 0, PCRE2_NO_UTF_CHECK, groups, limits.get());
  if (status >= 0) return true;
  if (status == PCRE2_ERROR_NOMATCH) return false;
  throw Error(ErrorCode::kBadDefinition, "pattern " + in_quotes(text) + " could not be matched against " +
                                             in_quotes(name) + ": " + pcre2_message(status) +
                                             "; simplify the pattern");
}

bool NamePattern::matches(std::string_view name) const {
  thread_local const auto groups = owned(pcre2_match_data_create(1, nullptr));
  return compiled_->match(name, groups.get());
}

std::optional<std::string> NamePattern::replace(std::string_view name, std::string_view replacement) const {
  const auto groups = owned(pcre2_match_data_create(compiled_->num_groups + 1, nullptr));
  if (!compiled_->match(name, groups.get())) return std::nullopt;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(groups.get());
  std::string out(name.substr(0, ends[0]));
  for (std::size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '\\') {
      out += replacement[i];
    } else if (const char c = replacement[++i]; c == '\\') {
      out += c;
    } else if (const auto group = static_cast<std::size_t>(c - '0'); ends[2 * group] != PCRE2_UNSET) {
      out += name.substr(ends[2 * group], ends[2 * group + 1] - ends[2 * group]);
    }
  }
  return out.append(name.substr(ends[1]));
}

std::string NamePattern::check_replacement(std::string_view replacement) const {
  for (std::size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '\\') continue;
    const char c = ++i < replacement.size() ? replacement[i] : '\0';
    if (c == '\\') continue;
    if (c < '1' || c > '9') return "has a backslash that is neither \\\\ nor \\1 to \\9";
    if (static_cast<std::uint32_t>(c - '0') > compiled_->num_groups)
      return std::string("refers to group ") + c + ", which the pattern does not have";
  }
  return {};
}

}  // namespace weightpress::model
