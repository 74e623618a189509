// The output of a job: everything is written into OUT.partial, which becomes OUT by one rename at the end.
//
// So OUT is always absent, old or complete. A broken run leaves OUT.partial behind; the next run of the same
// command removes it. A marker file tells our OUT.partial from a folder that only happens to have the name:
// what we did not make is never removed. A lock keeps a second run out.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace weightpress::job {

class OutputFolder {
 public:
  /// Prepares OUT.partial. Throws Error: kOutputExists if OUT is there (without force), if another run holds
  /// the lock, or if OUT.partial is not ours; kIo if it cannot be made.
  OutputFolder(const std::filesystem::path& output, bool force);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Where files of the output are written until finish().
  std::filesystem::path file(std::string_view name) const { return partial_ / name; }

  /// True if the remains of a broken run were removed.
  bool removed_remains() const { return removed_remains_; }

  /// OUT.partial becomes OUT. An OUT that was there is exchanged and then deleted.
  void finish();

 private:
  void remove_remains();

  std::filesystem::path output_;
  std::filesystem::path partial_;
  bool force_;
  bool removed_remains_ = false;
  int lock_ = -1;  // descriptor of OUT.partial
};

}  // namespace weightpress::job
