// Launches of the Tile-ANS kernels, on device memory: enqueued, nothing waits. What the parameters mean is in
// kernels/tile_ans_policy.h.
#pragma once

#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "kernels/tile_ans_policy.h"

namespace weightpress::device {

class TileAnsLaunches {
 public:
  /// Throws CudaError.
  TileAnsLaunches(const Gpu& gpu, const GpuKernels& kernels);

  /// block_bytes is set by the call; num_bytes: 1 or more.
  void histogram(const Stream& stream, TileAnsHistogramKernel::Parameters parameters) const;
  // Tiles: at least one. Batches of tiles: below 2^31.
  void sizes(const Stream& stream, const TileAnsEncodeKernel::Parameters& parameters) const;
  void encode(const Stream& stream, const TileAnsEncodeKernel::Parameters& parameters) const;
  void decode(const Stream& stream, const TileAnsDecodeKernel::Parameters& parameters) const;

 private:
  /// Blocks that go from batch to batch of tiles: no more than are of use, and enough to fill the GPU.
  unsigned num_blocks(std::uint64_t num_batches, const Kernel& kernel, std::uint32_t num_threads,
                      std::uint32_t shared_bytes) const;

  std::uint64_t num_multiprocessors_;
  Kernel histogram_, sizes_, encode_, decode_;
};

}  // namespace weightpress::device
