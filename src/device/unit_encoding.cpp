#include "device/unit_encoding.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "device/encode_tables.h"
#include "device/gpu_stages.h"
#include "format/df11_constants.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kSegmentWeights = kGpuSegmentWeights;

std::uint64_t segments_of(std::uint64_t num_weights) {
  return df11::num_segments(num_weights, kSegmentWeights);
}

// The official kernel takes 32 bits after the last chunk, and a byte after its gaps.
constexpr std::uint64_t kBytesBeyondEnd = 8;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

df11::Histogram checked_histogram(const PinnedBuffer& pinned, std::uint64_t num_weights) {
  df11::Histogram histogram;
  std::memcpy(histogram.data(), pinned.data(), sizeof histogram);
  if (df11::total_count(histogram) != num_weights)
    throw Error(ErrorCode::kDeviceFailed, "the GPU counted " + std::to_string(df11::total_count(histogram)) +
                                              " weights of " + std::to_string(num_weights));
  return histogram;
}

UnitEncoding::UnitEncoding(PipelineStreams& streams)
    : streams_(streams),
      gpu_(streams.gpu),
      given_(gpu_, sizeof(Given)),
      returned_(gpu_, sizeof(Returned)),
      end_position_(gpu_, sizeof(std::uint32_t)),
      encoded_(gpu_),
      judged_(gpu_),
      officially_judged_(gpu_) {}

void UnitEncoding::begin(const df11::UnitPlan& plan) {
  plan_ = &plan;
  is_leaving_ = is_read_back_officially_ = false;
  num_positions_out_ = densest_chunk_ = 0;
  outputs_.clear();
  next_output_ = 0;
  flying_.clear();
  Given& host = given();
  host.tables = make_encode_tables(plan.codebook);
  host.initial = {};
  host.num_weights[0] = host.num_weights[1] = static_cast<std::uint32_t>(plan.layout.num_weights);
  assert(plan.tables.rows.size() <= std::size(host.luts));
  std::copy(plan.tables.rows.begin(), plan.tables.rows.end(), host.luts);
  streams_.launches.small_copy(streams_.compute, d_given_.get(gpu_, sizeof(Given)), given_.device_address(),
                               sizeof host);
}

void UnitEncoding::find_first_bits(const Counted& counted, CUdeviceptr d_bits) {
  const df11::StreamLayout& layout = plan_->layout;
  SegmentBitsKernel::Parameters bits;
  bits.d_weights = counted.d_weights;
  bits.num_weights = layout.num_weights;
  bits.segment_weights = kSegmentWeights;
  bits.num_segments = segments_of(layout.num_weights);
  bits.d_histograms = counted.d_histograms;
  bits.d_tables = d_given(offsetof(Given, tables));
  bits.d_bits = d_bits;
  bits.d_status = d_returned() + offsetof(Returned, status);
  streams_.launches.segment_bits(streams_.compute, bits);

  SegmentOffsetsKernel::Parameters offsets;
  offsets.d_bits = d_bits;
  offsets.num_segments = bits.num_segments;
  offsets.expected_end = layout.total_bits;
  offsets.expected_last_length = layout.last_code_length;
  offsets.d_last_weight = counted.d_last_weight;
  offsets.d_tables = bits.d_tables;
  offsets.d_status = bits.d_status;
  streams_.launches.segment_offsets(streams_.compute, offsets);
}

df11::StageStatus UnitEncoding::find_first_bits_status() {
  streams_.launches.small_copy(streams_.compute, returned_.device_address(), d_returned(), sizeof(Returned));
  streams_.compute.record(judged_);
  judged_.wait();
  return encode_status(returned().status, segments_of(plan_->layout.num_weights));
}

UnitEncoding::Returned UnitEncoding::returned() const {
  Returned returned;
  std::memcpy(&returned, returned_.data(), sizeof returned);
  return returned;
}

