// The stages of format/stages.h on the CPU.
#pragma once

#include <algorithm>

#include "format/stages.h"
#include "host/pair_codes.h"

namespace weightpress::host {

class HostStages final : public df11::Df11Stages {
 public:
  /// num_threads: 1 or more; usable_num_threads() says how many the system allows. Outputs do not depend on
  /// it.
  explicit HostStages(int num_threads) : num_threads_(num_threads) {}

  df11::Completion histogram(const df11::HistogramArguments& arguments) override;
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override;
  df11::Completion encode(const df11::EncodeArguments& arguments) override;

 private:
  /// No more than there are segments.
  int threads_for(std::uint64_t num_segments) const {
    return static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(num_threads_), num_segments));
  }

  int num_threads_;
  PairCodes pair_codes_;  // of the codebook of the last large slab
};

/// More threads than this are never used.
inline constexpr int kMaxThreads = 1024;

/// Threads to use when `wanted` were asked for; 0: as many as the machine and OMP_NUM_THREADS offer. Fewer
/// where a limit of the system does not allow as many: the OpenMP runtime would end the program.
int usable_num_threads(int wanted);

}  // namespace weightpress::host
