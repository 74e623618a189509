// Containers of Tile-ANS in memory, by the slow model, and faults in them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/tile_ans_random.h"

namespace weightpress::testing {

/// A container and what it holds.
struct StoredTileAns {
  StoredTileAns(std::vector<std::uint8_t> of, std::uint32_t lanes, std::uint64_t tile, int bits,
                const std::vector<std::uint8_t>& modes)
      : bytes(std::move(of)), num_lanes(lanes), shape{bytes.size() / lanes} {
    std::vector<SlowTileAns::Frequencies> frequencies;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      std::vector<std::uint8_t> symbols;
      for (std::size_t i = lane; i < bytes.size(); i += lanes) symbols.push_back(bytes[i]);
      frequencies.push_back(SlowTileAns::normalise(count(symbols), bits));
    }
    buffers = SlowTileAns::encode(bytes, lanes, tile, bits, modes, frequencies);
  }

  Decoded decode(tile_ans::TileAnsDecodeStage& stage, const Slabs& slabs = {},
                 std::span<const std::uint8_t> source = {}, bool want_bytes = true) const {
    return decode_with(stage, buffers, shape, num_lanes, slabs, source, want_bytes);
  }

  std::vector<std::uint8_t> bytes;
  std::uint32_t num_lanes;
  std::vector<std::uint64_t> shape;
  TileAnsBuffers buffers;
};

inline StoredTileAns random_container(Random& random) {
  const std::uint32_t lanes = 1u << random.below(4);
  std::vector<std::uint8_t> modes(lanes);
  for (std::uint8_t& mode : modes) mode = random.below(3) == 0;
  std::vector<std::uint8_t> bytes =
      RandomTensor::gaussian_bytes(random, 1 + random.below(random.below(2) == 0 ? 100 : 1'200), lanes,
                                   static_cast<double>(1 + random.below(60)));
  return {std::move(bytes), lanes, 1 + random.below(random.below(3) == 0 ? 40 : 700),
          static_cast<int>(9 + random.below(4)), modes};
}

/// Changes a few of these numbers, or none.
inline void spoil(Random& random, TileAnsBuffers& b) {
  const auto any_of = [&](auto& numbers) -> auto& { return numbers[random.below(numbers.size())]; };
  switch (random.below(9)) {
    case 0:
      for (std::uint16_t& word : b.payload)
        if (random.below(3) == 0) word = static_cast<std::uint16_t>(random.next());
      break;
    case 1:
      if (!b.payload.empty()) any_of(b.payload) ^= static_cast<std::uint16_t>(1u << random.below(16));
      break;
    case 2:
      if (!b.states.empty()) any_of(b.states) ^= 1u << random.below(32);
      break;
    case 3:
      if (!b.states.empty())
        any_of(b.states) = static_cast<std::uint32_t>(random.next() >> (32 + random.below(2)));
      break;
    case 4:
      if (b.offsets.size() > 2) b.offsets[1 + random.below(b.offsets.size() - 2)] += 1;
      break;
    case 5:
      if (b.offsets.size() > 2) b.offsets[1 + random.below(b.offsets.size() - 2)] -= 1;
      break;
    case 6:
      for (std::size_t i = 1; i + 1 < b.offsets.size(); ++i)
        if (random.below(4) == 0)
          b.offsets[i] = static_cast<std::uint32_t>(
              random.below(3) == 0 ? random.next() : random.below(b.payload.size() + 1));
      break;
    case 7:
      // Words where there are too many.
      if (!b.payload.empty() && b.offsets.size() > 1) {
        const std::size_t stream = random.below(b.offsets.size() - 1);
        const std::size_t place = std::min<std::size_t>(b.offsets[stream], b.payload.size());
        b.payload.insert(b.payload.begin() + static_cast<std::ptrdiff_t>(place),
                         static_cast<std::uint16_t>(random.next()));
        for (std::size_t i = stream + 1; i < b.offsets.size(); ++i) ++b.offsets[i];
      }
      break;
    default:
      break;
  }
}

}  // namespace weightpress::testing
