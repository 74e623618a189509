#include "device/compare_stage.h"

#include <cstring>

#include "kernels/kernel_policy.h"

namespace weightpress::device {

CompareStage::CompareStage(const Gpu& gpu, const GpuKernels& kernels)
    : gpu_(gpu),
      kernel_(kernels.find(CompareKernel::kEntry)),
      d_result_(gpu, sizeof(CompareKernel::Result)),
      result_(gpu, 2 * sizeof(CompareKernel::Result)) {
  const CompareKernel::Result empty;
  std::memcpy(result_.data() + sizeof empty, &empty, sizeof empty);  // what the device's copy begins as
}

void CompareStage::enqueue(const Stream& stream, CUdeviceptr d_a, CUdeviceptr d_b, std::uint64_t bytes) {
  constexpr std::size_t kBytes = sizeof(CompareKernel::Result);
  stream.copy_to_device(d_result_.get(), result_.data() + kBytes, kBytes);
  const LaunchShape shape{
      CompareKernel::num_blocks(bytes, static_cast<std::uint32_t>(gpu_.info().num_multiprocessors)),
      CompareKernel::kThreads, 0};
  stream.launch(kernel_, shape, d_a, d_b, bytes, d_result_.get());
  stream.copy_to_host(result_.data(), d_result_.get(), kBytes);
}

Comparison CompareStage::result() const {
  CompareKernel::Result result;
  std::memcpy(&result, result_.data(), sizeof result);
  return {result.num_different, result.first_different};
}

}  // namespace weightpress::device
