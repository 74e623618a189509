// The first module: compares two buffers on the device. Whoever can load and run it has the whole chain of
// kernel build, embedding, driver and launch.
#include "kernels/buffer_comparison.cuh"

namespace weightpress::device {

using Kernel = CompareKernel;

/// Adds to what the result holds: see Kernel::Result.
extern "C" __global__ void __launch_bounds__(Kernel::kThreads, Kernel::kMinBlocksOfMultiprocessor)
    wp_compare(const std::uint8_t* a, const std::uint8_t* b, std::uint64_t bytes, Kernel::Result* result) {
  using Comparison = BufferComparison<Kernel>;
  __shared__ typename Comparison::Storage storage;
  Comparison::run(a, b, bytes, result, storage);
}

}  // namespace weightpress::device
