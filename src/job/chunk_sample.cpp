#include "job/chunk_sample.h"

#include <algorithm>
#include <cassert>

namespace weightpress::job {
namespace {

/// SplitMix64. The standard's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// 0 to bound - 1. The bias of the remainder is below 2^-32: there are fewer than 2^32 chunks.
  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (z ^ (z >> 31)) % bound;
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::vector<std::vector<std::uint64_t>> choose_chunks(std::vector<std::vector<std::uint64_t>> must_have,
                                                      const std::vector<std::uint64_t>& num_chunks,
                                                      std::uint64_t num_samples, std::uint64_t seed) {
  assert(must_have.size() == num_chunks.size());
  std::uint64_t num_taken = 0, num_all = 0;
  for (std::size_t u = 0; u < must_have.size(); ++u) {
    std::ranges::sort(must_have[u]);
    must_have[u].erase(std::unique(must_have[u].begin(), must_have[u].end()), must_have[u].end());
    num_taken += must_have[u].size();
    num_all += num_chunks[u];
  }
  // Selection sampling: of `left` chunks to come, `wanted` are taken.
  std::uint64_t left = num_all - num_taken;
  std::uint64_t wanted = std::min(left, num_samples - std::min(num_samples, num_taken));
  Random random(seed);
  for (std::size_t u = 0; u < must_have.size() && wanted > 0; ++u) {
    std::vector<std::uint64_t> chosen;
    auto next = must_have[u].begin();
    for (std::uint64_t chunk = 0; chunk < num_chunks[u]; ++chunk) {
      if (next != must_have[u].end() && *next == chunk) {
        ++next;
        chosen.push_back(chunk);
      } else if (random.below(left--) < wanted) {
        --wanted;
        chosen.push_back(chunk);
      }
    }
    must_have[u] = std::move(chosen);
  }
  return must_have;
}

}  // namespace weightpress::job
