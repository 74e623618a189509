// device/unit_pipeline.h on a GPU: four streams (copies in, counting, other kernels, copies out), rings of
// pinned memory at both ends, and a slot of device memory for the weights of each unit under way.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/df11_launches.h"
#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/growing_device_buffer.h"
#include "device/unit_pipeline.h"

namespace weightpress::device {

class GpuUnitPipeline final : public UnitPipeline {
 public:
  /// Both must outlive the object. Throws Error; kOutOfMemory if the longest unit does not fit.
  GpuUnitPipeline(const Gpu& gpu, const GpuKernels& kernels, const UnitPipelineSizes& sizes);
  ~GpuUnitPipeline() override;

  bool has_room() const override;
  bool can_encode() const override { return free_encoding() != nullptr; }
  std::unique_ptr<UnitOnGpu> begin_unit(std::uint64_t num_weights) override;

 private:
  class Unit;

  /// A ring's part: free once what was enqueued with it is done.
  struct Pinned {
    explicit Pinned(const Gpu& gpu, std::uint64_t bytes) : memory(gpu, bytes), done(gpu) {}
    PinnedBuffer memory;
    Event done;
    bool is_in_use = false;
  };
  class Ring {
   public:
    Ring(const Gpu& gpu, std::uint64_t bytes_each);
    /// The next one, once it is free.
    Pinned& take();
    std::uint64_t bytes_each() const { return bytes_each_; }

   private:
    static constexpr std::size_t kParts = 4;
    std::uint64_t bytes_each_;
    std::vector<Pinned> parts_;
    std::size_t next_ = 0;
  };

  /// Device memory of one unit from its first weight on.
  struct Slot {
    GrowingDeviceBuffer d_weights, d_histograms;
    DeviceBuffer d_unit_histogram;
    PinnedBuffer histogram;
    bool is_taken = false;
  };

  struct Encoding;
  Encoding* free_encoding() const;
  void synchronize() const;

  const Gpu& gpu_;
  Df11Launches launches_;
  // Counting has a stream of its own: encoding must not wait for the weights of later units.
  Stream in_, count_, compute_, out_;
  std::uint64_t slab_weights_ = 0;
  Ring in_ring_, out_ring_;
  std::vector<std::unique_ptr<Slot>> slots_;

  std::array<std::unique_ptr<Encoding>, 2> encodings_;
};

}  // namespace weightpress::device
