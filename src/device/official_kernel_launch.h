// dfloat11's decode.ptx on a GPU: its text as a module, and launches of it on device memory (docs/format.md,
// "How the official kernel decodes"). Enqueued, nothing waits.
//
// Nothing here looks at the unit. The kernel stays inside its buffers and ends only where our own decoder
// found the chunks sound and said that the kernel ends on the padding: who launches it has asked before. One
// that never ends takes the GPU with it.
#pragma once

#include <cstdint>
#include <string>

#include "device/driver/gpu.h"

namespace weightpress::device {

class OfficialKernelLaunch {
 public:
  /// A slab of whole chunks, or a unit as its only slab. Blocks count from 0 in each launch, so what is found
  /// by chunk begins with the slab's first one, and what is found by output position where weight 0 of the
  /// unit would lie: a slab's address less what comes before it, modulo 2^64.
  struct Parameters {
    CUdeviceptr d_luts = 0;  ///< [256 * luts_rows], of the unit
    /// From the slab's first byte to 32 bits beyond its last chunk, or to the end of the stream.
    CUdeviceptr d_encoded_exponent = 0;
    CUdeviceptr d_sign_mantissa = 0;  ///< of the slab's weights, less the slab's first weight
    /// [num_chunks + 1], aligned to 4: of the slab's chunks and of the next one. Where short output_positions
    /// end, one entry more, of any value.
    CUdeviceptr d_output_positions = 0;
    CUdeviceptr d_gaps = 0;     ///< [320 * num_chunks + 1]: behind the unit's last one, a byte of any value
    CUdeviceptr d_outputs = 0;  ///< 16-bit weights of the slab, less 2 * the slab's first weight

    std::uint32_t luts_rows = 0;  ///< tables, and the row of code lengths
    std::uint32_t stream_bytes =
        0;                          ///< from the slab's first byte to the stream's end; below kMaxStreamBytes
    std::uint32_t num_weights = 0;  ///< of the unit; below kMaxUnitWeights

    std::uint64_t num_chunks = 0;     ///< of the slab, 1 or more
    std::uint64_t chunk_weights = 0;  ///< at least those of the slab's densest chunk
  };

  /// ptx: the known file's text. Throws CudaError, e.g. where the driver is older than the text, and Error
  /// (kDeviceFailed) if it holds a kernel `decode` that takes no blocks of 512 threads.
  OfficialKernelLaunch(const Gpu& gpu, const std::string& ptx);

  /// Throws CudaError, also if a block of the GPU cannot have the shared memory for such chunks (any can for
  /// kMaxChunkWeights).
  void enqueue(const Stream& stream, const Parameters& parameters);

 private:
  GpuModule module_;
  Kernel kernel_;
  std::uint64_t max_shared_bytes_ = 0;  // dynamic, that a launch may ask for
};

}  // namespace weightpress::device