void UnitEncoding::encode(const Part& part, bool verifies) {
  const df11::StreamLayout& layout = plan_->layout;
  part_ = part;
  verifies_ = verifies;
  const std::uint64_t num_chunks = part.end_chunk - part.first_chunk;
  const std::uint64_t base = part.first_bit / kGroupBits * kGroupBits;
  assert(part.first_weight % kSegmentWeights == 0);

  EncodeKernel::Parameters encode;
  encode.d_weights = part.d_weights;
  encode.num_weights = part.num_weights;
  encode.segment_weights = kSegmentWeights;
  encode.d_bits = part.d_bits;
  encode.d_tables = d_given(offsetof(Given, tables));
  encode.first_weight = part.first_weight;
  // What belongs to windows that the weights before have opened lies before the first chunk.
  encode.first_open_window = (part.first_bit + df11::kWindowBits - 1) / df11::kWindowBits;
  encode.first_position = part.first_chunk;
  encode.d_sign_mantissa = d_sign_mantissa_.get(gpu_, part.num_weights);
  encode.num_groups = (round_up(part.end_bit, kGroupBits) - base) / kGroupBits;
  const std::uint64_t coded_gaps = encode.num_groups * df11::kGapGroupBytes;
  std::uint64_t gaps_bytes = coded_gaps;
  num_opened_ = num_chunks;
  if (part.is_last) {
    encode.is_last = 1;
    const auto used = static_cast<std::uint32_t>(layout.total_bits % 8);
    if (used != 0) encode.eof_bits = df11::eof_padding(plan_->codebook, 8 - used);
    gaps_bytes = layout.gaps_bytes - base / kGroupBits * df11::kGapGroupBytes;
    num_opened_ = layout.num_positions - 1 - part.first_chunk;
  }
  // And what decoders may read beyond the end.
  const std::uint64_t stream_bytes = encode.num_groups * kGroupBytes;
  encode.d_encoded_exponent = d_encoded_exponent_.get(gpu_, stream_bytes + kBytesBeyondEnd);
  // The first chunk's gaps are read by words.
  skipped_bytes_ = part.first_chunk * df11::kChunkBytes - base / 8;
  const std::uint64_t skipped_gaps = skipped_bytes_ / kGroupBytes * df11::kGapGroupBytes;
  const std::uint64_t padding = round_up(skipped_gaps, 4) - skipped_gaps;
  skipped_gaps_ = padding + skipped_gaps;
  encode.d_gaps = d_gaps_.get(gpu_, padding + gaps_bytes + kBytesBeyondEnd) + padding;
  // One more than there may be, for the decoder (docs/format.md, "Output positions").
  encode.d_positions = d_positions_.get(gpu_, 4 * (num_chunks + 1));
  encode.num_positions = part.is_last ? num_opened_ : num_chunks + 1;
  encode.d_status = d_returned() + offsetof(Returned, status);
  // Where the weights are not those that were counted, some are not written.
  streams_.compute.fill(encode.d_positions, 0, 4 * (num_chunks + 1));
  if (part.is_last) {
    streams_.compute.fill(encode.d_gaps + coded_gaps, 0, gaps_bytes - coded_gaps + kBytesBeyondEnd);
    streams_.compute.fill(encode.d_encoded_exponent + stream_bytes, 0, kBytesBeyondEnd);
    streams_.compute.copy_on_device(encode.d_positions + 4 * num_opened_,
                                    d_given(offsetof(Given, num_weights)),
                                    4 * (num_chunks + 1 - num_opened_));
  }
  streams_.launches.encode(streams_.compute, encode);
  if (!part.is_last) {
    streams_.launches.small_copy(streams_.compute, end_position_.device_address(),
                                 encode.d_positions + 4 * num_chunks, sizeof(std::uint32_t));
  }
  streams_.compute.record(encoded_);

  if (verifies && num_chunks > 0) read_back();
  streams_.launches.small_copy(streams_.compute, returned_.device_address(), d_returned(), sizeof(Returned));
  streams_.compute.record(judged_);
}

void UnitEncoding::read_back() {
  const df11::StreamLayout& layout = plan_->layout;
  const std::uint64_t first_byte = part_.first_chunk * df11::kChunkBytes;
  DecodeKernel::Parameters decode;
  decode.d_luts = d_given(offsetof(Given, luts));
  decode.num_tables = plan_->tables.num_tables();
  decode.num_weights = layout.num_weights;
  decode.stream_bytes = layout.num_bytes;
  decode.first_chunk = part_.first_chunk;
  decode.num_chunks = part_.end_chunk - part_.first_chunk;
  decode.d_positions = d_positions_.get();
  decode.d_encoded_exponent = d_encoded_exponent_.get() + skipped_bytes_;
  decode.available_bytes =
      part_.is_last ? layout.num_bytes - first_byte : decode.num_chunks * df11::kChunkBytes + kGroupBytes;
  decode.d_gaps = d_gaps_.get() + skipped_gaps_;
  decode.first_weight = static_cast<std::uint32_t>(part_.first_weight);
  decode.d_sign_mantissa = d_sign_mantissa_.get();
  decode.d_source = part_.d_weights;
  decode.d_result = d_returned() + offsetof(Returned, decoded);
  static_assert(kGroupBytes >= df11::kDecodeLookaheadBytes && kSegmentWeights % 8 == 0);
  streams_.launches.decode(streams_.compute, decode);
}

