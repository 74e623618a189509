#include "job/restore_by_names.h"

#include <utility>

#include <weightpress/error.h>

#include "model/architectures.h"
#include "model/output_detection.h"
#include "model/safetensors_header.h"
#include "model/source_shapes.h"
#include "model/text.h"
#include "model/unit_names.h"

namespace weightpress::job {
namespace {

using model::in_quotes;

class Planner {
 public:
  Planner(const model::Checkpoint& checkpoint, const model::Df11Model& model, const NamingRequest& request)
      : checkpoint_(checkpoint), model_(model), request_(request) {}

  RestorePlan run() {
    plan_.files.push_back({"model.safetensors", std::string(model::kPytorchMetadata), {}});
    settle_names();
    if (!request_.source_shapes.empty()) {
      shapes_ = model::read_source_shapes(request_.source_shapes, definition_ ? &*definition_ : nullptr);
    }
    for (std::size_t u = 0; u < model_.units.size(); ++u) add_unit(u);
    for (const std::size_t index : model_.kept) {
      const model::SourceTensor& tensor = checkpoint_.tensors()[index];
      plan_.copies.push_back({index, {add_tensor({tensor.name, tensor.dtype, tensor.shape})}});
    }
    note_unknown();
    return std::move(plan_);
  }

 private:
  void settle_names() {
    if (request_.arch != "auto") {
      definition_ = model::load_architecture(request_.arch);
    } else if (!request_.pattern_dict.empty()) {
      auto namer = model::UnitNamer::make(request_.pattern_dict);
      if (!namer)
        throw Error(ErrorCode::kCorruptFile, "config.json: dfloat11_config: " + namer.error().message);
      namer_ = std::move(*namer);
      plan_.notes.emplace_back("names of tensors come from the dfloat11_config of config.json");
      return;
    } else {
      model::OutputDetection found = model::detect_output_definition(checkpoint_, model_, request_.config);
      if (!found.candidates.empty()) {
        std::string names;
        for (const std::string& name : found.candidates) names += (names.empty() ? "" : ", ") + name;
        plan_.notes.push_back("several definitions fit the units and name their tensors differently (" +
                              names + "): say with --arch which one is right");
      }
      if (!found.definition) return;
      definition_ = std::move(found.definition);
    }
    namer_ = std::move(model::UnitNamer::make(definition_->pattern_dict).value());
    plan_.notes.push_back("names of tensors come from the definition " + definition_->name);
  }

  std::vector<std::string> names_of(const model::StoredUnit& unit) {
    if (namer_) {
      const auto named = namer_->name(unit);
      if (named && !named->tensors.empty()) return named->tensors;
      if (request_.arch != "auto") {
        throw Error(ErrorDetails{
            .code = ErrorCode::kBadDefinition,
            .message =
                "unit " + in_quotes(unit.name) +
                (named ? " joins " + std::to_string(unit.num_tensors()) + " tensors, but the pattern " +
                             in_quotes(namer_->pattern_dict()[named->pattern].pattern) +
                             " of the definition " + in_quotes(definition_->name) + " lists " +
                             std::to_string(namer_->pattern_dict()[named->pattern].attributes.size())
                       : " matches no pattern of the definition " + in_quotes(definition_->name)) +
                ": choose the definition that belongs to the model, or leave --arch out",
            .unit = unit.name});
      }
    }
    if (num_unnamed_++ == 0) first_unnamed_ = unit.name;
    return model::numbered_names(unit);
  }

  TensorPlace add_tensor(model::TensorSpec spec) {
    plan_.files[0].tensors.push_back(std::move(spec));
    return {0, plan_.files[0].tensors.size() - 1};
  }

  void add_unit(std::size_t u) {
    const model::StoredUnit& unit = model_.units[u];
    const std::vector<std::string> names = names_of(unit);
    RestoredUnit& restored = plan_.units.emplace_back();
    restored.unit = u;
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::uint64_t end = i < unit.split_positions.size() ? unit.split_positions[i] : unit.num_weights;
      restored.places.push_back(
          {add_tensor({names[i], model::Dtype::kBf16, shape_of(unit.name, names[i], end - begin)})});
      begin = end;
    }
  }

  std::vector<std::uint64_t> shape_of(const std::string& unit, const std::string& tensor,
                                      std::uint64_t num_weights) {
    const auto found = shapes_.find(tensor);
    if (found == shapes_.end()) {
      if (num_flat_++ == 0) first_flat_ = tensor;
      return {num_weights};
    }
    if (model::checked_num_elements(found->second) != num_weights) {
      throw Error(ErrorDetails{.code = ErrorCode::kUsage,
                               .message = model::printable(request_.source_shapes.native()) +
                                          ": the shape of the tensor " + in_quotes(tensor) +
                                          " is not one of " + std::to_string(num_weights) +
                                          " weights, as the unit " + in_quotes(unit) +
                                          " holds them: give the shapes of the right model",
                               .unit = unit,
                               .tensor = tensor});
    }
    return found->second;
  }

  void note_unknown() {
    if (num_unnamed_ != 0) {
      plan_.notes.push_back("the names of the tensors of " + std::to_string(num_unnamed_) +
                            " units are not known and are made up, the first being unit " +
                            in_quotes(first_unnamed_) + ": a definition (--arch) names them");
    }
    if (num_flat_ == 0) return;
    plan_.notes.push_back("the shapes of " + std::to_string(num_flat_) +
                          " tensors are not known, and they are written flat, with one dimension, the first "
                          "being " +
                          in_quotes(first_flat_) + ": " +
                          (request_.source_shapes.empty()
                               ? "--source-shapes gives them"
                               : model::printable(request_.source_shapes.native()) + " does not hold them"));
  }

  const model::Checkpoint& checkpoint_;
  const model::Df11Model& model_;
  const NamingRequest& request_;

  RestorePlan plan_;
  std::optional<model::ModelDefinition> definition_;
  std::optional<model::UnitNamer> namer_;
  model::SourceShapes shapes_;
  std::uint64_t num_unnamed_ = 0, num_flat_ = 0;
  std::string first_unnamed_, first_flat_;
};

}  // namespace

RestorePlan plan_by_names(const model::Checkpoint& checkpoint, const model::Df11Model& model,
                          const NamingRequest& request) {
  return Planner(checkpoint, model, request).run();
}

}  // namespace weightpress::job
