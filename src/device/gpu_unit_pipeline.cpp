#include "device/gpu_unit_pipeline.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>
#include <string>

#include "device/encode_tables.h"
#include "device/gpu_stages.h"
#include "format/bf16_fields.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kSegmentWeights = kGpuSegmentWeights;
constexpr std::uint64_t kMostUnits = 3;  // one leaves, one is counted, one comes in

std::uint64_t segments_of(std::uint64_t num_weights) {
  return df11::num_segments(num_weights, kSegmentWeights);
}

/// Of a slot.
std::uint64_t slot_bytes(std::uint64_t num_weights) {
  return 2 * num_weights + segments_of(num_weights) * sizeof(df11::SegmentHistogram);
}

/// Of the buffers of a unit whose codes take a byte a weight, as much as codes of 255 exponents do. Longer
/// ones (rescued units) take more memory when they come.
std::uint64_t output_bytes(std::uint64_t num_weights) {
  return 2 * num_weights + num_weights / 8 + (std::uint64_t{1} << 20);
}

}  // namespace

// ---- rings

GpuUnitPipeline::Ring::Ring(const Gpu& gpu, std::uint64_t bytes_each) : bytes_each_(bytes_each) {
  parts_.reserve(kParts);
  for (std::size_t i = 0; i < kParts; ++i) parts_.emplace_back(gpu, bytes_each);
}

GpuUnitPipeline::Pinned& GpuUnitPipeline::Ring::take() {
  Pinned& part = parts_[next_++ % kParts];
  if (part.is_in_use) part.done.wait();
  part.is_in_use = false;
  return part;
}

// ---- the unit that is encoded

/// Buffers for what is made of a unit, and what is left to be copied out of them.
struct GpuUnitPipeline::Encoding {
  /// In pinned memory.
  struct Returned {
    std::uint64_t status = EncodeStatusWord::kOk;
    DecodeKernel::Result decoded;
  };
  /// Small inputs, in pinned memory, and what the kernels' results begin as.
  struct Given {
    EncodeTables tables;
    Returned initial;
    std::uint32_t num_weights[2] = {};  // the entries that end output_positions
    df11::LookupRow luts[df11::kMaxTables + 1] = {};
  };
  struct Output {
    OutputBuffer buffer;
    CUdeviceptr d_bytes;
    std::uint64_t size_bytes, copied_bytes;
  };

  explicit Encoding(const Gpu& gpu)
      : given(gpu, sizeof(Given)), returned(gpu, sizeof(Returned)), encoded(gpu), judged(gpu) {}

  PinnedBuffer given, returned;
  Event encoded, judged;
  GrowingDeviceBuffer d_given, d_bits, d_sign_mantissa, d_encoded_exponent, d_gaps, d_positions;
  const Unit* owner = nullptr;
  bool verifies = false;
  std::uint64_t num_chunks = 0, num_opened_chunks = 0;

  std::vector<Output> outputs;
  std::size_t next_output = 0;
  struct Flying {
    OutputPiece piece;
    Pinned* memory;
  };
  std::vector<Flying> flying;  // copies out that are enqueued, in order
};

// ---- a unit

class GpuUnitPipeline::Unit final : public UnitOnGpu {
 public:
  Unit(GpuUnitPipeline& pipeline, Slot& slot, std::uint64_t num_weights)
      : line_(pipeline), slot_(slot), num_weights_(num_weights), counted_(pipeline.gpu_) {
    d_weights_ = slot_.d_weights.get(line_.gpu_, 2 * num_weights);
    d_histograms_ =
        slot_.d_histograms.get(line_.gpu_, segments_of(num_weights) * sizeof(df11::SegmentHistogram));
    line_.count_.fill(slot_.d_unit_histogram.get(), 0, sizeof(df11::Histogram));
    slot_.is_taken = true;
  }

  ~Unit() override {
    try {
      line_.gpu_.use();
      if (!is_finished_) line_.synchronize();
    } catch (const Error&) {  // a broken GPU has nothing under way
    }
    slot_.is_taken = false;
    if (encoding_ != nullptr) encoding_->owner = nullptr;
  }

