// A slow, independent decoder of Tile-ANS: what slow_decoder.h is for DF11.
//
// Written from docs/format.md ("Tile-ANS") alone; shares no code, constant or table with src/format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightpress::selftest {

/// The raw bytes of the six buffers ("Tile-ANS: buffers"). Any bytes are allowed.
struct TileAnsBytes {
  std::span<const std::uint8_t> payload;        ///< [2 * words]
  std::span<const std::uint8_t> offsets;        ///< [4 * (tiles * lanes + 1)]
  std::span<const std::uint8_t> states;         ///< [4 * 32 * tiles * coded lanes]
  std::span<const std::uint8_t> decode_tables;  ///< [4 * lanes * slots]
  std::span<const std::uint8_t> lane_modes;     ///< [lanes]
  std::span<const std::uint8_t> layout;         ///< [8 * 4]
};

struct SlowTileAnsDecoding {
  bool ok = false;
  std::string problem = {};                 ///< the first problem found and its place; empty if ok
  std::vector<std::uint8_t> elements = {};  ///< storage bytes; after a problem unspecified
};

/// Decodes all, symbol after symbol, with all checks that the chapter names: sizes, tables, offsets, states,
/// words to the last one, padding. Not checked: which lanes are coded and how precisely, and that a table
/// suits what it codes, which no decoder can know.
///
/// Always ends, never reads outside the buffers, throws only std::bad_alloc and std::length_error (if
/// `layout` says so). Thread-safe.
SlowTileAnsDecoding slow_tile_ans_decode(const TileAnsBytes& stored);

}  // namespace weightpress::selftest
