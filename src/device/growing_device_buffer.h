// Device memory that grows as it is needed.
#pragma once

#include <cstdint>

#include "device/driver/gpu.h"

namespace weightpress::device {

class GrowingDeviceBuffer {
 public:
  /// Aligned to 256. What it held is gone if it grows. bytes: 0 is allowed. Throws CudaError.
  CUdeviceptr get(const Gpu& gpu, std::uint64_t bytes) {
    if (bytes > buffer_.size_bytes()) {
      buffer_ = {};  // first: both need not fit
      buffer_ = DeviceBuffer(gpu, bytes);
    }
    return buffer_.get();
  }
  CUdeviceptr get() const { return buffer_.get(); }
  void release() { buffer_ = {}; }
  std::uint64_t size_bytes() const { return buffer_.size_bytes(); }

 private:
  DeviceBuffer buffer_;
};

}  // namespace weightpress::device