  std::span<std::uint16_t> next_weights() override {
    if (has_all()) return {};
    line_.gpu_.use();
    slab_ = &line_.in_ring_.take();
    const std::uint64_t count = std::min(num_weights_ - num_in_, line_.slab_weights_);
    return slab_span_ = {reinterpret_cast<std::uint16_t*>(slab_->memory.data()), count};
  }

  void submit() override {
    assert(!slab_span_.empty());
    line_.gpu_.use();
    last_exponent_ = df11::exponent_of(slab_span_.back());
    line_.in_.copy_to_device(d_weights_ + 2 * num_in_, slab_span_.data(), slab_span_.size_bytes());
    line_.in_.record(slab_->done);
    slab_->is_in_use = true;
    line_.count_.wait_for(slab_->done);
    HistogramKernel::Parameters parameters;
    parameters.d_weights = d_weights_ + 2 * num_in_;
    parameters.num_weights = slab_span_.size();
    parameters.segment_weights = kSegmentWeights;
    parameters.d_histograms = d_histograms_ + num_in_ / kSegmentWeights * sizeof(df11::SegmentHistogram);
    parameters.d_unit_histogram = slot_.d_unit_histogram.get();
    line_.launches_.histogram(line_.count_, parameters);
    num_in_ += slab_span_.size();
    slab_span_ = {};
    if (!has_all()) return;
    line_.launches_.small_copy(line_.count_, slot_.histogram.device_address(), slot_.d_unit_histogram.get(),
                               sizeof(df11::Histogram));
    line_.count_.record(counted_);
  }

  bool has_all() const override { return num_in_ == num_weights_; }

  df11::Histogram histogram() override {
    assert(has_all());
    line_.gpu_.use();
    counted_.wait();
    df11::Histogram histogram;
    std::memcpy(histogram.data(), slot_.histogram.data(), sizeof histogram);
    if (df11::total_count(histogram) != num_weights_)
      throw Error(ErrorCode::kDeviceFailed, "the GPU counted " +
                                                std::to_string(df11::total_count(histogram)) +
                                                " weights of " + std::to_string(num_weights_));
    return histogram;
  }

  std::uint8_t last_exponent() const override { return last_exponent_; }

  void encode(const df11::UnitPlan& plan, bool verifies) override {
    assert(has_all());
    line_.gpu_.use();
    encoding_ = line_.free_encoding();
    assert(encoding_ != nullptr);
    Encoding& encoding = *encoding_;
    encoding.owner = this;
    encoding.verifies = verifies;
    encoding.num_chunks = plan.layout.num_chunks;
    encoding.num_opened_chunks = plan.layout.num_positions - 1;
    line_.compute_.wait_for(counted_);
    give(plan);
    enqueue_encoding(plan);
    if (verifies) enqueue_reading_back(plan);
    line_.launches_.small_copy(line_.compute_, encoding.returned.device_address(), d_returned(),
                               sizeof(Encoding::Returned));
    line_.compute_.record(encoding.judged);

    encoding.outputs = {
        {OutputBuffer::kSignMantissa, encoding.d_sign_mantissa.get(), num_weights_, 0},
        {OutputBuffer::kEncodedExponent, encoding.d_encoded_exponent.get(), plan.layout.num_bytes, 0},
        {OutputBuffer::kGaps, encoding.d_gaps.get(), plan.layout.gaps_bytes, 0},
        {OutputBuffer::kOutputPositions, encoding.d_positions.get(), plan.layout.positions_bytes(), 0}};
    encoding.next_output = 0;
    encoding.flying.clear();
  }

  std::optional<OutputPiece> next_piece() override {
    line_.gpu_.use();
    assert(encoding_ != nullptr);
    Encoding& encoding = *encoding_;
    if (!is_leaving_) {
      is_leaving_ = true;
      line_.out_.wait_for(encoding.encoded);
      for (int i = 0; i < kPiecesAhead; ++i) enqueue_piece();
    }
    if (encoding.flying.empty()) return std::nullopt;
    const Encoding::Flying piece = encoding.flying.front();
    encoding.flying.erase(encoding.flying.begin());
    piece.memory->done.wait();
    piece.memory->is_in_use = false;  // the caller has it, until the ring has gone round
    enqueue_piece();
    return piece.piece;
  }

