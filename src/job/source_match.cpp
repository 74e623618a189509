#include "job/source_match.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <weightpress/error.h>

#include "job/checkpoint_source.h"
#include "job/model_plan.h"
#include "model/architectures.h"
#include "model/bf16_cast.h"
#include "model/config_json.h"
#include "model/detection.h"
#include "model/safetensors_header.h"
#include "model/text.h"
#include "model/unit_names.h"

namespace weightpress::job {
namespace {

using model::Dtype;
using model::in_quotes;

VerifyFailure unit_failure(const std::string& unit, const char* kind, std::string message) {
  return {.unit = unit, .tensor = {}, .kind = kind, .message = std::move(message)};
}

VerifyFailure tensor_failure(const std::string& tensor, const char* kind, std::string message) {
  return {.unit = {}, .tensor = tensor, .kind = kind, .message = std::move(message)};
}

std::string type_and_shape(Dtype dtype, const std::vector<std::uint64_t>& shape) {
  return std::string(model::dtype_name(dtype)) + " " + model::shape_text(shape);
}

/// The first place where the unit is not split as its tensors end; empty: none.
std::string compare_splits(const model::StoredUnit& unit, const std::vector<std::uint64_t>& sizes) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    end += sizes[i];
    if (unit.split_positions[i] == end) continue;
    return "split_positions: entry " + std::to_string(i) + " is " + std::to_string(unit.split_positions[i]) +
           ", but must be " + std::to_string(end);
  }
  return {};
}

class Matcher {
 public:
  explicit Matcher(const MatchRequest& request)
      : output_(request.output), survey_(request.survey), source_(request.source), request_(request) {}

  SourceMatch run() {
    settle_view();
    used_.assign(match_.view.tensors.size(), false);
    for (std::size_t u = 0; u < units().size(); ++u) match_unit(u);
    for (const ErrorDetails& broken : survey_.broken) excuse_unit(broken.unit);
    match_tensors();
    if (num_cast_ > 0) {
      match_.notes.push_back(std::to_string(num_cast_) +
                             " tensors of the source are compared as they are when rounded to BF16");
    }
    return std::move(match_);
  }

 private:
  const std::vector<model::StoredUnit>& units() const { return survey_.model.units; }

  // ---- names of the source's tensors in the output

  void settle_view() {
    if (request_.arch != "auto") {
      use_definition(model::load_architecture(request_.arch));
    } else if (request_.record != nullptr) {
      use_record(*request_.record);
    } else if (auto patterns = patterns_of_config(); !patterns.empty()) {
      model::ModelDefinition definition;
      definition.name = "config.json";
      definition.pattern_dict = std::move(patterns);
      use_definition(definition);
    } else {
      const auto config = read_source_config(source_);
      model::Detection detection = std::move(model::detect_definition(source_, config).value());
      match_.notes.push_back("the definition " + detection.definition.name + " was chosen, since " +
                             detection.why);
      use_definition(detection.definition);
    }
  }

  /// Of the output's config.json; empty if there is none.
  std::vector<model::UnitPattern> patterns_of_config() const {
    const auto text = read_beside_source(output_, kConfigName);
    if (!text) return {};
    const std::string path = (output_.folder() / kConfigName).string();
    return std::move(model::remove_dfloat11_config(*text, path).value().pattern_dict);
  }

  void use_definition(model::ModelDefinition definition) {
    namer_ = std::move(model::UnitNamer::make(definition.pattern_dict).value());
    match_.view = std::move(model::apply_key_rules(source_, definition).value());
    // Some makers store a tied head as a unit of its own.
    const bool has_head =
        std::ranges::any_of(units(), [](const auto& unit) { return unit.name == "lm_head"; });
    definition.tied_lm_head = definition.tied_lm_head || has_head;
    if (has_head) model::add_tied_lm_head(definition, match_.view);
  }

