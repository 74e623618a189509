// Launches of the DF11 kernels, on device memory: enqueued, nothing waits. What the parameters mean is in
// kernels/df11_policy.h.
#pragma once

#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "kernels/df11_policy.h"
#include "kernels/small_copy_policy.h"

namespace weightpress::device {

class Df11Launches {
 public:
  /// Throws CudaError.
  explicit Df11Launches(const GpuKernels& kernels);

  // One block a segment, or a chunk: at least one, and below 2^31.
  void histogram(const Stream& stream, const HistogramKernel::Parameters& parameters) const;
  void segment_bits(const Stream& stream, const SegmentBitsKernel::Parameters& parameters) const;
  void segment_offsets(const Stream& stream, const SegmentOffsetsKernel::Parameters& parameters) const;
  void encode(const Stream& stream, const EncodeKernel::Parameters& parameters) const;
  void chunk_starts(const Stream& stream, const ChunkStartsKernel::Parameters& parameters) const;
  void decode(const Stream& stream, const DecodeKernel::Parameters& parameters) const;
  /// A few kilobytes, a multiple of 4 bytes.
  void small_copy(const Stream& stream, CUdeviceptr d_to, CUdeviceptr d_from, std::uint64_t bytes) const;

 private:
  Kernel histogram_, segment_bits_, segment_offsets_, encode_, chunk_starts_, decode_, small_copy_;
};

}  // namespace weightpress::device
