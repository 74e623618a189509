// Virtual time: when each engine of each device is busy.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "operation.h"

namespace weightpress::cuda_driver {

class Timeline {
 public:
  /// The earliest start, not before `ready_ns`, at which the engine is free for so long; it is taken. Gaps
  /// that earlier calls left are used. Engine::kNone and kHost are always free.
  std::uint64_t place(std::uint32_t device, Engine engine, std::uint64_t ready_ns, std::uint64_t duration_ns);

 private:
  using Busy = std::map<std::uint64_t, std::uint64_t>;  // start to end; neighbours are merged

  std::map<std::pair<std::uint32_t, Engine>, Busy> busy_;
};

/// Nanoseconds for so many bytes, rounded up.
std::uint64_t duration_of(double amount, double per_ns);

}  // namespace weightpress::cuda_driver
