// Progress on standard error: one live line on a terminal, a plain line now and then elsewhere.
#pragma once

#include <chrono>

#include <weightpress/compress.h>

namespace weightpress::cli {

class ProgressPrinter {
 public:
  explicit ProgressPrinter(bool quiet);
  ~ProgressPrinter() { clear(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void show(const CompressProgress& progress);
  /// Removes the live line, so that other text can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool quiet_;
  bool is_terminal_;
  bool line_shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_shown_ = start_;
};

}  // namespace weightpress::cli
