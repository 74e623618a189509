// What the units of a pipeline share: a GPU's streams, and pinned memory at both ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device/df11_launches.h"
#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/official_kernel_launch.h"
#include "device/pinned_ring.h"
#include "kernels/compare_policy.h"

namespace weightpress::device {

struct PipelineStreams {
  /// slab_weights: of a part of the ring for weights; piece_bytes: of one for buffers; official_ptx: as in
  /// UnitPipelineSizes. Throws Error.
  PipelineStreams(const Gpu& of_gpu, const GpuKernels& kernels, std::uint64_t slab_weights,
                  std::uint64_t piece_bytes, const std::string& official_ptx)
      : gpu(of_gpu),
        launches(kernels),
        compare(kernels.find(CompareKernel::kEntry)),
        in(of_gpu),
        count(of_gpu),
        compute(of_gpu),
        out(of_gpu),
        in_ring(of_gpu, slab_weights * sizeof(std::uint16_t)),
        out_ring(of_gpu, piece_bytes) {
    if (!official_ptx.empty()) official.emplace(of_gpu, official_ptx);
  }

  std::uint64_t slab_weights() const { return in_ring.bytes_each() / sizeof(std::uint16_t); }
  /// Waits for all four.
  void synchronize() const {
    in.wait();
    count.wait();
    compute.wait();
    out.wait();
  }

  const Gpu& gpu;
  const Df11Launches launches;
  const Kernel compare;
  std::optional<OfficialKernelLaunch> official;
  // Counting has a stream of its own: encoding must not wait for the weights of later units.
  const Stream in, count, compute, out;
  PinnedRing in_ring, out_ring;
};

}  // namespace weightpress::device
