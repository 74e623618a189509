#include "device/streamed_unit.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "device/gpu_stages.h"
#include "format/bf16_fields.h"
#include "format/df11_constants.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kSegmentWeights = kGpuSegmentWeights;

std::uint64_t segments_of(std::uint64_t num_weights) {
  return df11::num_segments(num_weights, kSegmentWeights);
}

}  // namespace

StreamedUnit::StreamedUnit(PipelineStreams& streams, std::uint64_t num_weights, std::uint64_t slab_weights,
                           std::uint64_t num_slabs)
    : streams_(streams),
      num_weights_(num_weights),
      slab_weights_(slab_weights),
      d_histograms_(streams.gpu, segments_of(num_weights) * sizeof(df11::SegmentHistogram)),
      d_bits_(streams.gpu, (segments_of(num_weights) + 1) * sizeof(std::uint64_t)),
      d_unit_histogram_(streams.gpu, sizeof(df11::Histogram)),
      d_last_weight_(streams.gpu, sizeof(std::uint16_t)),
      histogram_(streams.gpu, sizeof(df11::Histogram)),
      bits_(streams.gpu, (segments_of(num_weights) + 1) * sizeof(std::uint64_t)),
      counted_(streams.gpu) {
  assert(slab_weights % kSegmentWeights == 0 && num_slabs > 0);
  for (std::uint64_t i = 0; i < num_slabs; ++i) {
    places_.push_back(std::make_unique<Place>(streams));
    places_.back()->d_weights.get(streams.gpu, 2 * slab_weights);
  }
  streams_.count.fill(d_unit_histogram_.get(), 0, sizeof(df11::Histogram));
}

StreamedUnit::~StreamedUnit() {
  try {
    streams_.gpu.use();
    streams_.synchronize();
  } catch (const Error&) {  // a broken GPU has nothing under way
  }
}

UnitOnGpu::Slab StreamedUnit::next_weights() {
  std::uint64_t first = num_counted_, count = std::min(num_weights_ - num_counted_, slab_weights_);
  if (plan_ != nullptr) {
    if (wants() == Wants::kNothing) return {};
    if (!is_filling()) begin_slab();
    first = part_.first_weight + num_filled_;
    count = part_.num_weights - num_filled_;
  }
  if (count == 0) return {};
  streams_.gpu.use();
  part_in_ = &streams_.in_ring.take();
  count = std::min(count, streams_.slab_weights());
  return slab_ = {first, {reinterpret_cast<std::uint16_t*>(part_in_->memory.data()), count}};
}

void StreamedUnit::submit() {
  assert(!slab_.weights.empty());
  streams_.gpu.use();
  if (plan_ == nullptr) {
    count_part();
  } else {
    fill_slab();
  }
  slab_ = {};
}

void StreamedUnit::count_part() {
  Place& place = place_of(num_parts_++);
  if (place.is_in_use) streams_.in.wait_for(place.done);
  const CUdeviceptr d_weights = place.d_weights.get();
  streams_.in.copy_to_device(d_weights, slab_.weights.data(), slab_.weights.size_bytes());
  streams_.in.record(part_in_->done);
  part_in_->is_in_use = true;
  streams_.count.wait_for(part_in_->done);
  HistogramKernel::Parameters parameters;
  parameters.d_weights = d_weights;
  parameters.num_weights = slab_.weights.size();
  parameters.segment_weights = kSegmentWeights;
  parameters.d_histograms =
      d_histograms_.get() + slab_.first / kSegmentWeights * sizeof(df11::SegmentHistogram);
  parameters.d_unit_histogram = d_unit_histogram_.get();
  streams_.launches.histogram(streams_.count, parameters);
  num_counted_ += slab_.weights.size();
  last_exponent_ = df11::exponent_of(slab_.weights.back());
  if (has_all()) {
    streams_.count.copy_on_device(d_last_weight_.get(), d_weights + 2 * (slab_.weights.size() - 1),
                                  sizeof(std::uint16_t));
    streams_.launches.small_copy(streams_.count, histogram_.device_address(), d_unit_histogram_.get(),
                                 sizeof(df11::Histogram));
    streams_.count.record(counted_);
  }
  streams_.count.record(place.done);
  place.is_in_use = true;
}

df11::Histogram StreamedUnit::histogram() {
  assert(has_all());
  streams_.gpu.use();
  counted_.wait();
  return checked_histogram(histogram_, num_weights_);
}

// ---- encoding

void StreamedUnit::encode(const df11::UnitPlan& plan, bool verifies) {
  assert(has_all() && plan_ == nullptr);
  streams_.gpu.use();
  plan_ = &plan;
  verifies_ = verifies;
  find_first_bits();
}

/// To the host too, which cuts the slabs. All weights are counted then, and their memory is free.
void StreamedUnit::find_first_bits() {
  const std::uint64_t num_segments = segments_of(num_weights_);
  streams_.compute.wait_for(counted_);
  UnitEncoding& encoding = place_of(0).encoding;
  encoding.begin(*plan_);
  encoding.find_first_bits({.d_histograms = d_histograms_.get(), .d_last_weight = d_last_weight_.get()},
                           d_bits_.get());
  streams_.compute.copy_to_host(bits_.data(), d_bits_.get(), (num_segments + 1) * sizeof(std::uint64_t));
  const df11::StageStatus status = encoding.find_first_bits_status();
  first_bits_.resize(num_segments + 1);
  std::memcpy(first_bits_.data(), bits_.data(), bits_.size_bytes());
  bool is_well = status.code == df11::StageCode::kOk && first_bits_.front() == 0 &&
                 first_bits_.back() == plan_->layout.total_bits;
  for (std::uint64_t i = 0; i < num_segments && is_well; ++i) {
    const std::uint64_t weights = std::min(kSegmentWeights, num_weights_ - i * kSegmentWeights);
    is_well = first_bits_[i + 1] >= first_bits_[i] + weights &&
              first_bits_[i + 1] <= first_bits_[i] + weights * df11::kMaxCodeBits;
  }
  if (!is_well)
    throw Error(ErrorCode::kDeviceFailed, "the weights in its memory are not those that it counted");
}

