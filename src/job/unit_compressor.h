// One unit through the stages, slab by slab: histogram, plan, encode. Knows neither files nor devices.
//
// A unit that fits one slab is read once; a longer one is read twice (three or four times in the rare case
// that a codebook with a 1-bit code has to be checked for dense chunks).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "format/histogram.h"
#include "format/stages.h"
#include "format/unit_plan.h"

namespace weightpress::job {

/// Where a unit's weights come from: its tensors, concatenated.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::uint64_t num_weights() const = 0;
  /// Fills `weights` with the weights from `first` on.
  virtual void read(std::uint64_t first, std::span<std::uint16_t> weights) = 0;
};

/// The buffers of a unit that the stages make. split_positions follow from the tensors alone.
enum class UnitBuffer : std::uint8_t { kLuts, kEncodedExponent, kSignMantissa, kOutputPositions, kGaps };

/// Where a unit's buffers go.
class UnitSink {
 public:
  virtual ~UnitSink() = default;
  /// Called once, before the first write(): all sizes are settled.
  virtual void begin(const df11::UnitPlan& plan) = 0;
  /// Pieces of a buffer come in order and leave no holes.
  virtual void write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) = 0;
};

struct UnitCompressorOptions {
  df11::CodingOptions coding{};
  /// Weights a slab, rounded up to whole segments. Memory a weight of the slab: 2 bytes for the weight, 1 for
  /// its sign and mantissa, its code (at most 8 bits on average) and 1/16 of these for growth; 1 KiB a
  /// segment of the unit.
  std::uint64_t slab_weights = std::uint64_t{32} << 20;
  /// Weights a segment; 0: segment_weights_for(). The bytes depend on neither.
  std::uint64_t segment_weights = 0;
};

/// Memory for a slab's piece of a buffer. Grows without copying or clearing.
template <class T>
class PieceBuffer {
 public:
  /// Content is unspecified; what get() gave before is gone.
  std::span<T> get(std::uint64_t count) {
    if (count > capacity_) {
      data_.reset();
      capacity_ = count + count / 16;  // pieces of later slabs differ a little
      data_ = std::make_unique_for_overwrite<T[]>(capacity_);
    }
    return {data_.get(), count};
  }

 private:
  std::unique_ptr<T[]> data_;
  std::uint64_t capacity_ = 0;
};

/// The buffers of one slab; kept from unit to unit, since fresh memory costs a page fault every 4 KiB.
struct SlabBuffers {
  PieceBuffer<std::uint16_t> weights;
  PieceBuffer<std::uint8_t> sign_mantissa, encoded_exponent, gaps;
  PieceBuffer<std::uint32_t> positions;
};

/// Compresses one unit. Errors: those of df11::plan_unit (kExponentTooLarge with the weight's index as
/// offset), kSourceChanged, and whatever source and sink throw.
Result<df11::UnitPlan> compress_unit(std::string_view unit, WeightSource& source, UnitSink& sink,
                                     df11::Df11Stages& stages, SlabBuffers& buffers,
                                     const UnitCompressorOptions& options);

}  // namespace weightpress::job
