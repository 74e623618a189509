#include "job/output.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "job/output_errors.h"
#include "job/output_record.h"
#include "model/file.h"
#include "model/safetensors_header.h"
#include "model/shard_series.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSideFileBytes = std::uint64_t{64} << 20;

bool holds(const fs::path& path, const std::string& content) {
  return fs::file_size(path) == content.size() && model::read_whole_file(path, kMaxSideFileBytes) == content;
}

bool holds_dfloat11_config(const fs::path& path) {
  return fs::file_size(path) <= kMaxSideFileBytes &&
         model::read_whole_file(path, kMaxSideFileBytes).find("\"dfloat11_config\"") != std::string::npos;
}

/// Or Tile-ANS.
bool holds_df11(const model::SafetensorsHeader& header) {
  return std::ranges::any_of(header.tensors, [](const model::TensorEntry& tensor) {
    return tensor.name.ends_with(".encoded_exponent") || tensor.name.ends_with("._entropack.header");
  });
}

/// Whether a file holds a DF11 model.
bool is_df11_file(const fs::path& path) {
  try {
    const auto header = model::try_read_safetensors_header(model::File::open_readonly(path));
    return header && holds_df11(*header);
  } catch (const Error&) {
    return false;
  }
}

/// Whether a file holds a model that is not DF11.
bool holds_other_model(const fs::path& path) {
  try {
    const model::File file = model::File::open_readonly(path);
    if (const auto header = model::try_read_safetensors_header(file)) return !holds_df11(*header);
    std::string head(std::min<std::uint64_t>(file.size_bytes(), 4), '\0');
    file.read_at(head.data(), head.size(), 0);
    return head == "GGUF" || head == "PK\x03\x04";  // PyTorch's are zip archives
  } catch (const Error&) {
    return false;
  }
}

/// A file with weights that are not those of a DF11 model: whoever says --force does not mean to lose it.
/// Empty: there is none.
std::string find_uncompressed_model(const fs::path& folder) {
  const fs::path config = folder / "config.json";
  const bool is_df11 = is_output_record(folder / kRecordName) ||
                       (fs::is_regular_file(fs::symlink_status(config)) && holds_dfloat11_config(config));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    // The file of all tensors outside units.
    const bool is_rest = name == "model.safetensors" || name == "diffusion_pytorch_model.safetensors" ||
                         model::parse_shard_name(name);
    if (!(is_df11 && is_rest) && holds_other_model(entry.path())) return name;
  }
  return {};
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

/// Renames to a name that must be free. Returns false if it is not.
bool rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  const int reason = errno;
  if (is_there(to)) return false;
  // A file system that does not know the flag.
  if (reason != EINVAL) fail_output("cannot rename to", to, reason);
  if (::rename(from.c_str(), to.c_str()) != 0) fail_output("cannot rename to", to, errno);
  return true;
}

[[noreturn]] void refuse_appeared(const fs::path& output, const fs::path& partial) {
  refuse("the output " + name_of(output) +
         " appeared while this run was working; the new output is complete in " + name_of(partial));
}

}  // namespace

fs::path resolve_output(const fs::path& output) {
  const fs::path path = output.has_filename() ? output : output.parent_path();
  const fs::path name = path.filename();
  if (name.empty() || name == "." || name == "..") {
    throw Error(ErrorCode::kUsage,
                name_of(output) + " cannot be an output: name a folder that is to be made");
  }
  const fs::path above = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  const fs::path resolved = fs::canonical(above, error);
  if (error || !fs::is_directory(resolved)) {
    throw Error(ErrorCode::kNotFound, "the output " + name_of(output) + " cannot be made: " + name_of(above) +
                                          ": " + (error ? error.message() : std::string("is not a folder")));
  }
  return resolved / name;
}

OutputFolder::OutputFolder(const fs::path& output, bool force) : Output(output, force) {
  check_replaceable();
  partial_ = std::make_unique<PartialFolder>(output_, PartialFolder::Journaled::kYes);
}

OutputFolder::OutputFolder(const fs::path& output, bool force, std::vector<std::string> own_names)
    : Output(output, force), own_names_(std::move(own_names)) {
  check_replaceable();
  partial_ = std::make_unique<PartialFolder>(output_, PartialFolder::Journaled::kNo);
}

OutputFolder::~OutputFolder() {
  if (old_lock_ >= 0) ::close(old_lock_);
}

