// A checkpoint read with a definition: its tensors as the output names them, its units, what is left over.
//
// Settled from headers and config.json alone, before any weight is read. Shared by all commands that look at
// a model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/definition.h"
#include "model/detection.h"
#include "model/model_view.h"
#include "model/source_config.h"
#include "model/units.h"

namespace weightpress::job {

inline constexpr std::string_view kConfigName = "config.json";
inline constexpr std::string_view kGenerationConfigName = "generation_config.json";

struct ModelRequest {
  std::string arch = "auto";  ///< name or file of a definition
  std::string layout;         ///< empty: the definition's
  bool cast_to_bf16 = false;
};

struct ModelPlan {
  model::ModelDefinition definition;  ///< its layout is the one that was asked for
  std::string why;                    ///< why it was detected; empty: it was given
  std::vector<model::AlsoFits> also_fits;
  std::optional<model::SourceConfig> config;
  model::ModelView view;
  model::UnitAssignment assignment;
  std::vector<std::string> notes;  ///< sentences: what a user should know of the model and the definition
};

/// config.json beside the tensors; nothing if there is none. Throws what reading and parsing it throws.
std::optional<model::SourceConfig> read_source_config(const model::Checkpoint& checkpoint);

/// The content of a file beside the tensors; nothing if there is none. Throws kNotFound for a link to
/// nothing.
std::optional<std::string> read_beside_source(const model::Checkpoint& checkpoint, std::string_view name);

/// Throws Error: kNotFound (no definition belongs to the model, a pattern without a module, a tensor is
/// missing), and what detection, key rules and unit assignment give as errors.
ModelPlan plan_model(const model::Checkpoint& checkpoint, const ModelRequest& request);

}  // namespace weightpress::job
