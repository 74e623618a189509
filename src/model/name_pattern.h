// One regular expression of a definition, with the meaning of Python's re.fullmatch on str.
//
// The patterns of pattern_dict are written for Python, stored in config.json and matched there by every
// loader. PCRE2 understands all of them (possessive `\d++` too); a limit on its steps keeps a hostile pattern
// from running for ever.
#pragma once

#include <memory>
#include <string_view>

#include "format/result.h"

namespace weightpress::model {

class NamePattern {
 public:
  /// kBadDefinition, with the place of the fault, if it is no regular expression.
  static Result<NamePattern> compile(std::string_view pattern);

  NamePattern(NamePattern&&) noexcept;
  NamePattern& operator=(NamePattern&&) noexcept;
  ~NamePattern();

  /// Whether the whole of `name` (UTF-8) matches. Throws kBadDefinition if that takes too many steps.
  /// Thread-safe.
  bool full_match(std::string_view name) const;

 private:
  struct Compiled;
  explicit NamePattern(std::unique_ptr<Compiled> compiled);

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace weightpress::model
