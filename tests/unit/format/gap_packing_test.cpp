#include "format/gap_packing.h"

#include <array>

#include <gtest/gtest.h>

namespace weightpress::df11 {
namespace {

TEST(GapPacking, EachBitOfEachGapStandsWhereThePictureSays) {
  for (std::uint32_t gap = 0; gap < kWindowsPerGapGroup; ++gap) {
    for (std::uint32_t bit = 0; bit < kGapBits; ++bit) {
      std::array<std::uint8_t, kWindowsPerGapGroup> gaps{};
      std::array<std::uint8_t, kGapGroupBytes> packed;
      packed.fill(0xFF);
      gaps[gap] = static_cast<std::uint8_t>(1u << bit);
      pack_gap_group(gaps.data(), packed.data());
      const std::uint32_t place = gap * kGapBits + (kGapBits - 1 - bit);  // from the first byte's highest bit
      for (std::uint32_t i = 0; i < kGapGroupBytes * 8; ++i) {
        ASSERT_EQ((packed[i / 8] >> (7 - i % 8)) & 1, i == place)
            << "gap " << gap << " bit " << bit << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace weightpress::df11
