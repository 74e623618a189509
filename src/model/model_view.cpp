#include "model/model_view.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <weightpress/error.h>

#include "model/name_pattern.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

class KeyRules {
 public:
  KeyRules(const Checkpoint& checkpoint, const ModelDefinition& definition)
      : checkpoint_(checkpoint), definition_(definition) {
    for (const std::string& pattern : definition.drop)
      drop_.push_back(NamePattern::compile(pattern, NamePattern::Match::kFirst).value());
    for (const RenameRule& rule : definition.rename)
      rename_.push_back(NamePattern::compile(rule.pattern, NamePattern::Match::kFirst).value());
  }

  Result<ModelView> run() {
    const std::string& prefix = definition_.keep_only_prefix;
    const bool keeps_prefix_only =
        !prefix.empty() && std::ranges::any_of(checkpoint_.tensors(), [&](const SourceTensor& tensor) {
          return tensor.name.starts_with(prefix);
        });
    for (std::size_t index = 0; index < checkpoint_.tensors().size(); ++index) {
      const SourceTensor& tensor = checkpoint_.tensors()[index];
      if (keeps_prefix_only && !tensor.name.starts_with(prefix)) {
        view_.dropped.push_back({index, "it is not below " + in_quotes(prefix), {}});
        continue;
      }
      add(index, tensor);
    }
    const auto order = [](const ModelTensor& a, const ModelTensor& b) {
      return std::tie(a.name, a.source_index) < std::tie(b.name, b.source_index);
    };
    if (!std::ranges::is_sorted(view_.tensors, order)) std::ranges::sort(view_.tensors, order);
    const auto twin = std::ranges::adjacent_find(view_.tensors, {}, &ModelTensor::name);
    if (twin != view_.tensors.end()) return conflict(*twin, *(twin + 1));
    return std::move(view_);
  }

 private:
  void add(std::size_t index, const SourceTensor& tensor) {
    std::string name = tensor.name;
    for (const std::string& prefix : definition_.strip_prefixes)
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    for (std::size_t rule = 0; rule < drop_.size(); ++rule) {
      if (!drop_[rule].matches(name)) continue;
      view_.dropped.push_back(
          {index, "the definition's rule drop " + in_quotes(definition_.drop[rule]) + " matches it", {}});
      return;
    }
    for (std::size_t rule = 0; rule < rename_.size(); ++rule)
      if (auto renamed = rename_[rule].replace(name, definition_.rename[rule].replacement))
        name = std::move(*renamed);
    view_.tensors.push_back({.name = std::move(name),
                             .source_index = index,
                             .dtype = tensor.dtype,
                             .num_elements = tensor.num_elements()});
  }

  Unexpected conflict(const ModelTensor& a, const ModelTensor& b) const {
    const auto where = [&](const ModelTensor& tensor) {
      const SourceTensor& source = checkpoint_.tensors()[tensor.source_index];
      return in_quotes(source.name) + " (" +
             printable(checkpoint_.files()[source.file_index].path().filename().native()) + ")";
    };
    return Unexpected(ErrorDetails{.code = ErrorCode::kNameConflict,
                                   .message = "the tensors " + where(a) + " and " + where(b) +
                                              " would both be named " + in_quotes(a.name) +
                                              " by the key rules of definition " +
                                              in_quotes(definition_.name) + ": leave one out of the source",
                                   .tensor = a.name});
  }

  const Checkpoint& checkpoint_;
  const ModelDefinition& definition_;
  std::vector<NamePattern> drop_, rename_;
  ModelView view_;
};

}  // namespace

std::optional<std::size_t> ModelView::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &ModelTensor::name);
  if (found == tensors.end() || found->name != name) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

Result<ModelView> apply_key_rules(const Checkpoint& checkpoint, const ModelDefinition& definition) {
  try {
    return KeyRules(checkpoint, definition).run();
  } catch (const Error& error) {  // a pattern that takes too many steps
    return Unexpected(error.details());
  }
}

bool add_tied_lm_head(const ModelDefinition& definition, ModelView& view) {
  const auto embedding = view.find(kEmbeddingName);
  if (!definition.tied_lm_head || view.find(kLmHeadName) || !embedding) return false;
  ModelTensor copy = view.tensors[*embedding];
  copy.name = kLmHeadName;
  copy.is_tied_copy = true;
  view.tensors.insert(std::ranges::lower_bound(view.tensors, kLmHeadName, {}, &ModelTensor::name),
                      std::move(copy));
  return true;
}

std::uint64_t cast_floats_to_bf16(const Checkpoint& checkpoint, const ModelDefinition& definition,
                                  ModelView& view) {
  std::vector<NamePattern> keep;
  for (const std::string& pattern : definition.keep_dtype)
    keep.push_back(NamePattern::compile(pattern).value());
  std::uint64_t num_cast = 0;
  for (ModelTensor& tensor : view.tensors) {
    const Dtype dtype = checkpoint.tensors()[tensor.source_index].dtype;
    if (dtype != Dtype::kF32 && dtype != Dtype::kF16) continue;
    if (std::ranges::any_of(keep, [&](const NamePattern& pattern) { return pattern.matches(tensor.name); }))
      continue;
    tensor.dtype = Dtype::kBf16;
    ++num_cast;
  }
  return num_cast;
}

}  // namespace weightpress::model
