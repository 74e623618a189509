// The stages of a GPU, with the CPU's behind them: for units that go through a GPU in slabs.
#pragma once

#include <functional>
#include <utility>

#include <weightpress/error.h>

#include "format/stages.h"
#include "host/host_stages.h"
#include "job/gpu_unit.h"
#include "job/weight_sums.h"

namespace weightpress::job {

class StagesOfEither final : public df11::Df11Stages {
 public:
  /// gpu must outlive the object's use of it, which begins with use_gpu(). on_failure: called once, when it
  /// fails; the CPU then goes on, unless that throws.
  using OnFailure = std::function<void(const GpuFailure&)>;
  StagesOfEither(df11::Df11Stages& gpu, int num_threads, OnFailure on_failure)
      : gpu_(&gpu), num_threads_(num_threads), host_(num_threads), on_failure_(std::move(on_failure)) {}

  void use_gpu() { uses_gpu_ = true; }
  bool uses_gpu() const { return uses_gpu_; }
  void give_up_gpu() { uses_gpu_ = false; }

  df11::Completion histogram(const df11::HistogramArguments& arguments) override {
    return run([&](df11::Df11Stages& stages) {
      const df11::StageStatus status = stages.histogram(arguments).wait();
      if (&stages == gpu_) check_counts(arguments);
      return status;
    });
  }
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override {
    return run([&](df11::Df11Stages& stages) { return stages.chunk_starts(arguments).wait(); });
  }
  df11::Completion encode(const df11::EncodeArguments& arguments) override {
    return run([&](df11::Df11Stages& stages) { return stages.encode(arguments).wait(); });
  }

 private:
  /// Before a plan follows from counts of other weights than were read.
  void check_counts(const df11::HistogramArguments& arguments) const {
    std::uint64_t sum = 0;
    for (const df11::SegmentHistogram& histogram : arguments.histograms)
      for (std::uint32_t exponent = 0; exponent < df11::kNumSymbols; ++exponent)
        sum += std::uint64_t{exponent} * histogram[exponent];
    if (sum != sum_weights(arguments.weights, num_threads_).exponents)
      throw Error(ErrorCode::kDeviceFailed, "what it counted are not the weights that it was given");
  }

  template <class Run>
  df11::Completion run(Run stage) {
    if (uses_gpu()) {
      try {
        return df11::Completion(stage(*gpu_));
      } catch (const Error& error) {
        on_failure_({error.details()});  // which gives it up, or throws
      }
    }
    return df11::Completion(stage(host_));
  }

  df11::Df11Stages* const gpu_;
  bool uses_gpu_ = false;
  const int num_threads_;
  host::HostStages host_;
  const OnFailure on_failure_;
};

}  // namespace weightpress::job
