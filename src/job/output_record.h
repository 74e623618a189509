// weightpress.json: what an output was made from, beside it. No loader reads it; decompress brings names,
// shapes and files back with it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <weightpress/compress.h>

#include "job/model_plan.h"
#include "model/checkpoint.h"

namespace weightpress::job {

inline constexpr std::string_view kRecordName = "weightpress.json";

/// The record's name beside a single file: NAME.weightpress.json.
std::string record_name_beside(const std::filesystem::path& file);

/// Whether the file is such a record. Reads its beginning only.
bool is_output_record(const std::filesystem::path& path);

/// A unit and why it is special.
struct UnitReasons {
  std::string unit;
  std::vector<std::string> reasons;
};

struct RecordContent {
  const model::Checkpoint& checkpoint;
  const ModelPlan& plan;  ///< with all units that are kept taken out
  const CompressOptions& options;
  std::vector<UnitReasons> kept_units;
  std::vector<UnitReasons> own_coding;
};

/// Equal runs give equal texts: it holds no times and no paths.
std::string make_output_record(const RecordContent& content);

/// Whether a record says the same as `record` of version, layout, definition, options and verification.
bool record_begins_like(const std::filesystem::path& path, std::string_view record);

}  // namespace weightpress::job
