#include "job/gpu_unit.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <weightpress/error.h>

namespace weightpress::job {
namespace {

/// A call of src/device.
template <class Call>
auto on_gpu(Call call) {
  try {
    return call();
  } catch (const Error& error) {
    throw GpuFailure{error.details()};
  }
}

[[noreturn]] void fail(std::string message) {
  throw GpuFailure{{.code = ErrorCode::kDeviceFailed, .message = std::move(message)}};
}

UnitBuffer buffer_of(device::OutputBuffer buffer) {
  switch (buffer) {
    case device::OutputBuffer::kSignMantissa:
      return UnitBuffer::kSignMantissa;
    case device::OutputBuffer::kEncodedExponent:
      return UnitBuffer::kEncodedExponent;
    case device::OutputBuffer::kGaps:
      return UnitBuffer::kGaps;
    case device::OutputBuffer::kOutputPositions:
      break;
  }
  return UnitBuffer::kOutputPositions;
}

/// What the GPU's decoder does not look at: that no chunk holds more weights than loaders can decode, and the
/// bits after the last code.
class PieceChecks {
 public:
  explicit PieceChecks(const df11::UnitPlan& plan) : plan_(plan) {}

  void look_at(const device::OutputPiece& piece) {
    sums_[static_cast<std::size_t>(piece.buffer)] += device::sum_of_words(piece.bytes, piece.offset_bytes);
    if (piece.buffer == device::OutputBuffer::kOutputPositions) {
      for (std::size_t i = 0; i + 4 <= piece.bytes.size(); i += 4) {
        std::uint32_t position = 0;
        std::memcpy(&position, piece.bytes.data() + i, sizeof position);
        densest_ = std::max<std::uint64_t>(densest_, std::uint64_t{position} - last_position_);
        last_position_ = position;
      }
    } else if (piece.buffer == device::OutputBuffer::kEncodedExponent) {
      last_byte_ = piece.bytes.back();
    }
  }

  /// sums: of what was read back.
  bool are_what_was_read_back(const std::array<std::uint32_t, 4>& sums) const { return sums_ == sums; }

  void finish() const {
    if (densest_ > df11::Df11Limits{}.max_chunk_weights)
      fail("a chunk of what it encoded holds more weights than loaders can decode");
    const auto used_bits = static_cast<std::uint32_t>(plan_.layout.total_bits % 8);
    if (used_bits != 0 &&
        (last_byte_ & (0xFF >> used_bits)) != df11::eof_padding(plan_.codebook, 8 - used_bits))
      fail("EOF's code does not complete the last byte of what it encoded");
  }

 private:
  const df11::UnitPlan& plan_;
  std::array<std::uint32_t, 4> sums_{};
  std::uint32_t last_position_ = 0;
  std::uint64_t densest_ = 0;
  std::uint8_t last_byte_ = 0;
};

}  // namespace

GpuUnit::GpuUnit(device::UnitPipeline& pipeline, WeightSource& source, int num_threads, StageTimes* times)
    : pipeline_(pipeline),
      source_(source),
      num_threads_(num_threads),
      times_(times),
      unit_(on_gpu([&] { return pipeline.begin_unit(source.num_weights()); })) {}

void GpuUnit::feed() {
  const device::UnitOnGpu::Slab slab = on_gpu([&] { return unit_->next_weights(); });
  // What the slab before ended with.
  const std::uint64_t known = std::min<std::uint64_t>(num_fed_ - slab.first, slab.weights.size());
  std::copy_n(last_weights_.end() - static_cast<std::ptrdiff_t>(num_fed_ - slab.first), known,
              slab.weights.begin());
  const std::span<std::uint16_t> fresh = slab.weights.subspan(known);
  if (!fresh.empty()) {
    {
      const StageTimer timer(times_, Stage::kRead, fresh.size_bytes());
      source_.read(num_fed_, fresh);
    }
    const WeightSums sums = sum_weights(fresh, num_threads_);
    sums_.weights += sums.weights;
    sums_.exponents += sums.exponents;
    num_fed_ += fresh.size();
    if (goes_in_slabs_) keep_last(fresh);
  }
  on_gpu([&] { unit_->submit(); });
}

void GpuUnit::keep_last(std::span<const std::uint16_t> weights) {
  constexpr std::uint64_t kMost = device::UnitOnGpu::kMaxOverlapWeights;
  last_weights_.insert(
      last_weights_.end(),
      weights.end() - static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(weights.size(), kMost)),
      weights.end());
  if (last_weights_.size() > kMost)
    last_weights_.erase(last_weights_.begin(), last_weights_.end() - static_cast<std::ptrdiff_t>(kMost));
}

