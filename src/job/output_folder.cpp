#include "job/output_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "model/file.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::printable;

constexpr std::string_view kMarker = "weightpress.in-progress";
// Set on an output that is about to be replaced, where the file system has extended attributes: for the
// moment between the exchange and the marker.
constexpr const char* kReplacedAttribute = "user.weightpress.replaced";
constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kConfigKey = "dfloat11_config";
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{128} << 20;

std::string name_of(const fs::path& path) {
  return printable(path.native());
}

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(full ? ErrorCode::kNoSpace : ErrorCode::kIo,
              what + " " + name_of(path) + ": " + std::generic_category().message(error));
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kOutputExists, message);
}

/// Opens and locks a folder; -1 (with errno) if that fails.
int open_locked(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return -1;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(descriptor);
    errno = reason;
    return -1;
  }
  return descriptor;
}

bool is_same_file(int descriptor, const fs::path& path) {
  struct stat opened{}, named{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// A folder that holds a complete DF11 model: what a run leaves that was stopped just before or after the
/// rename.
bool is_complete_output(const fs::path& folder) {
  const fs::path config = folder / kConfig;
  if (!fs::is_regular_file(fs::symlink_status(config)) || fs::file_size(config) > kMaxConfigBytes)
    return false;
  return model::read_whole_file(config, kMaxConfigBytes).find(kConfigKey) != std::string::npos;
}

/// Removes what is in a folder. The files by which it is known to be ours go last, so that a run that is
/// stopped here can be taken up by the next.
void remove_content(const fs::path& folder, bool keep_marker) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (name != kMarker && name != kConfig) fs::remove_all(entry.path());
  }
  fs::remove(folder / kConfig);
  if (!keep_marker) fs::remove(folder / kMarker);
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

OutputFolder::OutputFolder(const fs::path& output, bool force)
    : output_(output), partial_(output.string() + ".partial"), force_(force) {
  check_replaceable();
  lock_partial();
  try {
    remove_remains();
    if (!fs::exists(partial_ / kMarker)) model::write_whole_file(partial_ / kMarker, "");
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

OutputFolder::~OutputFolder() {
  if (lock_ >= 0) ::close(lock_);
  if (old_lock_ >= 0) ::close(old_lock_);
}

void OutputFolder::check_replaceable() const {
  struct stat status{};
  if (::lstat(output_.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail("cannot examine the output", output_, errno);
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
             " has subfolders, so it is no model of ours, and is not replaced even with --force: remove it "
             "yourself");
    }
  }
}

void OutputFolder::lock_partial() {
  // Between opening and locking, a run that ends may rename the folder, or another one remove it: then start
  // over.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (::mkdir(partial_.c_str(), 0777) != 0 && errno != EEXIST)
      fail("cannot make the folder", partial_, errno);
    lock_ = open_locked(partial_);
    if (lock_ < 0) {
      if (errno == EWOULDBLOCK)
        refuse("another run is writing " + name_of(partial_) + ": wait for it to end");
      if (errno == ENOENT) continue;
      if (errno == ENOTDIR || errno == ELOOP) {
        refuse(name_of(partial_) + " is in the way and is not a folder: move it or remove it");
      }
      fail("cannot lock the folder", partial_, errno);
    }
    if (is_same_file(lock_, partial_)) return;
    ::close(lock_);
    lock_ = -1;
  }
  refuse("other runs keep replacing " + name_of(partial_) + ": wait for them to end");
}

void OutputFolder::remove_remains() {
  if (fs::is_empty(partial_)) return;
  const bool ours = fs::exists(partial_ / kMarker) || is_complete_output(partial_) ||
                    ::fgetxattr(lock_, kReplacedAttribute, nullptr, 0) >= 0;
  if (!ours) {
    refuse(name_of(partial_) +
           " is in the way and is not the remains of an earlier run: move it or remove it");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(partial_)) {
    if (entry.path().filename() != kMarker) removed_remains_ = true;
  }
  remove_content(partial_, true);
}

std::string OutputFolder::finish() {
  if (!is_same_file(lock_, partial_)) {
    throw Error(ErrorCode::kIo,
                name_of(partial_) + " was moved or removed during the run: run the command again");
  }
  std::error_code error;
  fs::remove(partial_ / kMarker, error);
  if (error) fail("cannot remove", partial_ / kMarker, error.value());
  model::sync_folder(partial_);

  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, output_.c_str(), RENAME_NOREPLACE) == 0) {
    model::sync_folder(output_.parent_path());
    return {};
  }
  const int reason = errno;
  std::error_code ignored;
  const bool there = fs::exists(fs::symlink_status(output_, ignored));
  if (!there && reason == EINVAL) {  // a file system that does not know the flag
    if (::rename(partial_.c_str(), output_.c_str()) != 0) fail("cannot rename to", output_, errno);
    model::sync_folder(output_.parent_path());
    return {};
  }
  if (!there) fail("cannot rename to", output_, reason);
  if (!force_) {
    refuse("the output " + name_of(output_) +
           " appeared while this run was working; the new output is complete in " + name_of(partial_));
  }
  return exchange();
}

std::string OutputFolder::exchange() {
  check_replaceable();
  // The old one is locked first: under the name OUT.partial it must look busy to other runs until it is gone.
  old_lock_ = open_locked(output_);
  if (old_lock_ < 0) {
    if (errno == EWOULDBLOCK)
      refuse("another run is using " + name_of(output_) + ": wait for it to end and run again");
    fail("cannot lock the folder", output_, errno);
  }
  ::fsetxattr(old_lock_, kReplacedAttribute, "", 0, 0);
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, output_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) fail("cannot exchange with", output_, errno);
    // A file system that cannot exchange: OUT is absent for a moment.
    const fs::path old = output_.string() + ".replaced";
    if (::rename(output_.c_str(), old.c_str()) != 0) fail("cannot rename", output_, errno);
    if (::rename(partial_.c_str(), output_.c_str()) != 0) fail("cannot rename to", output_, errno);
    if (::rename(old.c_str(), partial_.c_str()) != 0) fail("cannot rename", old, errno);
  }
  model::sync_folder(output_.parent_path());
  try {
    model::write_whole_file(partial_ / kMarker, "");
    remove_content(partial_, false);
    fs::remove(partial_);
  } catch (const fs::filesystem_error& error) {
    return "the old output could not be deleted and is now " + name_of(partial_) + ": " +
           error.code().message();
  } catch (const Error& error) {
    return "the old output could not be deleted and is now " + name_of(partial_) + ": " + error.what();
  }
  return {};
}

}  // namespace weightpress::job
