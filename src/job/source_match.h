// Which tensors of a source a DF11 output should hold, and where: for comparing the two.
//
// weightpress.json tells it exactly. Without one it follows from a definition: one that is given, the
// pattern_dict in config.json, or one that is detected.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <weightpress/verify.h>

#include "model/checkpoint.h"
#include "model/df11_model.h"
#include "model/model_view.h"
#include "model/source_record.h"
#include "model/units.h"

namespace weightpress::job {

struct SourceMatch {
  /// The source's tensors as the output should have them.
  model::ModelView view;
  struct UnitMatch {
    std::size_t stored = 0;  ///< index of the output's unit
    model::Unit unit;        ///< of the view; as many weights, and split at the same places
  };
  std::vector<UnitMatch> units;
  struct TensorMatch {
    std::size_t tensor = 0;  ///< into the view
    std::size_t stored = 0;  ///< into the output's tensors; of the same dtype and shape
  };
  std::vector<TensorMatch> tensors;
  struct Tie {
    std::size_t tensor = 0, other = 0;  ///< source tensors that must hold the same
  };
  std::vector<Tie> ties;

  std::vector<VerifyFailure> failures;  ///< what has no counterpart, or one of another shape
  std::vector<std::string> notes;
};

struct MatchRequest {
  const model::Checkpoint& output;
  const model::Df11Survey& survey;
  const model::Checkpoint& source;
  const model::SourceRecord* record = nullptr;  ///< nullptr: there is none
  std::string record_name;
  std::string arch = "auto";
};

/// Throws Error if no definition says how they belong together.
SourceMatch match_source(const MatchRequest& request);

/// What the record tells without the source: units and tensors that the output must hold, split_positions,
/// dtypes and shapes.
std::vector<VerifyFailure> compare_with_record(const model::Checkpoint& output,
                                               const model::Df11Survey& survey,
                                               const model::SourceRecord& record,
                                               const std::string& record_name);

}  // namespace weightpress::job
