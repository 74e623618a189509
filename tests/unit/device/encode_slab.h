// Slabs of units for the encode and chunk-starts stages of the CPU and of a GPU, which must give the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/driver/cuda_driver.h"
#include "device/gpu_stages.h"
#include "device/watched_memory.h"
#include "format/bf16_fields.h"
#include "format/stages.h"
#include "host/host_stages.h"

namespace weightpress::device {

/// A unit's weights as they were counted, by segments, and what follows from them and a codebook.
struct CountedUnit {
  std::vector<std::uint16_t> weights;
  std::uint64_t segment_weights = 0;
  df11::Codebook codebook;
  std::vector<df11::SegmentHistogram> histograms;
  std::vector<std::uint64_t> first_bits;  ///< of the segments, and the end
  df11::StreamLayout layout;

  /// Precondition: each weight has a code.
  CountedUnit(std::vector<std::uint16_t> of, std::uint64_t segment, df11::Codebook coded_by)
      : weights(std::move(of)), segment_weights(segment), codebook(std::move(coded_by)), first_bits{0} {
    for (std::uint64_t first = 0; first < weights.size(); first += segment_weights) {
      df11::SegmentHistogram histogram{};
      std::uint64_t bits = first_bits.back();
      for (std::uint64_t i = first; i < std::min<std::uint64_t>(first + segment_weights, weights.size());
           ++i) {
        ++histogram[df11::exponent_of(weights[i])];
        bits += length_of(weights[i]);
      }
      histograms.push_back(histogram);
      first_bits.push_back(bits);
    }
    layout = df11::make_stream_layout(weights.size(), first_bits.back(), length_of(weights.back()));
  }

  std::uint64_t num_segments() const { return histograms.size(); }
  std::uint32_t length_of(std::uint16_t weight) const { return codebook.lengths[df11::exponent_of(weight)]; }
};

/// A run of a unit's segments.
struct EncodeSlab {
  const CountedUnit& unit;
  std::span<const std::uint16_t> weights;
  std::span<const df11::SegmentHistogram> histograms;
  df11::SlabPosition position;
  std::uint64_t end_bit = 0;
  df11::SlabPieces pieces;
  std::uint64_t num_starts = 0;  ///< chunks that the slab opens

  EncodeSlab(const CountedUnit& of, std::uint64_t first_segment, std::uint64_t end_segment)
      : EncodeSlab(of, first_segment, end_segment, of.weights) {}

  /// unit_weights: what the unit's weights are by now.
  EncodeSlab(const CountedUnit& of, std::uint64_t first_segment, std::uint64_t end_segment,
             std::span<const std::uint16_t> unit_weights)
      : unit(of), end_bit(of.first_bits[end_segment]) {
    const std::uint64_t first = first_segment * unit.segment_weights;
    const std::uint64_t end =
        std::min<std::uint64_t>(end_segment * unit.segment_weights, unit.weights.size());
    weights = unit_weights.subspan(first, end - first);
    histograms = std::span(unit.histograms).subspan(first_segment, end_segment - first_segment);
    position.first_weight = first;
    position.first_bit = unit.first_bits[first_segment];
    position.previous_code_length = first == 0 ? 0 : unit.length_of(unit.weights[first - 1]);
    position.is_last = end_segment == unit.num_segments();
    // Whoever calls a stage looks at the last weight as it is now, if it can be the last one.
    std::uint32_t last_length = unit.length_of(weights.back());
    const std::uint64_t bits = end_bit - position.first_bit;
    if (last_length == 0 || last_length > bits) last_length = unit.length_of(unit.weights[end - 1]);
    pieces = df11::slab_pieces(position, bits, last_length, unit.layout);
    num_starts =
        df11::first_open_chunk(df11::first_open_window(end_bit, last_length)) - pieces.first_position;
  }
};

/// All that encoding a slab writes.
struct SlabOutputs {
  GuardedSpan<std::uint8_t> sign_mantissa, encoded_exponent, gaps;
  GuardedSpan<std::uint32_t> positions;
  df11::SlabBorder border;

  explicit SlabOutputs(const EncodeSlab& slab)
      : sign_mantissa(slab.weights.size()),
        encoded_exponent(slab.pieces.num_bytes),
        gaps(slab.pieces.num_gap_groups * df11::kGapGroupBytes),
        positions(slab.pieces.num_positions) {}

