#include "device/tile_ans_launches.h"

#include <algorithm>
#include <cassert>

namespace weightpress::device {

TileAnsLaunches::TileAnsLaunches(const Gpu& gpu, const GpuKernels& kernels)
    : num_multiprocessors_(static_cast<std::uint64_t>(std::max(1, gpu.info().num_multiprocessors))),
      histogram_(kernels.find(TileAnsHistogramKernel::kEntry)),
      sizes_(kernels.find(TileAnsSizesKernel::kEntry)),
      encode_(kernels.find(TileAnsEncodeKernel::kEntry)),
      decode_(kernels.find(TileAnsDecodeKernel::kEntry)) {}

void TileAnsLaunches::histogram(const Stream& stream, TileAnsHistogramKernel::Parameters parameters) const {
  using Policy = TileAnsHistogramKernel;
  assert(parameters.num_bytes > 0);
  const std::uint64_t wanted_blocks = num_multiprocessors_ * Policy::kMinBlocksOfMultiprocessor;
  parameters.block_bytes = std::clamp((parameters.num_bytes / wanted_blocks + 16) / 16 * 16,
                                      Policy::kMinBlockBytes, Policy::kMaxBlockBytes);
  const std::uint64_t num_blocks = (parameters.num_bytes - 1) / parameters.block_bytes + 1;
  assert(num_blocks < std::uint64_t{1} << 31);
  stream.launch(histogram_, {static_cast<unsigned>(num_blocks), Policy::kThreads, 0}, parameters);
}

unsigned TileAnsLaunches::num_blocks(std::uint64_t num_batches, const Kernel& kernel,
                                     std::uint32_t num_threads, std::uint32_t shared_bytes) const {
  const int active = kernel.max_active_blocks({1, num_threads, shared_bytes});
  const std::uint64_t most = num_multiprocessors_ * static_cast<std::uint64_t>(std::max(1, active));
  return static_cast<unsigned>(std::clamp<std::uint64_t>(num_batches, 1, most));
}

void TileAnsLaunches::sizes(const Stream& stream, const TileAnsEncodeKernel::Parameters& parameters) const {
  using Policy = TileAnsSizesKernel;
  const std::uint32_t shared_bytes = parameters.num_tables * TileAnsEncodeKernel::kTableBytes;
  const unsigned blocks = num_blocks((parameters.num_tiles - 1) / TileAnsEncodeKernel::kTilesOfBatch + 1,
                                     sizes_, Policy::kThreads, shared_bytes);
  stream.launch(sizes_, {blocks, Policy::kThreads, shared_bytes}, parameters);
}

void TileAnsLaunches::encode(const Stream& stream, const TileAnsEncodeKernel::Parameters& parameters) const {
  using Policy = TileAnsEncodeKernel;
  assert(parameters.num_batches == (parameters.num_tiles - 1) / Policy::kTilesOfBatch + 1 &&
         parameters.num_batches < std::uint64_t{1} << 31);
  const std::uint32_t shared_bytes =
      parameters.num_tables * Policy::kTableBytes + Policy::kTilesOfBatch * parameters.warp_words * 2;
  assert(shared_bytes <= Policy::kMaxDynamicSharedBytes);
  const unsigned blocks = num_blocks(parameters.num_batches, encode_, Policy::kThreads, shared_bytes);
  stream.launch(encode_, {blocks, Policy::kThreads, shared_bytes}, parameters);
}

void TileAnsLaunches::decode(const Stream& stream, const TileAnsDecodeKernel::Parameters& parameters) const {
  using Policy = TileAnsDecodeKernel;
  const std::uint32_t shared_bytes = Policy::shared_bytes(parameters.num_tables, parameters.probability_bits);
  const unsigned blocks = num_blocks((parameters.num_tiles - 1) / Policy::kTilesOfBlock + 1, decode_,
                                     Policy::kThreads, shared_bytes);
  stream.launch(decode_, {blocks, Policy::kThreads, shared_bytes}, parameters);
}

}  // namespace weightpress::device