  void use_record(const model::SourceRecord& record) {
    namer_ = std::move(model::UnitNamer::make(record.pattern_dict).value());
    const auto add = [&](const std::string& source_name, std::string name, Dtype dtype, bool is_copy) {
      const model::SourceTensor* tensor = source_.find(source_name);
      if (tensor == nullptr) {
        match_.failures.push_back(tensor_failure(
            source_name, "tensor",
            "is not in the source, but " + request_.record_name + " lists it: is this the right source?"));
        return;
      }
      model::ModelTensor& added = match_.view.tensors.emplace_back();
      added.name = std::move(name);
      added.source_index = static_cast<std::size_t>(tensor - source_.tensors().data());
      added.dtype = dtype == Dtype::kBf16 && model::can_cast_to_bf16(tensor->dtype) ? dtype : tensor->dtype;
      added.num_elements = tensor->num_elements();
      added.is_tied_copy = is_copy;
    };
    std::size_t num_listed = 0;
    std::map<std::string, const model::RecordedTensor*> by_name;
    for (const model::RecordedFile& file : record.files) {
      for (const model::RecordedTensor& tensor : file.tensors) {
        ++num_listed;
        by_name.emplace(tensor.name, &tensor);
        if (tensor.fate == model::TensorFate::kKept || tensor.fate == model::TensorFate::kInUnit)
          add(tensor.name, tensor.stored_name, tensor.stored_dtype, false);
        if (tensor.fate == model::TensorFate::kTied) add_tie(tensor.name, tensor.tied_to);
      }
    }
    for (const model::RecordedTiedUnit& tied : record.tied_units) {
      const auto made_from = by_name.find(tied.made_from);
      const Dtype dtype = made_from == by_name.end() ? Dtype::kBf16 : made_from->second->stored_dtype;
      add(tied.made_from, tied.unit + ".weight", dtype, true);
    }
    std::ranges::sort(match_.view.tensors, {}, &model::ModelTensor::name);
    if (num_listed >= source_.tensors().size()) return;
    for (const model::SourceTensor& tensor : source_.tensors()) {
      if (by_name.contains(tensor.name)) continue;
      match_.failures.push_back(tensor_failure(
          tensor.name, "tensor", "is in the source, but " + request_.record_name + " does not know it"));
    }
  }

  void add_tie(const std::string& name, const std::string& other) {
    const model::SourceTensor *a = source_.find(name), *b = source_.find(other);
    if (a == nullptr || b == nullptr) {
      match_.failures.push_back(tensor_failure(
          name, "tensor", "is not in the source, or " + in_quotes(other) + " is not, which it is tied to"));
      return;
    }
    match_.ties.push_back({static_cast<std::size_t>(a - source_.tensors().data()),
                           static_cast<std::size_t>(b - source_.tensors().data())});
  }

  // ---- units

  void match_unit(std::size_t index) {
    const model::StoredUnit& stored = units()[index];
    const auto named = namer_->name(stored);
    if (!named)
      return fail(stored, "tensor",
                  "no pattern of the definition is for it: which tensors it holds is not known");
    if (named->tensors.empty()) {
      excuse_unit(stored.name);
      return fail(stored, "split",
                  "split_positions: it holds " + std::to_string(stored.num_tensors()) +
                      " tensors, another number than the definition says");
    }
    model::Unit unit{.name = stored.name, .tensors = {}, .siblings = {}};
    std::vector<std::uint64_t> sizes;
    for (const std::string& name : named->tensors) {
      const auto found = match_.view.find(name);
      if (!found) {
        excuse_unit(stored.name);
        const std::size_t attributes = namer_->pattern_dict()[named->pattern].attributes.size();
        if (attributes != 0 && attributes != stored.num_tensors()) {
          return fail(stored, "split",
                      "split_positions: it holds " + std::to_string(stored.num_tensors()) +
                          " tensors, but the definition says " + std::to_string(attributes));
        }
        return fail(stored, "tensor", "the source has no tensor " + in_quotes(name));
      }
      used_[*found] = true;
      model::ModelTensor& tensor = match_.view.tensors[*found];
      if (!make_bf16(tensor)) {
        excuse_unit(stored.name);
        return fail(stored, "shape",
                    "the source's tensor " + in_quotes(name) + " is " +
                        std::string(model::dtype_name(tensor.dtype)) + ", which no unit can hold");
      }
      unit.tensors.push_back(*found);
      unit.num_weights += tensor.num_elements;
      sizes.push_back(tensor.num_elements);
    }
    if (unit.num_weights != stored.num_weights) {
      return fail(stored, "shape",
                  "holds " + std::to_string(stored.num_weights) +
                      " weights, but its tensors in the source have " + std::to_string(unit.num_weights));
    }
    if (std::string problem = compare_splits(stored, sizes); !problem.empty())
      return fail(stored, "split", std::move(problem));
    match_.units.push_back({index, std::move(unit)});
  }

