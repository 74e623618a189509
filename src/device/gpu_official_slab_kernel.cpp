#include "device/gpu_official_slab_kernel.h"

#include <algorithm>
#include <cassert>

#include "format/df11_constants.h"

namespace weightpress::device {
namespace {

/// A call where nothing can be done about a broken GPU, or something else is told already.
template <class Call>
bool try_call(const Call& call) noexcept {
  try {
    call();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

GpuOfficialSlabKernel::GpuOfficialSlabKernel(const Gpu& gpu, const std::string& ptx)
    : gpu_(gpu),
      launch_(gpu, ptx),
      stream_(gpu),
      begin_(gpu, Event::Timing::kYes),
      end_(gpu, Event::Timing::kYes) {}

/// What follows is given back by this thread, which may have used another GPU since.
GpuOfficialSlabKernel::~GpuOfficialSlabKernel() {
  try_call([this] { gpu_.use(); });
}

double GpuOfficialSlabKernel::decode(const df11::DecodeArguments& slab, std::uint64_t chunk_weights) {
  gpu_.use();
  try {
    OfficialKernelLaunch::Parameters parameters = copy_in(slab);
    parameters.chunk_weights = chunk_weights;
    stream_.record(begin_);
    launch_.enqueue(stream_, parameters);
    stream_.record(end_);
    stream_.copy_to_host(slab.weights.data(), d_outputs_.get(), slab.weights.size_bytes());
    stream_.wait();
    return begin_.milliseconds_to(end_) / 1e3;
  } catch (...) {
    try_call([this] { stream_.wait(); });  // nothing of the call is left under way
    throw;
  }
}

template <class T>
CUdeviceptr GpuOfficialSlabKernel::copy_in(GrowingDeviceBuffer& buffer, std::span<const T> values,
                                           std::uint64_t slack_bytes) {
  const CUdeviceptr d_values = buffer.get(gpu_, values.size_bytes() + slack_bytes);
  stream_.copy_to_device(d_values, values.data(), values.size_bytes());
  return d_values;
}

OfficialKernelLaunch::Parameters GpuOfficialSlabKernel::copy_in(const df11::DecodeArguments& slab) {
  const std::uint64_t num_chunks = slab.positions.size() - 1;
  const std::uint64_t first_weight = slab.positions.front();
  const std::uint64_t first_byte = slab.first_chunk * df11::kChunkBytes;
  const std::uint64_t left_bytes = slab.stream_bytes - first_byte;
  const std::uint64_t gaps_bytes = num_chunks * df11::kGapBytesPerChunk;
  assert(slab.sign_mantissa.size() == slab.positions.back() - first_weight);
  assert(slab.weights.size() == slab.sign_mantissa.size() && slab.gaps.size() >= gaps_bytes);
  assert(slab.encoded_exponent.size() >=
         std::min<std::uint64_t>(left_bytes, num_chunks * df11::kChunkBytes + df11::kDecodeLookaheadBytes));

  OfficialKernelLaunch::Parameters parameters;
  parameters.d_luts = copy_in(d_luts_, slab.luts);
  parameters.d_encoded_exponent = copy_in(d_encoded_exponent_, slab.encoded_exponent);
  parameters.d_sign_mantissa = copy_in(d_sign_mantissa_, slab.sign_mantissa) - first_weight;
  parameters.d_output_positions = copy_in(d_positions_, slab.positions);
  // The last window's gap is taken out of two bytes, though it lies in one. What the unit does not have
  // there, it does not use.
  parameters.d_gaps = copy_in(d_gaps_, slab.gaps, 1);
  if (slab.gaps.size() == gaps_bytes) stream_.fill(parameters.d_gaps + gaps_bytes, 0, 1);
  parameters.d_outputs = copy_in<std::uint16_t>(d_outputs_, slab.weights) - 2 * first_weight;
  parameters.luts_rows = static_cast<std::uint32_t>(slab.luts.size() / df11::kNumSymbols);
  parameters.stream_bytes = static_cast<std::uint32_t>(left_bytes);
  parameters.num_weights = static_cast<std::uint32_t>(slab.num_weights);
  parameters.num_chunks = num_chunks;
  return parameters;
}

}  // namespace weightpress::device
