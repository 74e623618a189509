// Finds the definition that a DF11 output was made with, from the names of its units and kept tensors.
//
// Unlike detection.h, which sees all tensors of a source, this sees how many tensors each unit has and what
// they would be called: a definition fits if its patterns name every unit, and every pattern names one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/definition.h"
#include "model/df11_model.h"
#include "model/source_config.h"

namespace weightpress::model {

struct OutputDetection {
  /// The definition; nothing if none fits, or several that give tensors different names.
  std::optional<ModelDefinition> definition;
  std::vector<std::string> candidates;  ///< names of those that fit equally well and differ
};

/// Tries all that list_architectures() names. Throws what reading them throws.
OutputDetection detect_output_definition(const Checkpoint& checkpoint, const Df11Model& model,
                                         const std::optional<SourceConfig>& config);

}  // namespace weightpress::model
