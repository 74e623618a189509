// Sums by which a GPU's work is tied to the weights that the host has read (device/unit_pipeline.h).
#pragma once

#include <cstdint>
#include <span>

namespace weightpress::job {

struct WeightSums {
  std::uint64_t weights = 0;    ///< device::sum_of_weights()
  std::uint64_t exponents = 0;  ///< device::sum_of_exponents()
};

/// Both in one pass, on so many threads.
WeightSums sum_weights(std::span<const std::uint16_t> weights, int num_threads);

}  // namespace weightpress::job
