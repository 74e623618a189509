#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/console.h"
#include "model/text.h"

namespace weightpress::cli {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kPlainSeconds = 10;

std::size_t terminal_width() {
  struct winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

std::string time_text(double seconds) {
  const long whole = std::lround(std::min(seconds, 1e8));
  if (whole < 100) return std::to_string(whole) + " s";
  if (whole < 6000) return std::to_string(whole / 60) + " min";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

ProgressPrinter::ProgressPrinter(Mode mode) : mode_(mode) {
  if (mode_ != Mode::kAuto) return;
  // A dumb terminal cannot write over a line.
  const char* terminal = std::getenv("TERM");
  const bool can_overwrite = terminal != nullptr && std::string_view(terminal) != "dumb";
  mode_ = can_overwrite && ::isatty(STDERR_FILENO) != 0 ? Mode::kBar : Mode::kPlain;
}

void ProgressPrinter::show(const ProgressState& progress) {
  if (mode_ == Mode::kNone) return;
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> since_shown = now - last_shown_;
  const bool is_first_bar = mode_ == Mode::kBar && !line_shown_;
  if (!is_first_bar && since_shown.count() < (mode_ == Mode::kBar ? kBarSeconds : kPlainSeconds)) return;
  last_shown_ = now;

  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share = static_cast<double>(progress.bytes_done) /
                       static_cast<double>(std::max<std::uint64_t>(progress.total_bytes, 1));
  std::string line = std::string(progress.phase) + ", " + std::to_string(progress.units_done) + " of " +
                     std::to_string(progress.num_units) + " units, " +
                     std::to_string(static_cast<int>(100 * std::min(share, 1.0))) + "% of " +
                     format_bytes(progress.total_bytes);
  if (progress.bytes_done > progress.bytes_resumed) {
    const std::uint64_t bytes = progress.bytes_done - progress.bytes_resumed;
    const std::uint64_t left = progress.total_bytes - std::min(progress.total_bytes, progress.bytes_done);
    line += ", " + format_rate(bytes, seconds) + ", " +
            time_text(seconds * static_cast<double>(left) / static_cast<double>(bytes)) + " left";
  }
  if (!progress.unit.empty()) line += ": " + model::printable(progress.unit);
  if (mode_ == Mode::kBar) {
    line.resize(std::min(line.size(), terminal_width() - 1));
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    line_shown_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void ProgressPrinter::clear() {
  if (line_shown_) std::fprintf(stderr, "\r\033[K");
  line_shown_ = false;
}

}  // namespace weightpress::cli
