#include "device/df11_launches.h"

#include <cassert>

#include "format/histogram.h"

namespace weightpress::device {
namespace {

template <class Policy>
void launch(const Stream& stream, const Kernel& kernel, std::uint64_t num_blocks,
            const typename Policy::Parameters& parameters) {
  assert(num_blocks > 0 && num_blocks < std::uint64_t{1} << 31);
  stream.launch(kernel, {static_cast<unsigned>(num_blocks), Policy::kThreads, 0}, parameters);
}

}  // namespace

Df11Launches::Df11Launches(const GpuKernels& kernels)
    : histogram_(kernels.find(HistogramKernel::kEntry)),
      segment_bits_(kernels.find(SegmentBitsKernel::kEntry)),
      segment_offsets_(kernels.find(SegmentOffsetsKernel::kEntry)),
      encode_(kernels.find(EncodeKernel::kEntry)),
      chunk_starts_(kernels.find(ChunkStartsKernel::kEntry)),
      decode_(kernels.find(DecodeKernel::kEntry)),
      small_copy_(kernels.find(SmallCopyKernel::kEntry)) {}

void Df11Launches::histogram(const Stream& stream, const HistogramKernel::Parameters& parameters) const {
  launch<HistogramKernel>(stream, histogram_,
                          df11::num_segments(parameters.num_weights, parameters.segment_weights), parameters);
}

void Df11Launches::segment_bits(const Stream& stream, const SegmentBitsKernel::Parameters& parameters) const {
  constexpr std::uint64_t kEach = SegmentBitsKernel::kSegmentsOfBlock;
  launch<SegmentBitsKernel>(stream, segment_bits_, (parameters.num_segments + kEach - 1) / kEach, parameters);
}

void Df11Launches::segment_offsets(const Stream& stream,
                                   const SegmentOffsetsKernel::Parameters& parameters) const {
  launch<SegmentOffsetsKernel>(stream, segment_offsets_, 1, parameters);
}

void Df11Launches::encode(const Stream& stream, const EncodeKernel::Parameters& parameters) const {
  launch<EncodeKernel>(stream, encode_,
                       df11::num_segments(parameters.num_weights, parameters.segment_weights), parameters);
}

void Df11Launches::chunk_starts(const Stream& stream, const ChunkStartsKernel::Parameters& parameters) const {
  launch<ChunkStartsKernel>(stream, chunk_starts_,
                            df11::num_segments(parameters.num_weights, parameters.segment_weights),
                            parameters);
}

void Df11Launches::decode(const Stream& stream, const DecodeKernel::Parameters& parameters) const {
  launch<DecodeKernel>(stream, decode_, parameters.num_chunks, parameters);
}

void Df11Launches::small_copy(const Stream& stream, CUdeviceptr d_to, CUdeviceptr d_from,
                              std::uint64_t bytes) const {
  assert(bytes % 4 == 0);
  launch<SmallCopyKernel>(stream, small_copy_, 1, {d_to, d_from, bytes / 4});
}

}  // namespace weightpress::device
