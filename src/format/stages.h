// The stages of DF11 encoding, as src/host runs them and src/device enqueues them on a stream: on slabs.
//
// A slab is a run of whole segments of a unit (the unit's last segment may be short) that is in memory at
// once. No call sees a unit-sized buffer that it did not ask for: a slab reads its own weights and writes its
// own pieces of the five buffers. Borders of slabs fall inside bytes of the bitstream and inside groups of
// eight gaps, so a slab hands its unfinished byte and group back apart, and SlabJoiner (format/slab_border.h)
// puts them together.
//
// The bytes do not depend on the slab size, the segment size, the number of threads or the back end.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "format/codebook.h"
#include "format/histogram.h"
#include "format/slab_pieces.h"
#include "format/stream_layout.h"

namespace weightpress::df11 {

enum class StageCode : std::uint8_t {
  kOk,
  /// The weights do not match the histograms that the offsets come from: the source changed in between.
  /// Outputs are unspecified, but nothing outside them was written.
  kSourceChanged
};

struct StageStatus {
  StageCode code = StageCode::kOk;
  std::uint64_t segment = 0;  ///< lowest segment of the slab with that code
};

/// The end of an enqueued stage. On the host it is already there when the call returns.
class Completion {
 public:
  explicit Completion(StageStatus status) : status_(status) {}
  /// wait: waits until the stage's outputs are complete, and completes what is to be done by the host.
  explicit Completion(std::function<StageStatus()> wait) : wait_(std::move(wait)) {}
  /// Waits until the stage's outputs are complete. Once. Throws what a device that fails makes of it.
  StageStatus wait() const { return wait_ ? wait_() : status_; }

 private:
  StageStatus status_;
  std::function<StageStatus()> wait_;
};

// ---- histogram

struct HistogramArguments {
  std::span<const std::uint16_t> weights;  ///< of the slab
  std::uint64_t segment_weights = 0;
  std::span<SegmentHistogram> histograms;  ///< out: [num_segments(weights.size(), segment_weights)]
};

// ---- chunk starts: the output positions alone, from code lengths alone

struct ChunkStartsArguments {
  std::span<const std::uint16_t> weights;
  std::uint64_t segment_weights = 0;
  SlabPosition position;
  const Codebook* codebook = nullptr;
  std::span<const SegmentHistogram> histograms;
  /// Out: [first_open_chunk(...) of the next slab - of this one]: first weight of each chunk that a code of
  /// the slab opens. See slab_pieces().
  std::span<std::uint32_t> positions;
};

// ---- encode: split + bitstream + gaps + output positions

/// What a slab leaves of its unfinished byte and gap group; all 0 in the last slab and where nothing is
/// unfinished.
struct SlabBorder {
  std::uint8_t byte = 0;
  std::uint8_t gap_group[kGapGroupBytes] = {};
};

struct EncodeArguments {
  std::span<const std::uint16_t> weights;
  std::uint64_t segment_weights = 0;
  SlabPosition position;
  const Codebook* codebook = nullptr;
  const StreamLayout* layout = nullptr;
  std::span<const SegmentHistogram> histograms;  ///< of the slab's segments, as the histogram stage made them

  // Out. The spans have the sizes of slab_pieces() and must not overlap.
  std::span<std::uint8_t> sign_mantissa;     ///< [weights.size()]
  std::span<std::uint8_t> encoded_exponent;  ///< [pieces.num_bytes]
  std::span<std::uint8_t> gaps;              ///< [kGapGroupBytes * pieces.num_gap_groups]
  std::span<std::uint32_t> positions;        ///< [pieces.num_positions]
  SlabBorder* border = nullptr;
};

/// What src/host and src/device offer. An object serves one caller at a time; its calls may run on many
/// threads or on a stream. Arguments and what they point to must live until the completion.
class Df11Stages {
 public:
  virtual ~Df11Stages() = default;

  virtual Completion histogram(const HistogramArguments& arguments) = 0;
  virtual Completion chunk_starts(const ChunkStartsArguments& arguments) = 0;
  virtual Completion encode(const EncodeArguments& arguments) = 0;
};

}  // namespace weightpress::df11