/// By our own decoder, and it says that the official one ends.
bool UnitEncoding::found_sound() const {
  const UnitOnGpu::Verdict verdict = own_verdict();
  return verdict.encoded.code == df11::StageCode::kOk && verdict.decoded.ok && verdict.decoded.kernel_ends &&
         densest_chunk_ <= df11::kMaxChunkWeights;
}

/// Over what our own decoder found sound. All positions are out.
void UnitEncoding::read_back_officially() {
  const df11::StreamLayout& layout = plan_->layout;
  const Stream& compute = streams_.compute;
  const CUdeviceptr d_outputs = d_outputs_.get(gpu_, 2 * part_.num_weights);
  // No weight that can be stored has all bits set: one that the kernel does not write is a wrong one.
  compute.fill(d_outputs, 0xFF, 2 * part_.num_weights);
  OfficialKernelLaunch::Parameters parameters;
  parameters.d_luts = d_given(offsetof(Given, luts));
  parameters.d_encoded_exponent = d_encoded_exponent_.get() + skipped_bytes_;
  parameters.d_sign_mantissa = d_sign_mantissa_.get() - part_.first_weight;
  parameters.d_output_positions = d_positions_.get();
  parameters.d_gaps = d_gaps_.get() + skipped_gaps_;
  parameters.d_outputs = d_outputs - 2 * part_.first_weight;
  parameters.luts_rows = static_cast<std::uint32_t>(plan_->tables.rows.size());
  parameters.stream_bytes =
      static_cast<std::uint32_t>(layout.num_bytes - part_.first_chunk * df11::kChunkBytes);
  parameters.num_weights = static_cast<std::uint32_t>(layout.num_weights);
  parameters.num_chunks = part_.end_chunk - part_.first_chunk;
  parameters.chunk_weights = densest_chunk_;
  streams_.official->enqueue(compute, parameters);
  const std::uint64_t skipped = 2 * (first_sign_mantissa_ - part_.first_weight);
  const std::uint64_t bytes = 2 * (end_sign_mantissa_ - first_sign_mantissa_);
  const auto num_multiprocessors = static_cast<std::uint32_t>(gpu_.info().num_multiprocessors);
  compute.launch(
      streams_.compare, {CompareKernel::num_blocks(bytes, num_multiprocessors), CompareKernel::kThreads, 0},
      part_.d_weights + skipped, d_outputs + skipped, bytes, d_returned() + offsetof(Returned, compared));
  streams_.launches.small_copy(compute, returned_.device_address(), d_returned(), sizeof(Returned));
  compute.record(officially_judged_);
  is_read_back_officially_ = true;
}

void UnitEncoding::look_at_positions(const OutputPiece& piece) {
  if (piece.buffer != OutputBuffer::kOutputPositions) return;
  for (std::size_t i = 0; i + 4 <= piece.bytes.size(); i += 4) {
    std::uint32_t position = 0;
    std::memcpy(&position, piece.bytes.data() + i, sizeof position);
    if (num_positions_out_++ > 0)
      densest_chunk_ = std::max<std::uint64_t>(densest_chunk_, std::uint64_t{position} - last_position_);
    last_position_ = position;
  }
  if (piece.offset_bytes + piece.bytes.size() == outputs_.front().offset_bytes + outputs_.front().size_bytes)
    densest_chunk_ = std::max<std::uint64_t>(densest_chunk_, end_sign_mantissa_ - last_position_);
}

std::optional<OutputPiece> UnitEncoding::next_piece(std::uint64_t first_sign_mantissa) {
  if (!is_leaving_) {
    is_leaving_ = true;
    streams_.out.wait_for(encoded_);
    list_outputs(first_sign_mantissa);
    for (int i = 0; i < kPiecesAhead; ++i) enqueue_piece();
  }
  if (flying_.empty()) return std::nullopt;
  const Flying piece = flying_.front();
  flying_.erase(flying_.begin());
  piece.memory->done.wait();
  piece.memory->is_in_use = false;  // the caller has it, until the ring has gone round
  enqueue_piece();
  look_at_positions(piece.piece);
  const bool may_go_on = reads_back_officially() && !is_read_back_officially_ &&
                         piece.piece.buffer != OutputBuffer::kOutputPositions;
  if (may_go_on && judged_.is_done() && found_sound()) read_back_officially();
  return piece.piece;
}