  void fail(const model::StoredUnit& unit, const char* kind, std::string message) {
    match_.failures.push_back(unit_failure(unit.name, kind, std::move(message)));
  }

  /// A unit that failed already: its tensors are not missed besides.
  void excuse_unit(const std::string& name) {
    const std::string prefix = name + ".";
    const auto& tensors = match_.view.tensors;
    auto tensor = std::ranges::lower_bound(tensors, prefix, {}, &model::ModelTensor::name);
    for (; tensor != tensors.end() && tensor->name.starts_with(prefix); ++tensor)
      if (!output_.find(tensor->name)) used_[static_cast<std::size_t>(tensor - tensors.begin())] = true;
  }

  bool make_bf16(model::ModelTensor& tensor) {
    if (tensor.dtype != Dtype::kBf16 && !model::can_cast_to_bf16(tensor.dtype)) return false;
    tensor.dtype = Dtype::kBf16;
    num_cast_ += source_.tensors()[tensor.source_index].dtype != Dtype::kBf16;
    return true;
  }

  // ---- tensors outside units

  void match_tensors() {
    std::vector<bool> found(output_.tensors().size(), false);
    for (std::size_t t = 0; t < match_.view.tensors.size(); ++t) {
      if (used_[t]) continue;
      model::ModelTensor& tensor = match_.view.tensors[t];
      const model::SourceTensor& from = source_.tensors()[tensor.source_index];
      const model::SourceTensor* stored = output_.find(tensor.name);
      if (stored == nullptr) {
        if (is_left_out_tie(tensor)) continue;
        match_.failures.push_back(
            tensor_failure(tensor.name, "tensor", "is in the source, but not in the output"));
        continue;
      }
      const auto index = static_cast<std::size_t>(stored - output_.tensors().data());
      found[index] = true;
      const bool is_rounded = stored->dtype == Dtype::kBf16 && from.dtype != Dtype::kBf16;
      if ((is_rounded ? !make_bf16(tensor) : stored->dtype != from.dtype) || stored->shape != from.shape) {
        match_.failures.push_back(tensor_failure(tensor.name, "shape",
                                                 "is " + type_and_shape(stored->dtype, stored->shape) +
                                                     ", but in the source " +
                                                     type_and_shape(from.dtype, from.shape)));
        continue;
      }
      if (!is_rounded) tensor.dtype = from.dtype;
      match_.tensors.push_back({t, index});
    }
    for (const std::size_t index : survey_.model.kept) {
      const std::string& name = output_.tensors()[index].name;
      if (found[index]) continue;
      const auto in_view = match_.view.find(name);
      if (in_view && !used_[*in_view]) continue;  // told above
      match_.failures.push_back(tensor_failure(name, "tensor", "is in the output, but not in the source"));
    }
  }

  /// A head that is stored beside the embedding, and left out since it holds the same.
  bool is_left_out_tie(const model::ModelTensor& tensor) {
    if (tensor.name != model::kLmHeadName) return false;
    const auto embedding = match_.view.find(model::kEmbeddingName);
    if (!embedding) return false;
    match_.ties.push_back({tensor.source_index, match_.view.tensors[*embedding].source_index});
    return true;
  }

  const model::Checkpoint& output_;
  const model::Df11Survey& survey_;
  const model::Checkpoint& source_;
  const MatchRequest& request_;

  std::optional<model::UnitNamer> namer_;
  SourceMatch match_;
  std::vector<bool> used_;  // tensors of the view that a unit holds
  std::size_t num_cast_ = 0;
};

class RecordComparison {
 public:
  RecordComparison(const model::Checkpoint& output, const model::Df11Survey& survey,
                   const model::SourceRecord& record, const std::string& record_name)
      : output_(output), survey_(survey), record_(record), record_name_(record_name) {}

