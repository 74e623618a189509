// Compiled without contraction of a * b + c (CMakeLists.txt): each product is rounded, as in the reference.
#include "format/tile_ans_frequencies.h"

#include <cassert>
#include <cmath>
#include <numeric>
#include <queue>
#include <vector>

namespace weightpress::tile_ans {
namespace {

/// Whose turn it is: the least key (-0.0 equals 0.0), then the least symbol.
struct Turn {
  double key;
  std::uint32_t symbol;

  bool operator<(const Turn& other) const {
    // std::priority_queue gives the greatest.
    return key > other.key || (key == other.key && symbol > other.symbol);
  }
};

}  // namespace

std::uint64_t total_count(const Histogram& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}

Frequencies normalise(const Histogram& histogram, std::uint32_t probability_bits) {
  const std::uint32_t table_size = 1u << probability_bits;
  const std::uint64_t total = total_count(histogram);
  assert(total > 0);
  const double scale = static_cast<double>(table_size) / static_cast<double>(total);

  std::array<double, kNumSymbols> residual{};
  Frequencies frequencies{};
  std::int64_t difference = table_size;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    if (histogram[symbol] == 0) continue;
    const double target = static_cast<double>(histogram[symbol]) * scale;
    const double frequency = std::fmax(std::floor(target), 1.0);
    frequencies[symbol] = static_cast<std::uint16_t>(frequency);
    residual[symbol] = target - frequency;
    difference -= frequencies[symbol];
  }

  // What is missing goes to the largest residuals, what is too much comes from the smallest; who has had a
  // turn stands behind by 1.
  std::priority_queue<Turn> queue;
  const bool grow = difference > 0;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    if (frequencies[symbol] > (grow ? 0 : 1))
      queue.push({grow ? -residual[symbol] : residual[symbol], symbol});
  }
  for (; difference != 0; difference += grow ? -1 : 1) {
    // Cannot run dry: as long as there is too much, some frequency is above 1, as 256 symbols fit any table.
    assert(!queue.empty());
    const Turn turn = queue.top();
    queue.pop();
    std::uint16_t& frequency = frequencies[turn.symbol];
    frequency = static_cast<std::uint16_t>(grow ? frequency + 1 : frequency - 1);
    if (grow || frequency > 1) queue.push({turn.key + 1.0, turn.symbol});
  }
  return frequencies;
}

}  // namespace weightpress::tile_ans
