// The journal of a run, in OUT.partial: what job it is and which units are done, so that a run that was
// stopped at any moment can be taken up again.
//
// Text, append-only. A line is the checksum of the line (16 hexadecimal digits; its seed is the checksum of
// the line before, so lines of two journals cannot be mixed), a space, one JSON object. The first object is
// the job's fingerprint (job_fingerprint.h). A torn or damaged line ends the journal; it and all after it
// never happened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "model/file.h"

namespace weightpress::job {

inline constexpr std::string_view kJournalName = "weightpress.journal";
/// The first key of every fingerprint; its value is the version of the journal's format.
inline constexpr std::string_view kJournalKey = "weightpress_journal";

enum class JournalState : std::uint8_t {
  kAbsent,
  kForeign,  ///< not ours
  kBlank,    ///< ours, but stopped before its first line was on the disk
  kUsable
};

/// Looks at the first line only.
JournalState examine_journal(const std::filesystem::path& path);

/// The first line of one that is kUsable.
std::string read_fingerprint(const std::filesystem::path& path);

class Journal {
 public:
  /// A new one. Its first line is on the disk when this returns. Throws what File throws.
  static Journal create(const std::filesystem::path& path, std::string_view fingerprint);

  /// Opens one that is kUsable. on_line(json) is called with each whole line, the fingerprint first, and
  /// returns whether to go on; afterwards the file ends with the last line that was accepted.
  static Journal open(const std::filesystem::path& path,
                      const std::function<bool(std::string_view json)>& on_line);

  /// One JSON object without line breaks. Written at once: a killed process loses nothing that was appended.
  void append(std::string_view json);
  /// Whether there is anything but the fingerprint.
  bool has_records() const { return num_lines_ > 1; }
  /// All that is appended is on the disk. May be called by another thread than append().
  void sync();

 private:
  explicit Journal(model::File file) : file_(std::move(file)) {}

  model::File file_;
  std::uint64_t end_bytes_ = 0;
  std::uint64_t num_lines_ = 0;
  std::uint64_t checksum_ = 0;  // of the last line
};

}  // namespace weightpress::job
