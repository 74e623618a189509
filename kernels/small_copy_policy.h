// What wp_small_copy and the host code that launches it must agree on.
#pragma once

#include "kernels/kernel_description.h"

namespace weightpress::device {

struct SmallCopyKernel {
  static constexpr const char* kModule = "df11_encode";
  static constexpr const char* kEntry = "wp_small_copy";

  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 0;

  /// Addresses that the device knows, aligned to 4: pinned memory by PinnedBuffer::device_address().
  struct Parameters {
    std::uint64_t d_to = 0, d_from = 0;
    std::uint64_t num_words = 0;  ///< of 4 bytes
  };
  static constexpr std::array<ParameterPlace, 1> kParameters = {{{0, sizeof(Parameters)}}};
};

}  // namespace weightpress::device
