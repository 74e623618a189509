// One regular expression of a definition, with the meaning that Python's re module gives it on str.
//
// The patterns of pattern_dict are written for Python, stored in config.json and matched there by every
// loader. PCRE2 understands all of them (possessive `\d++` too); a limit on its steps keeps a hostile pattern
// from running for ever.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "format/result.h"

namespace weightpress::model {

class NamePattern {
 public:
  enum class Match : std::uint8_t {
    kWhole,  ///< re.fullmatch
    kFirst   ///< re.search: the first place where it matches
  };

  /// kBadDefinition, with the place of the fault, if it is no regular expression.
  static Result<NamePattern> compile(std::string_view pattern, Match match = Match::kWhole);

  NamePattern(NamePattern&&) noexcept;
  NamePattern& operator=(NamePattern&&) noexcept;
  ~NamePattern();

  /// Whether `name` matches; it must be UTF-8, as all that comes out of JSON is. Throws kBadDefinition if
  /// that takes too many steps. Thread-safe.
  bool matches(std::string_view name) const;

  /// `name` with the match replaced, as re.sub(count=1) does: \1 to \9 stand for groups, \\ for a backslash.
  /// Nothing if it does not match. `replacement` must have passed check_replacement().
  std::optional<std::string> replace(std::string_view name, std::string_view replacement) const;

  /// Why `replacement` cannot be used with this pattern; empty if it can.
  std::string check_replacement(std::string_view replacement) const;

 private:
  struct Compiled;
  explicit NamePattern(std::unique_ptr<Compiled> compiled);

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace weightpress::model
