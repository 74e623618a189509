// One ANS stream being read, from its last symbol to its first, block by block (docs/format.md, "Tile-ANS:
// streams"). Words and states are a stranger's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/tile_ans_frequencies.h"
#include "format/tile_ans_stages.h"
#include "host/simd_level.h"

namespace weightpress::host {

/// What a lane's streams are read with.
struct StreamDecodeTable {
  /// frequencies: their sum is 2^bits.
  StreamDecodeTable(const tile_ans::Frequencies& frequencies, std::uint32_t bits);

  std::uint32_t probability_bits;
  /// One symbol has all slots: nothing is looked up, and states never change.
  bool is_constant = false;
  std::uint8_t constant = 0;
  /// By slot: bits 31-20 slot - start, 19-8 frequency, 7-0 symbol. Not filled if is_constant, so that every
  /// frequency fits.
  alignas(64) std::uint32_t entries[tile_ans::kMaxTableSize];
};

/// A stream's position and its states.
struct StreamReader {
  alignas(32) std::uint32_t states[tile_ans::kNumStates];
  const std::uint16_t* end;  ///< of the words not yet read
};

class StreamDecoder {
 public:
  StreamDecoder() = default;
  StreamDecoder(const StreamDecoder&) = delete;  // it may point into itself
  StreamDecoder& operator=(const StreamDecoder&) = delete;

  /// kOk or kBadState. words: of the stream. states: [kNumStates]. table must live on.
  tile_ans::StageCode begin(const StreamDecodeTable& table, std::span<const std::uint16_t> words,
                            const std::uint32_t* states, SimdLevel simd);
  /// Decodes the `count` symbols before those decoded so far; a multiple of kNumStates but for the first
  /// call. False: truncated, and nothing more can be decoded.
  bool decode(std::size_t count, std::uint8_t* symbols);
  /// After all symbols: kOk, kUnreadWords or kBadEnd.
  tile_ans::StageCode end() const;

 private:
  void enter_tail();
  bool decode_careful(std::uint32_t count, std::uint8_t* symbols);

  const StreamDecodeTable* table_ = nullptr;
  SimdLevel simd_ = SimdLevel::kPortable;
  StreamReader reader_;
  const std::uint16_t* begin_ = nullptr;  // of the stream's words
  bool in_tail_ = false;
  // The stream's first words, once fewer than kNumStates are left, behind as many that are not the stream's:
  // so a group can be read without looking whether its words are there.
  std::uint16_t tail_[2 * tile_ans::kNumStates];
};

/// Decodes groups of 32 symbols, the last first, to symbols[32 * num_groups], as long as kNumStates words are
/// there from `limit` on. Returns the number of groups that are left. The second only where
/// best_simd_level() says so.
std::size_t decode_groups(const StreamDecodeTable& table, StreamReader& reader, const std::uint16_t* limit,
                          std::size_t num_groups, std::uint8_t* symbols);
std::size_t decode_groups_avx2(const StreamDecodeTable& table, StreamReader& reader,
                               const std::uint16_t* limit, std::size_t num_groups, std::uint8_t* symbols);

}  // namespace weightpress::host
