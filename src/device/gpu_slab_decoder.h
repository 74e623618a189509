// device/slab_decoder.h on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/df11_launches.h"
#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/slab_decoder.h"

namespace weightpress::device {

class GpuSlabDecoder final : public SlabDecoder {
 public:
  // A slab comes in, one is decoded, one leaves.
  static constexpr int kMostLanes = 3;

  /// Both must outlive the object. Fewer lanes if there is no memory for more. Throws Error.
  GpuSlabDecoder(const Gpu& gpu, const GpuKernels& kernels);
  ~GpuSlabDecoder() override;

  int num_lanes() const override { return static_cast<int>(lanes_.size()); }
  void begin(int lane, const df11::DecodeArguments& arguments) override;
  std::vector<DecodedPart> finish(int lane) override;
  void abandon(int lane) noexcept override;
  std::shared_ptr<void> pinned(std::uint64_t bytes) override;

 private:
  struct Lane;

  std::uint64_t make_room(Lane& lane, const df11::DecodeArguments& slab) const;
  void enqueue(Lane& lane, const df11::DecodeArguments& part, std::size_t index) const;

  const Gpu& gpu_;
  Df11Launches launches_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace weightpress::device
