// What is known of every kernel, for whoever checks, loads or launches it. No CUDA header is needed.
//
// How kernels are compiled, and for which architectures, is kernels/CMakeLists.txt's matter. The budgets of a
// policy are launch bounds, so that ptxas keeps to them, and tests/unit/device/ptxas_report_test.cpp holds
// every architecture's code to all that its description says.
#pragma once

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

}  // namespace weightpress::device
