#include "job/record_file.h"

#include <system_error>

#include "job/output_record.h"

namespace weightpress::job {

namespace fs = std::filesystem;

RecordFile find_record_file(const model::Checkpoint& checkpoint, const fs::path& output) {
  std::error_code ignored;
  const auto is_there = [&](const fs::path& path) { return !path.empty() && fs::exists(path, ignored); };
  const bool is_folder = fs::is_directory(output, ignored);
  const fs::path of_folder = checkpoint.folder() / kRecordName;
  fs::path of_file;
  if (checkpoint.files().size() == 1) {
    const fs::path& file = checkpoint.files()[0].path();
    of_file = file.parent_path() / record_name_beside(file);
  }
  if (is_folder) {
    if (is_there(of_folder)) return {of_folder, true};
    return is_there(of_file) ? RecordFile{of_file, true} : RecordFile{};
  }
  if (is_there(of_file)) return {of_file, true};
  return is_there(of_folder) ? RecordFile{of_folder, false} : RecordFile{};
}

}  // namespace weightpress::job
