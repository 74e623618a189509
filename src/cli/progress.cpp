#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "cli/console.h"

namespace weightpress::cli {

ProgressPrinter::ProgressPrinter(bool quiet) : quiet_(quiet), is_terminal_(::isatty(STDERR_FILENO) != 0) {}

void ProgressPrinter::show(const CompressProgress& progress) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> since_shown = now - last_shown_;
  if (since_shown.count() < (is_terminal_ ? 0.1 : 10.0)) return;
  last_shown_ = now;

  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share = static_cast<double>(progress.source_bytes_done) /
                       static_cast<double>(std::max<std::uint64_t>(progress.source_bytes, 1));
  const std::string line =
      "unit " + std::to_string(progress.units_done) + " of " + std::to_string(progress.num_units) + ", " +
      format_bytes(progress.source_bytes_done) + " of " + format_bytes(progress.source_bytes) + ", " +
      format_rate(progress.source_bytes_done, seconds) + ", " +
      std::to_string(std::lround(seconds / std::max(share, 1e-9) - seconds)) + " s left";
  if (is_terminal_) {
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
