// DF11 decoding, to weights or to a comparison with the source.
#include "kernels/df11_chunk_decoder.cuh"

namespace weightpress::device {

extern "C" __global__ void __launch_bounds__(DecodeKernel::kThreads, DecodeKernel::kMinBlocksOfMultiprocessor)
    wp_decode(const __grid_constant__ DecodeKernel::Parameters parameters) {
  using Decoder = ChunkDecoder<DecodeKernel>;
  __shared__ typename Decoder::Storage storage;
  Decoder(parameters, storage).run();
}

}  // namespace weightpress::device
