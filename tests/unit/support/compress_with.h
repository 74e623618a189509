// A unit through the compressor with any stages, in memory.
#pragma once

#include <cstdint>
#include <span>

#include "job/unit_compressor.h"
#include "job/unit_memory.h"

namespace weightpress::testing {

/// segment_weights: 0 for the usual ones.
inline Df11Unit compress_with(df11::Df11Stages& stages, std::span<const std::uint16_t> weights,
                              std::uint64_t segment_weights = 0,
                              std::uint64_t slab_weights = job::UnitCompressorOptions{}.slab_weights) {
  job::MemorySource source(weights);
  job::MemorySink sink;
  job::SlabBuffers buffers;
  job::UnitCompressorOptions options;
  options.segment_weights = segment_weights;
  options.slab_weights = slab_weights;
  job::compress_unit("unit", source, sink, stages, buffers, options).value();
  return sink.unit;
}

}  // namespace weightpress::testing
