// Tile-ANS decoding, to elements or to a comparison with the source.
#include "kernels/tile_ans_decoder.cuh"

namespace weightpress::device {

extern __shared__ uint4 dynamic_shared[];

extern "C" __global__ void __launch_bounds__(TileAnsDecodeKernel::kThreads,
                                             TileAnsDecodeKernel::kMinBlocksOfMultiprocessor)
    wp_tile_ans_decode(const __grid_constant__ TileAnsDecodeKernel::Parameters parameters) {
  using Kernel = TileAnsDecodeKernel;
  char* const shared = reinterpret_cast<char*>(dynamic_shared);
  switch (parameters.num_lanes) {
    case 1:
      return TileAnsTileDecoder<Kernel, 1>::run(parameters, shared);
    case 2:
      return TileAnsTileDecoder<Kernel, 2>::run(parameters, shared);
    case 4:
      return TileAnsTileDecoder<Kernel, 4>::run(parameters, shared);
    default:
      return TileAnsTileDecoder<Kernel, 8>::run(parameters, shared);
  }
}

}  // namespace weightpress::device
