#include "host/tile_ans_lane_bytes.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace weightpress::host {

static_assert(std::endian::native == std::endian::little, "elements and words are stored little-endian");

namespace {

// Written on whole elements, which compilers vectorise; on single bytes they do not.
template <class Element>
void split(const std::uint8_t* elements, std::size_t count, LaneBlock& lanes) {
  for (std::size_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, elements + i * sizeof element, sizeof element);
    for (std::size_t lane = 0; lane < sizeof element; ++lane)
      lanes[lane][i] = static_cast<std::uint8_t>(element >> (8 * lane));
  }
}

template <class Element>
void join(const LaneBlock& lanes, std::size_t count, std::uint8_t* elements) {
  for (std::size_t i = 0; i < count; ++i) {
    Element element = 0;
    for (std::size_t lane = 0; lane < sizeof element; ++lane)
      element = static_cast<Element>(element | static_cast<Element>(lanes[lane][i]) << (8 * lane));
    std::memcpy(elements + i * sizeof element, &element, sizeof element);
  }
}

}  // namespace

void split_lanes(const std::uint8_t* elements, std::size_t count, std::uint32_t num_lanes, LaneBlock& lanes) {
  assert(count <= kBlockElements);
  switch (num_lanes) {
    case 1:
      std::memcpy(lanes[0], elements, count);
      break;
    case 2:
      split<std::uint16_t>(elements, count, lanes);
      break;
    case 4:
      split<std::uint32_t>(elements, count, lanes);
      break;
    default:
      split<std::uint64_t>(elements, count, lanes);
  }
}

void join_lanes(const LaneBlock& lanes, std::size_t count, std::uint32_t num_lanes, std::uint8_t* elements) {
  assert(count <= kBlockElements);
  switch (num_lanes) {
    case 1:
      std::memcpy(elements, lanes[0], count);
      break;
    case 2:
      join<std::uint16_t>(lanes, count, elements);
      break;
    case 4:
      join<std::uint32_t>(lanes, count, elements);
      break;
    default:
      join<std::uint64_t>(lanes, count, elements);
  }
}

}  // namespace weightpress::host