/// The next one, in the memory of one that is gone.
void StreamedUnit::begin_slab() {
  // A chunk that is not complete began in one of the last two segments; a slab completes one at least.
  static_assert(2 * kSegmentWeights >= df11::kChunkBits + kGroupBits + df11::kMaxCodeBits);
  static_assert(2 * kSegmentWeights <= kMaxOverlapWeights);
  assert(slab_weights_ >= 3 * kSegmentWeights || slab_weights_ >= num_weights_);
  UnitEncoding::Part part;
  std::uint64_t first_segment = 0;
  if (num_begun_ > 0) {
    part.first_chunk = part_.end_chunk;
    const auto after =
        std::upper_bound(first_bits_.begin(), first_bits_.end() - 1, part.first_chunk * df11::kChunkBits);
    first_segment = static_cast<std::uint64_t>(after - first_bits_.begin()) - 1;
  }
  const std::uint64_t end_segment =
      std::min(first_segment + slab_weights_ / kSegmentWeights, segments_of(num_weights_));
  part.first_weight = first_segment * kSegmentWeights;
  part.num_weights = std::min(end_segment * kSegmentWeights, num_weights_) - part.first_weight;
  part.first_bit = first_bits_[first_segment];
  part.end_bit = first_bits_[end_segment];
  part.is_last = end_segment == segments_of(num_weights_);
  part.end_chunk = part.is_last ? plan_->layout.num_chunks : (part.end_bit - kGroupBits) / df11::kChunkBits;
  assert(part.end_chunk > part.first_chunk);
  part.d_weights = place_of(num_begun_).d_weights.get();
  part.d_bits = d_bits_.get() + first_segment * sizeof(std::uint64_t);
  part_ = part;
  num_filled_ = 0;
  ++num_begun_;
}

void StreamedUnit::fill_slab() {
  streams_.in.copy_to_device(part_.d_weights + 2 * num_filled_, slab_.weights.data(),
                             slab_.weights.size_bytes());
  streams_.in.record(part_in_->done);
  part_in_->is_in_use = true;
  num_filled_ += slab_.weights.size();
  if (is_filling()) return;
  streams_.compute.wait_for(part_in_->done);
  UnitEncoding& encoding = place_of(num_begun_ - 1).encoding;
  encoding.begin(*plan_);
  encoding.encode(part_, verifies_);
}

UnitOnGpu::Wants StreamedUnit::wants() const {
  assert(plan_ != nullptr);
  const bool is_over = num_begun_ > 0 && part_.is_last;
  const bool can_begin = !is_over && num_begun_ - num_gone_ < places_.size();
  if (!is_filling() && !can_begin) return Wants::kNothing;
  const std::uint64_t num_filled_slabs = num_begun_ - (is_filling() ? 1 : 0);
  return num_gone_ < num_filled_slabs ? Wants::kMore : Wants::kFirst;
}

std::optional<OutputPiece> StreamedUnit::next_piece() {
  assert(wants() != Wants::kFirst);
  if (num_gone_ == num_begun_) return std::nullopt;
  streams_.gpu.use();
  UnitEncoding& encoding = place_of(num_gone_).encoding;
  const auto piece = encoding.next_piece(first_sign_mantissa_);
  assert(piece);
  take_off_what_was_read_twice(encoding.part(), *piece);
  if (encoding.has_pieces_under_way()) return piece;
  add(encoding.verdict());
  first_sign_mantissa_ = encoding.end_sign_mantissa();
  ++num_gone_;
  return piece;
}

/// Of the next slab. The first fault counts.
void StreamedUnit::add(const Verdict& verdict) {
  if (verdict_.encoded.code == df11::StageCode::kOk) verdict_.encoded = verdict.encoded;
  verdict_.decoded.kernel_ends = verdict_.decoded.kernel_ends && verdict.decoded.kernel_ends;
  if (verdict_.decoded.ok && !verdict.decoded.ok) verdict_.decoded = verdict.decoded;
  if (!verdict_.official_difference) verdict_.official_difference = verdict.official_difference;
  verdict_.source_sum += verdict.source_sum;
  for (std::size_t i = 0; i < verdict_.output_sums.size(); ++i)
    verdict_.output_sums[i] += verdict.output_sums[i];
}

/// The decoder adds up four bytes and a byte of gaps after its chunks too: those that the next slab begins
/// with.
void StreamedUnit::take_off_what_was_read_twice(const UnitEncoding::Part& part, const OutputPiece& piece) {
  if (!verifies_ || part.first_chunk == 0) return;
  if (piece.buffer == OutputBuffer::kEncodedExponent &&
      piece.offset_bytes == part.first_chunk * df11::kChunkBytes) {
    verdict_.output_sums[static_cast<std::size_t>(piece.buffer)] -= sum_of_words(piece.bytes.first(4));
  } else if (piece.buffer == OutputBuffer::kGaps &&
             piece.offset_bytes == part.first_chunk * df11::kGapBytesPerChunk) {
    verdict_.output_sums[static_cast<std::size_t>(piece.buffer)] -= piece.bytes.front();
  }
}

UnitOnGpu::Verdict StreamedUnit::verdict() {
  assert(num_gone_ == num_begun_);
  return verdict_;
}

}  // namespace weightpress::device
