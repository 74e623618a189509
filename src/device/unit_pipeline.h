// Units on their way through a GPU: weights in, histogram, codebook from the host, encoding, reading back in
// place, buffers out. Copies in both directions and kernels of neighbouring units run beside each other. No
// CUDA header is needed.
//
// A unit stays in device memory from its first weight to its last byte, so it crosses the bus once in each
// direction. All calls throw Error if the GPU fails; then the pipeline is of no more use.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "format/bf16_fields.h"
#include "format/decode_stage.h"
#include "format/histogram.h"
#include "format/stages.h"
#include "format/unit_plan.h"

namespace weightpress::device {

enum class OutputBuffer : std::uint8_t { kSignMantissa, kEncodedExponent, kGaps, kOutputPositions };

/// A piece of one of a unit's buffers, in pinned memory.
struct OutputPiece {
  OutputBuffer buffer = OutputBuffer::kSignMantissa;
  std::uint64_t offset_bytes = 0;
  std::span<const std::uint8_t> bytes;
};

/// Adds weights up, so that any flipped bit shows. Sums of neighbouring ranges add up where the first one's
/// length is even.
inline std::uint64_t sum_of_weights(std::span<const std::uint16_t> weights) {
  std::uint64_t sum = 0;
  const std::size_t whole = weights.size() / 2 * 2;
  for (std::size_t i = 0; i < whole; i += 2) sum += weights[i] | std::uint32_t{weights[i + 1]} << 16;
  return whole == weights.size() ? sum : sum + weights.back();
}

/// Adds bytes up by words of four, the last one filled with zeros, so that any flipped bit shows. Sums of
/// neighbouring ranges add up. offset: of the first byte in what is added up.
inline std::uint32_t sum_of_words(std::span<const std::uint8_t> bytes, std::uint64_t offset = 0) {
  std::uint32_t sum = 0;
  std::size_t i = 0;
  const auto add_byte = [&] { sum += std::uint32_t{bytes[i]} << (8 * ((offset + i) % 4)); };
  for (; i < bytes.size() && (offset + i) % 4 != 0; ++i) add_byte();
  for (; i + 4 <= bytes.size(); i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    sum += word;
  }
  for (; i < bytes.size(); ++i) add_byte();
  return sum;
}

/// Adds up their exponents, which a histogram of them must give too.
inline std::uint64_t sum_of_exponents(std::span<const std::uint16_t> weights) {
  std::uint64_t sum = 0;
  for (const std::uint16_t weight : weights) sum += df11::exponent_of(weight);
  return sum;
}

/// One unit. Given back, with all its work waited for, when it is destroyed.
///
/// One that is longer than the GPU's memory goes through it slab by slab, twice: once to be counted, and,
/// once encode() was called, once more. Slabs then begin before the end of the one before.
class UnitOnGpu {
 public:
  /// By so many weights at most.
  static constexpr std::uint64_t kMaxOverlapWeights = std::uint64_t{64} << 10;

  virtual ~UnitOnGpu() = default;

  // ---- weights in, in order

  struct Slab {
    std::uint64_t first = 0;           ///< of the weights, in the unit
    std::span<std::uint16_t> weights;  ///< pinned memory for them
  };
  /// The next ones to be read; empty: no more are wanted now. Waits for memory that is free.
  virtual Slab next_weights() = 0;
  /// They are there. Enqueues their copy and what is done with them; waits for nothing.
  virtual void submit() = 0;
  virtual bool has_all() const = 0;  ///< all were given to be counted

  /// Once all are in: waits until they are counted.
  virtual df11::Histogram histogram() = 0;
  virtual std::uint8_t last_exponent() const = 0;

  // ---- buffers out

  /// Enqueues encoding and, if wanted, decoding with a comparison. The plan must be that of these weights,
  /// and outlive the object's use. For two units at most: the next one's kernels run while the buffers of the
  /// one before are copied out. Precondition: UnitPipeline::can_encode().
  virtual void encode(const df11::UnitPlan& plan, bool verifies) = 0;
  enum class Wants : std::uint8_t {
    kNothing,
    kMore,  ///< weights may be given now
    kFirst  ///< weights must be given before the next piece
  };
  /// After encode(): what next_weights() is for.
  virtual Wants wants() const = 0;
  /// The next piece; those of a buffer come in order, without holes. Waits for it. Its bytes stay until the
  /// next call. nullopt: that was all. Units are taken out one after the other.
  virtual std::optional<OutputPiece> next_piece() = 0;

  struct Verdict {
    df11::StageStatus encoded;
    // If it was wanted:
    df11::DecodeStatus decoded;
    /// Of the weights that were compared: sum_of_weights() of the unit's, as they were given last.
    std::uint64_t source_sum = 0;
    /// By OutputBuffer: of what was read back, sum_of_words() of all pieces.
    std::array<std::uint32_t, 4> output_sums{};
    /// If the pipeline has the official kernel, which then ran too: the first weight that it decodes to
    /// another one.
    std::optional<std::uint64_t> official_difference;
  };
  /// Once all pieces are out: waits until both are known. What the pieces hold means nothing before.
  virtual Verdict verdict() = 0;
};

struct UnitPipelineSizes {
  std::uint64_t longest_unit_weights = 0;
  /// Of which the weights are wanted to stay on the GPU from their counting to their encoding, beside those
  /// that are on their way.
  std::uint64_t num_units_kept = 0;
  std::uint64_t host_bytes = 0;    ///< of pinned memory, at most; what is less than a few pages is more
  std::uint64_t device_bytes = 0;  ///< of the GPU's memory, at most; 0: nine tenths of what is free
  /// The known decode.ptx, which reads units back after our own decoder; empty: that alone does.
  std::string official_ptx = {};
};

class UnitPipeline {
 public:
  virtual ~UnitPipeline() = default;

  /// Whether one more unit can be under way, from its first weight to its last byte. One that goes through in
  /// slabs must be alone. num_weights: at most that of the longest unit.
  virtual bool has_room(std::uint64_t num_weights) const = 0;
  virtual std::uint64_t num_free_slots() const = 0;  ///< units that are held whole, beside those there are
  virtual bool can_encode() const = 0;               ///< fewer than two units of those under way are encoded
  /// Precondition: has_room().
  virtual std::unique_ptr<UnitOnGpu> begin_unit(std::uint64_t num_weights) = 0;

  struct Memory {
    std::uint64_t resident_weights = 0;  ///< longer units go through in slabs
    std::uint64_t needed_bytes = 0;      ///< of the GPU's memory, to hold the longest unit whole
    std::uint64_t usable_bytes = 0;
  };
  virtual const Memory& memory() const = 0;
};

}  // namespace weightpress::device
