#include "device/gpu_unit_pipeline.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <string>

#include "device/gpu_stages.h"
#include "device/streamed_unit.h"
#include "format/bf16_fields.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kSegmentWeights = kGpuSegmentWeights;
constexpr std::uint64_t kUnitsOnTheirWay = 3;  // one leaves, one is counted, one comes in

std::uint64_t segments_of(std::uint64_t num_weights) {
  return df11::num_segments(num_weights, kSegmentWeights);
}

/// Of one part of a ring.
std::uint64_t in_slab_weights(const UnitPipelineSizes& sizes) {
  const std::uint64_t wanted = sizes.host_bytes / 2 / PinnedRing::kParts / sizeof(std::uint16_t);
  const std::uint64_t longest = segments_of(std::max<std::uint64_t>(sizes.longest_unit_weights, 1));
  return std::clamp(wanted / kSegmentWeights, std::uint64_t{1}, longest) * kSegmentWeights;
}

std::uint64_t out_piece_bytes(const UnitPipelineSizes& sizes) {
  return std::max(sizes.host_bytes / 2 / PinnedRing::kParts, kPageBytes) / kPageBytes * kPageBytes;
}

}  // namespace

// ---- units that are held whole

class GpuUnitPipeline::ResidentUnit final : public UnitOnGpu {
 public:
  ResidentUnit(GpuUnitPipeline& pipeline, Slot& slot, std::uint64_t num_weights)
      : pipeline_(pipeline),
        streams_(pipeline.streams_),
        slot_(slot),
        num_weights_(num_weights),
        counted_(streams_.gpu) {
    d_weights_ = slot_.d_weights.get(streams_.gpu, 2 * num_weights);
    d_histograms_ =
        slot_.d_histograms.get(streams_.gpu, segments_of(num_weights) * sizeof(df11::SegmentHistogram));
    streams_.count.fill(slot_.d_unit_histogram.get(), 0, sizeof(df11::Histogram));
    slot_.is_taken = true;
  }

  ~ResidentUnit() override {
    try {
      streams_.gpu.use();
      if (!is_finished_) streams_.synchronize();
    } catch (const Error&) {  // a broken GPU has nothing under way
    }
    slot_.is_taken = false;
    if (encoding_ != nullptr) encoding_->is_taken = false;
  }

  Slab next_weights() override {
    if (has_all()) return {};
    streams_.gpu.use();
    part_in_ = &streams_.in_ring.take();
    const std::uint64_t count = std::min(num_weights_ - num_in_, streams_.slab_weights());
    return slab_ = {num_in_, {reinterpret_cast<std::uint16_t*>(part_in_->memory.data()), count}};
  }

  void submit() override {
    assert(!slab_.weights.empty());
    streams_.gpu.use();
    const std::uint64_t count = slab_.weights.size();
    last_exponent_ = df11::exponent_of(slab_.weights.back());
    streams_.in.copy_to_device(d_weights_ + 2 * num_in_, slab_.weights.data(), slab_.weights.size_bytes());
    streams_.in.record(part_in_->done);
    part_in_->is_in_use = true;
    streams_.count.wait_for(part_in_->done);
    HistogramKernel::Parameters parameters;
    parameters.d_weights = d_weights_ + 2 * num_in_;
    parameters.num_weights = count;
    parameters.segment_weights = kSegmentWeights;
    parameters.d_histograms = d_histograms_ + num_in_ / kSegmentWeights * sizeof(df11::SegmentHistogram);
    parameters.d_unit_histogram = slot_.d_unit_histogram.get();
    streams_.launches.histogram(streams_.count, parameters);
    num_in_ += count;
    slab_ = {};
    if (!has_all()) return;
    streams_.launches.small_copy(streams_.count, slot_.histogram.device_address(),
                                 slot_.d_unit_histogram.get(), sizeof(df11::Histogram));
    streams_.count.record(counted_);
  }

  bool has_all() const override { return num_in_ == num_weights_; }

