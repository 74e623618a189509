#include "model/units.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include <weightpress/error.h>

#include "model/name_pattern.h"
#include "model/natural_order.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

constexpr std::size_t kMaxFileNameBytes = 255;

// Modules nest about ten deep in real models; what lies deeper in a hostile name is not looked at.
constexpr unsigned kMaxModuleDepth = 32;

template <class Visit>
void for_each_prefix(std::string_view name, Visit visit) {
  unsigned depth = 0;
  for (std::size_t dot = name.find('.'); dot != name.npos && depth < kMaxModuleDepth;
       dot = name.find('.', dot + 1), ++depth)
    visit(name.substr(0, dot));
}

Unexpected unit_error(ErrorCode code, std::string_view unit, const std::string& what,
                      std::string tensor = {}) {
  return Unexpected(ErrorDetails{.code = code,
                                 .message = "unit " + in_quotes(unit) + ": " + what,
                                 .unit = std::string(unit),
                                 .tensor = std::move(tensor)});
}

// The work of one assign_units call. Views are into the tensors' names.
class Assigner {
 public:
  Assigner(const std::vector<ModelTensor>& tensors, const ModelDefinition& definition, bool explains)
      : tensors_(tensors), definition_(definition), explains_(explains) {}

  Result<UnitAssignment> run() {
    for (const UnitPattern& pattern : definition_.pattern_dict) {
      auto compiled = NamePattern::compile(pattern.pattern);
      if (!compiled) return Unexpected(std::move(compiled.error()));
      patterns_.push_back(std::move(*compiled));
    }
    // Sorted names that share a prefix stand together: a module is new if the name before is not below it.
    std::string_view previous;
    for (const ModelTensor& tensor : tensors_) {
      const auto shared = static_cast<std::size_t>(
          std::ranges::mismatch(previous, std::string_view(tensor.name)).in1 - previous.begin());
      for_each_prefix(tensor.name, [&](std::string_view module) {
        if (module.size() >= shared) modules_.push_back(module);
      });
      previous = tensor.name;
    }

    using Step = Result<void> (Assigner::*)();
    for (const Step step : {Step{&Assigner::match_modules}, Step{&Assigner::check_nesting},
                            Step{&Assigner::collect_weights}, Step{&Assigner::check_file_names}}) {
      if (auto result = (this->*step)(); !result) return Unexpected(std::move(result.error()));
    }
    distribute_rest();
    return std::move(assignment_);
  }

