// The official kernel on a GPU, as a runner of slabs.
#pragma once

#include <memory>
#include <string>

#include "device/device_paths.h"
#include "device/official_slab_kernel.h"
#include "job/official_kernel.h"
#include "job/official_kernel_runner.h"

namespace weightpress::job {

class OfficialKernelOnGpu final : public OfficialKernelRunner {
 public:
  /// gpu must outlive the object. Throws Error: kUsage if the file is not the known kernel (what another one
  /// does to a GPU nobody knows), kDeviceFailed.
  OfficialKernelOnGpu(device::GpuPath& gpu, const KernelFile& file);

  const std::string& name() const override { return gpu_.name(); }
  bool is_interpreter() const override { return false; }
  KernelRun run(const KernelSlab& slab) override;

 private:
  device::GpuPath& gpu_;
  std::unique_ptr<device::OfficialSlabKernel> kernel_;
};

}  // namespace weightpress::job
