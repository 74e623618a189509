// Names for the tensors of stored units, which DF11 files do not hold: from the patterns of a definition, as
// the official loader gives them to modules, or numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "format/result.h"
#include "model/definition.h"
#include "model/df11_model.h"
#include "model/name_pattern.h"

namespace weightpress::model {

class UnitNamer {
 public:
  /// Errors: kBadDefinition, if a pattern is none.
  static Result<UnitNamer> make(std::vector<UnitPattern> pattern_dict);

  struct Named {
    std::vector<std::string> tensors;  ///< in the order of the unit; empty: the pattern is for another number
    std::size_t pattern = 0;           ///< into pattern_dict
  };

  /// Nothing if no pattern matches the unit. Throws kBadDefinition if a pattern takes too many steps.
  std::optional<Named> name(const StoredUnit& unit) const;

  const std::vector<UnitPattern>& pattern_dict() const { return pattern_dict_; }

 private:
  explicit UnitNamer(std::vector<UnitPattern> pattern_dict) : pattern_dict_(std::move(pattern_dict)) {}

  std::vector<UnitPattern> pattern_dict_;
  std::vector<NamePattern> patterns_;
};

/// `<unit>.weight` for a single tensor, else `<unit>.0.weight`, `<unit>.1.weight` and so on.
std::vector<std::string> numbered_names(const StoredUnit& unit);

}  // namespace weightpress::model
