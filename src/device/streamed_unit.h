// A unit that is longer than the GPU's memory on its way through it, in slabs.
//
// First all weights are counted, a histogram a segment; they stay, the weights do not. With the plan follow
// the first bits of all segments, and with these the slabs: whole segments, from that on in which the first
// chunk begins that the slab before did not complete. So each slab makes whole chunks of its own, up to two
// of its segments are encoded twice, and nothing has to be carried on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/growing_device_buffer.h"
#include "device/pipeline_streams.h"
#include "device/unit_encoding.h"
#include "device/unit_pipeline.h"

namespace weightpress::device {

class StreamedUnit final : public UnitOnGpu {
 public:
  /// streams must outlive the object; no other unit may be under way. slab_weights, num_slabs: as in
  /// PipelineMemory.
  StreamedUnit(PipelineStreams& streams, std::uint64_t num_weights, std::uint64_t slab_weights,
               std::uint64_t num_slabs);
  ~StreamedUnit() override;

  Slab next_weights() override;
  void submit() override;
  bool has_all() const override { return num_counted_ == num_weights_; }
  df11::Histogram histogram() override;
  std::uint8_t last_exponent() const override { return last_exponent_; }
  void encode(const df11::UnitPlan& plan, bool verifies) override;
  Wants wants() const override;
  std::optional<OutputPiece> next_piece() override;
  Verdict verdict() override;

 private:
  /// Memory of a slab under way.
  struct Place {
    explicit Place(PipelineStreams& streams) : encoding(streams), done(streams.gpu) {}
    GrowingDeviceBuffer d_weights;
    UnitEncoding encoding;
    Event done;  // with the weights, while they are counted
    bool is_in_use = false;
  };

  void count_part();
  void fill_slab();
  void find_first_bits();
  void begin_slab();
  bool is_filling() const { return num_begun_ > 0 && num_filled_ < part_.num_weights; }
  Place& place_of(std::uint64_t slab) { return *places_[slab % places_.size()]; }
  const Place& place_of(std::uint64_t slab) const { return *places_[slab % places_.size()]; }
  void add(const Verdict& verdict);
  void take_off_what_was_read_twice(const UnitEncoding::Part& part, const OutputPiece& piece);

  PipelineStreams& streams_;
  const std::uint64_t num_weights_, slab_weights_;
  DeviceBuffer d_histograms_, d_bits_, d_unit_histogram_, d_last_weight_;
  PinnedBuffer histogram_, bits_;
  Event counted_;
  std::vector<std::unique_ptr<Place>> places_;

  // Counting.
  std::uint64_t num_counted_ = 0, num_parts_ = 0;
  std::uint8_t last_exponent_ = 0;

  // Encoding.
  const df11::UnitPlan* plan_ = nullptr;
  bool verifies_ = false;
  std::vector<std::uint64_t> first_bits_;  // of segments, and the end
  std::uint64_t num_begun_ = 0;            // slabs
  std::uint64_t num_gone_ = 0;             // of these, all pieces are out
  UnitEncoding::Part part_;                // of the slab that is filled
  std::uint64_t num_filled_ = 0;           // of its weights
  std::uint64_t first_sign_mantissa_ = 0;  // of the slab whose pieces leave
  Verdict verdict_;

  PinnedPart* part_in_ = nullptr;
  Slab slab_;
};

}  // namespace weightpress::device