  Verdict verdict() override {
    line_.gpu_.use();
    assert(encoding_ != nullptr);
    const Encoding& encoding = *encoding_;
    encoding.judged.wait();
    Encoding::Returned returned;
    std::memcpy(&returned, encoding.returned.data(), sizeof returned);
    is_finished_ = is_leaving_ && encoding.flying.empty();
    return {
        encode_status(returned.status, segments_of(num_weights_)),
        encoding.verifies ? decode_status(returned.decoded, 0, encoding.num_chunks) : df11::DecodeStatus{},
        returned.decoded.source_sum, output_sums(returned.decoded)};
  }

 private:
  // One part of the ring is the caller's.
  static constexpr int kPiecesAhead = 3;

  Encoding::Given& given() const { return *reinterpret_cast<Encoding::Given*>(encoding_->given.data()); }
  CUdeviceptr d_given(std::size_t offset_bytes) const { return encoding_->d_given.get() + offset_bytes; }

  /// The last of output_positions, and what stands in for one that is not there, are no output of kernels.
  std::array<std::uint32_t, 4> output_sums(const DecodeKernel::Result& result) const {
    const auto n = static_cast<std::uint32_t>(num_weights_);
    const auto made_up = static_cast<std::uint32_t>(encoding_->num_chunks - encoding_->num_opened_chunks);
    return {result.sign_mantissa_sum, result.encoded_exponent_sum, result.gaps_sum,
            result.positions_sum - made_up * n + n};
  }

  CUdeviceptr d_returned() const { return d_given(offsetof(Encoding::Given, initial)); }

  /// Tables and constants to the device.
  void give(const df11::UnitPlan& plan) {
    Encoding& encoding = *encoding_;
    Encoding::Given& host = given();
    host.tables = make_encode_tables(plan.codebook);
    host.initial = {};
    host.num_weights[0] = host.num_weights[1] = static_cast<std::uint32_t>(num_weights_);
    assert(plan.tables.rows.size() <= std::size(host.luts));
    std::copy(plan.tables.rows.begin(), plan.tables.rows.end(), host.luts);
    line_.launches_.small_copy(line_.compute_, encoding.d_given.get(line_.gpu_, sizeof(Encoding::Given)),
                               encoding.given.device_address(), sizeof host);
  }

