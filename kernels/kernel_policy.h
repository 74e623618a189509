// What a kernel and the host code that launches it must agree on, once for both: names, sizes of blocks,
// budgets of registers and shared memory, parameters. No CUDA header is needed.
//
// How kernels are compiled, and for which architectures, is kernels/CMakeLists.txt's matter. The budgets are
// launch bounds, so that ptxas keeps to them, and tests/unit/device/ptxas_report_test.cpp holds every
// architecture's code to all that kKernels says.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weightpress::device {

/// Of every architecture that kernels are compiled for.
inline constexpr std::uint32_t kRegistersOfMultiprocessor = 65'536;

/// The architectures that there is a cubin for, and the one of the PTX text: 10 * major + minor.
inline constexpr std::array kCubinArchs = {75, 80, 86, 89, 90, 100, 120};
inline constexpr int kPtxArch = 75;

struct ParameterPlace {
  std::uint32_t offset_bytes = 0;
  std::uint32_t size_bytes = 0;
};

/// Of a kernel, for whoever checks or loads them all.
struct KernelDescription {
  const char* module = nullptr;  ///< the source's name: kernels/<module>.cu
  const char* entry = nullptr;
  std::uint32_t num_threads = 0;  ///< of a block, along x
  std::uint32_t max_registers = 0;
  std::uint32_t max_static_shared_bytes = 0;
  std::uint32_t parameter_bytes = 0;
  std::span<const ParameterPlace> parameters;
};

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

template <class Kernel>
constexpr KernelDescription describe() {
  static_assert(Kernel::kThreads % 32 == 0 && Kernel::kThreads <= 1024);
  static_assert(Kernel::kMaxRegisters <= 255);
  static_assert(Kernel::kThreads * Kernel::kMinBlocksOfMultiprocessor * Kernel::kMaxRegisters <=
                kRegistersOfMultiprocessor);
  return {Kernel::kModule,
          Kernel::kEntry,
          Kernel::kThreads,
          Kernel::kMaxRegisters,
          Kernel::kMaxStaticSharedBytes,
          sizeof(typename Kernel::Parameters),
          Kernel::kParameters};
}

inline constexpr std::array kKernels = {describe<CompareKernel>()};

}  // namespace weightpress::device