std::optional<Result<df11::UnitPlan>> GpuUnit::plan(std::string_view unit, const df11::CodingOptions& coding,
                                                    UnitCounts& counts) {
  if (is_planned_) {
    counts = counts_;
    return plan_;
  }
  const StageTimer timer(times_, Stage::kHistogram, 2 * source_.num_weights());
  const df11::Histogram histogram = on_gpu([&] { return unit_->histogram(); });
  const std::uint8_t last_exponent = on_gpu([&] { return unit_->last_exponent(); });
  // Before a plan follows from the counts.
  std::uint64_t sum_of_exponents = 0;
  for (std::uint32_t exponent = 0; exponent < df11::kNumSymbols; ++exponent)
    sum_of_exponents += exponent * histogram[exponent];
  if (histogram[last_exponent] == 0 || sum_of_exponents != sums_.exponents)
    fail("what it counted are not the weights that it was given");
  bool needs_weights = false;
  Result<df11::UnitPlan> plan =
      df11::plan_unit({unit, histogram, last_exponent}, coding, [&](const df11::Codebook&) -> std::uint64_t {
        needs_weights = true;
        return 0;
      });
  is_planned_ = true;
  if (needs_weights || (!plan && plan.error().code == ErrorCode::kExponentTooLarge)) return std::nullopt;
  counts = counts_ = {sparse(histogram), last_exponent, {}};
  plan_ = std::move(plan);
  return plan_;
}

void GpuUnit::begin_encoding(const df11::UnitPlan& plan, bool verifies) {
  encoded_plan_ = plan;
  on_gpu([&] { unit_->encode(encoded_plan_, verifies); });
  is_encoding_ = true;
  goes_in_slabs_ = unit_->wants() != device::UnitOnGpu::Wants::kNothing;
  if (!goes_in_slabs_) return;
  num_fed_ = 0;
  sums_ = {};
}

void GpuUnit::encode(const df11::UnitPlan& plan, UnitSink& sink, bool verifies,
                     const std::function<void()>& between) {
  if (!is_encoding_) begin_encoding(plan, verifies);
  sink.write(UnitBuffer::kLuts, 0, {plan.tables.data(), plan.tables.size_bytes()});
  PieceChecks checks(plan);
  using Wants = device::UnitOnGpu::Wants;
  while (true) {
    // By turns, so that both directions are busy.
    while (unit_->wants() == Wants::kFirst) feed();
    if (unit_->wants() == Wants::kMore) feed();
    std::optional<device::OutputPiece> piece;
    {
      const StageTimer timer(times_, Stage::kEncode, 0);
      piece = on_gpu([&] { return unit_->next_piece(); });
    }
    if (!piece) break;
    checks.look_at(*piece);
    {
      const StageTimer timer(times_, Stage::kWrite, piece->bytes.size());
      sink.write(buffer_of(piece->buffer), piece->offset_bytes, piece->bytes);
    }
    between();
  }
  const StageTimer timer(times_, Stage::kVerify, verifies ? 2 * plan.layout.num_weights : 0);
  const device::UnitOnGpu::Verdict verdict = on_gpu([&] { return unit_->verdict(); });
  if (verdict.encoded.code != df11::StageCode::kOk)
    fail("the weights in its memory are not those that it counted");
  if (!verdict.decoded.ok)
    fail("what it encoded does not read back as the source, first in chunk " +
         std::to_string(verdict.decoded.chunk));
  // What was compared is what was read here, and not what became of it on the way.
  if (verifies && verdict.source_sum != sums_.weights)
    fail("the weights in its memory are not those that it was given");
  if (verifies && !checks.are_what_was_read_back(verdict.output_sums))
    fail("what it encoded changed on its way out");
  if (verdict.official_difference)
    fail("the official kernel decodes what it encoded to another weight, the first is weight " +
         std::to_string(*verdict.official_difference));
  if (!verdict.decoded.kernel_ends) fail("what it encoded would not end in the official kernel");
  checks.finish();
}

}  // namespace weightpress::job
