// device/unit_pipeline.h on a GPU: four streams (copies in, counting, other kernels, copies out) and rings of
// pinned memory at both ends.
//
// Units that fit are held whole: a slot of device memory for the weights of each under way. A longer one is
// alone on the GPU, and takes the memory of them all for slabs of its own (streamed_unit.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/growing_device_buffer.h"
#include "device/pipeline_memory.h"
#include "device/pipeline_streams.h"
#include "device/unit_encoding.h"
#include "device/unit_pipeline.h"

namespace weightpress::device {

class GpuUnitPipeline final : public UnitPipeline {
 public:
  /// Both must outlive the object. Throws Error; kOutOfMemory if the GPU's memory is too small even for
  /// slabs.
  GpuUnitPipeline(const Gpu& gpu, const GpuKernels& kernels, const UnitPipelineSizes& sizes);
  ~GpuUnitPipeline() override;

  bool has_room(std::uint64_t num_weights) const override;
  std::uint64_t num_free_slots() const override;
  bool can_encode() const override;
  std::unique_ptr<UnitOnGpu> begin_unit(std::uint64_t num_weights) override;
  const Memory& memory() const override { return told_memory_; }

 private:
  class ResidentUnit;
  class LoneUnit;

  /// Device memory of one unit from its first weight on.
  struct Slot {
    GrowingDeviceBuffer d_weights, d_histograms;
    DeviceBuffer d_unit_histogram;
    PinnedBuffer histogram;
    bool is_taken = false;
  };
  struct Encoding {
    std::unique_ptr<UnitEncoding> encoding;
    GrowingDeviceBuffer d_bits;
    bool is_taken = false;
  };

  bool has_outputs() const { return streams_.official.has_value(); }
  bool plan_and_allocate(std::uint64_t most_slots);  // false: the memory is not there
  void allocate_slots();

  PipelineStreams streams_;
  const std::uint64_t longest_unit_weights_;
  PipelineMemory plan_;
  Memory told_memory_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<Encoding>> encodings_;
  bool has_lone_unit_ = false;  // slots and encodings are given back for it
};

}  // namespace weightpress::device