void OutputFolder::check_replaceable() const {
  struct stat status{};
  if (::lstat(output_.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail_output("cannot examine the output", output_, errno);
  }
  const std::string name = "the output " + name_of(output_);
  if (!force_) refuse(name + " exists already: choose another name, or replace it with --force");
  if (!S_ISDIR(status.st_mode))
    refuse(name + " exists and is not a folder; it is not replaced even with --force");
  struct stat above{};
  if (::stat(output_.parent_path().c_str(), &above) == 0 && above.st_dev != status.st_dev) {
    refuse(name + " is a mount point and cannot be replaced: name a folder below it");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(output_)) {
    if (entry.is_directory() && !entry.is_symlink()) {
      refuse(name +
             " has subfolders, so it is no DF11 model, and is not replaced even with --force: remove it "
             "yourself");
    }
  }
  if (const std::string what = find_other_model(); !what.empty())
    refuse(name + " holds " + what + ", and is not replaced even with --force: choose another name");
}

std::string OutputFolder::find_other_model() const {
  if (!own_names_) {
    const std::string model = find_uncompressed_model(output_);
    return model.empty() ? "" : model::in_quotes(model) + ", which is not of a DF11 model";
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(output_)) {
    const std::string name = entry.path().filename().string();
    if (name == kMarkerName) continue;
    if (!std::ranges::count(*own_names_, name))
      return model::in_quotes(name) + ", which is no file that this run writes";
    if (is_df11_file(entry.path())) return model::in_quotes(name) + ", which is of a DF11 model";
  }
  return {};
}

std::string OutputFolder::finish() {
  partial_->check_in_place();
  if (own_names_) {
    model::sync_folder(partial_->path());
  } else {
    partial_->mark_complete(job_);
  }
  std::string old_left;
  if (!rename_to_free_name(partial_->path(), output_)) {
    if (!force_) refuse_appeared(output_, partial_->path());
    old_left = exchange();
  }
  partial_->forget_job();
  if (own_names_ && !remove_marker_of(output_) && old_left.empty())
    old_left = "the file " + name_of(output_ / kMarkerName) + " could not be removed: remove it yourself";
  model::sync_folder(output_.parent_path());
  return old_left;
}

std::string OutputFolder::exchange() {
  check_replaceable();
  const fs::path& partial = partial_->path();
  // The old one is locked first: under the name OUT.partial it must look busy to other runs until it is gone.
  old_lock_ = lock_replaced_folder(output_);
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, output_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail_output("cannot exchange with", output_, errno);
    // A file system that cannot exchange: OUT is absent for a moment.
    const fs::path old = output_.string() + ".replaced";
    if (::rename(output_.c_str(), old.c_str()) != 0) fail_output("cannot rename", output_, errno);
    if (::rename(partial.c_str(), output_.c_str()) != 0) fail_output("cannot rename to", output_, errno);
    if (::rename(old.c_str(), partial.c_str()) != 0) fail_output("cannot rename", old, errno);
  }
  model::sync_folder(output_.parent_path());
  try {
    remove_replaced_folder(partial);
  } catch (const fs::filesystem_error& error) {
    return "the old output could not be deleted and is now " + name_of(partial) + ": " +
           error.code().message();
  } catch (const Error& error) {
    return "the old output could not be deleted and is now " + name_of(partial) + ": " + error.what();
  }
  return {};
}

OutputFile::OutputFile(const fs::path& output, std::vector<SideFile> side_files, bool force,
                       PartialFolder::Journaled journaled)
    : Output(output, force), side_files_(std::move(side_files)) {
  check_replaceable();
  partial_ = std::make_unique<PartialFolder>(output_, journaled);
}

void OutputFile::check_replaceable() const {
  struct stat status{};
  if (::lstat(output_.c_str(), &status) == 0) {
    const std::string name = "the output " + name_of(output_);
    if (!force_) refuse(name + " exists already: choose another name, or replace it with --force");
    if (!S_ISREG(status.st_mode))
      refuse(name + " exists and is not a file; it is not replaced even with --force");
  } else if (errno != ENOENT) {
    fail_output("cannot examine the output", output_, errno);
  }
  for (const SideFile& side : side_files_) {
    const fs::path path = output_.parent_path() / side.name;
    if (!is_there(path)) continue;
    const std::string name = name_of(path) + ", which belongs beside the output,";
    if (!fs::is_regular_file(fs::symlink_status(path)))
      refuse(name + " exists and is not a file: move it, or write the output elsewhere");
    if (side.is_record ? force_ || is_output_record(path) : holds(path, side.content)) continue;
    if (force_ && holds_dfloat11_config(path)) continue;
    refuse(name + " exists already and is of something else: write the output into a folder of its own" +
           (side.is_record ? ", or replace it with --force" : ""));
  }
}

std::string OutputFile::finish() {
  partial_->check_in_place();
  if (!force_ && is_there(output_)) refuse_appeared(output_, partial_->path());
  check_replaceable();
  model::sync_folder(partial_->path());
  const fs::path folder = output_.parent_path();
  for (const SideFile& side : side_files_) {
    if (::rename(file(side.name).c_str(), (folder / side.name).c_str()) != 0)
      fail_output("cannot rename to", folder / side.name, errno);
  }
  model::sync_folder(folder);
  const fs::path whole = file(output_.filename().native());
  if (force_) {
    if (::rename(whole.c_str(), output_.c_str()) != 0) fail_output("cannot rename to", output_, errno);
  } else if (!rename_to_free_name(whole, output_)) {
    refuse_appeared(output_, partial_->path());
  }
  partial_->remove();
  model::sync_folder(folder);  // if this fails, nothing is left to be done again
  if (is_there(partial_->path()))
    return "the folder " + name_of(partial_->path()) + " could not be removed: remove it yourself";
  return {};
}

}  // namespace weightpress::job
