// Applies a definition to the tensors of a model: which ones form units, which go along with them, what is
// left.
//
// A module is any dotted proper prefix of a tensor's name. One that matches a pattern is a unit: either a
// single weight, `<unit>.weight`, or `<unit>.<attribute>.weight` in the order of the pattern's attributes,
// which is the order of concatenation. All other tensors below the module are its siblings and travel in its
// file unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/definition.h"
#include "model/model_view.h"

namespace weightpress::model {

struct Unit {
  std::string name;
  std::vector<std::size_t> tensors;   ///< indices of tensors, in order of concatenation
  std::vector<std::size_t> siblings;  ///< indices of tensors, ascending
  std::uint64_t num_weights = 0;
};

struct UnitAssignment {
  std::vector<Unit> units;            ///< by pattern, then by name with numbers counted ("9" before "10")
  std::vector<std::size_t> leftover;  ///< indices of tensors that belong to no unit, ascending
  std::vector<std::size_t> unmatched_patterns;  ///< indices into pattern_dict that no module matched
};

/// `tensors` sorted by name, as ModelView has them. Errors: kNotFound (a unit lacks a weight), kBadDefinition
/// (no unit at all, units that overlap, a pattern that runs for ever), kNameConflict (file names). Types are
/// not looked at.
Result<UnitAssignment> assign_units(const std::vector<ModelTensor>& tensors,
                                    const ModelDefinition& definition);

/// The same without a reason: nothing if it fails. For trying many definitions on one model.
std::optional<UnitAssignment> try_assign_units(const std::vector<ModelTensor>& tensors,
                                               const ModelDefinition& definition);

/// The unit's first tensor that is not BF16 and so cannot be compressed; nothing if all are.
std::optional<std::size_t> find_not_bf16(const Unit& unit, const std::vector<ModelTensor>& tensors);

/// Takes units out: their tensors and siblings become leftover.
void keep_units(const std::vector<std::size_t>& unit_indices, UnitAssignment& assignment);

/// The file of a unit in a folder layout: dots become underscores.
std::string unit_file_name(std::string_view unit);

/// The file for all tensors outside units; in single-file layouts the one file, which a definition may name.
std::string leftover_file_name(const ModelDefinition& definition);

}  // namespace weightpress::model
