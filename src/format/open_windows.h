// The one rule that decides in which windows and chunks a code starts (docs/format.md, "Gaps" and "Output
// positions"). It needs a bit position and one code length, so that segments can be encoded apart.
#pragma once

#include <cstdint>

#include "format/df11_constants.h"
#include "format/host_device.h"

namespace weightpress::df11 {

/// The first window whose gap is not yet decided by the codes before bit `first_bit`: the window of first_bit
/// itself if the code before it started in an earlier window, else the next one.
///
/// previous_code_length: of the code that ends at first_bit; 0 at the start of a unit. This is all that a
/// segment must know of the weights before it.
WP_HOST_DEVICE constexpr std::uint64_t first_open_window(std::uint64_t first_bit,
                                                         std::uint32_t previous_code_length) {
  const std::uint64_t window = first_bit / kWindowBits;
  if (previous_code_length == 0) return window;
  return (first_bit - previous_code_length) / kWindowBits == window ? window + 1 : window;
}

/// The first chunk whose output position is not yet decided, given the first such window.
WP_HOST_DEVICE constexpr std::uint64_t first_open_chunk(std::uint64_t open_window) {
  return open_window / kWindowsPerChunk + (open_window % kWindowsPerChunk != 0);
}

}  // namespace weightpress::df11
