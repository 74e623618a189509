#include "model/detection.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <weightpress/error.h>

#include "model/architectures.h"
#include "model/model_view.h"
#include "model/name_pattern.h"
#include "model/text.h"
#include "model/units.h"

namespace weightpress::model {
namespace {

/// How a definition stands to the model.
struct Candidate {
  ModelDefinition definition;
  std::shared_ptr<const ModelView> view;
  std::optional<UnitAssignment> assignment;  ///< if all of its patterns fit
  std::optional<std::size_t> rule;           ///< the detection rule that holds
  std::uint64_t unit_weights = 0;

  bool decided_by_config() const { return rule && !definition.detection[*rule].config.empty(); }
};

std::string giga(std::uint64_t count) {
  std::array<char, 32> text{};
  const double value = static_cast<double>(count);
  if (count >= 1'000'000'000) {
    std::snprintf(text.data(), text.size(), "%.2f G", value / 1e9);
  } else if (count >= 1'000'000) {
    std::snprintf(text.data(), text.size(), "%.1f M", value / 1e6);
  } else {
    std::snprintf(text.data(), text.size(), "%.0f", value);
  }
  return text.data();
}

bool holds(const DetectionRule& rule, const ModelView& view, const std::optional<SourceConfig>& config) {
  return rule_holds(
      rule,
      [&](const std::string& name) {
        const auto tensor = view.find(name);
        return tensor && !view.tensors[*tensor].is_tied_copy;
      },
      config);
}

/// Unit names with the source tensors of each, and what is left out: all that decides the bytes.
auto content_of(const Candidate& candidate) {
  std::set<std::pair<std::string, std::vector<std::size_t>>> units;
  for (const Unit& unit : candidate.assignment->units) {
    std::vector<std::size_t> sources;
    for (const std::size_t tensor : unit.tensors)
      sources.push_back(candidate.view->tensors[tensor].source_index);
    units.emplace(unit.name, std::move(sources));
  }
  std::set<std::string> names;
  for (const ModelTensor& tensor : candidate.view->tensors) names.insert(tensor.name);
  return std::pair(std::move(units), std::move(names));
}

AlsoFits compare(const Candidate& chosen, const Candidate& other) {
  AlsoFits result{.name = other.definition.name, .same_bytes = false, .difference = {}};
  if (chosen.definition.layout != other.definition.layout ||
      leftover_file_name(chosen.definition) != leftover_file_name(other.definition)) {
    result.difference = "writes the layout " + other.definition.layout + ", ";
  }
  if (result.difference.empty() && content_of(chosen) == content_of(other)) {
    result.same_bytes = true;
    result.difference = is_single_file(chosen.definition.layout)
                            ? "the same files"
                            : "the same tensors; only config.json differs";
    return result;
  }
  result.difference += "compresses " + giga(other.unit_weights) + " weights in " +
                       std::to_string(other.assignment->units.size()) + " units, not " +
                       giga(chosen.unit_weights) + " in " + std::to_string(chosen.assignment->units.size());
  return result;
}

class Detector {
 public:
  Detector(const Checkpoint& checkpoint, const std::optional<SourceConfig>& config)
      : checkpoint_(checkpoint), config_(config) {}

  Result<Detection> run() {
    for (const Architecture& architecture : list_architectures()) consider(architecture);
    // A rule that looks at config.json knows more; of two models the larger one contains the other.
    const auto chosen = std::ranges::max_element(candidates_, {}, [](const Candidate& candidate) {
      return std::tuple(candidate.rule.has_value(), candidate.decided_by_config(), candidate.unit_weights);
    });
    if (chosen == candidates_.end() || !chosen->rule) return nothing_found();

    Detection detection;
    detection.why = why(*chosen);
    if (chosen->assignment) {
      for (const Candidate& other : candidates_) {
        // What is chosen by name only is meant for models of its family.
        const bool is_foreign =
            other.definition.detection.empty() && other.definition.family != chosen->definition.family;
        if (&other != &*chosen && other.assignment && !is_foreign)
          detection.also_fits.push_back(compare(*chosen, other));
      }
    }
    detection.definition = std::move(chosen->definition);
    return detection;
  }

 private:
  void consider(const Architecture& architecture) {
    Candidate candidate;
    candidate.definition = parse_architecture(architecture);
    candidate.view = view_of(candidate.definition);
    if (!candidate.view) return;
    const std::vector<DetectionRule>& rules = candidate.definition.detection;
    for (std::size_t rule = 0; rule < rules.size() && !candidate.rule; ++rule)
      if (holds(rules[rule], *candidate.view, config_)) candidate.rule = rule;

    auto assignment = try_assign_units(candidate.view->tensors, candidate.definition);
    if (assignment && assignment->unmatched_patterns.empty()) {
      for (const Unit& unit : assignment->units) candidate.unit_weights += unit.num_weights;
      candidate.assignment = std::move(*assignment);
    }
    if (candidate.rule || candidate.assignment) candidates_.push_back(std::move(candidate));
  }

