// The official kernel on a GPU, slab by slab, from and to the host's memory. No CUDA header is needed.
#pragma once

#include <cstdint>

#include "format/decode_stage.h"

namespace weightpress::device {

/// Belongs to its GpuPath, which must outlive it. One caller at a time.
class OfficialSlabKernel {
 public:
  virtual ~OfficialSlabKernel() = default;

  /// Copies the slab in, launches the kernel over its chunks, copies its weights out, and waits. Returns the
  /// seconds that the kernel took.
  ///
  /// slab: as for a Df11DecodeStage, with sign_mantissa and weights; no source. What `weights` holds is what
  /// the kernel's outputs are before it runs. Preconditions: our own decoder found the slab sound and, where
  /// it has the unit's last chunk, says that the kernel ends; the unit is below kMaxUnitWeights and
  /// kMaxStreamBytes. chunk_weights: at least those of the slab's densest chunk.
  ///
  /// Throws Error; then the weights are unspecified. kOutOfMemory: of the GPU, and it goes on working.
  virtual double decode(const df11::DecodeArguments& slab, std::uint64_t chunk_weights) = 0;
};

}  // namespace weightpress::device
