// OUT.partial: the folder in which an output is made before it becomes OUT.
//
// A broken run leaves it behind; the next run of the same command empties it. What we did not make is never
// removed: a marker file tells our OUT.partial from a folder that only happens to have the name. A lock on
// the folder itself keeps a second run out.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace weightpress::job {

/// The file by which a folder is known to be an OUT.partial of ours.
inline constexpr std::string_view kMarkerName = "weightpress.in-progress";

class PartialFolder {
 public:
  /// Makes or takes over the folder for `output`, locked, empty but for the marker. Throws Error:
  /// kOutputExists if another run holds the lock or if something that is not ours is in the way; kIo,
  /// kNoSpace.
  explicit PartialFolder(const std::filesystem::path& output);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// True if the remains of a broken run were removed.
  bool removed_remains() const { return removed_remains_; }

  /// Throws kIo if the folder was moved or removed.
  void check_in_place() const;
  /// Removes the folder with all that is in it; what cannot be removed is left.
  void remove() noexcept;
  /// Takes the marker away and makes the folder durable: it is complete.
  void remove_marker();

 private:
  void lock();
  void remove_remains();

  std::filesystem::path path_;
  bool removed_remains_ = false;
  int lock_ = -1;  // its descriptor
};

/// For an output that has no record to be known by: the marker stays until the folder has its final name, and
/// goes now. Returns whether it could be removed.
bool remove_marker_of(const std::filesystem::path& folder);

/// Locks an output that is about to be replaced, so that other runs find it busy under the name OUT.partial
/// too, and marks it where the file system has extended attributes. Returns the descriptor that holds the
/// lock; throws kOutputExists if another run does.
int lock_replaced_folder(const std::filesystem::path& folder);

/// Removes a folder that was replaced and has the name OUT.partial now. Throws what the system says.
void remove_replaced_folder(const std::filesystem::path& folder);

}  // namespace weightpress::job
