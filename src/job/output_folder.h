// The output of a job: everything is written into OUT.partial, which becomes OUT by one rename at the end.
//
// So OUT is always absent, old or complete. A broken run leaves OUT.partial behind; the next run of the same
// command removes it. What we did not make is never removed: a marker file tells our OUT.partial from a
// folder that only happens to have the name. A lock on the folder itself keeps a second run out.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace weightpress::job {

/// The path that `output` names, resolved as the kernel does (links, "..") except for its last component,
/// which need not exist. Throws Error: kUsage if there is no last component to create, kNotFound if the
/// folder above is missing.
std::filesystem::path resolve_output(const std::filesystem::path& output);

class OutputFolder {
 public:
  /// Prepares OUT.partial. `output`: from resolve_output(). Throws Error: kOutputExists if OUT is there
  /// (without force), if it is not a plain folder that may be replaced, if another run holds the lock, or if
  /// OUT.partial is not ours; kIo if it cannot be made.
  OutputFolder(const std::filesystem::path& output, bool force);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Where files of the output are written until finish().
  std::filesystem::path file(std::string_view name) const { return partial_ / name; }

  /// True if the remains of a broken run were removed.
  bool removed_remains() const { return removed_remains_; }

  /// OUT.partial becomes OUT. An OUT that was there is exchanged with it and then deleted. Returns why the
  /// old one could not be deleted (the new one is in place then), or nothing.
  std::string finish();

 private:
  void check_replaceable() const;
  void lock_partial();
  void remove_remains();
  std::string exchange();

  std::filesystem::path output_;
  std::filesystem::path partial_;
  bool force_;
  bool removed_remains_ = false;
  int lock_ = -1;      // descriptor of OUT.partial
  int old_lock_ = -1;  // of an OUT that is being replaced
};

}  // namespace weightpress::job
