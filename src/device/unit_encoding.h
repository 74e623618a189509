// What a GPU makes of a unit, or of a slab of it: its buffers, encoded and read back in place, and their way
// out through pinned memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/df11_launches.h"
#include "device/driver/gpu.h"
#include "device/growing_device_buffer.h"
#include "device/pinned_ring.h"
#include "device/pipeline_streams.h"
#include "device/unit_pipeline.h"
#include "format/unit_plan.h"

namespace weightpress::device {

/// The counts of a unit, once they are in pinned memory. Throws Error if they are not those of so many
/// weights.
df11::Histogram checked_histogram(const PinnedBuffer& histogram, std::uint64_t num_weights);

/// Keeps its memory from part to part. Every call needs Gpu::use().
class UnitEncoding {
 public:
  /// streams must outlive the object. Throws CudaError, as all members do.
  explicit UnitEncoding(PipelineStreams& streams);

  /// A new part: tables and constants go to the device. plan: of the unit, until the part is judged.
  void begin(const df11::UnitPlan& plan);

  struct Counted {
    CUdeviceptr d_weights = 0;      ///< of the unit; 0: they are not there
    CUdeviceptr d_histograms = 0;   ///< of its segments
    CUdeviceptr d_last_weight = 0;  ///< of the unit
  };
  /// Enqueues what finds the first bits of the unit's segments: d_bits, u64 [segments + 1]. After begin().
  void find_first_bits(const Counted& counted, CUdeviceptr d_bits);
  /// How that went: waits for it. Then begin() starts anew.
  df11::StageStatus find_first_bits_status();

  /// Segments of a unit, and the chunks that are taken out of what they become. Of these all bits are the
  /// segments', and, unless they are the unit's last, those of a group (64 bytes) after them.
  struct Part {
    std::uint64_t first_weight = 0, num_weights = 0;  ///< whole segments, or to the unit's end
    std::uint64_t first_bit = 0, end_bit = 0;         ///< of these weights
    std::uint64_t first_chunk = 0, end_chunk = 0;
    bool is_last = false;
    CUdeviceptr d_weights = 0;  ///< of first_weight on
    CUdeviceptr d_bits = 0;     ///< of its segment on
  };
  /// Enqueues encoding and, if wanted, decoding with a comparison. After begin().
  void encode(const Part& part, bool verifies);
  /// first_sign_mantissa: of the first chunk's weights; that of the part before ended there. Waits for each
  /// piece. nullopt: that was all.
  std::optional<OutputPiece> next_piece(std::uint64_t first_sign_mantissa);
  /// The first weight behind those of the chunks, once next_piece() was called.
  std::uint64_t end_sign_mantissa() const { return end_sign_mantissa_; }
  bool has_pieces_under_way() const { return !flying_.empty(); }
  const Part& part() const { return part_; }

  /// Once all pieces are out. Waits until it is known.
  UnitOnGpu::Verdict verdict();

 private:
  /// In pinned memory.
  struct Returned {
    std::uint64_t status = EncodeStatusWord::kOk;
    DecodeKernel::Result decoded;
    CompareKernel::Result compared;  // with what the official kernel decodes
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
    std::uint64_t offset_bytes, size_bytes, copied_bytes;
  };
  struct Flying {
    OutputPiece piece;
    PinnedPart* memory;
  };
  // One part of the ring is the caller's.
  static constexpr int kPiecesAhead = 3;

  Given& given() const { return *reinterpret_cast<Given*>(given_.data()); }
  CUdeviceptr d_given(std::size_t offset_bytes) const { return d_given_.get() + offset_bytes; }
  CUdeviceptr d_returned() const { return d_given(offsetof(Given, initial)); }
  Returned returned() const;
  bool reads_back_officially() const {
    return verifies_ && streams_.official && part_.end_chunk > part_.first_chunk;
  }
  UnitOnGpu::Verdict own_verdict() const;
  bool found_sound() const;
  void read_back();
  void read_back_officially();
  void look_at_positions(const OutputPiece& piece);
  void list_outputs(std::uint64_t first_sign_mantissa);
  void enqueue_piece();

  PipelineStreams& streams_;
  const Gpu& gpu_;
  PinnedBuffer given_, returned_, end_position_;
  Event encoded_, judged_, officially_judged_;
  GrowingDeviceBuffer d_given_, d_sign_mantissa_, d_encoded_exponent_, d_gaps_, d_positions_, d_outputs_;

  const df11::UnitPlan* plan_ = nullptr;
  Part part_;
  bool verifies_ = false, is_leaving_ = false;
  std::uint64_t num_opened_ = 0;     // of the chunks, those whose position the encoder writes
  std::uint64_t skipped_bytes_ = 0;  // of d_encoded_exponent, before the first chunk
  std::uint64_t skipped_gaps_ = 0;   // of d_gaps
  std::uint64_t first_sign_mantissa_ = 0, end_sign_mantissa_ = 0;

  // The official kernel's shared memory depends on the densest chunk: so it follows once the positions are
  // out.
  std::uint64_t num_positions_out_ = 0, last_position_ = 0, densest_chunk_ = 0;
  bool is_read_back_officially_ = false;

  std::vector<Output> outputs_;
  std::size_t next_output_ = 0;
  std::vector<Flying> flying_;  // copies out that are enqueued, in order
};

}  // namespace weightpress::device
