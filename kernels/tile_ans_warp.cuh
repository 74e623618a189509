// What encoding and decoding of Tile-ANS have in common: elements, tiles, and the first fault.
#pragma once

#include <cstdint>

#include "kernels/tile_ans_policy.h"

namespace weightpress::device {

inline constexpr std::uint32_t kWholeWarp = ~std::uint32_t{0};

/// An element of so many bytes.
template <std::uint32_t kLanes>
struct TileAnsElement;
template <>
struct TileAnsElement<1> {
  using Type = std::uint8_t;
};
template <>
struct TileAnsElement<2> {
  using Type = std::uint16_t;
};
template <>
struct TileAnsElement<4> {
  using Type = std::uint32_t;
};
template <>
struct TileAnsElement<8> {
  using Type = std::uint64_t;
};

template <class T>
__device__ T* device_pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// Elements of a tile of a slab; at most kMaxTileElements.
template <class Parameters>
__device__ std::uint32_t tile_elements(const Parameters& parameters, std::uint64_t tile) {
  const std::uint64_t left = parameters.num_elements - tile * parameters.tile_elements;
  return static_cast<std::uint32_t>(left < parameters.tile_elements ? left : parameters.tile_elements);
}

inline __device__ std::uint32_t raw_stream_words(std::uint64_t num_elements) {
  return static_cast<std::uint32_t>(num_elements / 2 + num_elements % 2);
}

/// tile: of the slab.
template <class Parameters>
__device__ void report_fault(const Parameters& parameters, std::uint64_t tile, std::uint32_t lane,
                             std::uint32_t code) {
  const std::uint64_t fault = (parameters.first_tile + tile) << 16 | lane << 8 | code;
  atomicMin(device_pointer<unsigned long long>(parameters.d_status), static_cast<unsigned long long>(fault));
}

}  // namespace weightpress::device
