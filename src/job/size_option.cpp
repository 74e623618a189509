#include "job/size_option.h"

#include <limits>

namespace weightpress::job {
namespace {

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view kPrefixes = "KMGT";  // each 1024 times the one before

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

// Takes the digits that `text` begins with.
std::string_view take_digits(std::string_view& text) {
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  text.remove_prefix(digits.size());
  return digits;
}

// Bytes of one "M", "MB" or "MiB"; 1 for no unit.
std::optional<std::uint64_t> unit_bytes(std::string_view unit) {
  if (unit.empty()) return 1;
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) return std::nullopt;
  const std::size_t place = kPrefixes.find(upper(unit[0]));
  if (place == std::string_view::npos) return std::nullopt;
  unit.remove_prefix(1);
  const bool binary = unit.size() == 2 && upper(unit[0]) == 'I' && upper(unit[1]) == 'B';
  const bool plain = unit.empty() || (unit.size() == 1 && upper(unit[0]) == 'B');
  if (!binary && !plain) return std::nullopt;
  return std::uint64_t{1024} << (10 * place);
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const std::string_view whole = take_digits(text);
  if (whole.empty()) return std::nullopt;
  std::string_view fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty()) return std::nullopt;
  }
  const auto unit = unit_bytes(text);
  if (!unit) return std::nullopt;

  std::uint64_t count = 0;
  for (const char c : whole) {
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (count > (kMaxSize - digit) / 10) return std::nullopt;
    count = count * 10 + digit;
  }
  // From the last digit to the first, with whole divisions: exact however many there are, for dropping the
  // fraction early or late is the same. At most 9 * 2^40 + 2^40 on the way.
  std::uint64_t part = 0;
  for (std::size_t i = fraction.size(); i-- > 0;)
    part = (static_cast<std::uint64_t>(fraction[i] - '0') * *unit + part) / 10;
  if (count > (kMaxSize - part) / *unit) return std::nullopt;
  const std::uint64_t bytes = count * *unit + part;
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  if (bytes > kMaxSize - kMebibyte + 1) return std::to_string(bytes);
  std::uint64_t count = bytes == 0 ? 1 : (bytes + kMebibyte - 1) / kMebibyte;
  std::size_t place = kPrefixes.find('M');
  for (; count % 1024 == 0 && place + 1 < kPrefixes.size(); ++place) count /= 1024;
  return std::to_string(count) + kPrefixes[place];
}

}  // namespace weightpress::job
