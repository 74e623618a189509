#include "job/model_plan.h"

#include <filesystem>
#include <utility>

#include <weightpress/error.h>

#include "model/architectures.h"
#include "model/df11_model.h"
#include "model/file.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::in_quotes;

/// A pattern without a module means a model that lacks a part, or the wrong definition.
void check_complete(const model::Checkpoint& checkpoint, const ModelPlan& plan) {
  if (plan.assignment.unmatched_patterns.empty()) return;
  const std::string& pattern = plan.definition.pattern_dict[plan.assignment.unmatched_patterns[0]].pattern;
  std::string message = "no module in " + model::printable(checkpoint.folder().native()) +
                        " matches the pattern " + in_quotes(pattern) + " of the definition " +
                        in_quotes(plan.definition.name) +
                        ": the model lacks this part, or another definition is the right one";
  if (!plan.why.empty()) message += " (this one was detected; name another with --arch)";
  if (pattern == "lm_head" && plan.view.find(model::kEmbeddingName)) {
    message +=
        plan.definition.tied_lm_head
            ? "; lm_head can be made from the embedding where config.json says tie_word_embeddings" +
                  std::string(plan.config ? "" : " (there is no config.json beside the source)")
            : "; a definition with the rule tied_lm_head makes lm_head from the embedding of a tied model";
  }
  throw Error(ErrorCode::kNotFound, message);
}

/// A unit's buffers must not get the name of a tensor that is kept.
void check_buffer_names(const model::Checkpoint& checkpoint, const ModelPlan& plan) {
  for (const model::Unit& unit : plan.assignment.units) {
    for (std::size_t buffer = 0; buffer < model::kNumDf11Buffers; ++buffer) {
      const std::string name =
          unit.name + "." + std::string(model::df11_buffer_name(static_cast<model::Df11Buffer>(buffer)));
      const auto tensor = plan.view.find(name);
      if (!tensor) continue;
      const model::SourceTensor& source = checkpoint.tensors()[plan.view.tensors[*tensor].source_index];
      throw Error(
          ErrorDetails{.code = ErrorCode::kNameConflict,
                       .message = "tensor " + in_quotes(source.name) + " in " +
                                  model::printable(checkpoint.files()[source.file_index].path().native()) +
                                  " has the name of a buffer of the unit " + in_quotes(unit.name) +
                                  ": rename it in the source, or drop it by a rule of the definition",
                       .unit = unit.name,
                       .tensor = source.name});
    }
  }
}

/// Loaders give the weights of a unit that is one module to linear layers and embeddings, which have
/// matrices.
void note_other_layers(const model::Checkpoint& checkpoint, ModelPlan& plan) {
  for (const model::Unit& unit : plan.assignment.units) {
    const model::ModelTensor& tensor = plan.view.tensors[unit.tensors.front()];
    const std::size_t dimensions = checkpoint.tensors()[tensor.source_index].shape.size();
    if (tensor.name != unit.name + ".weight" || dimensions <= 2) continue;
    plan.notes.push_back("unit " + in_quotes(unit.name) + " is one module whose weight has " +
                         std::to_string(dimensions) +
                         " dimensions; loaders decode such units only for linear layers and embeddings");
  }
}

/// A tied head without weights of its own cannot share those of an embedding that is compressed.
void note_lost_head(ModelPlan& plan) {
  if (!plan.config || !plan.config->ties_word_embeddings() || plan.view.find(model::kLmHeadName)) return;
  const auto embedding = plan.view.find(model::kEmbeddingName);
  for (const model::Unit& unit : plan.assignment.units) {
    if (!embedding || unit.tensors != std::vector{*embedding}) continue;
    plan.notes.emplace_back(
        "the embedding is a unit, and lm_head, if the model has one, shares its weights: loaders "
        "then need a unit lm_head too (\"lm_head\": [] in pattern_dict and the rule tied_lm_head)");
  }
}

/// Half a model under the name of a wrapper would be left uncompressed without a word.
void refuse_wrapped_modules(const model::Checkpoint& checkpoint, const ModelPlan& plan) {
  for (const model::ModelTensor& tensor : plan.view.tensors) {
    for (const std::string_view wrapper : {"_orig_mod", "_fsdp_wrapped_module"}) {
      const std::string dotted = "." + tensor.name + ".";
      if (dotted.find("." + std::string(wrapper) + ".") == dotted.npos) continue;
      const model::SourceTensor& source = checkpoint.tensors()[tensor.source_index];
      throw Error(ErrorDetails{
          .code = ErrorCode::kBadDefinition,
          .message =
              "tensor " + in_quotes(source.name) + " in " +
              model::printable(checkpoint.files()[source.file_index].path().native()) +
              " was saved from a wrapped module (" + std::string(wrapper) +
              "), so no pattern finds it: save the model unwrapped, or take the part out of the names by "
              "a rule rename of the definition",
          .tensor = source.name});
    }
  }
}

}  // namespace

std::optional<std::string> read_beside_source(const model::Checkpoint& checkpoint, std::string_view name) {
  const fs::path path = checkpoint.folder() / name;
  if (!fs::exists(fs::symlink_status(path))) return std::nullopt;
  if (!fs::exists(path)) {
    throw Error(ErrorCode::kNotFound, model::printable(path.native()) +
                                          " is a link to a file that does not exist: download it again");
  }
  return model::read_whole_file(path, model::kMaxConfigBytes);
}

std::optional<model::SourceConfig> read_source_config(const model::Checkpoint& checkpoint) {
  std::optional<std::string> text = read_beside_source(checkpoint, kConfigName);
  if (!text) return std::nullopt;
  auto config = model::parse_source_config(std::move(*text), (checkpoint.folder() / kConfigName).string());
  return std::move(config.value());
}

ModelPlan plan_model(const model::Checkpoint& checkpoint, const ModelRequest& request) {
  ModelPlan plan;
  // A single file for ComfyUI may lie beside a config.json that has nothing to do with it.
  std::optional<Error> bad_config;
  try {
    plan.config = read_source_config(checkpoint);
  } catch (const Error& error) {
    bad_config = error;
  }
  if (request.arch == "auto") {
    model::Detection detection = std::move(model::detect_definition(checkpoint, plan.config).value());
    plan.definition = std::move(detection.definition);
    plan.why = std::move(detection.why);
    plan.also_fits = std::move(detection.also_fits);
  } else {
    plan.definition = model::load_architecture(request.arch);
  }
  if (!request.layout.empty()) plan.definition.layout = request.layout;
  if (bad_config && plan.definition.layout != "comfyui") throw Error(*bad_config);

  plan.view = std::move(model::apply_key_rules(checkpoint, plan.definition).value());
  if (plan.config && plan.config->ties_word_embeddings() &&
      model::add_tied_lm_head(plan.definition, plan.view)) {
    plan.notes.emplace_back(
        "lm_head is tied to the embedding, and both are units: their weights are stored twice");
  }
  if (request.cast_to_bf16) model::cast_floats_to_bf16(checkpoint, plan.definition, plan.view);
  plan.assignment = std::move(model::assign_units(plan.view.tensors, plan.definition).value());
  check_complete(checkpoint, plan);
  check_buffer_names(checkpoint, plan);
  refuse_wrapped_modules(checkpoint, plan);
  note_other_layers(checkpoint, plan);
  note_lost_head(plan);
  return plan;
}

}  // namespace weightpress::job
