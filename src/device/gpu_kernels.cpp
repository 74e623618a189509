#include "device/gpu_kernels.h"

#include <algorithm>

#include "device/embedded_kernels.h"
#include "kernels/kernel_policy.h"

namespace weightpress::device {
namespace {

std::string sm(int arch) {
  return "sm_" + std::to_string(arch);
}

}  // namespace

GpuKernels::GpuKernels(const Gpu& gpu) {
  const std::string own = sm(gpu.info().arch);
  // A cubin also runs on GPUs of the same generation that came later.
  const auto runs_on = [&](int arch) { return arch / 10 == gpu.info().arch / 10 && arch <= gpu.info().arch; };
  int best = 0;
  for (const EmbeddedImage& image : embedded_images())
    if (image.arch != 0 && runs_on(image.arch)) best = std::max(best, image.arch);
  if (best == 0) notes_.push_back("there is no cubin for " + own);
  std::vector<int> candidates = {0};
  if (best != 0) candidates.insert(candidates.begin(), best);
  for (const int arch : candidates) {
    const std::string name = arch != 0 ? "cubin for " + sm(arch) : "PTX";
    try {
      std::vector<GpuModule> modules;
      std::string what = name;
      for (const EmbeddedImage& image : embedded_images()) {
        if (image.arch != arch) continue;
        modules.emplace_back(gpu, image.bytes.data());
        if (arch == 0) what = "PTX for compute_" + std::to_string(kPtxArch);
      }
      if (modules.empty()) continue;
      modules_ = std::move(modules);
      image_ = what;
      return;
    } catch (const CudaError& error) {
      notes_.push_back(name + ": " + error.what());
    }
  }
  std::string message = "no kernels of this build run on " + gpu.info().name + " (" + own + ")";
  for (const std::string& note : notes_) message += "; " + note;
  throw Error(ErrorCode::kDeviceFailed, message);
}

Kernel GpuKernels::find(const char* entry) const {
  for (std::size_t i = 0; i + 1 < modules_.size(); ++i) {
    try {
      return modules_[i].kernel(entry);
    } catch (const CudaError& error) {
      if (error.result() != CUDA_ERROR_NOT_FOUND) throw;
    }
  }
  return modules_.back().kernel(entry);
}

}  // namespace weightpress::device
