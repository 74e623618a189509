// Random tensors, settings and cuts for tests of Tile-ANS.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "host/simd_level.h"
#include "support/tile_ans_container.h"
#include "support/weights.h"

namespace weightpress::testing {

inline std::vector<host::SimdLevel> simd_levels() {
  if (host::best_simd_level() == host::SimdLevel::kPortable) return {host::SimdLevel::kPortable};
  return {host::SimdLevel::kPortable, host::SimdLevel::kAvx2};
}

struct RandomTensor {
  explicit RandomTensor(Random& random) {
    num_lanes = 1u << random.below(4);
    const std::uint64_t tiles[] = {0,
                                   0,
                                   1,
                                   2,
                                   31,
                                   32,
                                   33,
                                   64,
                                   129,
                                   500,
                                   1000,
                                   1001,
                                   4096,
                                   1 + random.below(9000),
                                   tile_ans::kMaxTileElements};
    settings.tile_elements = tiles[random.below(std::size(tiles))];
    const std::uint32_t bits[] = {0, 0, 9, 10, 11, 12};
    settings.probability_bits = bits[random.below(std::size(bits))];
    const double thresholds[] = {7.9, 7.9, 8, 0, 5.5, 8 * random.uniform()};
    settings.raw_lane_threshold = thresholds[random.below(std::size(thresholds))];

    const std::uint64_t sizes[] = {1 + random.below(70), 1 + random.below(3000), 1 + random.below(20'000)};
    std::size_t count = sizes[random.below(std::size(sizes))];
    if (settings.tile_elements == 1 || settings.tile_elements == 2) count = 1 + count % 700;
    bytes.resize(count * num_lanes);
    // Each lane by itself.
    for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
      const std::uint64_t kind = random.below(6);
      const std::uint8_t base = static_cast<std::uint8_t>(random.next());
      const double width = std::exp(random.uniform() * 4.5);
      const std::uint64_t rare = 2 + random.below(500);
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t symbol = base;                                           // 0: one symbol
        if (kind == 1) symbol = random.next();                                 // all alike
        if (kind == 2) symbol += random.below(2);                              // two
        if (kind == 3) symbol += random.below(rare) == 0 ? random.next() : 0;  // mostly one
        if (kind >= 4) symbol += gaussian(random, width);
        bytes[i * num_lanes + lane] = static_cast<std::uint8_t>(symbol);
      }
    }
  }

  static std::uint64_t gaussian(Random& random, double width) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    return static_cast<std::uint64_t>(
        std::lround(width * radius * std::cos(6.283185307179586 * random.uniform())));
  }

  static std::vector<std::uint8_t> gaussian_bytes(Random& random, std::size_t count, std::uint32_t lanes,
                                                  double width) {
    std::vector<std::uint8_t> bytes(count * lanes);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(gaussian(random, width));
    return bytes;
  }

  std::uint32_t num_lanes;
  tile_ans::Settings settings;
  std::vector<std::uint8_t> bytes;
};

inline Slabs random_slabs(Random& random, std::int64_t tile_elements) {
  // Not thousands of slabs of one tiny tile.
  const std::uint64_t least = tile_elements < 50 ? 20 : 1;
  return {.tiles = random.below(3) == 0 ? ~std::uint64_t{0} : least + random.below(6),
          .lane_by_lane = random.below(2) == 0,
          .histogram_elements = 1 + random.below(5000),
          .all_words = random.below(2) == 0};
}

inline SlowTileAns::Counts count(const std::vector<std::uint8_t>& bytes) {
  SlowTileAns::Counts counts(256, 0);
  for (const std::uint8_t byte : bytes) ++counts[byte];
  return counts;
}

inline tile_ans::Frequencies frequencies_of(const SlowTileAns::Frequencies& slow) {
  tile_ans::Frequencies frequencies{};
  for (std::size_t i = 0; i < slow.size(); ++i) frequencies[i] = static_cast<std::uint16_t>(slow[i]);
  return frequencies;
}

}  // namespace weightpress::testing
