#include "job/system_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <unistd.h>

namespace weightpress::job {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::string_view kWhiteSpace = " \t\r\n";

}  // namespace

SystemFile read_system_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) return {{}, errno};
  SystemFile file;
  while (file.text.size() < kMaxBytes) {
    char piece[kReadBytes];
    const ssize_t bytes = ::read(descriptor, piece, sizeof(piece));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) file = {{}, errno};
    if (bytes <= 0) break;
    file.text.append(piece, static_cast<std::size_t>(bytes));
  }
  ::close(descriptor);
  return file;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::string_view> rest_of_line(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return trimmed(line.substr(key.size()));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

}  // namespace weightpress::job
