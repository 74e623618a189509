// Eight 5-bit gaps in five bytes, the first gap in the highest bits (docs/format.md, "Gaps").
//
//   byte   0          1          2          3          4
//   bits   AAAAABBB   BBCCCCCD   DDDDEEEE   EFFFFFGG   GGGHHHHH
#pragma once

#include <cstdint>

#include "format/df11_constants.h"
#include "format/host_device.h"

namespace weightpress::df11 {

/// gaps: [8], each below 32. packed: [5].
WP_HOST_DEVICE inline void pack_gap_group(const std::uint8_t* gaps, std::uint8_t* packed) {
  std::uint64_t group = 0;
  for (std::uint32_t i = 0; i < kWindowsPerGapGroup; ++i) group = group << kGapBits | gaps[i];
  for (std::uint32_t i = 0; i < kGapGroupBytes; ++i) {
    packed[i] = static_cast<std::uint8_t>(group >> (8 * (kGapGroupBytes - 1 - i)));
  }
}

}  // namespace weightpress::df11
