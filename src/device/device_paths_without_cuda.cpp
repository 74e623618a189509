// Of a build without the CUDA toolkit, whose headers talking to the driver takes.
#include <weightpress/error.h>

#include "device/device_paths.h"
#include "device/embedded_kernels.h"

namespace weightpress::device {

int count_gpus(std::string& why_none) {
  why_none = "the kernels are " + std::string(why_no_kernels());
  return 0;
}

std::unique_ptr<GpuPath> open_gpu(int /*number*/) {
  std::string why_none;
  count_gpus(why_none);
  throw Error(ErrorCode::kDeviceFailed, why_none);
}

GpuPaths find_gpu_paths() {
  GpuPaths paths;
  count_gpus(paths.why_none);
  return paths;
}

}  // namespace weightpress::device