void UnitEncoding::list_outputs(std::uint64_t first_sign_mantissa) {
  const df11::StreamLayout& layout = plan_->layout;
  const std::uint64_t num_chunks = part_.end_chunk - part_.first_chunk;
  const std::uint64_t first_byte = part_.first_chunk * df11::kChunkBytes;
  const std::uint64_t first_gap = part_.first_chunk * df11::kGapBytesPerChunk;
  const std::uint64_t first_position = part_.first_chunk * sizeof(std::uint32_t);
  std::uint64_t end_byte = first_byte + num_chunks * df11::kChunkBytes;
  std::uint64_t end_gap = first_gap + num_chunks * df11::kGapBytesPerChunk;
  std::uint64_t end_position = first_position + num_chunks * sizeof(std::uint32_t);
  first_sign_mantissa_ = first_sign_mantissa;
  end_sign_mantissa_ = layout.num_weights;
  if (part_.is_last) {
    end_byte = layout.num_bytes;
    end_gap = layout.gaps_bytes;
    end_position = layout.positions_bytes();
  } else {
    encoded_.wait();
    std::uint32_t end = 0;
    std::memcpy(&end, end_position_.data(), sizeof end);
    end_sign_mantissa_ = end;
  }
  if (first_sign_mantissa < part_.first_weight || end_sign_mantissa_ < first_sign_mantissa ||
      end_sign_mantissa_ > part_.first_weight + part_.num_weights) {
    throw_nonsense("chunks of weights " + std::to_string(first_sign_mantissa) + " to " +
                   std::to_string(end_sign_mantissa_));
  }
  outputs_ = {
      {OutputBuffer::kOutputPositions, d_positions_.get(), first_position, end_position - first_position, 0},
      {OutputBuffer::kSignMantissa, d_sign_mantissa_.get() + (first_sign_mantissa - part_.first_weight),
       first_sign_mantissa, end_sign_mantissa_ - first_sign_mantissa, 0},
      {OutputBuffer::kEncodedExponent, d_encoded_exponent_.get() + skipped_bytes_, first_byte,
       end_byte - first_byte, 0},
      {OutputBuffer::kGaps, d_gaps_.get() + skipped_gaps_, first_gap, end_gap - first_gap, 0}};
}

/// The next copy out, if anything is left.
void UnitEncoding::enqueue_piece() {
  while (next_output_ < outputs_.size()) {
    Output& output = outputs_[next_output_];
    const std::uint64_t bytes =
        std::min(output.size_bytes - output.copied_bytes, streams_.out_ring.bytes_each());
    if (bytes == 0) {
      ++next_output_;
      continue;
    }
    PinnedPart& memory = streams_.out_ring.take();
    streams_.out.copy_to_host(memory.memory.data(), output.d_bytes + output.copied_bytes, bytes);
    streams_.out.record(memory.done);
    memory.is_in_use = true;
    flying_.push_back(
        {{output.buffer, output.offset_bytes + output.copied_bytes, {memory.memory.data(), bytes}}, &memory});
    output.copied_bytes += bytes;
    return;
  }
}

UnitOnGpu::Verdict UnitEncoding::verdict() {
  judged_.wait();
  if (reads_back_officially() && !is_read_back_officially_ && found_sound()) read_back_officially();
  if (is_read_back_officially_) officially_judged_.wait();
  UnitOnGpu::Verdict verdict = own_verdict();
  const std::uint64_t first_different = returned().compared.first_different;
  if (is_read_back_officially_ && first_different != CompareKernel::Result::kNone)
    verdict.official_difference = first_sign_mantissa_ + first_different / 2;
  return verdict;
}

/// Once it is judged.
UnitOnGpu::Verdict UnitEncoding::own_verdict() const {
  const Returned returned = this->returned();
  const std::uint64_t num_chunks = part_.end_chunk - part_.first_chunk;
  UnitOnGpu::Verdict verdict;
  verdict.encoded = encode_status(returned.status, segments_of(plan_->layout.num_weights));
  if (!verifies_ || num_chunks == 0) return verdict;
  verdict.decoded = decode_status(returned.decoded, part_.first_chunk, num_chunks);
  verdict.source_sum = returned.decoded.source_sum;
  // The last of output_positions, and what stands in for one that is not there, are no output of kernels.
  std::uint32_t positions_sum = returned.decoded.positions_sum;
  if (part_.is_last) {
    const auto n = static_cast<std::uint32_t>(plan_->layout.num_weights);
    positions_sum += n - static_cast<std::uint32_t>(num_chunks - num_opened_) * n;
  }
  verdict.output_sums = {returned.decoded.sign_mantissa_sum, returned.decoded.encoded_exponent_sum,
                         returned.decoded.gaps_sum, positions_sum};
  return verdict;
}

}  // namespace weightpress::device
