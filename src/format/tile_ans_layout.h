// Settings of Tile-ANS and what follows from them and a tensor's size: tiles, streams, sizes of the buffers
// (docs/format.md, "Tile-ANS: buffers").
#pragma once

#include <algorithm>
#include <cstdint>

#include "format/result.h"
#include "format/tile_ans_constants.h"

namespace weightpress::tile_ans {

struct Settings {
  std::uint64_t tile_elements = 0;     ///< 0: automatic; at most kMaxTileElements
  std::uint32_t probability_bits = 0;  ///< 0: automatic; 9 to 12
  double raw_lane_threshold = 7.9;     ///< bits a symbol, 0 to 8, from which on a lane is stored raw
};

/// Errors: kUsage.
Result<void> check_settings(const Settings& settings);

/// The tile that 0 stands for: 4096 elements up to 32 MiB of tensor, 8192 above.
std::uint64_t automatic_tile_elements(std::uint64_t tensor_bytes);

struct Layout {
  std::uint64_t tile_elements = 0;     ///< 1 .. kMaxTileElements
  std::uint32_t probability_bits = 0;  ///< 9 .. 12
  std::uint32_t num_lanes = 0;         ///< bytes of an element: 1, 2, 4 or 8
  std::uint64_t num_elements = 0;      ///< 1 .. kMaxElements

  std::uint32_t table_size() const { return 1u << probability_bits; }
  std::uint64_t num_bytes() const { return num_elements * num_lanes; }
  std::uint64_t num_tiles() const { return (num_elements - 1) / tile_elements + 1; }
  std::uint64_t num_streams() const { return num_tiles() * num_lanes; }
  std::uint64_t num_offsets() const { return num_streams() + 1; }
  std::uint64_t stream_of(std::uint32_t lane, std::uint64_t tile) const { return lane * num_tiles() + tile; }
  std::uint64_t first_element(std::uint64_t tile) const { return tile * tile_elements; }
  /// Elements of the tiles first .. first + count - 1, which must be there.
  std::uint64_t elements_of(std::uint64_t first_tile, std::uint64_t count = 1) const {
    return std::min(tile_elements * count, num_elements - first_element(first_tile));
  }
  /// Words of a whole raw lane.
  std::uint64_t raw_lane_words() const;

  bool operator==(const Layout&) const = default;
};

/// Words of a raw stream: two symbols a word.
constexpr std::uint64_t raw_words(std::uint64_t num_elements) {
  return num_elements / 2 + num_elements % 2;
}

constexpr bool is_lane_count(std::uint64_t num_lanes) {
  return num_lanes == 1 || num_lanes == 2 || num_lanes == 4 || num_lanes == 8;
}

}  // namespace weightpress::tile_ans
