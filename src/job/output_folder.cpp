#include "job/output_folder.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "model/file.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarker = "weightpress.in-progress";

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  throw Error(error == ENOSPC || error == EDQUOT ? ErrorCode::kNoSpace : ErrorCode::kIo,
              what + " " + path.string() + ": " + std::strerror(error));
}

/// OUT may be given with a slash at the end, as "." or as "a/..".
fs::path normalised(const fs::path& output) {
  fs::path path = fs::absolute(output).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (!path.has_filename()) {
    throw Error(ErrorCode::kUsage, output.string() + " cannot be an output folder: name a folder below it");
  }
  return path;
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& output, bool force)
    : output_(normalised(output)), partial_(output_.string() + ".partial"), force_(force) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(output_, error);
  if (fs::exists(status) && !force) {
    throw Error(
        ErrorCode::kOutputExists,
        "the output " + output.string() + " exists already: choose another name, or replace it with --force");
  }
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw Error(ErrorCode::kOutputExists,
                "the output " + output.string() +
                    " exists and is not a folder; it is not replaced even with --force");
  }
  if (!fs::is_directory(output_.parent_path(), error)) {
    throw Error(ErrorCode::kNotFound, "the output " + output.string() + " cannot be made: " +
                                          output_.parent_path().string() + " is not a folder");
  }

  const bool is_new = fs::create_directory(partial_, error);
  if (error) fail("cannot make the folder", partial_, error.value());
  lock_ = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (lock_ < 0) fail("cannot open the folder", partial_, errno);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(lock_);
    if (reason == EWOULDBLOCK) {
      throw Error(ErrorCode::kOutputExists,
                  "another run is writing " + partial_.string() + ": wait for it to end");
    }
    fail("cannot lock", partial_, reason);
  }
  try {
    if (!is_new) remove_remains();
    if (!fs::exists(partial_ / kMarker)) model::write_whole_file(partial_ / kMarker, "");
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

OutputFolder::~OutputFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void OutputFolder::remove_remains() {
  if (!fs::exists(partial_ / kMarker)) {
    if (fs::is_empty(partial_)) return;  // a run that was stopped before it wrote the marker
    throw Error(
        ErrorCode::kOutputExists,
        partial_.string() + " is in the way and is not the remains of an earlier run: move it or remove it");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(partial_)) {
    if (entry.path().filename() == kMarker) continue;
    removed_remains_ = true;
    fs::remove_all(entry.path());
  }
}

void OutputFolder::finish() {
  std::error_code error;
  fs::remove(partial_ / kMarker, error);
  if (error) fail("cannot remove", partial_ / kMarker, error.value());
  model::sync_folder(partial_);

  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, output_.c_str(), RENAME_NOREPLACE) == 0) {
    model::sync_folder(output_.parent_path());
    return;
  }
  int reason = errno;
  if (reason == EINVAL && !fs::exists(output_)) {  // a file system without that flag
    if (::rename(partial_.c_str(), output_.c_str()) != 0) fail("cannot rename to", output_, errno);
    model::sync_folder(output_.parent_path());
    return;
  }
  if (reason != EEXIST && reason != EINVAL) fail("cannot rename to", output_, reason);
  if (!force_) {
    throw Error(ErrorCode::kOutputExists,
                "the output " + output_.string() +
                    " appeared while this run was working; the new output is complete in " +
                    partial_.string());
  }
  // Exchange, so that OUT is never absent, then delete the old one under the other name.
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, output_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail("cannot exchange with", output_, errno);
    const fs::path old = output_.string() + ".replaced";
    if (::rename(output_.c_str(), old.c_str()) != 0) fail("cannot rename", output_, errno);
    if (::rename(partial_.c_str(), output_.c_str()) != 0) fail("cannot rename to", output_, errno);
    model::sync_folder(output_.parent_path());
    fs::remove_all(old);
    return;
  }
  model::sync_folder(output_.parent_path());
  fs::remove_all(partial_);
}

}  // namespace weightpress::job
