#include "format/slab_border.h"

namespace weightpress::df11 {

void SlabJoiner::add(std::span<std::uint8_t> encoded_exponent, std::span<std::uint8_t> gaps,
                     const SlabBorder& border) {
  // A slab that completes nothing leaves the carried bits to the next one.
  SlabBorder next = border;
  if (encoded_exponent.empty()) {
    next.byte |= carried_.byte;
  } else {
    encoded_exponent.front() |= carried_.byte;
  }
  for (std::uint32_t i = 0; i < kGapGroupBytes; ++i) {
    if (gaps.empty()) {
      next.gap_group[i] |= carried_.gap_group[i];
    } else {
      gaps[i] |= carried_.gap_group[i];
    }
  }
  carried_ = next;
}

}  // namespace weightpress::df11
