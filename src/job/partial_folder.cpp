#include "job/partial_folder.h"

#include <cerrno>
#include <set>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "job/block_hash.h"
#include "job/journal.h"
#include "job/output_errors.h"
#include "job/output_record.h"
#include "model/file.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

// Set on an output that is about to be replaced, where the file system has extended attributes: for the
// moment between the exchange and the marker.
constexpr const char* kReplacedAttribute = "user.weightpress.replaced";

// Set on an output that is complete and only lacks its name.
constexpr const char* kCompleteAttribute = "user.weightpress.complete";

/// Of the names and sizes of what is in a folder, journal and marker excluded.
std::string listing_hash(const fs::path& folder) {
  std::set<std::string> lines;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == kJournalName || name == kMarkerName) continue;
    const bool is_plain = entry.is_regular_file() && !entry.is_symlink();
    lines.insert(name + '\0' + (is_plain ? std::to_string(entry.file_size()) : "-"));
  }
  std::string text;
  for (const std::string& line : lines) text += line + '\0';
  return hex16(xxh3(text));
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

/// Removes what is in a folder. The files by which it is known to be ours go last, so that a run that is
/// stopped here can be taken up by the next.
void remove_content(const fs::path& folder, bool keep_marker) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    if (name != kMarkerName && name != kRecordName && name != kJournalName) fs::remove_all(entry.path());
  }
  for (const std::string_view name : {kRecordName, kJournalName, kMarkerName}) {
    if (name == kMarkerName && keep_marker) continue;
    if (fs::exists(fs::symlink_status(folder / name))) fs::remove(folder / name);
  }
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& output, Journaled journaled)
    : output_(output), path_(output.string() + ".partial") {
  lock();
  try {
    state_ = examine();
    if (journaled == Journaled::kNo) {
      if (state_ != State::kFresh) {
        refuse(
            name_of(path_) +
            " is in the way: it holds a compression that was stopped and can be taken up again; let that run "
            "end, or remove the folder");
      }
      start_over();
      if (!fs::exists(path_ / kMarkerName)) model::write_whole_file(path_ / kMarkerName, "");
    } else if (state_ == State::kFresh) {
      start_over();
      // Last, and by then there is nothing else to be known by.
      if (fs::exists(path_ / kMarkerName)) fs::remove(path_ / kMarkerName);
    }
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

PartialFolder::~PartialFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void PartialFolder::lock() {
  // Between opening and locking, a run that ends may rename the folder, or another one remove it: then start
  // over.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (::mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST)
      fail_output("cannot make the folder", path_, errno);
    lock_ = open_locked(path_);
    if (lock_ < 0) {
      if (errno == EWOULDBLOCK) refuse("another run is writing " + name_of(path_) + ": wait for it to end");
      if (errno == ENOENT) continue;
      if (errno == ENOTDIR || errno == ELOOP) {
        refuse(name_of(path_) + " is in the way and is not a folder: move it or remove it");
      }
      fail_output("cannot lock the folder", path_, errno);
    }
    if (is_same_file(lock_, path_)) return;
    ::close(lock_);
    lock_ = -1;
  }
  refuse("other runs keep replacing " + name_of(path_) + ": wait for them to end");
}

PartialFolder::State PartialFolder::examine() const {
  if (fs::is_empty(path_)) return State::kFresh;
  const JournalState journal = examine_journal(path_ / kJournalName);
  errno = 0;
  const bool is_replaced = ::fgetxattr(lock_, kReplacedAttribute, nullptr, 0) >= 0;
  const bool can_mark = is_replaced || errno == ENODATA;
  const bool has_marker = fs::exists(path_ / kMarkerName);
  const bool has_record = is_output_record(path_ / kRecordName);
  if (journal == JournalState::kForeign ||
      (journal == JournalState::kAbsent && !has_marker && !has_record && !is_replaced)) {
    refuse(name_of(path_) + " is in the way and is not the remains of an earlier run: move it or remove it");
  }
  // An old output that was being replaced, or what a run without journal has left.
  if (is_replaced || has_marker) return State::kFresh;
  if (journal == JournalState::kUsable) return State::kJournal;
  if (journal != JournalState::kAbsent) return State::kFresh;
  // Beside an output it may be an old one that was just exchanged, if that could not be marked.
  return can_mark || !fs::exists(fs::symlink_status(output_)) ? State::kComplete : State::kFresh;
}

void PartialFolder::start_over() {
  // A complete output that is half removed must not look complete.
  if (state_ == State::kComplete) {
    model::write_whole_file(path_ / kMarkerName, "");
    model::sync_folder(path_);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const fs::path name = entry.path().filename();
    if (name != kMarkerName && name != kJournalName) removed_remains_ = true;
  }
  remove_content(path_, true);
  ::fremovexattr(lock_, kReplacedAttribute);
  if (state_ == State::kComplete) {
    ::fremovexattr(lock_, kCompleteAttribute);
    fs::remove(path_ / kMarkerName);
  }
  state_ = State::kFresh;
}

void PartialFolder::remove_others(const std::function<bool(const std::string& name)>& belongs) {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name == kJournalName) continue;
    const bool is_plain = entry.is_regular_file() && !entry.is_symlink() && fs::hard_link_count(entry) == 1;
    if (!is_plain || !belongs(name)) fs::remove_all(entry.path());
  }
}