  void enqueue_encoding(const df11::UnitPlan& plan) {
    Encoding& encoding = *encoding_;
    const Stream& compute = line_.compute_;
    const df11::StreamLayout& layout = plan.layout;
    const std::uint64_t num_segments = segments_of(num_weights_);
    const CUdeviceptr d_tables = d_given(offsetof(Encoding::Given, tables));
    const CUdeviceptr d_status = d_returned() + offsetof(Encoding::Returned, status);

    SegmentBitsKernel::Parameters bits;
    bits.d_weights = d_weights_;
    bits.num_weights = num_weights_;
    bits.segment_weights = kSegmentWeights;
    bits.num_segments = num_segments;
    bits.d_histograms = d_histograms_;
    bits.d_tables = d_tables;
    bits.d_bits = encoding.d_bits.get(line_.gpu_, (num_segments + 1) * sizeof(std::uint64_t));
    bits.d_status = d_status;
    line_.launches_.segment_bits(compute, bits);

    SegmentOffsetsKernel::Parameters offsets;
    offsets.d_bits = bits.d_bits;
    offsets.num_segments = num_segments;
    offsets.expected_end = layout.total_bits;
    offsets.expected_last_length = layout.last_code_length;
    offsets.d_last_weight = d_weights_ + 2 * (num_weights_ - 1);
    offsets.d_tables = d_tables;
    offsets.d_status = d_status;
    line_.launches_.segment_offsets(compute, offsets);

    EncodeKernel::Parameters encode;
    encode.d_weights = d_weights_;
    encode.num_weights = num_weights_;
    encode.segment_weights = kSegmentWeights;
    encode.d_bits = bits.d_bits;
    encode.d_tables = d_tables;
    encode.is_last = 1;
    const auto used = static_cast<std::uint32_t>(layout.total_bits % 8);
    if (used != 0) encode.eof_bits = df11::eof_padding(plan.codebook, 8 - used);
    encode.d_sign_mantissa = encoding.d_sign_mantissa.get(line_.gpu_, num_weights_);
    encode.num_groups = (layout.num_bytes + kGroupBytes - 1) / kGroupBytes;
    encode.d_encoded_exponent = encoding.d_encoded_exponent.get(line_.gpu_, encode.num_groups * kGroupBytes);
    encode.d_gaps = encoding.d_gaps.get(line_.gpu_, layout.gaps_bytes);
    // One more than there may be, for the decoder (docs/format.md, "Output positions").
    encode.d_positions = encoding.d_positions.get(line_.gpu_, 4 * (layout.num_chunks + 1));
    encode.num_positions = layout.num_positions - 1;
    encode.d_status = d_status;
    const std::uint64_t coded_gaps = encode.num_groups * df11::kGapGroupBytes;
    compute.fill(encode.d_gaps + coded_gaps, 0, layout.gaps_bytes - coded_gaps);
    compute.copy_on_device(encode.d_positions + 4 * encode.num_positions,
                           d_given(offsetof(Encoding::Given, num_weights)),
                           4 * (layout.num_chunks + 1 - encode.num_positions));
    line_.launches_.encode(compute, encode);
    compute.record(encoding.encoded);
  }

  void enqueue_reading_back(const df11::UnitPlan& plan) {
    Encoding& encoding = *encoding_;
    DecodeKernel::Parameters decode;
    decode.d_luts = d_given(offsetof(Encoding::Given, luts));
    decode.num_tables = plan.tables.num_tables();
    decode.num_weights = num_weights_;
    decode.stream_bytes = plan.layout.num_bytes;
    decode.num_chunks = plan.layout.num_chunks;
    decode.d_positions = encoding.d_positions.get();
    decode.d_encoded_exponent = encoding.d_encoded_exponent.get();
    decode.available_bytes = plan.layout.num_bytes;
    decode.d_gaps = encoding.d_gaps.get();
    decode.d_sign_mantissa = encoding.d_sign_mantissa.get();
    decode.d_source = d_weights_;
    decode.d_result = d_returned() + offsetof(Encoding::Returned, decoded);
    line_.launches_.decode(line_.compute_, decode);
  }

  /// The next copy out, if anything is left.
  void enqueue_piece() {
    Encoding& encoding = *encoding_;
    while (encoding.next_output < encoding.outputs.size()) {
      Encoding::Output& output = encoding.outputs[encoding.next_output];
      const std::uint64_t bytes =
          std::min(output.size_bytes - output.copied_bytes, line_.out_ring_.bytes_each());
      if (bytes == 0) {
        ++encoding.next_output;
        continue;
      }
      Pinned& memory = line_.out_ring_.take();
      line_.out_.copy_to_host(memory.memory.data(), output.d_bytes + output.copied_bytes, bytes);
      line_.out_.record(memory.done);
      memory.is_in_use = true;
      encoding.flying.push_back(
          {{output.buffer, output.copied_bytes, {memory.memory.data(), bytes}}, &memory});
      output.copied_bytes += bytes;
      return;
    }
  }

  GpuUnitPipeline& line_;
  Slot& slot_;
  const std::uint64_t num_weights_;
  Event counted_;
  CUdeviceptr d_weights_ = 0, d_histograms_ = 0;
  Encoding* encoding_ = nullptr;  // from encode() on
  bool is_leaving_ = false;       // pieces are, or were, enqueued
  std::uint64_t num_in_ = 0;
  std::uint8_t last_exponent_ = 0;
  Pinned* slab_ = nullptr;
  std::span<std::uint16_t> slab_span_;
  bool is_finished_ = false;
};

