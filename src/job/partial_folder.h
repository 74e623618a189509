// OUT.partial: the folder in which an output is made before it becomes OUT.
//
// A broken run leaves it behind. One with a journal can be taken up by the next run of the same command;
// other remains are removed by it. What we did not make is never removed: the journal, or a marker file where
// there is none, tells our OUT.partial from a folder that only happens to have the name. A lock on the folder
// itself keeps a second run out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace weightpress::job {

/// The file by which a folder is known to be an OUT.partial of ours.
inline constexpr std::string_view kMarkerName = "weightpress.in-progress";

class PartialFolder {
 public:
  /// Whether the run keeps a journal. It then makes it itself, as the first thing in the folder.
  enum class Journaled : std::uint8_t { kNo, kYes };

  /// What was found in it.
  enum class State : std::uint8_t {
    kFresh,     ///< nothing that is of use; the folder is empty, but for the marker of a run without journal
    kJournal,   ///< the remains of a run that kept a journal; all is still there
    kComplete,  ///< all of an output that was not renamed yet: a record and no journal
  };

  /// Makes or takes over the folder for `output`, locked. Throws Error: kOutputExists if another run holds
  /// the lock, if something that is not ours is in the way, or, without journal, if there is one; kIo,
  /// kNoSpace.
  PartialFolder(const std::filesystem::path& output, Journaled journaled);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  State state() const { return state_; }
  /// Removes what was found: the folder is fresh.
  void start_over();
  /// True if the remains of a broken run were removed.
  bool removed_remains() const { return removed_remains_; }

  bool is_in_place() const;
  /// Throws kIo if the folder was moved or removed.
  void check_in_place() const;
  /// Removes the folder with all that is in it; what cannot be removed is left.
  void remove() noexcept;
  /// What a complete output that was found is of, as far as the file system remembers.
  enum class Found : std::uint8_t { kUnknown, kOtherJob, kChanged, kSameJob };
  Found compare_with(std::string_view job) const;

  /// Takes journal and marker away and makes the folder durable: it is complete. `job`: names what it is of;
  /// kept with the folder until it has its name, where the file system has extended attributes.
  void mark_complete(std::string_view job);
  /// The folder has its final name.
  void forget_job() noexcept;
  /// Removes what does not belong to the output: all that is not a plain file of one of these names, and all
  /// side files.
  void remove_others(const std::function<bool(const std::string& name)>& belongs);

 private:
  void lock();
  State examine() const;

  const std::filesystem::path output_;
  const std::filesystem::path path_;
  State state_ = State::kFresh;
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
