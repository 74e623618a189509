#include "job/weight_sums.h"

#include <algorithm>

#include "device/unit_pipeline.h"

namespace weightpress::job {

WeightSums sum_weights(std::span<const std::uint16_t> weights, int num_threads) {
  constexpr std::size_t kPiece = 16'384;  // even, and stays in a first-level cache between the two sums
  const std::size_t num_pieces = (weights.size() + kPiece - 1) / kPiece;
  const int threads =
      static_cast<int>(std::clamp<std::size_t>(num_pieces / 8, 1, static_cast<std::size_t>(num_threads)));
  std::uint64_t sum = 0, sum_of_exponents = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : sum, sum_of_exponents)
  for (std::size_t piece = 0; piece < num_pieces; ++piece) {
    const std::size_t first = piece * kPiece;
    const auto part = weights.subspan(first, std::min(kPiece, weights.size() - first));
    sum += device::sum_of_weights(part);
    sum_of_exponents += device::sum_of_exponents(part);
  }
  return {sum, sum_of_exponents};
}

}  // namespace weightpress::job
