// Progress on standard error: one live line on a terminal, otherwise a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "cli/progress_state.h"

namespace weightpress::cli {

class ProgressPrinter {
 public:
  enum class Mode : std::uint8_t {
    kAuto,   ///< kBar on a terminal, else kPlain
    kBar,    ///< one line that is written over
    kPlain,  ///< a line every ten seconds
    kNone
  };

  explicit ProgressPrinter(Mode mode);
  ~ProgressPrinter() { clear(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void show(const ProgressState& progress);
  /// Takes the live line away, so that other text can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  Mode mode_;
  bool line_shown_ = false;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_shown_ = start_;
};

}  // namespace weightpress::cli
