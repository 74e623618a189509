#include "model/output_detection.h"

#include <algorithm>
#include <set>
#include <utility>

#include <weightpress/error.h>

#include "model/architectures.h"
#include "model/detection.h"
#include "model/name_pattern.h"
#include "model/unit_names.h"

namespace weightpress::model {
namespace {

struct Candidate {
  ModelDefinition definition;
  std::vector<std::string> names;  // of the tensors of all units, in order
  bool has_rule = false;           // that holds
  bool decided_by_config = false;
};

/// The names that a definition gives to all units; nothing if it does not fit.
std::optional<std::vector<std::string>> names_of(const ModelDefinition& definition, const Df11Model& model) {
  try {
    const UnitNamer namer = UnitNamer::make(definition.pattern_dict).value();
    std::vector<bool> is_used(definition.pattern_dict.size(), false);
    std::vector<std::string> names;
    for (const StoredUnit& unit : model.units) {
      auto named = namer.name(unit);
      if (!named || named->tensors.empty()) return std::nullopt;
      is_used[named->pattern] = true;
      std::ranges::move(named->tensors, std::back_inserter(names));
    }
    if (std::ranges::count(is_used, false) != 0) return std::nullopt;
    return names;
  } catch (const Error&) {  // a pattern that takes too many steps
    return std::nullopt;
  }
}

bool holds(const DetectionRule& rule, const std::set<std::string_view>& names,
           const std::optional<SourceConfig>& config) {
  return rule_holds(rule, [&](const std::string& name) { return names.contains(name); }, config);
}

}  // namespace

OutputDetection detect_output_definition(const Checkpoint& checkpoint, const Df11Model& model,
                                         const std::optional<SourceConfig>& config) {
  std::vector<Candidate> candidates;
  for (const Architecture& architecture : list_architectures()) {
    Candidate candidate{.definition = parse_architecture(architecture), .names = {}};
    auto names = names_of(candidate.definition, model);
    if (!names) continue;
    candidate.names = std::move(*names);
    std::set<std::string_view> all(candidate.names.begin(), candidate.names.end());
    for (const std::size_t kept : model.kept) all.insert(checkpoint.tensors()[kept].name);
    for (const DetectionRule& rule : candidate.definition.detection) {
      if (!holds(rule, all, config)) continue;
      candidate.has_rule = true;
      candidate.decided_by_config |= !rule.config.empty();
    }
    candidates.push_back(std::move(candidate));
  }
  // A rule that holds knows more than patterns, and one that looks at config.json more than one that does
  // not.
  for (bool Candidate::* const stronger : {&Candidate::has_rule, &Candidate::decided_by_config}) {
    if (std::ranges::any_of(candidates, [&](const Candidate& candidate) { return candidate.*stronger; }))
      std::erase_if(candidates, [&](const Candidate& candidate) { return !(candidate.*stronger); });
  }
  OutputDetection detection;
  if (candidates.empty()) return detection;
  const bool all_agree = std::ranges::all_of(
      candidates, [&](const Candidate& candidate) { return candidate.names == candidates.front().names; });
  if (all_agree) {
    detection.definition = std::move(candidates.front().definition);
  } else {
    for (const Candidate& candidate : candidates) detection.candidates.push_back(candidate.definition.name);
  }
  return detection;
}

}  // namespace weightpress::model
