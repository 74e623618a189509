// Files by position: whole transfers or an Error that names the path and the system's reason.
//
// Reads and writes carry their own offset, so any number of threads may use one File at once. Trouble of the
// machine is an exception here (house rule); what the bytes mean is judged by the readers above.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace weightpress::model {

class File {
 public:
  /// A regular file for reading. Throws kNotFound, or kIo (also for folders, pipes and devices).
  static File open_readonly(const std::filesystem::path& path);
  /// A new file for reading and writing. Throws kOutputExists if there is one, kNotFound if the folder is
  /// missing.
  static File create(const std::filesystem::path& path);
  /// A regular file that is there, for reading and writing. A link is not followed. Throws kNotFound or kIo.
  static File open_readwrite(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();  // closes without a report; writers call close()

  std::uint64_t size_bytes() const;
  /// Time of the last modification, in nanoseconds, when the file was opened.
  std::int64_t modified_ns() const { return opened_version_.second; }
  /// Throws kSourceChanged if the file was written to since it was opened (size or modification time).
  void check_unchanged() const;
  /// All of `bytes`, or kSourceChanged if the file ends before.
  void read_at(void* data, std::uint64_t bytes, std::uint64_t offset) const;
  /// Asks the system to read this part ahead, while other work is done. It may decline.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// All of `bytes`; kNoSpace if the disk, the quota or the file size limit is reached.
  void write_at(const void* data, std::uint64_t bytes, std::uint64_t offset);
  /// Cuts the file off, or makes it longer with zeros.
  void truncate(std::uint64_t bytes);
  void sync();
  /// Closes and reports what the system held back until now. The file may not be used afterwards.
  void close();

  const std::filesystem::path& path() const { return path_; }

 private:
  File(int descriptor, std::filesystem::path path);

  /// Size and modification time, in nanoseconds.
  std::pair<std::int64_t, std::int64_t> version() const;

  int descriptor_ = -1;
  std::pair<std::int64_t, std::int64_t> opened_version_;
  std::filesystem::path path_;
};

/// The content of a file of at most `max_bytes`; a larger one is kCorruptFile.
std::string read_whole_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Creates the file, writes, syncs and closes.
void write_whole_file(const std::filesystem::path& path, std::string_view content);

/// Makes names in a folder (new files, renames) survive a crash. File systems that cannot are left alone.
void sync_folder(const std::filesystem::path& path);

}  // namespace weightpress::model
