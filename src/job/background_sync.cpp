#include "job/background_sync.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weightpress::job {
namespace {

constexpr std::chrono::seconds kInterval{1};
// Files that are done stay open until they are synced, since only then does their sync tell of every failure.
constexpr std::size_t kMaxWaitingFiles = 256;

}  // namespace

BackgroundSync::BackgroundSync(Journal& journal, std::filesystem::path folder)
    : journal_(journal), folder_(std::move(folder)), thread_([this] { run(); }) {}

BackgroundSync::~BackgroundSync() {
  stop();
}

void BackgroundSync::add(const std::shared_ptr<model::File>& file) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.size() < kMaxWaitingFiles || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  if (std::ranges::find(waiting_, file) == waiting_.end()) waiting_.push_back(file);
  changed_.notify_all();
}

void BackgroundSync::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    // A round begins a second after the last one ended, or earlier if the files that wait are too many.
    changed_.wait_for(lock, kInterval, [&] { return stopping_ || waiting_.size() >= kMaxWaitingFiles; });
    if (stopping_) return;
    if (waiting_.empty()) {
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      continue;
    }
    auto files = std::exchange(waiting_, {});
    changed_.notify_all();
    lock.unlock();
    std::exception_ptr failure;
    try {
      sync_round(std::move(files));
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

void BackgroundSync::sync_round(std::vector<std::shared_ptr<model::File>> files) {
  for (const auto& file : files) file->sync();
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
