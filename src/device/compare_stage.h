// Compares two buffers in device memory.
#pragma once

#include <cstdint>

#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"

namespace weightpress::device {

struct Comparison {
  std::uint64_t num_different = 0;                    ///< bytes
  std::uint64_t first_different = ~std::uint64_t{0};  ///< the lowest offset; all ones if none differs
};

class CompareStage {
 public:
  CompareStage(const Gpu& gpu, const GpuKernels& kernels);

  /// Enqueues. d_a, d_b: device addresses of `bytes` bytes. All must stay until the stream is waited for.
  void enqueue(const Stream& stream, CUdeviceptr d_a, CUdeviceptr d_b, std::uint64_t bytes);
  /// Valid after the stream has been waited for, until the next enqueue().
  Comparison result() const;

 private:
  const Gpu& gpu_;
  Kernel kernel_;
  DeviceBuffer d_result_;
  PinnedBuffer result_;
};

}  // namespace weightpress::device
