#include "job/restore_by_record.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <weightpress/error.h>

#include "model/model_view.h"
#include "model/safetensors_header.h"
#include "model/shard_series.h"
#include "model/text.h"
#include "model/units.h"

namespace weightpress::job {
namespace {

using model::in_quotes;
using model::RecordedTensor;
using model::TensorFate;

class Planner {
 public:
  Planner(const model::Checkpoint& checkpoint, const model::Df11Model& model,
          const model::SourceRecord& record, const std::string& record_name)
      : checkpoint_(checkpoint), model_(model), record_(record), record_name_(record_name) {}

  RestorePlan run() {
    for (std::size_t u = 0; u < model_.units.size(); ++u) unit_by_name_.emplace(model_.units[u].name, u);
    lay_out_files();
    place_kept();
    place_units();
    plan_.index_stem = index_stem();
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    throw Error(code, model::printable(record_name_) + ": the record does not fit the output: it " + what);
  }

  /// Every tensor that comes back gets its place; those of tied tensors are the places of what they are tied
  /// to as well.
  void lay_out_files() {
    std::vector<std::pair<const RecordedTensor*, TensorPlace>> tied;
    for (const model::RecordedFile& file : record_.files) {
      const std::size_t f = plan_.files.size();
      RestoredFile& restored = plan_.files.emplace_back(RestoredFile{file.name, file.metadata_json, {}});
      for (const RecordedTensor& tensor : file.tensors) {
        if (tensor.fate == TensorFate::kDropped) {
          plan_.dropped.push_back({tensor.name, tensor.drop_reason});
          continue;
        }
        const TensorPlace place{f, restored.tensors.size()};
        restored.tensors.push_back({tensor.name, tensor.stored_dtype, tensor.shape});
        if (tensor.stored_dtype != tensor.dtype)
          plan_.cast.push_back({tensor.name, std::string(model::dtype_name(tensor.dtype))});
        if (tensor.fate == TensorFate::kTied) {
          tied.emplace_back(&tensor, place);
        } else {
          places_[&tensor].push_back(place);
          tensor_by_name_.emplace(tensor.name, &tensor);
        }
      }
    }
    for (const auto& [tensor, place] : tied) places_[tensor_by_name_.at(tensor->tied_to)].push_back(place);
  }

  void place_kept() {
    std::map<std::string_view, const RecordedTensor*> by_stored_name;
    for (const auto& [name, tensor] : tensor_by_name_)
      if (tensor->fate == TensorFate::kKept) by_stored_name.emplace(tensor->stored_name, tensor);
    for (const std::size_t index : model_.kept) {
      const model::SourceTensor& stored = checkpoint_.tensors()[index];
      const auto found = by_stored_name.find(stored.name);
      if (found == by_stored_name.end()) {
        fail(ErrorCode::kCorruptFile,
             "does not list the tensor " + in_quotes(stored.name) + ", which the output holds");
      }
      const RecordedTensor& tensor = *found->second;
      if (stored.dtype != tensor.stored_dtype || stored.shape != tensor.shape) {
        fail(ErrorCode::kCorruptFile, "says that the tensor " + in_quotes(stored.name) + " is " +
                                          std::string(model::dtype_name(tensor.stored_dtype)) + " " +
                                          model::shape_text(tensor.shape) + ", but in the output it is " +
                                          std::string(model::dtype_name(stored.dtype)) + " " +
                                          model::shape_text(stored.shape));
      }
      plan_.copies.push_back({index, places_.at(&tensor)});
      by_stored_name.erase(found);
    }
    if (by_stored_name.empty()) return;
    fail(ErrorCode::kNotFound, "lists the tensor " + in_quotes(by_stored_name.begin()->first) +
                                   ", which the output does not hold (is a file missing?)");
  }

  /// What the output was before its units were stored: its tensors by name.
  void list_stored() {
    for (const auto& [name, tensor] : tensor_by_name_) {
      stored_.push_back({.name = tensor->stored_name,
                         .dtype = tensor->stored_dtype,
                         .num_elements = model::checked_num_elements(tensor->shape).value()});
      tensor_by_stored_name_.emplace(tensor->stored_name, tensor);
    }
    for (const model::RecordedTiedUnit& tied : record_.tied_units) {
      const RecordedTensor& source = *tensor_by_name_.at(tied.made_from);
      const std::string name = tied.unit + ".weight";
      if (tensor_by_stored_name_.contains(name))
        fail(ErrorCode::kCorruptFile, "says that the unit " + in_quotes(tied.unit) +
                                          " is made from another tensor, but lists its own");
      stored_.push_back({.name = name,
                         .dtype = source.stored_dtype,
                         .num_elements = model::checked_num_elements(source.shape).value(),
                         .is_tied_copy = true});
    }
    std::ranges::sort(stored_, {}, &model::ModelTensor::name);
    if (const auto twin = std::ranges::adjacent_find(stored_, {}, &model::ModelTensor::name);
        twin != stored_.end())
      fail(ErrorCode::kCorruptFile, "lists the unit of " + in_quotes(twin->name) + " twice in tied_units");
  }

