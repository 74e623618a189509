// Where the record of an output lies.
#pragma once

#include <filesystem>

#include "model/checkpoint.h"

namespace weightpress::job {

struct RecordFile {
  std::filesystem::path path;  ///< empty: there is none
  /// The record is of the files given. False: of the folder in which the one file given lies.
  bool is_of_these_files = true;
};

/// `output`: what the checkpoint was opened from. A folder's record is weightpress.json, a file's is
/// NAME.weightpress.json; either may be called like the other where that is not there.
RecordFile find_record_file(const model::Checkpoint& checkpoint, const std::filesystem::path& output);

}  // namespace weightpress::job
