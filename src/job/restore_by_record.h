// Plans a restoration by the record of the output: every tensor that the output holds goes back into its
// file.
#pragma once

#include <string>

#include "job/restore_plan.h"
#include "model/checkpoint.h"
#include "model/df11_model.h"
#include "model/source_record.h"

namespace weightpress::job {

/// Throws Error, naming `record_name`, if the record does not fit the output: kNotFound if it lists units or
/// tensors that the output does not hold, else kCorruptFile. Everything the output holds is accounted for.
RestorePlan plan_by_record(const model::Checkpoint& checkpoint, const model::Df11Model& model,
                           const model::SourceRecord& record, const std::string& record_name);

}  // namespace weightpress::job
