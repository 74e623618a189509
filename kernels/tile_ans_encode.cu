// Tile-ANS encoding: histograms of lanes, words of streams, and streams.
#include "kernels/tile_ans_encoder.cuh"
#include "kernels/tile_ans_histogram.cuh"

namespace weightpress::device {

extern __shared__ uint4 dynamic_shared[];

extern "C" __global__ void __launch_bounds__(TileAnsHistogramKernel::kThreads,
                                             TileAnsHistogramKernel::kMinBlocksOfMultiprocessor)
    wp_tile_ans_histogram(const __grid_constant__ TileAnsHistogramKernel::Parameters parameters) {
  using Histogram = TileAnsHistogram<TileAnsHistogramKernel>;
  __shared__ typename Histogram::Storage storage;
  Histogram::run(parameters, storage);
}

extern "C" __global__ void __launch_bounds__(TileAnsEncodeKernel::kThreads,
                                             TileAnsEncodeKernel::kMinBlocksOfMultiprocessor)
    wp_tile_ans_encode(const __grid_constant__ TileAnsEncodeKernel::Parameters parameters) {
  using Kernel = TileAnsEncodeKernel;
  static_assert(sizeof(TileAnsEncodeStorage) <= Kernel::kMaxStaticSharedBytes);
  __shared__ TileAnsEncodeStorage storage;
  char* const shared = reinterpret_cast<char*>(dynamic_shared);
  switch (parameters.num_lanes) {
    case 1:
      return TileAnsSlabEncoder<Kernel, 1>(parameters, storage, shared).run();
    case 2:
      return TileAnsSlabEncoder<Kernel, 2>(parameters, storage, shared).run();
    case 4:
      return TileAnsSlabEncoder<Kernel, 4>(parameters, storage, shared).run();
    default:
      return TileAnsSlabEncoder<Kernel, 8>(parameters, storage, shared).run();
  }
}

extern "C" __global__ void __launch_bounds__(TileAnsSizesKernel::kThreads,
                                             TileAnsSizesKernel::kMinBlocksOfMultiprocessor)
    wp_tile_ans_sizes(const __grid_constant__ TileAnsSizesKernel::Parameters parameters) {
  using Kernel = TileAnsEncodeKernel;
  char* const shared = reinterpret_cast<char*>(dynamic_shared);
  switch (parameters.num_lanes) {
    case 1:
      return count_tile_ans_words<Kernel, 1>(parameters, shared);
    case 2:
      return count_tile_ans_words<Kernel, 2>(parameters, shared);
    case 4:
      return count_tile_ans_words<Kernel, 4>(parameters, shared);
    default:
      return count_tile_ans_words<Kernel, 8>(parameters, shared);
  }
}

}  // namespace weightpress::device
