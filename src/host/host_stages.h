// The stages of format/stages.h on the CPU.
#pragma once

#include "format/stages.h"
#include "host/pair_codes.h"

namespace weightpress::host {

class HostStages final : public df11::Df11Stages {
 public:
  /// num_threads: 1 or more. Outputs do not depend on it.
  explicit HostStages(int num_threads) : num_threads_(num_threads) {}

  df11::Completion histogram(const df11::HistogramArguments& arguments) override;
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override;
  df11::Completion encode(const df11::EncodeArguments& arguments) override;

 private:
  int num_threads_;
  PairCodes pair_codes_;  // of the codebook of the last large slab
};

/// Threads that the machine and OMP_NUM_THREADS offer.
int default_num_threads();

}  // namespace weightpress::host
