// A unit's source, sink and buffers in memory.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>

#include <weightpress/df11.h>

#include "job/stored_unit.h"
#include "job/unit_compressor.h"

namespace weightpress::job {

class MemorySource final : public WeightSource {
 public:
  explicit MemorySource(std::span<const std::uint16_t> weights) : weights_(weights) {}

  std::uint64_t num_weights() const override { return weights_.size(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override {
    std::copy_n(weights_.begin() + static_cast<std::ptrdiff_t>(first), weights.size(), weights.begin());
  }
  std::span<const std::uint16_t> in_memory(std::uint64_t first, std::uint64_t count) override {
    return weights_.subspan(first, count);
  }

 private:
  std::span<const std::uint16_t> weights_;
};

class MemorySink final : public UnitSink {
 public:
  void begin(const df11::UnitPlan& plan) override {
    unit.luts.resize(plan.tables.size_bytes());
    unit.encoded_exponent.resize(plan.layout.num_bytes);
    unit.sign_mantissa.resize(plan.layout.num_weights);
    unit.output_positions.resize(plan.layout.positions_bytes());
    unit.gaps.resize(plan.layout.gaps_bytes);
  }

  void write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) override {
    std::vector<std::uint8_t>& target = this->buffer(buffer);
    assert(offset_bytes + bytes.size() <= target.size());
    std::copy(bytes.begin(), bytes.end(), target.begin() + static_cast<std::ptrdiff_t>(offset_bytes));
  }

  Df11Unit unit;

 private:
  std::vector<std::uint8_t>& buffer(UnitBuffer which) {
    switch (which) {
      case UnitBuffer::kLuts:
        return unit.luts;
      case UnitBuffer::kEncodedExponent:
        return unit.encoded_exponent;
      case UnitBuffer::kSignMantissa:
        return unit.sign_mantissa;
      case UnitBuffer::kOutputPositions:
        return unit.output_positions;
      case UnitBuffer::kGaps:
        break;
    }
    return unit.gaps;
  }
};

class MemoryUnit final : public UnitBytes {
 public:
  explicit MemoryUnit(const Df11UnitView& unit)
      : buffers_{unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps} {}

  void read(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> bytes) const override {
    const std::span<const std::uint8_t> from = buffers_[static_cast<std::size_t>(buffer)];
    assert(offset_bytes + bytes.size() <= from.size());
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(offset_bytes), bytes.size(), bytes.begin());
  }

 private:
  std::array<std::span<const std::uint8_t>, 5> buffers_;  // in the order of UnitBuffer
};

inline Df11UnitView view_of(const Df11Unit& unit) {
  return {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps};
}

}  // namespace weightpress::job
