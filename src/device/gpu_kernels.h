// The built-in kernels on a GPU: the cubin of its architecture, else the PTX text.
#pragma once

#include <string>
#include <vector>

#include "device/driver/gpu.h"

namespace weightpress::device {

class GpuKernels {
 public:
  /// Throws Error: no image that the GPU and driver take. What was tried is in its message.
  explicit GpuKernels(const Gpu& gpu);

  /// "cubin for sm_90", "PTX for compute_75"
  const std::string& image() const { return image_; }
  /// Images that did not load before that one: clauses.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Of kernels/kernel_policy.h, by its entry. Throws CudaError if it is not there.
  Kernel find(const char* entry) const;

 private:
  std::string image_;
  std::vector<std::string> notes_;
  std::vector<GpuModule> modules_;
};

}  // namespace weightpress::device
