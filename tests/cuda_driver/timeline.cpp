#include "timeline.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace weightpress::cuda_driver {

std::uint64_t Timeline::place(std::uint32_t device, Engine engine, std::uint64_t ready_ns,
                              std::uint64_t duration_ns) {
  if (engine == Engine::kNone || engine == Engine::kHost || duration_ns == 0) return ready_ns;
  Busy& busy = busy_[{device, engine}];
  std::uint64_t start = ready_ns;
  auto next = busy.upper_bound(start);
  if (next != busy.begin()) start = std::max(start, std::prev(next)->second);
  while (next != busy.end() && next->first - start < duration_ns) {
    start = next->second;
    ++next;
  }
  std::uint64_t begin = start, end = start + duration_ns;
  if (next != busy.end() && next->first == end) {
    end = next->second;
    next = busy.erase(next);
  }
  if (next != busy.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    busy.emplace_hint(next, begin, end);
  }
  return start;
}

std::uint64_t duration_of(double amount, double per_ns) {
  return static_cast<std::uint64_t>(std::ceil(amount / per_ns));
}

}  // namespace weightpress::cuda_driver
