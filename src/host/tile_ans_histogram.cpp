// Lane histograms. A counter that is increased twice in a row waits for its own store, and lanes have common
// bytes: so each of eight consecutive bytes has a table of its own, which for 1 and 2 byte elements also
// keeps neighbours apart. Byte i of any eight belongs to lane i % num_lanes.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "host/tile_ans_stages.h"

namespace weightpress::host {
namespace {

constexpr std::size_t kTables = 8;
static_assert(kTables == tile_ans::kMaxLanes);
// Counted with 32 bits, and little enough that the last piece of a slab does not keep one thread alone.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

using Counts = std::uint32_t[kTables][tile_ans::kNumSymbols];

void count_piece(std::span<const std::uint8_t> bytes, Counts& counts) {
  const std::size_t whole = bytes.size() / kTables * kTables;
  for (std::size_t i = 0; i < whole; i += kTables) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes.data() + i, sizeof eight);
    for (std::size_t table = 0; table < kTables; ++table) ++counts[table][eight >> (8 * table) & 0xFF];
  }
  for (std::size_t i = whole; i < bytes.size(); ++i) ++counts[i - whole][bytes[i]];
}

}  // namespace

tile_ans::Completion HostTileAnsStages::histogram(const tile_ans::HistogramArguments& arguments) {
  const std::uint32_t num_lanes = arguments.num_lanes;
  assert(tile_ans::is_lane_count(num_lanes) && arguments.histograms.size() == num_lanes);
  assert(arguments.elements.size() % num_lanes == 0);
  const std::uint64_t pieces = (arguments.elements.size() + kPieceBytes - 1) / kPieceBytes;
  const int threads = static_cast<int>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(num_threads_), std::max<std::uint64_t>(pieces, 1)));
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    const std::uint64_t first = piece * kPieceBytes;
    alignas(64) Counts counts = {};
    count_piece(arguments.elements.subspan(first, std::min(kPieceBytes, arguments.elements.size() - first)),
                counts);
#pragma omp critical(weightpress_lane_histogram)
    for (std::size_t table = 0; table < kTables; ++table) {
      tile_ans::Histogram& histogram = arguments.histograms[table % num_lanes];
      for (std::size_t symbol = 0; symbol < tile_ans::kNumSymbols; ++symbol)
        histogram[symbol] += counts[table][symbol];
    }
  }
  return tile_ans::Completion(tile_ans::StageStatus{});
}

}  // namespace weightpress::host
