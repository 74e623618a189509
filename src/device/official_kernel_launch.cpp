#include "device/official_kernel_launch.h"

#include <algorithm>
#include <cassert>

#include "format/df11_constants.h"

namespace weightpress::device {
namespace {

constexpr const char* kEntry = "decode";

}  // namespace

OfficialKernelLaunch::OfficialKernelLaunch(const Gpu& gpu, const std::string& ptx)
    : module_(gpu, ptx.c_str()), kernel_(module_.kernel(kEntry)) {
  const int most_threads = kernel_.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (most_threads < static_cast<int>(df11::kWindowsPerChunk)) {
    throw Error(ErrorCode::kDeviceFailed, "the official kernel cannot be launched on " + gpu.info().name +
                                              ": it takes " + std::to_string(most_threads) +
                                              " threads a block there, not " +
                                              std::to_string(df11::kWindowsPerChunk));
  }
  max_shared_bytes_ = static_cast<std::uint64_t>(
      std::max(kernel_.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 0));
}

void OfficialKernelLaunch::enqueue(const Stream& stream, const Parameters& parameters) {
  assert(parameters.num_chunks > 0 && parameters.num_chunks <= df11::kMaxStreamBytes / df11::kChunkBytes);
  assert(parameters.stream_bytes < df11::kMaxStreamBytes && parameters.num_weights < df11::kMaxUnitWeights);
  const std::uint64_t shared_bytes = df11::official_shared_bytes(parameters.chunk_weights);
  if (shared_bytes > max_shared_bytes_) {
    kernel_.allow_shared_bytes(static_cast<unsigned>(shared_bytes));
    max_shared_bytes_ = shared_bytes;
  }
  const LaunchShape shape{static_cast<unsigned>(parameters.num_chunks), df11::kWindowsPerChunk,
                          static_cast<unsigned>(shared_bytes)};
  stream.launch(kernel_, shape, parameters.d_luts, parameters.d_encoded_exponent, parameters.d_sign_mantissa,
                parameters.d_output_positions, parameters.d_gaps, parameters.d_outputs, parameters.luts_rows,
                parameters.stream_bytes, parameters.num_weights);
}

}  // namespace weightpress::device
