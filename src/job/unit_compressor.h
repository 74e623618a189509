// One unit through the stages, slab by slab: histogram, plan, encode. Knows neither files nor devices.
//
// plan() settles all sizes and refusals, encode() makes the bytes. Folder layouts call one after the other;
// single-file layouts plan all units first. A unit that is given memory to be held in is read once. Another
// is read twice (three or four times in the rare case that a codebook with a 1-bit code has to be checked for
// dense chunks).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "format/histogram.h"
#include "format/stages.h"
#include "format/unit_plan.h"
#include "job/stage_times.h"
#include "job/unit_counts.h"

namespace weightpress::job {

struct WeightRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};

/// Where a unit's weights come from: its tensors, concatenated.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::uint64_t num_weights() const = 0;
  /// Those that can be read now: all, unless the weights come and go.
  virtual WeightRange readable() const { return {0, num_weights()}; }
  /// Fills `weights` with the weights from `first` on.
  virtual void read(std::uint64_t first, std::span<std::uint16_t> weights) = 0;
  /// The same without a copy, if they lie in memory; otherwise fewer, e.g. none. Valid until the next call.
  virtual std::span<const std::uint16_t> in_memory(std::uint64_t /*first*/, std::uint64_t /*count*/) {
    return {};
  }
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

/// How much of each buffer was written, from its begin on without holes.
struct WrittenSoFar {
  std::uint64_t stream_bytes = 0;
  std::uint64_t gaps_bytes = 0;
  std::uint64_t num_positions = 0;
};

struct UnitCompressorOptions {
  df11::CodingOptions coding{};
  /// Weights a slab, rounded up to whole segments. Memory a weight of the slab: 2 bytes for the weight (none
  /// if the unit is held or lies in memory), 1 for its sign and mantissa, 1 at most for its code (slabs whose
  /// codes are longer are encoded in parts), and 1/16 of these for growth; 1 KiB a segment of the unit.
  std::uint64_t slab_weights = std::uint64_t{4} << 20;
  /// Weights a segment; 0: segment_weights_for(). The bytes depend on neither.
  std::uint64_t segment_weights = 0;
  StageTimes* times = nullptr;  ///< read, histogram, encode, write, verify (on_written) are added
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

/// Compresses one unit in two steps. Objects that share buffers take turns.
class UnitCompressor {
 public:
  /// Called after each slab with its number of weights.
  using OnSlab = std::function<void(std::uint64_t num_weights)>;
  /// Called with each slab's weights when its pieces are written. An error ends the encoding.
  using OnWritten =
      std::function<Result<void>(std::span<const std::uint16_t> weights, const WrittenSoFar& written)>;

  /// All that is given must outlive the object.
  UnitCompressor(std::string_view unit, WeightSource& source, df11::Df11Stages& stages, SlabBuffers& buffers,
                 const UnitCompressorOptions& options);
  UnitCompressor(const UnitCompressor&) = delete;
  UnitCompressor& operator=(const UnitCompressor&) = delete;

  /// The unit's weights stay here from their first read on: [num_weights], until release_weights().
  void hold(std::span<std::uint16_t> memory);
  void release_weights() { hold({}); }
  bool is_held() const { return !held_.empty(); }

  /// Counts and decides. Errors: those of df11::plan_unit (kExponentTooLarge with the weight's index as
  /// offset), kSourceChanged, and whatever the source throws.
  Result<df11::UnitPlan> plan(const OnSlab& on_slab = {});

  /// Once plan() has given a plan.
  const UnitCounts& counts() const { return counts_; }

  std::uint64_t histogram_bytes() const { return histograms_.size() * sizeof histograms_[0]; }
  /// Gives back the memory of the segments' histograms; encode() then counts again.
  void release_histograms();

  /// Makes the buffers of the plan that plan() returned. Errors: kSourceChanged, those of on_written, and
  /// whatever source and sink throw.
  Result<void> encode(const df11::UnitPlan& plan, UnitSink& sink, const OnSlab& on_slab = {},
                      const OnWritten& on_written = {});

 private:
  struct Slab {
    std::uint64_t first_weight = 0;
    std::span<const std::uint16_t> weights;
    std::span<df11::SegmentHistogram> histograms;
    bool is_last = false;
  };
  std::span<const std::uint16_t> weights_of_slab(std::uint64_t first, std::uint64_t count);
  template <class Visit>
  bool for_each_slab(Visit visit);
  template <class Visit>
  bool for_each_part(const Slab& slab, const df11::Codebook& codebook, Visit visit);
  template <class Visit>
  bool for_each_slab_position(const df11::Codebook& codebook, Visit visit);
  std::uint64_t densest_chunk(const df11::Codebook& codebook);
  std::uint64_t find_large_exponent();
  Unexpected changed() const;

  std::string_view unit_;
  WeightSource& source_;
  df11::Df11Stages& stages_;
  SlabBuffers& buffers_;
  const UnitCompressorOptions options_;

  std::uint64_t num_weights_ = 0;
  std::uint64_t segment_weights_ = 0;
  std::uint64_t slab_weights_ = 0;

  UnitCounts counts_;
  std::span<std::uint16_t> held_;
  std::uint64_t num_held_ = 0;  // of them, from the first on, are there

  std::vector<df11::SegmentHistogram> histograms_;       // of all segments, unless they were released
  std::vector<df11::SegmentHistogram> slab_histograms_;  // of one slab, once they were
  bool source_changed_ = false;
};

/// Both steps at once. Errors: those of df11::plan_unit (kExponentTooLarge with the weight's index as
/// offset), kSourceChanged, and whatever source and sink throw.
Result<df11::UnitPlan> compress_unit(std::string_view unit, WeightSource& source, UnitSink& sink,
                                     df11::Df11Stages& stages, SlabBuffers& buffers,
                                     const UnitCompressorOptions& options);

}  // namespace weightpress::job
