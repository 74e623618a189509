// How long the stages of a run took, as the thread that calls them sees it: the work inside is parallel.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include <weightpress/compress.h>

namespace weightpress::job {

class StageTimes {
 public:
  void add(Stage stage, double seconds, std::uint64_t bytes) {
    StageTime& time = times_[static_cast<std::size_t>(stage)];
    time.seconds += seconds;
    time.bytes += bytes;
  }
  const std::array<StageTime, kNumStages>& all() const { return times_; }

 private:
  std::array<StageTime, kNumStages> times_{};
};

/// Adds the time from its begin to its end. times may be null.
class StageTimer {
 public:
  StageTimer(StageTimes* times, Stage stage, std::uint64_t bytes)
      : times_(times), stage_(stage), bytes_(bytes), start_(std::chrono::steady_clock::now()) {}
  ~StageTimer() {
    if (times_ == nullptr) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    times_->add(stage_, seconds.count(), bytes_);
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  StageTimes* times_;
  Stage stage_;
  std::uint64_t bytes_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace weightpress::job
