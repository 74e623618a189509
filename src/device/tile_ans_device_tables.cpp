#include "device/tile_ans_device_tables.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "format/tile_ans_tables.h"

namespace weightpress::device {

using tile_ans::kNumSymbols;

void append_encode_table(const tile_ans::Frequencies& frequencies, std::uint32_t probability_bits,
                         std::vector<TileAnsEncodeEntry>& tables) {
  constexpr std::uint32_t kStartMask = (1u << TileAnsEncodeEntry::kStartBits) - 1;
  for (const tile_ans::EncodeEntry& entry : tile_ans::make_encode_table(frequencies, probability_bits)) {
    const std::uint32_t frequency = (1u << probability_bits) - entry.complement;
    const std::uint32_t shift = (entry.shift & 63) - tile_ans::kStateBits;
    // The start of an absent symbol can be 4096; it must not touch the frequency.
    tables.push_back(
        {entry.multiplier,
         ((entry.shift & tile_ans::EncodeEntry::kAbsent) != 0 ? TileAnsEncodeEntry::kAbsent : 0) |
             shift << TileAnsEncodeEntry::kShiftAt | frequency << TileAnsEncodeEntry::kFrequencyAt |
             (entry.start & kStartMask)});
  }
}

void append_decode_table(const tile_ans::Frequencies& frequencies, std::uint32_t probability_bits,
                         std::vector<std::uint8_t>& tables) {
  std::array<std::uint32_t, kNumSymbols> entries{};
  std::vector<std::uint8_t> symbols;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    // Behind the last symbol that occurs a start can be 4096, and nobody looks.
    entries[symbol] =
        static_cast<std::uint32_t>(symbols.size()) << TileAnsDecodeKernel::kStartAt | frequencies[symbol];
    symbols.insert(symbols.end(), frequencies[symbol], static_cast<std::uint8_t>(symbol));
  }
  assert(symbols.size() == 1u << probability_bits);
  symbols.resize(1u << probability_bits);
  const std::size_t begin = tables.size();
  tables.resize(begin + sizeof entries);
  std::memcpy(tables.data() + begin, entries.data(), sizeof entries);
  tables.insert(tables.end(), symbols.begin(), symbols.end());
}

namespace {

/// Words of a tile, if its symbols come as often as their frequencies say.
double likely_words(const tile_ans::LanePlan& lane, const tile_ans::Layout& layout) {
  const double size = layout.table_size();
  double bits = 0;
  for (const std::uint16_t frequency : lane.frequencies)
    if (frequency != 0) bits -= frequency / size * std::log2(frequency / size);
  const std::uint64_t elements = std::min(layout.tile_elements, layout.num_elements);
  return bits * static_cast<double>(elements) / tile_ans::kWordBits;
}

}  // namespace

void share_out_rooms(const tile_ans::TensorPlan& plan, TileAnsEncodeKernel::Parameters& parameters) {
  using Policy = TileAnsEncodeKernel;
  constexpr std::uint32_t kLeast = Policy::kStepWords;
  const auto is_coded = [&](std::uint32_t lane) { return (parameters.coded_lanes >> lane & 1) != 0; };
  // What is wanted beyond the least: a sixteenth more than is likely, for tiles that are worse.
  std::array<double, tile_ans::kMaxLanes> wanted{};
  double all_wanted = 0;
  for (std::uint32_t lane = 0; lane < plan.layout.num_lanes; ++lane) {
    if (!is_coded(lane)) continue;
    wanted[lane] = likely_words(plan.lanes[lane], plan.layout) * 17 / 16 + 2;
    all_wanted += wanted[lane];
  }
  const std::uint32_t warp_words =
      (Policy::kMaxDynamicSharedBytes - parameters.num_tables * Policy::kTableBytes) /
      (2 * Policy::kTilesOfBatch);
  const double left = warp_words - kLeast * parameters.num_tables;
  const double part = all_wanted > left ? left / all_wanted : 1;
  parameters.warp_words = 0;
  for (std::uint32_t lane = 0; lane < plan.layout.num_lanes; ++lane) {
    if (!is_coded(lane)) continue;
    TileAnsEncodeKernel::Lane& room = parameters.lanes[lane];
    room.room_begin = parameters.warp_words;
    room.room_words = kLeast + static_cast<std::uint32_t>(wanted[lane] * part) / 2 * 2;
    parameters.warp_words += static_cast<std::uint32_t>(room.room_words);
  }
  assert(parameters.warp_words <= warp_words);
}

}  // namespace weightpress::device
