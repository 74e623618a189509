#include "cli/console.h"

#include <array>
#include <cstdio>

#include "model/text.h"

namespace weightpress::cli {

namespace {

std::string scaled(double value, const char* suffix) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  std::array<char, 48> text{};
  const int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s%s", digits, value, kUnits[unit], suffix);
  return text.data();
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes), "");
}

std::string format_rate(std::uint64_t bytes, double seconds) {
  return scaled(static_cast<double>(bytes) / (seconds > 1e-9 ? seconds : 1e-9), "/s");
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f%%",
                whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole));
  return text.data();
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void note(const std::string& text) {
  std::fprintf(stderr, "note: %s\n", model::escaped_for_terminal(text).c_str());
}

bool finish_output() {
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

}  // namespace weightpress::cli