  df11::Histogram histogram() override {
    assert(has_all());
    streams_.gpu.use();
    counted_.wait();
    return checked_histogram(slot_.histogram, num_weights_);
  }

  std::uint8_t last_exponent() const override { return last_exponent_; }

  void encode(const df11::UnitPlan& plan, bool verifies) override {
    assert(has_all() && encoding_ == nullptr);
    streams_.gpu.use();
    for (const auto& encoding : pipeline_.encodings_)
      if (!encoding->is_taken) encoding_ = encoding.get();
    assert(encoding_ != nullptr);
    encoding_->is_taken = true;
    streams_.compute.wait_for(counted_);
    encoding_->encoding->begin(plan);
    const CUdeviceptr d_bits =
        encoding_->d_bits.get(streams_.gpu, (segments_of(num_weights_) + 1) * sizeof(std::uint64_t));
    encoding_->encoding->find_first_bits({.d_weights = d_weights_,
                                          .d_histograms = d_histograms_,
                                          .d_last_weight = d_weights_ + 2 * (num_weights_ - 1)},
                                         d_bits);
    encoding_->encoding->encode({.num_weights = num_weights_,
                                 .end_bit = plan.layout.total_bits,
                                 .end_chunk = plan.layout.num_chunks,
                                 .is_last = true,
                                 .d_weights = d_weights_,
                                 .d_bits = d_bits},
                                verifies);
  }

  Wants wants() const override { return Wants::kNothing; }

  std::optional<OutputPiece> next_piece() override {
    assert(encoding_ != nullptr);
    streams_.gpu.use();
    const auto piece = encoding_->encoding->next_piece(0);
    is_out_ = !piece;
    return piece;
  }

  Verdict verdict() override {
    assert(encoding_ != nullptr);
    streams_.gpu.use();
    Verdict verdict = encoding_->encoding->verdict();
    is_finished_ = is_out_;
    return verdict;
  }

 private:
  GpuUnitPipeline& pipeline_;
  PipelineStreams& streams_;
  Slot& slot_;
  const std::uint64_t num_weights_;
  Event counted_;
  CUdeviceptr d_weights_ = 0, d_histograms_ = 0;
  Encoding* encoding_ = nullptr;  // from encode() on
  std::uint64_t num_in_ = 0;
  std::uint8_t last_exponent_ = 0;
  PinnedPart* part_in_ = nullptr;
  Slab slab_;
  bool is_out_ = false, is_finished_ = false;
};

// ---- units that go through in slabs

/// Of which the pipeline knows.
class GpuUnitPipeline::LoneUnit final : public UnitOnGpu {
 public:
  LoneUnit(GpuUnitPipeline& pipeline, std::uint64_t num_weights) : pipeline_(pipeline) {
    pipeline_.slots_.clear();
    pipeline_.encodings_.clear();
    unit_.emplace(pipeline_.streams_, num_weights, pipeline_.plan_.slab_weights, pipeline_.plan_.num_slabs);
    pipeline_.has_lone_unit_ = true;
  }
  ~LoneUnit() override { pipeline_.has_lone_unit_ = false; }

  Slab next_weights() override { return unit_->next_weights(); }
  void submit() override { unit_->submit(); }
  bool has_all() const override { return unit_->has_all(); }
  df11::Histogram histogram() override { return unit_->histogram(); }
  std::uint8_t last_exponent() const override { return unit_->last_exponent(); }
  void encode(const df11::UnitPlan& plan, bool verifies) override { unit_->encode(plan, verifies); }
  Wants wants() const override { return unit_->wants(); }
  std::optional<OutputPiece> next_piece() override { return unit_->next_piece(); }
  Verdict verdict() override { return unit_->verdict(); }

 private:
  GpuUnitPipeline& pipeline_;
  std::optional<StreamedUnit> unit_;
};

// ---- the pipeline

