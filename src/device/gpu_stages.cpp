#include "device/gpu_stages.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "device/encode_tables.h"
#include "format/bf16_fields.h"
#include "format/open_windows.h"

namespace weightpress::device {
namespace {

std::uint64_t group_floor(std::uint64_t bit) {
  return bit / kGroupBits * kGroupBits;
}

constexpr std::uint8_t kEveryBit =
    0xFF;  // EncodeStatusWord::kOk and DecodeKernel::Result::kNone, byte by byte
static_assert(EncodeStatusWord::kOk == ~std::uint64_t{0} && DecodeKernel::Result::kNone == ~std::uint64_t{0});

}  // namespace

void throw_nonsense(const std::string& what) {
  throw Error(ErrorCode::kDeviceFailed, "the GPU returned what none of its kernels writes: " + what);
}

df11::StageStatus encode_status(std::uint64_t status_word, std::uint64_t num_segments) {
  if (status_word == EncodeStatusWord::kOk) return {};
  if ((status_word & 0xFF) != EncodeStatusWord::kSourceChanged || status_word >> 8 >= num_segments)
    throw_nonsense("status " + std::to_string(status_word) + " of " + std::to_string(num_segments) +
                   " segments");
  return {df11::StageCode::kSourceChanged, status_word >> 8};
}

df11::DecodeStatus decode_status(const DecodeKernel::Result& result, std::uint64_t first_chunk,
                                 std::uint64_t num_chunks) {
  const bool is_known = result.first_fault == DecodeKernel::Result::kNone ||
                        (result.first_fault >= first_chunk && result.first_fault - first_chunk < num_chunks);
  if (!is_known || result.kernel_never_ends > 1)
    throw_nonsense("a fault in chunk " + std::to_string(result.first_fault) + " of chunks " +
                   std::to_string(first_chunk) + " to " + std::to_string(first_chunk + num_chunks - 1) +
                   ", " + std::to_string(result.kernel_never_ends));
  df11::DecodeStatus status;
  status.ok = result.first_fault == DecodeKernel::Result::kNone;
  if (!status.ok) status.chunk = result.first_fault;
  status.kernel_ends = !status.ok || result.kernel_never_ends == 0;
  return status;
}

/// What the stages after the histogram begin with.
struct GpuStages::SlabInput {
  std::span<const std::uint16_t> weights;
  std::uint64_t segment_weights;
  const df11::SlabPosition& position;
  const df11::Codebook& codebook;
  std::span<const df11::SegmentHistogram> histograms;
};

GpuStages::GpuStages(const Gpu& gpu, const GpuKernels& kernels)
    : gpu_(gpu), launches_(kernels), stream_(gpu), returned_(gpu, sizeof(Returned)) {}

GpuStages::~GpuStages() {
  if (!is_under_way_) return;
  try {
    wait();
  } catch (const Error&) {  // told by the completion, had anyone asked
  }
}

template <class Enqueue>
void GpuStages::call(Enqueue enqueue) {
  if (is_under_way_) wait();
  gpu_.use();
  returned() = {};
  is_under_way_ = true;
  try {
    enqueue();
  } catch (...) {
    try {
      wait();
    } catch (const Error&) {  // the first failure is told
    }
    throw;
  }
}

void GpuStages::wait() {
  is_under_way_ = false;
  gpu_.use();
  stream_.wait();
}

template <class T>
CUdeviceptr GpuStages::copy_in(GrowingDeviceBuffer& buffer, std::span<const T> values,
                               std::uint64_t slack_bytes) {
  const CUdeviceptr d_values = buffer.get(gpu_, values.size_bytes() + slack_bytes);
  stream_.copy_to_device(d_values, values.data(), values.size_bytes());
  return d_values;
}

df11::Completion GpuStages::histogram(const df11::HistogramArguments& arguments) {
  call([&] {
    HistogramKernel::Parameters parameters;
    parameters.d_weights = copy_in(d_weights_, arguments.weights);
    parameters.num_weights = arguments.weights.size();
    parameters.segment_weights = arguments.segment_weights;
    parameters.d_histograms = d_histograms_.get(gpu_, arguments.histograms.size_bytes());
    assert(arguments.histograms.size() ==
           df11::num_segments(parameters.num_weights, parameters.segment_weights));
    if (!arguments.weights.empty()) launches_.histogram(stream_, parameters);
    stream_.copy_to_host(arguments.histograms.data(), parameters.d_histograms,
                         arguments.histograms.size_bytes());
  });
  return df11::Completion([this] {
    wait();
    return df11::StageStatus{};
  });
}

/// Copies a slab in and enqueues what finds the first bits of its segments. layout: of the unit, for its last
/// slab.
void GpuStages::enqueue_segment_offsets(const SlabInput& slab, const df11::StreamLayout* layout,
                                        EncodeKernel::Parameters& parameters) {
  const std::uint64_t num_segments = slab.histograms.size();
  assert(num_segments == df11::num_segments(slab.weights.size(), slab.segment_weights));
  const EncodeTables tables = make_encode_tables(slab.codebook);
  parameters.d_weights = copy_in(d_weights_, slab.weights);
  parameters.num_weights = slab.weights.size();
  parameters.segment_weights = slab.segment_weights;
  parameters.first_weight = slab.position.first_weight;
  parameters.first_open_window =
      df11::first_open_window(slab.position.first_bit, slab.position.previous_code_length);
  parameters.first_position = df11::first_open_chunk(parameters.first_open_window);
  parameters.d_tables = d_tables_.get(gpu_, sizeof tables);
  stream_.copy_to_device(parameters.d_tables, &tables, sizeof tables);  // not pinned: copied during the call
  parameters.d_bits = d_bits_.get(gpu_, (num_segments + 1) * sizeof(std::uint64_t));
  parameters.d_status = d_status_.get(gpu_, sizeof(std::uint64_t));
  stream_.fill(parameters.d_status, kEveryBit, sizeof(std::uint64_t));

  SegmentBitsKernel::Parameters bits;
  bits.d_weights = parameters.d_weights;
  bits.num_weights = parameters.num_weights;
  bits.segment_weights = parameters.segment_weights;
  bits.num_segments = num_segments;
  bits.d_histograms = copy_in(d_histograms_, slab.histograms);
  bits.d_tables = parameters.d_tables;
  bits.d_bits = parameters.d_bits;
  bits.d_status = parameters.d_status;
  launches_.segment_bits(stream_, bits);

  SegmentOffsetsKernel::Parameters offsets;
  offsets.d_bits = parameters.d_bits;
  offsets.num_segments = num_segments;
  offsets.first_bit = slab.position.first_bit;
  if (layout != nullptr) {
    offsets.expected_end = layout->total_bits;
    offsets.expected_last_length = layout->last_code_length;
    offsets.d_last_weight = parameters.d_weights + 2 * (parameters.num_weights - 1);
    offsets.d_tables = parameters.d_tables;
  }
  offsets.d_status = parameters.d_status;
  launches_.segment_offsets(stream_, offsets);
  stream_.copy_to_host(&returned().end_bit, parameters.d_bits + num_segments * sizeof(std::uint64_t),
                       sizeof(std::uint64_t));
}

df11::Completion GpuStages::chunk_starts(const df11::ChunkStartsArguments& arguments) {
  call([&] {
    EncodeKernel::Parameters parameters;
    enqueue_segment_offsets({arguments.weights, arguments.segment_weights, arguments.position,
                             *arguments.codebook, arguments.histograms},
                            nullptr, parameters);
    parameters.num_positions = arguments.positions.size();
    parameters.d_positions = d_positions_.get(gpu_, arguments.positions.size_bytes());
    // The positions are all that there is to bound.
    parameters.num_groups = ~std::uint64_t{0} / kGroupBits / 2;
    launches_.chunk_starts(stream_, parameters);
    stream_.copy_to_host(arguments.positions.data(), parameters.d_positions,
                         arguments.positions.size_bytes());
    stream_.copy_to_host(&returned().status, parameters.d_status, sizeof(std::uint64_t));
  });
  return df11::Completion([this, num_segments = arguments.histograms.size()] {
    wait();
    return encode_status(returned().status, num_segments);
  });
}

df11::Completion GpuStages::encode(const df11::EncodeArguments& arguments) {
  const df11::SlabPosition& position = arguments.position;
  const df11::StreamLayout& layout = *arguments.layout;
  const std::uint64_t base = group_floor(position.first_bit);
  call([&] {
    EncodeKernel::Parameters parameters;
    enqueue_segment_offsets(
        {arguments.weights, arguments.segment_weights, position, *arguments.codebook, arguments.histograms},
        position.is_last ? &layout : nullptr, parameters);

    // The device's buffers begin at the group of the slab's first bit, the pieces at its byte, and at the
    // group of the first window that is open.
    const std::uint64_t skipped_bytes = position.first_bit / 8 - base / 8;
    const std::uint64_t skipped_gaps =
        (parameters.first_open_window / df11::kWindowsPerGapGroup - base / kGroupBits) * df11::kGapGroupBytes;
    const std::uint64_t stream_bytes = skipped_bytes + arguments.encoded_exponent.size();
    const std::uint64_t gaps_bytes = skipped_gaps + arguments.gaps.size();
    // The unfinished byte and group too.
    parameters.num_groups = std::max(stream_bytes / kGroupBytes, gaps_bytes / df11::kGapGroupBytes) + 1;
    parameters.d_encoded_exponent = d_encoded_exponent_.get(gpu_, parameters.num_groups * kGroupBytes);
    parameters.d_gaps = d_gaps_.get(gpu_, parameters.num_groups * df11::kGapGroupBytes);
    parameters.d_sign_mantissa = d_sign_mantissa_.get(gpu_, arguments.sign_mantissa.size());
    // The unit's end is known without a look at the weights.
    std::span<std::uint32_t> positions = arguments.positions;
    if (position.is_last) {
      positions.back() = static_cast<std::uint32_t>(layout.num_weights);
      positions = positions.first(positions.size() - 1);
      const std::uint32_t used = static_cast<std::uint32_t>(layout.total_bits % 8);
      parameters.is_last = 1;
      if (used != 0) parameters.eof_bits = df11::eof_padding(*arguments.codebook, 8 - used);
    }
    parameters.num_positions = positions.size();
    parameters.d_positions = d_positions_.get(gpu_, positions.size_bytes());
    // Windows after the stream's end, up to the chunk's; and what a slab that completes nothing hands on.
    stream_.fill(parameters.d_gaps, 0, parameters.num_groups * df11::kGapGroupBytes);
    launches_.encode(stream_, parameters);

    stream_.copy_to_host(arguments.sign_mantissa.data(), parameters.d_sign_mantissa,
                         arguments.sign_mantissa.size());
    stream_.copy_to_host(arguments.encoded_exponent.data(), parameters.d_encoded_exponent + skipped_bytes,
                         arguments.encoded_exponent.size());
    stream_.copy_to_host(arguments.gaps.data(), parameters.d_gaps + skipped_gaps, arguments.gaps.size());
    stream_.copy_to_host(positions.data(), parameters.d_positions, positions.size_bytes());
    stream_.copy_to_host(&returned().border_byte, parameters.d_encoded_exponent + stream_bytes, 1);
    stream_.copy_to_host(returned().border_gaps, parameters.d_gaps + gaps_bytes, df11::kGapGroupBytes);
    stream_.copy_to_host(&returned().status, parameters.d_status, sizeof(std::uint64_t));
  });
  const std::uint32_t last_length = arguments.codebook->lengths[df11::exponent_of(arguments.weights.back())];
  return df11::Completion([this, num_segments = arguments.histograms.size(), border = arguments.border,
                           is_last = position.is_last, last_length] {
    wait();
    const df11::StageStatus status = encode_status(returned().status, num_segments);
    if (status.code != df11::StageCode::kOk) return status;
    *border = {};
    if (is_last) return status;
    const std::uint64_t end_bit = returned().end_bit;
    if (end_bit % 8 != 0) border->byte = returned().border_byte;
    if (df11::first_open_window(end_bit, last_length) % df11::kWindowsPerGapGroup != 0)
      std::copy_n(returned().border_gaps, df11::kGapGroupBytes, border->gap_group);
    return status;
  });
}

df11::DecodeCompletion GpuStages::decode(const df11::DecodeArguments& arguments) {
  call([&] {
    DecodeKernel::Parameters parameters;
    parameters.d_luts = copy_in(d_luts_, arguments.luts);
    parameters.num_tables = arguments.luts.size() / df11::kNumSymbols - 1;
    parameters.num_weights = arguments.num_weights;
    parameters.stream_bytes = arguments.stream_bytes;
    parameters.first_chunk = arguments.first_chunk;
    parameters.num_chunks = arguments.positions.size() - 1;
    parameters.d_positions = copy_in(d_positions_, arguments.positions);
    parameters.d_encoded_exponent = copy_in(d_encoded_exponent_, arguments.encoded_exponent);
    parameters.available_bytes = arguments.encoded_exponent.size();
    parameters.first_weight = arguments.positions.front();
    parameters.d_gaps = copy_in(d_gaps_, arguments.gaps);
    if (!arguments.sign_mantissa.empty()) {
      parameters.d_sign_mantissa = copy_in(d_sign_mantissa_, arguments.sign_mantissa);
      if (!arguments.source.empty()) parameters.d_source = copy_in(d_source_, arguments.source);
      if (!arguments.weights.empty())
        parameters.d_weights = d_weights_.get(gpu_, arguments.weights.size_bytes());
    }
    parameters.d_result = d_result_.get(gpu_, sizeof(DecodeKernel::Result));
    const DecodeKernel::Result none;
    stream_.copy_to_device(parameters.d_result, &none, sizeof none);
    launches_.decode(stream_, parameters);
    if (parameters.d_weights != 0)
      stream_.copy_to_host(arguments.weights.data(), parameters.d_weights, arguments.weights.size_bytes());
    stream_.copy_to_host(&returned().decoded, parameters.d_result, sizeof none);
  });
  return df11::DecodeCompletion(
      [this, first = arguments.first_chunk, count = arguments.positions.size() - 1] {
        wait();
        return decode_status(returned().decoded, first, count);
      });
}

}  // namespace weightpress::device