 private:
  Result<void> match_modules() {
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      std::vector<std::string_view> matches;
      for (const std::string_view module : modules_)
        if (patterns_[p].matches(module)) matches.push_back(module);
      if (matches.empty()) assignment_.unmatched_patterns.push_back(p);
      std::ranges::sort(matches, natural_less);
      for (const std::string_view module : matches) {
        if (!unit_index_.emplace(module, assignment_.units.size()).second) {
          return unit_error(
              ErrorCode::kBadDefinition, module,
              "two patterns of definition " + in_quotes(definition_.name) + " match it, the second being " +
                  in_quotes(definition_.pattern_dict[p].pattern) + ": make the patterns exclude each other");
        }
        assignment_.units.push_back({.name = std::string(module), .tensors = {}, .siblings = {}});
        pattern_of_unit_.push_back(p);
      }
    }
    return assignment_.units.empty() ? no_units() : Result<void>();
  }

  Result<void> no_units() const {
    if (!explains_) return Unexpected(ErrorCode::kBadDefinition, "no unit");
    if (tensors_.empty()) return Unexpected(ErrorCode::kBadDefinition, "the model holds no tensor at all");
    std::string message = "no module of the model matches a pattern of definition " +
                          in_quotes(definition_.name) + " (one of its tensors is " +
                          in_quotes(tensors_[0].name) + "): ";
    if (const auto prefix = find_foreign_prefix()) {
      message +=
          "its names begin with " + in_quotes(*prefix) +
          ", which the definition does not know; save the model without that prefix or adapt the definition";
    } else {
      message += "choose the definition that belongs to the model";
    }
    return Unexpected(ErrorCode::kBadDefinition, message);
  }

  // What would have to go from the front of a module's name for a pattern to match, e.g. "_orig_mod.". All
  // modules of a model have it, so a look at some is enough.
  std::optional<std::string_view> find_foreign_prefix() const {
    constexpr std::size_t kMaxLooks = 2'000, kMaxParts = 4;
    for (const std::string_view module : std::span(modules_).first(std::min(modules_.size(), kMaxLooks))) {
      std::size_t parts = 0;
      for (std::size_t dot = module.find('.'); dot != module.npos && parts < kMaxParts;
           dot = module.find('.', dot + 1), ++parts)
        for (const NamePattern& pattern : patterns_)
          if (pattern.matches(module.substr(dot + 1))) return module.substr(0, dot + 1);
    }
    return std::nullopt;
  }

  Result<void> check_nesting() {
    for (const Unit& unit : assignment_.units) {
      std::optional<std::string_view> outer;
      for_each_prefix(unit.name, [&](std::string_view module) {
        if (unit_index_.contains(module)) outer = module;
      });
      if (outer) {
        return unit_error(ErrorCode::kBadDefinition, unit.name,
                          "lies inside the unit " + in_quotes(*outer) + ": definition " +
                              in_quotes(definition_.name) + " must not match nested modules");
      }
    }
    return {};
  }

  Result<void> collect_weights() {
    claimed_.assign(tensors_.size(), false);
    for (std::size_t u = 0; u < assignment_.units.size(); ++u) {
      Unit& unit = assignment_.units[u];
      const UnitPattern& pattern = definition_.pattern_dict[pattern_of_unit_[u]];
      std::vector<std::string> names;
      for (const std::string& attribute : pattern.attributes)
        names.push_back(unit.name + "." + attribute + ".weight");
      // A linear layer or an embedding is a unit by itself, whatever attributes the pattern lists.
      const std::string own = unit.name + ".weight";
      const bool has_attributes =
          std::ranges::any_of(names, [&](const std::string& name) { return find(name).has_value(); });
      if (names.empty() || (!has_attributes && find(own))) names = {own};
      for (const std::string& name : names)
        if (auto claimed = claim(unit, name, pattern); !claimed) return claimed;
    }
    return {};
  }

  Result<void> claim(Unit& unit, const std::string& name, const UnitPattern& pattern) {
    const auto index = find(name);
    if (!index) {
      return unit_error(ErrorCode::kNotFound, unit.name,
                        "tensor " + in_quotes(name) + ", which pattern " + in_quotes(pattern.pattern) +
                            " of definition " + in_quotes(definition_.name) +
                            " names, is missing: check that the definition belongs to the model",
                        name);
    }
    if (claimed_[*index]) {
      return unit_error(
          ErrorCode::kBadDefinition, unit.name,
          "tensor " + in_quotes(name) + " is named twice by pattern " + in_quotes(pattern.pattern), name);
    }
    claimed_[*index] = true;
    unit.tensors.push_back(*index);
    unit.num_weights += tensors_[*index].num_elements;
    return {};
  }

  Result<void> check_file_names() {
    if (is_single_file(definition_.layout)) return {};
    const std::string rest = leftover_file_name(definition_);
    std::map<std::string, std::string_view> owners;
    for (const Unit& unit : assignment_.units) {
      const std::string file_name = unit_file_name(unit.name);
      const auto conflict = [&](const std::string& what) {
        return unit_error(ErrorCode::kNameConflict, unit.name,
                          "its file " + in_quotes(file_name) + " " + what);
      };
      // What is escaped in a message would be a trap in a file name too.
      if (unit.name.empty() || unit.name.find_first_of("/\\") != std::string::npos ||
          escaped_for_terminal(unit.name) != unit.name)
        return conflict("would have a name that is not safe: rename the module");
      if (file_name.size() > kMaxFileNameBytes) return conflict("would have a name of more than 255 bytes");
      if (file_name == rest) return conflict("would take the place of the file for all other tensors");
      const auto [owner, is_new] = owners.emplace(file_name, unit.name);
      if (!is_new) return conflict("would also be that of unit " + in_quotes(owner->second));
    }
    return {};
  }

  void distribute_rest() {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      if (claimed_[t]) continue;
      std::optional<std::size_t> owner;
      for_each_prefix(tensors_[t].name, [&](std::string_view module) {
        if (const auto found = unit_index_.find(module); found != unit_index_.end()) owner = found->second;
      });
      (owner ? assignment_.units[*owner].siblings : assignment_.leftover).push_back(t);
    }
  }

  std::optional<std::size_t> find(const std::string& name) const {
    const auto found = std::ranges::lower_bound(tensors_, name, {}, &ModelTensor::name);
    if (found == tensors_.end() || found->name != name) return std::nullopt;
    return static_cast<std::size_t>(found - tensors_.begin());
  }

  const std::vector<ModelTensor>& tensors_;
  const ModelDefinition& definition_;
  std::vector<NamePattern> patterns_;
  const bool explains_;  // whether errors are worth the search for a good message
  std::vector<std::string_view> modules_;
  UnitAssignment assignment_;
  std::map<std::string_view, std::size_t> unit_index_;  // by unit name
  std::vector<std::size_t> pattern_of_unit_;
  std::vector<bool> claimed_;  // by tensor
};

}  // namespace

Result<UnitAssignment> assign_units(const std::vector<ModelTensor>& tensors,
                                    const ModelDefinition& definition) {
  try {
    return Assigner(tensors, definition, true).run();
  } catch (const Error& error) {  // a pattern that takes too many steps
    return Unexpected(error.details());
  }
}

std::optional<UnitAssignment> try_assign_units(const std::vector<ModelTensor>& tensors,
                                               const ModelDefinition& definition) {
  try {
    auto assignment = Assigner(tensors, definition, false).run();
    if (!assignment) return std::nullopt;
    return std::move(*assignment);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::size_t> find_not_bf16(const Unit& unit, const std::vector<ModelTensor>& tensors) {
  const auto found = std::ranges::find_if(
      unit.tensors, [&](std::size_t index) { return tensors[index].dtype != Dtype::kBf16; });
  return found == unit.tensors.end() ? std::nullopt : std::optional(*found);
}

void keep_units(const std::vector<std::size_t>& unit_indices, UnitAssignment& assignment) {
  std::vector<Unit> rest;
  std::size_t next = 0;
  for (std::size_t u = 0; u < assignment.units.size(); ++u) {
    Unit& unit = assignment.units[u];
    if (next == unit_indices.size() || unit_indices[next] != u) {
      rest.push_back(std::move(unit));
      continue;
    }
    ++next;
    for (const auto& part : {unit.tensors, unit.siblings})
      assignment.leftover.insert(assignment.leftover.end(), part.begin(), part.end());
  }
  std::ranges::sort(assignment.leftover);
  assignment.units = std::move(rest);
}

std::string unit_file_name(std::string_view unit) {
  std::string name(unit);
  std::ranges::replace(name, '.', '_');
  return name + ".safetensors";
}

std::string leftover_file_name(const ModelDefinition& definition) {
  if (is_single_file(definition.layout) && !definition.file.empty()) return definition.file;
  return definition.layout.starts_with("diffusers") ? "diffusion_pytorch_model.safetensors"
                                                    : "model.safetensors";
}

}  // namespace weightpress::model
