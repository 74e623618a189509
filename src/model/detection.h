// Finds the definition that belongs to a model: from tensor names and config.json.
//
// Each definition says which names must and must not be there. That its patterns fit is not enough: the units
// of one model are often a subset of another's (a definition for the language half fits the whole too), so
// rules exclude the larger model, and the definitions that fit besides are named with what they would change.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "format/result.h"
#include "model/checkpoint.h"
#include "model/definition.h"
#include "model/source_config.h"

namespace weightpress::model {

/// Another definition whose patterns all fit the model.
struct AlsoFits {
  std::string name;
  bool same_bytes = false;  ///< of every .safetensors file; config.json may still differ
  std::string difference;   ///< a clause, e.g. "compresses 12 units of 3.1 G weights"
};

struct Detection {
  ModelDefinition definition;
  std::string why;  ///< a clause, e.g. "its tensors include 'vector_in.in_layer.weight'"
  std::vector<AlsoFits> also_fits;
};

/// Whether the rule's conditions hold of a model with the tensors of which is_there() tells.
bool rule_holds(const DetectionRule& rule, const std::function<bool(const std::string&)>& is_there,
                const std::optional<SourceConfig>& config);

/// Tries all that list_architectures() names. Errors: kNotFound if none belongs to the model.
Result<Detection> detect_definition(const Checkpoint& checkpoint, const std::optional<SourceConfig>& config);

}  // namespace weightpress::model