GpuUnitPipeline::GpuUnitPipeline(const Gpu& gpu, const GpuKernels& kernels, const UnitPipelineSizes& sizes)
    : streams_(gpu, kernels, in_slab_weights(sizes), out_piece_bytes(sizes), sizes.official_ptx),
      longest_unit_weights_(sizes.longest_unit_weights) {
  const std::uint64_t free_bytes = gpu.memory().free_bytes;
  told_memory_.usable_bytes =
      sizes.device_bytes != 0 ? std::min(sizes.device_bytes, free_bytes) : free_bytes / 10 * 9;
  told_memory_.needed_bytes =
      slot_bytes(longest_unit_weights_) + encoding_bytes(longest_unit_weights_, has_outputs());
  // At once, so that what does not fit is known before anything is written. There may be less than is free.
  while (!plan_and_allocate(kUnitsOnTheirWay + sizes.num_units_kept)) told_memory_.usable_bytes /= 2;
  told_memory_.resident_weights = plan_.resident_weights;
}

GpuUnitPipeline::~GpuUnitPipeline() {
  try {
    streams_.gpu.use();
    streams_.synchronize();
  } catch (const Error&) {  // a broken GPU has nothing under way
  }
}

bool GpuUnitPipeline::plan_and_allocate(std::uint64_t most_slots) {
  const auto plan = plan_pipeline_memory({.longest_unit_weights = longest_unit_weights_,
                                          .usable_bytes = told_memory_.usable_bytes,
                                          .most_slots = most_slots,
                                          .has_outputs = has_outputs()});
  if (!plan) {
    throw Error(ErrorCode::kOutOfMemory,
                "of the GPU's memory " + std::to_string(told_memory_.usable_bytes) +
                    " bytes may be used, which is too little even for slabs of the longest unit");
  }
  plan_ = *plan;
  try {
    allocate_slots();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    slots_.clear();
    encodings_.clear();
    return false;
  }
}

void GpuUnitPipeline::allocate_slots() {
  const Gpu& gpu = streams_.gpu;
  while (encodings_.size() < plan_.num_encodings) {
    auto made = std::make_unique<Encoding>();
    made->encoding = std::make_unique<UnitEncoding>(streams_);
    encodings_.push_back(std::move(made));
  }
  while (slots_.size() < plan_.num_slots) {
    auto made = std::make_unique<Slot>();
    made->d_unit_histogram = DeviceBuffer(gpu, sizeof(df11::Histogram));
    made->histogram = PinnedBuffer(gpu, sizeof(df11::Histogram));
    made->d_weights.get(gpu, 2 * plan_.resident_weights);
    made->d_histograms.get(gpu, segments_of(plan_.resident_weights) * sizeof(df11::SegmentHistogram));
    slots_.push_back(std::move(made));
  }
}

bool GpuUnitPipeline::can_encode() const {
  return has_lone_unit_ ||
         std::ranges::any_of(encodings_, [](const auto& encoding) { return !encoding->is_taken; });
}

std::uint64_t GpuUnitPipeline::num_free_slots() const {
  if (has_lone_unit_) return 0;
  // Those that were given back come again.
  const auto taken = std::ranges::count_if(slots_, [](const auto& slot) { return slot->is_taken; });
  return plan_.num_slots - static_cast<std::uint64_t>(taken);
}

bool GpuUnitPipeline::has_room(std::uint64_t num_weights) const {
  const bool is_streamed = num_weights > plan_.resident_weights;
  return is_streamed ? !has_lone_unit_ && num_free_slots() == plan_.num_slots : num_free_slots() > 0;
}

std::unique_ptr<UnitOnGpu> GpuUnitPipeline::begin_unit(std::uint64_t num_weights) {
  assert(has_room(num_weights) && num_weights > 0 && num_weights <= longest_unit_weights_);
  streams_.gpu.use();
  if (num_weights > plan_.resident_weights) return std::make_unique<LoneUnit>(*this, num_weights);
  allocate_slots();
  const auto free = std::ranges::find_if(slots_, [](const auto& slot) { return !slot->is_taken; });
  return std::make_unique<ResidentUnit>(*this, **free, num_weights);
}

}  // namespace weightpress::device
