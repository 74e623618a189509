// Applies a definition to the tensors of a model: which ones form units, which go along with them, what is
// left.
//
// A module is any dotted proper prefix of a tensor's name. One that matches a pattern is a unit: either a
// single weight, `<unit>.weight`, or `<unit>.<attribute>.weight` in the order of the pattern's attributes,
// which is the order of concatenation. All other tensors below the module are its siblings and travel in its
// file unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/checkpoint.h"
#include "model/definition.h"

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

/// `tensors` sorted by name, as Checkpoint has them. Errors: kNotFound (a unit lacks a weight),
/// kBadDefinition (no unit at all, units that overlap, a pattern that runs for ever), kUnsupportedDtype,
/// kNameConflict (file names).
Result<UnitAssignment> assign_units(const std::vector<SourceTensor>& tensors,
                                    const ModelDefinition& definition);

/// The file of a unit in a folder layout: dots become underscores.
std::string unit_file_name(std::string_view unit);

/// The file for all tensors outside units; for single-file layouts, the one file.
std::string leftover_file_name(const ModelDefinition& definition);

}  // namespace weightpress::model
