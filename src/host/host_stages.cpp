#include "host/host_stages.h"

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include <omp.h>

namespace weightpress::host {

int usable_num_threads(int wanted) {
  const int num_threads = std::clamp(wanted > 0 ? wanted : omp_get_max_threads(), 1, kMaxThreads);
  std::latch done(1);
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(num_threads));
  try {
    while (static_cast<int>(others.size()) + 1 < num_threads) others.emplace_back([&done] { done.wait(); });
  } catch (const std::system_error&) {
    // The runtime may need one for itself.
    if (!others.empty()) {
      done.count_down();
      for (std::thread& thread : others) thread.join();
      return static_cast<int>(others.size());
    }
  }
  done.count_down();
  for (std::thread& thread : others) thread.join();
  return static_cast<int>(others.size()) + 1;
}

}  // namespace weightpress::host
