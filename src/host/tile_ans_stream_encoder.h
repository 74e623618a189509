// One ANS stream being made: 32 states and the symbols of a tile's lane, block by block (docs/format.md,
// "Tile-ANS: streams").
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/tile_ans_tables.h"
#include "host/simd_level.h"

namespace weightpress::host {

/// What a lane's streams are made with, for every SIMD level.
struct StreamEncodeTable {
  StreamEncodeTable(const tile_ans::Frequencies& frequencies, std::uint32_t bits);

  tile_ans::EncodeTable entries;
  std::uint32_t probability_bits;
  /// For vectors, two words a symbol: the multiplier; then bit 31 absent, 28-25 the reciprocal's shift - 31,
  /// 24-12 frequency, 11-0 start.
  alignas(64) std::uint32_t packed[2 * tile_ans::kNumSymbols];
};

struct StreamEncoder {
  StreamEncoder() {
    for (std::uint32_t& state : states) state = tile_ans::kMinState;
  }

  alignas(32) std::uint32_t states[tile_ans::kNumStates];
  std::uint32_t flags = 0;  ///< with kAbsent: a symbol had no frequency, and everything is unspecified

  /// Encodes the next symbols; count is a multiple of kNumStates but for the tile's last ones. At most
  /// `count` words are written from `out` on, and contents behind them, up to out + count, are unspecified.
  /// Returns the end of the words.
  std::uint16_t* encode(const StreamEncodeTable& table, const std::uint8_t* symbols, std::size_t count,
                        std::uint16_t* out, SimdLevel simd);
};

/// The whole groups of 32 among these symbols, by AVX2. Moves `out`; returns how many symbols it encoded.
/// Only where best_simd_level() says so.
std::size_t encode_groups_avx2(const StreamEncodeTable& table, const std::uint8_t* symbols, std::size_t count,
                               StreamEncoder& encoder, std::uint16_t*& out);

}  // namespace weightpress::host
