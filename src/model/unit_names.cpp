#include "model/unit_names.h"

#include <utility>

namespace weightpress::model {

Result<UnitNamer> UnitNamer::make(std::vector<UnitPattern> pattern_dict) {
  UnitNamer namer(std::move(pattern_dict));
  for (const UnitPattern& pattern : namer.pattern_dict_) {
    auto compiled = NamePattern::compile(pattern.pattern);
    if (!compiled) return Unexpected(std::move(compiled.error()));
    namer.patterns_.push_back(std::move(*compiled));
  }
  return namer;
}

std::optional<UnitNamer::Named> UnitNamer::name(const StoredUnit& unit) const {
  std::optional<Named> named;
  for (std::size_t p = 0; p < patterns_.size(); ++p) {
    if (!patterns_[p].matches(unit.name)) continue;
    const std::vector<std::string>& attributes = pattern_dict_[p].attributes;
    if (attributes.size() == unit.num_tensors()) {
      named = Named{{}, p};
      for (const std::string& attribute : attributes)
        named->tensors.push_back(unit.name + "." + attribute + ".weight");
      return named;
    }
    // A linear layer or an embedding is a unit by itself, whatever attributes the pattern lists.
    if (unit.num_tensors() == 1) {
      named = Named{{unit.name + ".weight"}, p};
    } else if (!named) {
      named = Named{{}, p};
    }
  }
  return named;
}

std::vector<std::string> numbered_names(const StoredUnit& unit) {
  if (unit.num_tensors() == 1) return {unit.name + ".weight"};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < unit.num_tensors(); ++i)
    names.push_back(unit.name + "." + std::to_string(i) + ".weight");
  return names;
}

}  // namespace weightpress::model
