// DF11 encoding: histograms, first bits of segments, split and encode; and output positions alone.
#include "kernels/df11_histogram.cuh"
#include "kernels/df11_segment_encoder.cuh"
#include "kernels/df11_segment_places.cuh"
#include "kernels/small_copy.cuh"

namespace weightpress::device {

extern "C" __global__ void __launch_bounds__(HistogramKernel::kThreads,
                                             HistogramKernel::kMinBlocksOfMultiprocessor)
    wp_histogram(const __grid_constant__ HistogramKernel::Parameters parameters) {
  using Histogram = SegmentHistogram<HistogramKernel>;
  __shared__ typename Histogram::Storage storage;
  Histogram::run(parameters, storage);
}

extern "C" __global__ void __launch_bounds__(SegmentBitsKernel::kThreads,
                                             SegmentBitsKernel::kMinBlocksOfMultiprocessor)
    wp_segment_bits(const __grid_constant__ SegmentBitsKernel::Parameters parameters) {
  SegmentBits<SegmentBitsKernel>::run(parameters);
}

extern "C" __global__ void __launch_bounds__(SegmentOffsetsKernel::kThreads,
                                             SegmentOffsetsKernel::kMinBlocksOfMultiprocessor)
    wp_segment_offsets(const __grid_constant__ SegmentOffsetsKernel::Parameters parameters) {
  using Offsets = SegmentOffsets<SegmentOffsetsKernel>;
  __shared__ typename Offsets::Storage storage;
  Offsets::run(parameters, storage);
}

extern "C" __global__ void __launch_bounds__(EncodeKernel::kThreads, EncodeKernel::kMinBlocksOfMultiprocessor)
    wp_encode(const __grid_constant__ EncodeKernel::Parameters parameters) {
  using Encoder = SegmentEncoder<EncodeKernel, true>;
  static_assert(sizeof(Encoder::Storage) <= EncodeKernel::kMaxStaticSharedBytes);
  __shared__ typename Encoder::Storage storage;
  Encoder(parameters, storage.places, storage.buffers).run();
}

extern "C" __global__ void __launch_bounds__(ChunkStartsKernel::kThreads,
                                             ChunkStartsKernel::kMinBlocksOfMultiprocessor)
    wp_chunk_starts(const __grid_constant__ ChunkStartsKernel::Parameters parameters) {
  static_assert(sizeof(RunPlacesStorage) <= ChunkStartsKernel::kMaxStaticSharedBytes);
  __shared__ RunPlacesStorage places;
  SegmentEncoder<EncodeKernel, false>(parameters, places, nullptr).run();
}

extern "C" __global__ void __launch_bounds__(SmallCopyKernel::kThreads,
                                             SmallCopyKernel::kMinBlocksOfMultiprocessor)
    wp_small_copy(const __grid_constant__ SmallCopyKernel::Parameters parameters) {
  small_copy<SmallCopyKernel>(parameters);
}

}  // namespace weightpress::device
