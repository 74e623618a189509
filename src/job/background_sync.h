// Brings finished files to the disk while others are made: at most one round a second, data before the
// journal's records of them.
//
// A killed process needs no sync, since what was written lives on in the page cache. This is for power cuts:
// they cost at most what was done since the last round.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "job/journal.h"
#include "model/file.h"

namespace weightpress::job {

class BackgroundSync {
 public:
  /// The journal must outlive the object. folder: of the files.
  BackgroundSync(Journal& journal, std::filesystem::path folder);
  /// Without a last round: what was not synced is left to the system.
  ~BackgroundSync();
  BackgroundSync(const BackgroundSync&) = delete;
  BackgroundSync& operator=(const BackgroundSync&) = delete;

  /// The file was written to and the journal has records of that. Waits if too many files wait. Throws what
  /// went wrong in the background.
  void add(const std::shared_ptr<model::File>& file);
  /// All that was added is on the disk, names too. Ends the thread.
  void finish();

 private:
  void run();
  void sync_round(const std::vector<std::shared_ptr<model::File>>& files);
  void stop();

  Journal& journal_;
  const std::filesystem::path folder_;
  const std::size_t max_waiting_files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<model::File>> waiting_;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace weightpress::job