  void place_units() {
    list_stored();
    model::ModelDefinition definition;
    definition.name = "of the record";
    definition.layout = "comfyui";  // no files are named after units here
    definition.pattern_dict = record_.pattern_dict;
    auto assignment = model::assign_units(stored_, definition);
    if (!assignment)
      fail(ErrorCode::kCorruptFile, "has a pattern_dict that is of no use: " + assignment.error().message);
    std::map<std::string_view, const model::Unit*> assigned;
    for (const model::Unit& unit : assignment->units) assigned.emplace(unit.name, &unit);

    for (std::size_t u = 0; u < model_.units.size(); ++u) {
      const model::StoredUnit& unit = model_.units[u];
      const auto found = assigned.find(unit.name);
      if (found == assigned.end()) {
        fail(ErrorCode::kCorruptFile,
             "lists no tensors of the unit " + in_quotes(unit.name) + ", which the output holds");
      }
      plan_.units.push_back({u, places_of(unit, *found->second)});
    }
    for (const auto& [name, tensor] : tensor_by_name_) {
      if (tensor->fate != TensorFate::kInUnit || is_placed(*tensor)) continue;
      if (!unit_by_name_.contains(tensor->unit)) {
        fail(ErrorCode::kNotFound, "lists the unit " + in_quotes(tensor->unit) +
                                       ", which the output does not hold (is a file missing?)");
      }
      fail(ErrorCode::kCorruptFile, "says that the tensor " + in_quotes(name) + " is in the unit " +
                                        in_quotes(tensor->unit) + ", but pattern_dict does not");
    }
    for (const model::RecordedTiedUnit& tied : record_.tied_units) {
      if (!unit_by_name_.contains(tied.unit)) {
        fail(ErrorCode::kNotFound, "lists the unit " + in_quotes(tied.unit) +
                                       ", which the output does not hold (is a file missing?)");
      }
    }
  }

  bool is_placed(const RecordedTensor& tensor) const { return placed_.contains(&tensor); }

  std::vector<std::vector<TensorPlace>> places_of(const model::StoredUnit& unit,
                                                  const model::Unit& assigned) {
    const auto fail_unit = [&](const std::string& what) {
      fail(ErrorCode::kCorruptFile, "says of the unit " + in_quotes(unit.name) + " that " + what);
    };
    if (assigned.tensors.size() != unit.num_tensors()) {
      fail_unit("its tensors are " + std::to_string(assigned.tensors.size()) + ", but the output joins " +
                std::to_string(unit.num_tensors()));
    }
    std::vector<std::vector<TensorPlace>> places;
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < assigned.tensors.size(); ++i) {
      const model::ModelTensor& tensor = stored_[assigned.tensors[i]];
      const std::uint64_t end = i < unit.split_positions.size() ? unit.split_positions[i] : unit.num_weights;
      if (tensor.num_elements != end - begin) {
        fail_unit("its tensor " + in_quotes(tensor.name) + " has " + std::to_string(tensor.num_elements) +
                  " weights, but in the output " + std::to_string(end - begin));
      }
      if (tensor.dtype != model::Dtype::kBf16)
        fail_unit("its tensor " + in_quotes(tensor.name) + " is not BF16");
      begin = end;
      if (tensor.is_tied_copy) {
        places.emplace_back();
        continue;
      }
      const RecordedTensor& recorded = *tensor_by_stored_name_.at(tensor.name);
      if (recorded.fate != TensorFate::kInUnit || recorded.unit != unit.name)
        fail_unit("its tensor " + in_quotes(tensor.name) + " is not said to be in it");
      placed_.emplace(&recorded, true);
      places.push_back(places_.at(&recorded));
    }
    return places;
  }

  std::string index_stem() const {
    for (const RestoredFile& file : plan_.files)
      if (const auto shard = model::parse_shard_name(file.name)) return shard->stem;
    return record_.layout.starts_with("diffusers") ? "diffusion_pytorch_model" : "model";
  }

  const model::Checkpoint& checkpoint_;
  const model::Df11Model& model_;
  const model::SourceRecord& record_;
  const std::string& record_name_;

  RestorePlan plan_;
  std::map<std::string_view, std::size_t> unit_by_name_;
  std::map<std::string_view, const RecordedTensor*> tensor_by_name_;         // that are stored
  std::map<std::string_view, const RecordedTensor*> tensor_by_stored_name_;  // the same
  std::map<const RecordedTensor*, std::vector<TensorPlace>> places_;         // of those
  std::map<const RecordedTensor*, bool> placed_;                             // those of units, once they are
  std::vector<model::ModelTensor> stored_;
};

}  // namespace

RestorePlan plan_by_record(const model::Checkpoint& checkpoint, const model::Df11Model& model,
                           const model::SourceRecord& record, const std::string& record_name) {
  return Planner(checkpoint, model, record, record_name).run();
}

}  // namespace weightpress::job
