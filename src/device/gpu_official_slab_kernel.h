// OfficialSlabKernel with the driver. Its device memory is that of the largest slab so far: up to 21 MB for
// 128 chunks.
#pragma once

#include <span>
#include <string>

#include "device/driver/gpu.h"
#include "device/growing_device_buffer.h"
#include "device/official_kernel_launch.h"
#include "device/official_slab_kernel.h"

namespace weightpress::device {

class GpuOfficialSlabKernel final : public OfficialSlabKernel {
 public:
  /// Throws as OfficialKernelLaunch.
  GpuOfficialSlabKernel(const Gpu& gpu, const std::string& ptx);
  ~GpuOfficialSlabKernel() override;

  double decode(const df11::DecodeArguments& slab, std::uint64_t chunk_weights) override;

 private:
  OfficialKernelLaunch::Parameters copy_in(const df11::DecodeArguments& slab);
  template <class T>
  CUdeviceptr copy_in(GrowingDeviceBuffer& buffer, std::span<const T> values, std::uint64_t slack_bytes = 0);

  const Gpu& gpu_;
  OfficialKernelLaunch launch_;
  Stream stream_;
  Event begin_, end_;
  GrowingDeviceBuffer d_luts_, d_encoded_exponent_, d_sign_mantissa_, d_positions_, d_gaps_, d_outputs_;
};

}  // namespace weightpress::device