  df11::EncodeArguments arguments(const EncodeSlab& slab) {
    return {slab.weights,
            slab.unit.segment_weights,
            slab.position,
            &slab.unit.codebook,
            &slab.unit.layout,
            slab.histograms,
            sign_mantissa.get(),
            encoded_exponent.get(),
            gaps.get(),
            positions.get(),
            &border};
  }
  bool is_intact() const {
    return sign_mantissa.is_intact() && encoded_exponent.is_intact() && gaps.is_intact() &&
           positions.is_intact();
  }
};

template <class T>
::testing::AssertionResult same_values(const char* name, std::span<const T> found,
                                       std::span<const T> expected) {
  if (found.size() != expected.size())
    return ::testing::AssertionFailure() << name << ": " << found.size() << ", not " << expected.size();
  const auto [ours, theirs] = std::ranges::mismatch(found, expected);
  if (ours == found.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << name << "[" << ours - found.begin() << "] of " << found.size() << " is " << std::uint64_t{*ours}
         << ", not " << std::uint64_t{*theirs};
}

/// The stages side by side.
class BothEncodeStages {
 public:
  /// kNew: a stage of its own for each call. Its device memory is then hardly larger than this one needs, so
  /// that an access outside a buffer, or to what nobody wrote, is a fault and does not find another slab's
  /// bytes.
  enum class Memory : std::uint8_t { kNew, kKept };
  /// Whether both must name the same segment where the source changed.
  enum class Segment : std::uint8_t { kSame, kAny };

  BothEncodeStages(const Gpu& gpu, const GpuKernels& kernels, Memory memory = Memory::kNew)
      : gpu_(gpu), kernels_(kernels), memory_(memory) {}

  /// The same status and the same outputs, and nothing written beside them.
  ::testing::AssertionResult encode_alike(const EncodeSlab& slab, Segment segment = Segment::kSame) {
    SlabOutputs expected(slab), found(slab);
    status_ = host_.encode(expected.arguments(slab)).wait();
    try {
      const df11::StageStatus status = stages().encode(found.arguments(slab)).wait();
      if (!is_same(status, segment)) return different(slab, status);
    } catch (const CudaError& error) {
      return ::testing::AssertionFailure() << place(slab) << error.what();
    }
    if (!expected.is_intact() || !found.is_intact())
      return ::testing::AssertionFailure() << place(slab) << "something beside the outputs was written";
    if (status_.code != df11::StageCode::kOk) return ::testing::AssertionSuccess();
    for (const auto& same :
         {same_values<std::uint8_t>("sign_mantissa", found.sign_mantissa.get(), expected.sign_mantissa.get()),
          same_values<std::uint8_t>("encoded_exponent", found.encoded_exponent.get(),
                                    expected.encoded_exponent.get()),
          same_values<std::uint8_t>("gaps", found.gaps.get(), expected.gaps.get()),
          same_values<std::uint32_t>("positions", found.positions.get(), expected.positions.get()),
          same_values<std::uint8_t>("border byte", {&found.border.byte, 1}, {&expected.border.byte, 1}),
          same_values<std::uint8_t>("border gaps", found.border.gap_group, expected.border.gap_group)})
      if (!same) return ::testing::AssertionFailure() << place(slab) << same.message();
    return ::testing::AssertionSuccess();
  }

  /// The same for the chunk starts alone.
  ::testing::AssertionResult find_starts_alike(const EncodeSlab& slab, Segment segment = Segment::kSame) {
    GuardedSpan<std::uint32_t> expected(slab.num_starts), found(slab.num_starts);
    const auto arguments = [&slab](GuardedSpan<std::uint32_t>& positions) {
      return df11::ChunkStartsArguments{slab.weights,        slab.unit.segment_weights, slab.position,
                                        &slab.unit.codebook, slab.histograms,           positions.get()};
    };
    status_ = host_.chunk_starts(arguments(expected)).wait();
    try {
      const df11::StageStatus status = stages().chunk_starts(arguments(found)).wait();
      if (!is_same(status, segment)) return different(slab, status);
    } catch (const CudaError& error) {
      return ::testing::AssertionFailure() << place(slab) << error.what();
    }
    if (!expected.is_intact() || !found.is_intact())
      return ::testing::AssertionFailure() << place(slab) << "something beside the starts was written";
    if (status_.code != df11::StageCode::kOk) return ::testing::AssertionSuccess();
    if (const auto same = same_values<std::uint32_t>("starts", found.get(), expected.get()); !same)
      return ::testing::AssertionFailure() << place(slab) << same.message();
    return ::testing::AssertionSuccess();
  }

  /// What the CPU said last.
  const df11::StageStatus& status() const { return status_; }

 private:
  GpuStages& stages() {
    if (memory_ == Memory::kNew || stages_ == nullptr) stages_ = std::make_unique<GpuStages>(gpu_, kernels_);
    return *stages_;
  }
  bool is_same(const df11::StageStatus& found, Segment segment) const {
    return found.code == status_.code && (segment == Segment::kAny || found.segment == status_.segment);
  }
  ::testing::AssertionResult different(const EncodeSlab& slab, const df11::StageStatus& found) const {
    return ::testing::AssertionFailure()
           << place(slab) << "the CPU says: " << text_of(status_) << "; the GPU: " << text_of(found);
  }
  static std::string text_of(const df11::StageStatus& status) {
    if (status.code == df11::StageCode::kOk) return "ok";
    return "segment " + std::to_string(status.segment) + " changed";
  }
  static std::string place(const EncodeSlab& slab) {
    return std::to_string(slab.weights.size()) + " weights from " +
           std::to_string(slab.position.first_weight) + " of " + std::to_string(slab.unit.weights.size()) +
           " on, segments of " + std::to_string(slab.unit.segment_weights) + ", bits " +
           std::to_string(slab.position.first_bit) + " to " + std::to_string(slab.end_bit) + ": ";
  }

  const Gpu& gpu_;
  const GpuKernels& kernels_;
  Memory memory_;
  host::HostStages host_{1};
  std::unique_ptr<GpuStages> stages_;
  df11::StageStatus status_;
};

}  // namespace weightpress::device
