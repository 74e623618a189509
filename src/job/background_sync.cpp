#include "job/background_sync.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include <sys/resource.h>

#include <weightpress/error.h>

namespace weightpress::job {
namespace {

constexpr std::chrono::seconds kInterval{1};
// Files that are done stay open until they are synced, since only then does their sync tell of every failure.
constexpr std::size_t kMostWaitingFiles = 256;

/// As many may be in a round besides; the source's files are open too.
std::size_t max_waiting_files() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostWaitingFiles;
  return std::clamp<std::size_t>(limit.rlim_cur / 8, 4, kMostWaitingFiles);
}

}  // namespace

BackgroundSync::BackgroundSync(Journal& journal, std::filesystem::path folder)
    : journal_(journal), folder_(std::move(folder)), max_waiting_files_(max_waiting_files()) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kOutOfMemory,
                std::string("a thread that syncs files cannot be started: ") + error.what() +
                    "; close other programs or raise the limit of processes (ulimit -u)");
  }
}

BackgroundSync::~BackgroundSync() {
  stop();
}

void BackgroundSync::add(const std::shared_ptr<model::File>& file) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.size() < max_waiting_files_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  if (std::ranges::find(waiting_, file) == waiting_.end()) waiting_.push_back(file);
  changed_.notify_all();
}

void BackgroundSync::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    // A round begins a second after the last one ended, or earlier if the files that wait are too many.
    changed_.wait_for(lock, kInterval, [&] { return stopping_ || waiting_.size() >= max_waiting_files_; });
    if (stopping_) return;
    if (waiting_.empty()) {
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      continue;
    }
    const auto files = std::exchange(waiting_, {});
    changed_.notify_all();
    lock.unlock();
    std::exception_ptr failure;
    try {
      sync_round(files);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (!failure) continue;
    failure_ = failure;
    changed_.notify_all();
    return;
  }
}

void BackgroundSync::sync_round(const std::vector<std::shared_ptr<model::File>>& files) {
  for (const auto& file : files) {
    try {
      file->sync();
    } catch (...) {
      // The system may count its pages as written from now on: nobody may go on with what it shows of them.
      std::error_code ignored;
      std::filesystem::remove(file->path(), ignored);
      throw;
    }
  }
  if (!files.empty()) model::sync_folder(folder_);
  journal_.sync();
}

void BackgroundSync::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void BackgroundSync::finish() {
  stop();
  if (failure_) std::rethrow_exception(failure_);
  sync_round(std::exchange(waiting_, {}));
}

}  // namespace weightpress::job
