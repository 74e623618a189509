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

}  // namespace

struct NamePattern::Compiled {
  std::string text;
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits;
};

NamePattern::NamePattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
NamePattern::NamePattern(NamePattern&&) noexcept = default;
NamePattern& NamePattern::operator=(NamePattern&&) noexcept = default;
NamePattern::~NamePattern() = default;

Result<NamePattern> NamePattern::compile(std::string_view pattern) {
  const auto bad = [&](const std::string& why) {
    return Unexpected(ErrorCode::kBadDefinition, "pattern " + in_quotes(pattern) + " is not valid: " + why);
  };
  // PCRE2's own verbs; Python has nothing of the kind.
  if (pattern.starts_with("(*")) return bad("there is nothing to repeat before '*'");

  // Both ends are anchored, so that alternatives are tried until one spans the name. `$` keeps Python's
  // meaning (also before a final line break), which is PCRE2's default; `.` is anything but a line feed.
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C;
  const auto context = owned(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* code =
      pcre2_compile(bytes_of(pattern), pattern.size(), kOptions, &error, &error_offset, context.get());
  if (code == nullptr) return bad(pcre2_message(error) + " (at byte " + std::to_string(error_offset) + ")");

  auto compiled = std::make_unique<Compiled>();
  compiled->code = owned(code);
  compiled->text = pattern;
  compiled->limits = owned(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(compiled->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKib);
  return NamePattern(std::move(compiled));
}

bool NamePattern::full_match(std::string_view name) const {
  const auto groups = owned(pcre2_match_data_create(1, nullptr));  // one a call: calls may run at once
  const int status = pcre2_match(compiled_->code.get(), bytes_of(name), name.size(), 0, 0, groups.get(),
                                 compiled_->limits.get());
  if (status >= 0) return true;
  if (status == PCRE2_ERROR_NOMATCH) return false;
  throw Error(ErrorCode::kBadDefinition, "pattern " + in_quotes(compiled_->text) +
                                             " could not be matched against " + in_quotes(name) + ": " +
                                             pcre2_message(status) + "; simplify the pattern");
}

}  // namespace weightpress::model
