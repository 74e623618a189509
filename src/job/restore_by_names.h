// Plans a restoration without a record: names of units' tensors from a definition, shapes from whoever knows
// them. What is not known is made up and told in notes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/restore_plan.h"
#include "model/checkpoint.h"
#include "model/definition.h"
#include "model/df11_model.h"
#include "model/source_config.h"

namespace weightpress::job {

struct NamingRequest {
  std::string arch = "auto";
  std::filesystem::path source_shapes;  ///< empty: none
  /// Of the dfloat11_config of config.json; empty: none.
  std::vector<model::UnitPattern> pattern_dict;
  std::optional<model::SourceConfig> config;
};

/// All tensors go into one file, model.safetensors. Throws Error: kBadDefinition if a definition that was
/// named does not fit the units, kUsage if a shape does not fit its tensor, and what reading throws.
RestorePlan plan_by_names(const model::Checkpoint& checkpoint, const model::Df11Model& model,
                          const NamingRequest& request);

}  // namespace weightpress::job