  /// The model as the definition's key rules leave it; nothing if they cannot be applied. Most definitions
  /// have the same rules, and a model may have a million tensors.
  std::shared_ptr<const ModelView> view_of(const ModelDefinition& definition) {
    const bool ties = definition.tied_lm_head && config_ && config_->ties_word_embeddings();
    std::string key = definition.keep_only_prefix + (ties ? "\ntied" : "\n");
    const auto add = [&key](const std::string& text) {
      key.append(std::to_string(text.size())).append(text);
    };
    for (const auto* list : {&definition.strip_prefixes, &definition.drop}) {
      key += '\n';
      for (const std::string& element : *list) add(element);
    }
    key += '\n';
    for (const RenameRule& rule : definition.rename) add(rule.pattern), add(rule.replacement);
    const auto [place, is_new] = views_.try_emplace(std::move(key));
    if (is_new) {
      if (auto view = apply_key_rules(checkpoint_, definition)) {
        if (ties) add_tied_lm_head(definition, *view);
        place->second = std::make_shared<const ModelView>(std::move(*view));
      } else if (!conflict_) {
        conflict_ = std::move(view.error());
      }
    }
    return place->second;
  }

  static std::string why(const Candidate& chosen) {
    std::string text;
    const DetectionRule& rule = chosen.definition.detection[*chosen.rule];
    for (const auto& [key, pattern] : rule.config)
      text += "config.json's " + printable(key) + " matches " + in_quotes(pattern) + " and ";
    return text + "its tensors include " + in_quotes(rule.all.front());
  }

  Unexpected nothing_found() const {
    // A definition may belong to the model, were it not for this.
    if (conflict_) return Unexpected(*conflict_);
    std::string message = "no definition of weightpress belongs to this model";
    if (!checkpoint_.tensors().empty()) {
      const std::string& name = checkpoint_.tensors().front().name;
      message += " (one of its tensors is " + in_quotes(name) + ")";
      if (const auto [prefix, definition] = foreign_prefix(); !prefix.empty())
        message += ": with " + in_quotes(prefix) + " taken off its names it would be " +
                   in_quotes(definition) + "; save it without, or give a definition with strip_prefixes";
    }
    return Unexpected(ErrorCode::kNotFound,
                      message +
                          "; say with --arch which one to use ('weightpress architectures list'), or "
                          "write one (architectures/README.md) and give it with --arch FILE.json");
  }

  /// A prefix of all names, without which a definition would be found, and that definition.
  std::pair<std::string, std::string> foreign_prefix() const {
    const std::string& first = checkpoint_.tensors().front().name;
    const std::string& last = checkpoint_.tensors().back().name;  // sorted: what both share, all share
    const auto shared = static_cast<std::size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
    for (std::size_t dot = first.find('.'); dot < shared; dot = first.find('.', dot + 1)) {
      const std::string prefix = first.substr(0, dot + 1);
      for (const Architecture& architecture : list_architectures()) {
        const ModelDefinition definition = parse_architecture(architecture);
        for (const DetectionRule& rule : definition.detection) {
          if (std::ranges::all_of(rule.all, [&](const std::string& name) {
                return checkpoint_.find(prefix + name) != nullptr;
              }))
            return {prefix, definition.name};
        }
      }
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const std::optional<SourceConfig>& config_;
  std::vector<Candidate> candidates_;
  std::optional<ErrorDetails> conflict_;                           // the first of key rules
  std::map<std::string, std::shared_ptr<const ModelView>> views_;  // by what decides them
};

}  // namespace

bool rule_holds(const DetectionRule& rule, const std::function<bool(const std::string&)>& is_there,
                const std::optional<SourceConfig>& config) {
  return std::ranges::all_of(rule.all, is_there) && std::ranges::none_of(rule.none, is_there) &&
         std::ranges::all_of(rule.config, [&](const auto& condition) {
           if (!config) return false;
           const auto found = config->strings.find(condition.first);
           return found != config->strings.end() &&
                  NamePattern::compile(condition.second).value().matches(found->second);
         });
}

Result<Detection> detect_definition(const Checkpoint& checkpoint, const std::optional<SourceConfig>& config) {
  return Detector(checkpoint, config).run();
}

}  // namespace weightpress::model
