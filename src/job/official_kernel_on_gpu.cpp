#include "job/official_kernel_on_gpu.h"

#include <utility>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::job {
namespace {

/// What a GPU has too little of is the GPU's failure: the machine's memory is something else.
template <class Call>
auto on_gpu(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw Error(ErrorCode::kDeviceFailed, error.what());
  }
}

}  // namespace

OfficialKernelOnGpu::OfficialKernelOnGpu(device::GpuPath& gpu, const KernelFile& file) : gpu_(gpu) {
  if (!file.is_known) {
    throw Error(ErrorCode::kUsage,
                model::printable(file.path.native()) +
                    " is not the known official kernel, and only that one is run on a GPU");
  }
  kernel_ = on_gpu([&] { return gpu.load_official_kernel(file.text); });
}

KernelRun OfficialKernelOnGpu::run(const KernelSlab& slab) {
  KernelRun run;
  run.counts.seconds = on_gpu([&] { return kernel_->decode(slab.arguments, slab.densest_chunk); });
  run.counts.num_chunks = slab.num_chunks();
  run.counts.num_weights = slab.arguments.weights.size();
  return run;
}

}  // namespace weightpress::job