  std::vector<VerifyFailure> run() {
    for (const model::RecordedFile& file : record_.files) {
      for (const model::RecordedTensor& tensor : file.tensors) {
        by_name_.emplace(tensor.name, &tensor);
        if (tensor.fate == model::TensorFate::kInUnit)
          sizes_[tensor.unit][tensor.stored_name] = size_of(tensor);
        if (tensor.fate == model::TensorFate::kKept) check_kept(tensor);
      }
    }
    for (const model::RecordedTiedUnit& tied : record_.tied_units)
      if (const auto from = by_name_.find(tied.made_from); from != by_name_.end())
        sizes_[tied.unit][tied.unit + ".weight"] = size_of(*from->second);
    check_units();
    return std::move(failures_);
  }

 private:
  using SizesByName = std::map<std::string, std::uint64_t>;

  static std::uint64_t size_of(const model::RecordedTensor& tensor) {
    return model::checked_num_elements(tensor.shape).value();
  }

  void check_kept(const model::RecordedTensor& tensor) {
    const model::SourceTensor* stored = output_.find(tensor.stored_name);
    if (stored == nullptr) {
      failures_.push_back(tensor_failure(tensor.stored_name, "tensor",
                                         "is not in the output, but " + record_name_ + " lists it"));
    } else if (stored->dtype != tensor.stored_dtype || stored->shape != tensor.shape) {
      failures_.push_back(tensor_failure(tensor.stored_name, "shape",
                                         "is " + type_and_shape(stored->dtype, stored->shape) + ", but in " +
                                             record_name_ + " " +
                                             type_and_shape(tensor.stored_dtype, tensor.shape)));
    }
  }

  void check_units() {
    std::set<std::string_view> missing;
    for (const auto& [unit, tensors] : sizes_) missing.insert(unit);
    for (const ErrorDetails& broken : survey_.broken) missing.erase(broken.unit);
    const auto namer = model::UnitNamer::make(record_.pattern_dict);
    for (const model::StoredUnit& unit : survey_.model.units) {
      missing.erase(unit.name);
      if (const auto known = sizes_.find(unit.name); known != sizes_.end())
        check_splits(unit, known->second, namer ? namer->name(unit) : std::nullopt);
    }
    for (const std::string_view unit : missing)
      fail(std::string(unit), "tensor", "is not in the output, but " + record_name_ + " lists it");
  }

  void check_splits(const model::StoredUnit& unit, const SizesByName& tensors,
                    const std::optional<model::UnitNamer::Named>& named) {
    if (unit.num_tensors() != tensors.size()) {
      return fail(unit.name, "split",
                  "split_positions: they split it into " + std::to_string(unit.num_tensors()) + ", but in " +
                      record_name_ + " it holds " + std::to_string(tensors.size()));
    }
    std::vector<std::uint64_t> sizes;
    std::uint64_t total = 0;
    if (!named) return;  // the record's own patterns do not know it
    for (const std::string& name : named->tensors) {
      const auto found = tensors.find(name);
      if (found == tensors.end()) return;
      sizes.push_back(found->second);
      total += found->second;
    }
    if (std::string problem = compare_splits(unit, sizes); !problem.empty()) {
      fail(unit.name, "split", std::move(problem));
    } else if (total != unit.num_weights) {
      fail(unit.name, "shape",
           "holds " + std::to_string(unit.num_weights) + " weights, but in " + record_name_ + " " +
               std::to_string(total));
    }
  }

  void fail(const std::string& unit, const char* kind, std::string message) {
    failures_.push_back(unit_failure(unit, kind, std::move(message)));
  }

  const model::Checkpoint& output_;
  const model::Df11Survey& survey_;
  const model::SourceRecord& record_;
  const std::string& record_name_;
  std::map<std::string, const model::RecordedTensor*> by_name_;  // of the source
  std::map<std::string, SizesByName> sizes_;                     // of units
  std::vector<VerifyFailure> failures_;
};

}  // namespace

SourceMatch match_source(const MatchRequest& request) {
  return Matcher(request).run();
}

std::vector<VerifyFailure> compare_with_record(const model::Checkpoint& output,
                                               const model::Df11Survey& survey,
                                               const model::SourceRecord& record,
                                               const std::string& record_name) {
  return RecordComparison(output, survey, record, record_name).run();
}

}  // namespace weightpress::job
