// Tiles in batches, one thread's at a time, and the first fault among them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "format/tile_ans_stages.h"

namespace weightpress::host {

/// A batch has as many tiles as make this many elements, at least one. Large enough that it pays to hand it
/// to a thread when tiles are small.
inline constexpr std::uint64_t kBatchElements = 32'768;

struct TileBatches {
  TileBatches(const tile_ans::Layout& layout, const tile_ans::TileRange& range)
      : tiles(range), batch_tiles(std::max<std::uint64_t>(1, kBatchElements / layout.tile_elements)) {}

  std::uint64_t size() const { return (tiles.num_tiles - 1) / batch_tiles + 1; }
  tile_ans::TileRange batch(std::uint64_t index) const {
    const std::uint64_t before = index * batch_tiles;
    return {tiles.first_tile + before, std::min(batch_tiles, tiles.num_tiles - before)};
  }
  int threads(int most) const {
    return static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(most), size()));
  }

  tile_ans::TileRange tiles;
  std::uint64_t batch_tiles;
};

/// The fault of the lowest tile, and in it of the lowest lane, whichever thread finds it when.
class FirstFault {
 public:
  void report(std::uint64_t tile, std::uint32_t lane, tile_ans::StageCode code) {
    // Tiles are below 2^47, lanes below 2^3.
    const std::uint64_t fault = tile << 16 | std::uint64_t{lane} << 8 | static_cast<std::uint64_t>(code);
    std::uint64_t first = first_.load(std::memory_order_relaxed);
    while (fault < first && !first_.compare_exchange_weak(first, fault, std::memory_order_relaxed)) {
    }
  }
  tile_ans::StageStatus status() const {
    const std::uint64_t first = first_.load(std::memory_order_relaxed);
    if (first == kNone) return {};
    return {static_cast<tile_ans::StageCode>(first & 0xFF), first >> 16,
            static_cast<std::uint32_t>(first >> 8 & 0xFF)};
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::atomic<std::uint64_t> first_ = kNone;
};

}  // namespace weightpress::host