bool PartialFolder::is_in_place() const {
  return is_same_file(lock_, path_);
}

void PartialFolder::check_in_place() const {
  if (is_in_place()) return;
  throw Error(ErrorCode::kIo, name_of(path_) + " was moved or removed during the run: run the command again");
}

void PartialFolder::remove() noexcept {
  try {
    check_in_place();
    remove_content(path_, false);
    fs::remove(path_);
  } catch (const std::exception&) {
    return;  // a message about what really went wrong is on its way
  }
}

PartialFolder::Found PartialFolder::compare_with(std::string_view job) const {
  std::string value(64, '\0');
  const ssize_t bytes = ::fgetxattr(lock_, kCompleteAttribute, value.data(), value.size());
  if (bytes <= 0) return Found::kUnknown;
  value.resize(static_cast<std::size_t>(bytes));
  if (!value.starts_with(job)) return Found::kOtherJob;
  return value == std::string(job) + listing_hash(path_) ? Found::kSameJob : Found::kChanged;
}

void PartialFolder::mark_complete(std::string_view job) {
  if (!job.empty()) {
    const std::string value = std::string(job) + listing_hash(path_);
    ::fsetxattr(lock_, kCompleteAttribute, value.data(), value.size(), 0);
  }
  for (const std::string_view name : {kMarkerName, kJournalName}) {
    std::error_code error;
    fs::remove(path_ / name, error);
    if (error) fail_output("cannot remove", path_ / name, error.value());
  }
  model::sync_folder(path_);
}

void PartialFolder::forget_job() noexcept {
  ::fremovexattr(lock_, kCompleteAttribute);
}

bool remove_marker_of(const fs::path& folder) {
  std::error_code error;
  fs::remove(folder / kMarkerName, error);
  return !error;
}

int lock_replaced_folder(const fs::path& folder) {
  const int lock = open_locked(folder);
  if (lock < 0) {
    if (errno == EWOULDBLOCK)
      refuse("another run is using " + name_of(folder) + ": wait for it to end and run again");
    fail_output("cannot lock the folder", folder, errno);
  }
  ::fsetxattr(lock, kReplacedAttribute, "", 0, 0);
  ::fsync(lock);  // the exchange that follows must not reach the disk before it
  return lock;
}

void remove_replaced_folder(const fs::path& folder) {
  // A run without a record that was stopped after its rename has left one.
  if (!fs::exists(folder / kMarkerName)) model::write_whole_file(folder / kMarkerName, "");
  remove_content(folder, false);
  fs::remove(folder);
}

}  // namespace weightpress::job
