#include "job/journal.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "job/block_hash.h"

namespace weightpress::job {
namespace {

constexpr std::size_t kChecksumDigits = 16;
// Of records of ours the longest holds a histogram (5 KB) and a few names (of at most 4 KiB each).
constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;
constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

std::string with_checksum(std::string_view json, std::uint64_t& checksum) {
  checksum = xxh3(json, checksum);
  std::string line = hex16(checksum) + ' ';
  line.append(json).append("\n");
  return line;
}

std::string beginning() {
  return "{\"" + std::string(kJournalKey) + "\":";
}

/// The lines of a file, one after the other, with bounded memory.
class LineReader {
 public:
  explicit LineReader(const model::File& file) : file_(file), size_(file.size_bytes()) {}

  /// Without its line break; nothing if there is no whole line any more.
  std::optional<std::string_view> next() {
    buffer_.erase(0, std::exchange(used_, 0));
    for (std::size_t searched = 0;;) {
      if (const std::size_t end = buffer_.find('\n', searched); end != buffer_.npos) {
        used_ = end + 1;
        return std::string_view(buffer_).substr(0, end);
      }
      searched = buffer_.size();
      const std::uint64_t more = std::min<std::uint64_t>(kPieceBytes, size_ - read_);
      if (more == 0 || buffer_.size() > kMaxLineBytes) return std::nullopt;
      buffer_.resize(searched + more);
      file_.read_at(buffer_.data() + searched, more, read_);
      read_ += more;
    }
  }

 private:
  const model::File& file_;
  std::uint64_t size_;
  std::uint64_t read_ = 0;
  std::string buffer_;
  std::size_t used_ = 0;
};

/// The JSON of a line; nothing if its checksum is wrong.
std::optional<std::string_view> checked(std::string_view line, std::uint64_t& checksum) {
  if (line.size() <= kChecksumDigits || line[kChecksumDigits] != ' ') return std::nullopt;
  const std::string_view json = line.substr(kChecksumDigits + 1);
  const std::uint64_t computed = xxh3(json, checksum);
  if (line.substr(0, kChecksumDigits) != hex16(computed)) return std::nullopt;
  checksum = computed;
  return json;
}

}  // namespace

JournalState examine_journal(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status)) return JournalState::kAbsent;
  if (!std::filesystem::is_regular_file(status)) return JournalState::kForeign;
  const model::File file = model::File::open_readonly(path);
  LineReader lines(file);
  std::uint64_t checksum = 0;
  if (const auto line = lines.next()) {
    const auto json = checked(*line, checksum);
    return json && json->starts_with(beginning()) ? JournalState::kUsable : JournalState::kForeign;
  }
  // Nothing, the first part of a line, or a length whose bytes did not reach the disk.
  std::string head(std::min<std::uint64_t>(file.size_bytes(), kPieceBytes), '\0');
  file.read_at(head.data(), head.size(), 0);
  const auto begins_like = [](std::string_view text, std::string_view whole) {
    return whole.substr(0, text.size()) == text.substr(0, whole.size());
  };
  const bool is_zero = std::ranges::all_of(head, [](char c) { return c == '\0'; });
  const std::string_view text = head;
  const bool is_torn =
      std::ranges::all_of(text.substr(0, kChecksumDigits),
                          [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }) &&
      (text.size() <= kChecksumDigits || begins_like(text.substr(kChecksumDigits), ' ' + beginning()));
  return is_zero || is_torn ? JournalState::kBlank : JournalState::kForeign;
}

std::string read_fingerprint(const std::filesystem::path& path) {
  const model::File file = model::File::open_readonly(path);
  LineReader lines(file);
  const auto line = lines.next();
  return line ? std::string(line->substr(std::min(line->size(), kChecksumDigits + 1))) : std::string();
}

Journal Journal::create(const std::filesystem::path& path, std::string_view fingerprint) {
  Journal journal(model::File::create(path));
  journal.append(fingerprint);
  journal.sync();
  model::sync_folder(path.parent_path());
  return journal;
}

Journal Journal::open(const std::filesystem::path& path,
                      const std::function<bool(std::string_view json)>& on_line) {
  Journal journal(model::File::open_readwrite(path));
  LineReader lines(journal.file_);
  std::uint64_t checksum = 0;
  for (auto line = lines.next(); line; line = lines.next()) {
    const auto json = checked(*line, checksum);
    if (!json || !on_line(*json)) break;
    journal.checksum_ = checksum;
    journal.end_bytes_ += line->size() + 1;
    ++journal.num_lines_;
  }
  if (journal.file_.size_bytes() != journal.end_bytes_) journal.file_.truncate(journal.end_bytes_);
  return journal;
}

void Journal::append(std::string_view json) {
  const std::string line = with_checksum(json, checksum_);
  file_.write_at(line.data(), line.size(), end_bytes_);
  end_bytes_ += line.size();
  ++num_lines_;
}

void Journal::sync() {
  file_.sync();
}

}  // namespace weightpress::job
