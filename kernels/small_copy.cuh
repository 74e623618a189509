// Copies a few kilobytes between device memory and pinned memory of the host, in the order of a stream of
// kernels: a copy engine would do it behind the large copies that are enqueued there already.
#pragma once

#include <cstdint>

#include "kernels/small_copy_policy.h"

namespace weightpress::device {

/// The one block of threads. Every one of them calls it once.
template <class Kernel>
__device__ void small_copy(const typename Kernel::Parameters& parameters) {
  auto* const to = reinterpret_cast<std::uint32_t*>(parameters.d_to);
  const auto* const from = reinterpret_cast<const std::uint32_t*>(parameters.d_from);
  for (std::uint64_t i = threadIdx.x; i < parameters.num_words; i += Kernel::kThreads) to[i] = from[i];
}

}  // namespace weightpress::device
