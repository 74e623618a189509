// The buffers of a unit that is stored somewhere, as a decoder reads them.
#pragma once

#include <cstdint>
#include <span>

#include "job/unit_compressor.h"
#include "model/checkpoint.h"
#include "model/df11_model.h"

namespace weightpress::job {

/// The same buffer as the model's files have it.
constexpr model::Df11Buffer df11_buffer(UnitBuffer buffer) {
  return static_cast<model::Df11Buffer>(buffer);
}
static_assert(df11_buffer(UnitBuffer::kLuts) == model::Df11Buffer::kLuts &&
              df11_buffer(UnitBuffer::kEncodedExponent) == model::Df11Buffer::kEncodedExponent &&
              df11_buffer(UnitBuffer::kSignMantissa) == model::Df11Buffer::kSignMantissa &&
              df11_buffer(UnitBuffer::kOutputPositions) == model::Df11Buffer::kOutputPositions &&
              df11_buffer(UnitBuffer::kGaps) == model::Df11Buffer::kGaps);

/// Where the buffers of a stored unit are read from: a file, an output in the making, memory.
class UnitBytes {
 public:
  virtual ~UnitBytes() = default;
  /// Fills `bytes` from byte `offset_bytes` of the buffer on; all inside the buffer. Called by one thread at
  /// a time.
  virtual void read(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> bytes) const = 0;
};

/// Sizes of a stored unit. They agree with each other as those of model::StoredUnit do.
struct UnitSizes {
  std::uint64_t num_weights = 0;    ///< 1 to 2^32 - 1
  std::uint64_t stream_bytes = 0;   ///< 1 or more
  std::uint64_t num_chunks = 0;     ///< stream_bytes / 4096, rounded up
  std::uint64_t num_positions = 0;  ///< num_chunks + 1, or num_chunks
  std::uint64_t num_tables = 0;     ///< 1 or more

  std::uint64_t luts_bytes() const { return (num_tables + 1) * df11::kNumSymbols; }
};

UnitSizes unit_sizes(const model::StoredUnit& unit);
UnitSizes unit_sizes(const df11::UnitPlan& plan);

/// A unit in the files of a checkpoint.
class CheckpointUnit final : public UnitBytes {
 public:
  /// All that is given must outlive the object.
  CheckpointUnit(const model::Checkpoint& checkpoint, const model::StoredUnit& unit, int num_threads)
      : checkpoint_(checkpoint), unit_(unit), num_threads_(num_threads) {}

  void read(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> bytes) const override;

 private:
  const model::Checkpoint& checkpoint_;
  const model::StoredUnit& unit_;
  int num_threads_;
};

}  // namespace weightpress::job
