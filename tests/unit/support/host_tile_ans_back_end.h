// A back end of Tile-ANS without a GPU: for tests of what stands before one.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "device/tile_ans_back_end.h"
#include "host/tile_ans_stages.h"

namespace weightpress::testing {

/// Of elements as numbers, the first byte being the lowest; modulo 2^64.
inline std::uint64_t plain_sum(std::span<const std::uint8_t> elements, std::uint32_t num_lanes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < elements.size(); ++i)
    sum += std::uint64_t{elements[i]} << (8 * (i % num_lanes));
  return sum;
}

/// The CPU's stages. Work is done when a call returns.
class HostTileAnsBackEnd : public device::TileAnsBackEnd {
 public:
  tile_ans::Completion histogram(const tile_ans::HistogramArguments& arguments) override {
    return host_.histogram(arguments);
  }
  tile_ans::Completion sizes(const tile_ans::EncodeArguments& arguments) override {
    return host_.sizes(arguments);
  }
  tile_ans::Completion encode(const tile_ans::EncodeArguments& arguments) override {
    return host_.encode(arguments);
  }
  tile_ans::Completion decode(const tile_ans::DecodeArguments& arguments) override {
    tile_ans::DecodeArguments with_elements = arguments;
    std::vector<std::uint8_t> elements;
    if (arguments.elements.empty()) {
      const tile_ans::TileRange& tiles = arguments.tiles;
      elements.resize(arguments.layout.num_lanes *
                      arguments.layout.elements_of(tiles.first_tile, tiles.num_tiles));
      with_elements.elements = elements;
    }
    const tile_ans::Completion done = host_decode_.decode(with_elements);
    decoded_sum_ = plain_sum(with_elements.elements, arguments.layout.num_lanes);
    return done;
  }
  std::uint64_t decoded_sum() const override { return decoded_sum_; }
  std::shared_ptr<void> pinned(std::uint64_t bytes) override {
    constexpr std::align_val_t kAlignment{64};
    return {::operator new(bytes, kAlignment), [](void* p) { ::operator delete(p, kAlignment); }};
  }

 protected:
  std::uint64_t decoded_sum_ = 0;

 private:
  host::HostTileAnsStages host_{1};
  host::HostTileAnsDecodeStage host_decode_{1};
};

}  // namespace weightpress::testing