// ---- the pipeline

namespace {

/// Of one part of a ring, of which there are four at each end.
std::uint64_t in_slab_weights(const UnitPipelineSizes& sizes) {
  const std::uint64_t wanted = sizes.host_bytes / 2 / 4 / sizeof(std::uint16_t);
  const std::uint64_t longest = segments_of(std::max<std::uint64_t>(sizes.longest_unit_weights, 1));
  return std::clamp(wanted / kSegmentWeights, std::uint64_t{1}, longest) * kSegmentWeights;
}

std::uint64_t out_piece_bytes(const UnitPipelineSizes& sizes) {
  return std::max(sizes.host_bytes / 2 / 4, kPageBytes) / kPageBytes * kPageBytes;
}

}  // namespace

GpuUnitPipeline::GpuUnitPipeline(const Gpu& gpu, const GpuKernels& kernels, const UnitPipelineSizes& sizes)
    : gpu_(gpu),
      launches_(kernels),
      in_(gpu),
      count_(gpu),
      compute_(gpu),
      out_(gpu),
      slab_weights_(in_slab_weights(sizes)),
      in_ring_(gpu, slab_weights_ * sizeof(std::uint16_t)),
      out_ring_(gpu, out_piece_bytes(sizes)) {
  for (auto& encoding : encodings_) encoding = std::make_unique<Encoding>(gpu);
  const std::uint64_t free_bytes = gpu.memory().free_bytes;
  const std::uint64_t usable =
      sizes.device_bytes != 0 ? std::min(sizes.device_bytes, free_bytes) : free_bytes / 10 * 9;
  const std::uint64_t out = encodings_.size() * output_bytes(sizes.longest_unit_weights);
  const std::uint64_t slot = slot_bytes(sizes.longest_unit_weights);
  if (usable < out + slot) {
    throw Error(ErrorCode::kOutOfMemory, "the longest unit takes " + std::to_string(out + slot) +
                                             " bytes of the GPU's memory, of which " +
                                             std::to_string(usable) + " may be used");
  }
  const std::uint64_t num_slots = std::min((usable - out) / slot, kMostUnits);
  for (std::uint64_t i = 0; i < num_slots; ++i) {
    auto made = std::make_unique<Slot>();
    made->d_unit_histogram = DeviceBuffer(gpu, sizeof(df11::Histogram));
    made->histogram = PinnedBuffer(gpu, sizeof(df11::Histogram));
    // At once, so that what does not fit is known before anything is written.
    made->d_weights.get(gpu, 2 * sizes.longest_unit_weights);
    made->d_histograms.get(gpu, segments_of(sizes.longest_unit_weights) * sizeof(df11::SegmentHistogram));
    slots_.push_back(std::move(made));
  }
}

GpuUnitPipeline::~GpuUnitPipeline() {
  try {
    gpu_.use();
    synchronize();
  } catch (const Error&) {  // a broken GPU has nothing under way
  }
}

void GpuUnitPipeline::synchronize() const {
  in_.wait();
  count_.wait();
  compute_.wait();
  out_.wait();
}

GpuUnitPipeline::Encoding* GpuUnitPipeline::free_encoding() const {
  const auto free =
      std::ranges::find_if(encodings_, [](const auto& encoding) { return encoding->owner == nullptr; });
  return free == encodings_.end() ? nullptr : free->get();
}

bool GpuUnitPipeline::has_room() const {
  return std::ranges::any_of(slots_, [](const auto& slot) { return !slot->is_taken; });
}

std::unique_ptr<UnitOnGpu> GpuUnitPipeline::begin_unit(std::uint64_t num_weights) {
  gpu_.use();
  const auto free = std::ranges::find_if(slots_, [](const auto& slot) { return !slot->is_taken; });
  assert(free != slots_.end() && num_weights > 0);
  return std::make_unique<Unit>(*this, **free, num_weights);
}

}  // namespace weightpress::device
