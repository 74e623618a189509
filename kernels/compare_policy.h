// What wp_compare and the host code that launches it must agree on.
#pragma once

#include <algorithm>

#include "kernels/kernel_description.h"

namespace weightpress::device {

/// Compares two buffers.
struct CompareKernel {
  static constexpr const char* kModule = "compare";
  static constexpr const char* kEntry = "wp_compare";

  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kMinBlocksOfMultiprocessor = 4;
  static constexpr std::uint32_t kMaxRegisters = 64;
  static constexpr std::uint32_t kMaxStaticSharedBytes = 256;

  static constexpr std::uint32_t kWordBytes = 16;  ///< one load
  static constexpr std::uint32_t kItems = 4;       ///< loads from each buffer that a thread has under way
  static constexpr std::uint32_t kTileBytes = kThreads * kItems * kWordBytes;

  /// In device memory, aligned to 8. Launches add to it: the caller writes the default value, {0, kNone},
  /// before the first one.
  struct Result {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t num_different = 0;        ///< bytes
    std::uint64_t first_different = kNone;  ///< the lowest offset, in bytes
  };

  /// As the entry declares them. a, b: addresses of `bytes` bytes, of any alignment; loads are of 16 bytes
  /// where both have the same remainder by 16, else of one. They may overlap, or be null if bytes is 0.
  struct Parameters {
    std::uint64_t d_a = 0, d_b = 0;
    std::uint64_t bytes = 0;
    std::uint64_t d_result = 0;
  };
  static constexpr std::array<ParameterPlace, 4> kParameters = {{{offsetof(Parameters, d_a), 8},
                                                                 {offsetof(Parameters, d_b), 8},
                                                                 {offsetof(Parameters, bytes), 8},
                                                                 {offsetof(Parameters, d_result), 8}}};

  /// Blocks of a launch. Any number is right; this one fills the GPU and leaves none without work.
  static constexpr std::uint32_t num_blocks(std::uint64_t bytes, std::uint32_t num_multiprocessors) {
    const std::uint64_t num_tiles = bytes / kTileBytes + (bytes % kTileBytes != 0);
    const std::uint64_t most = std::uint64_t{num_multiprocessors} * kMinBlocksOfMultiprocessor;
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, std::min(num_tiles, most)));
  }
};

}  // namespace weightpress::device
