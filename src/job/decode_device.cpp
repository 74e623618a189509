#include "job/decode_device.h"

#include <memory>
#include <utility>
#include <vector>

#include <weightpress/error.h>

#include "device/slab_decoders.h"

namespace weightpress::job {

DecodeDevice::DecodeDevice(DeviceChoice choice, int num_threads, OnWarning on_warning)
    : choice_(std::move(choice)),
      on_warning_(std::move(on_warning)),
      name_(choice_.name),
      why_(choice_.why),
      host_(num_threads) {
  SlabMemory memory;
  if (!choice_.gpus.empty()) {
    uses_gpu_ = true;
    try {
      std::vector<std::unique_ptr<device::SlabDecoder>> decoders;
      for (const auto& gpu : choice_.gpus) decoders.push_back(gpu->make_slab_decoder());
      gpu_ = std::make_unique<device::SlabDecoders>(std::move(decoders));
      either_ = std::make_unique<DecodeStageOfEither>(
          *gpu_, host_, num_threads, [this](const GpuFailure& failure) { give_up(failure); });
      memory = [this](std::uint64_t bytes) { return gpu_->pinned(bytes); };
    } catch (const Error& error) {
      give_up({error.details()});
    }
  }
  buffers_ = std::make_unique<DecodeBuffers>(std::move(memory));
}

df11::Df11DecodeStage& DecodeDevice::stage() {
  if (either_) return *either_;
  return host_;
}

void DecodeDevice::give_up(const GpuFailure& failure) {
  const std::string what = choice_.name + ": " + failure.error.message;
  if (choice_.is_required) throw Error(ErrorCode::kDeviceFailed, what);
  uses_gpu_ = false;
  name_ = "cpu";
  why_ = what;
  if (on_warning_) on_warning_("the GPU failed, and the CPU goes on: " + what);
}

}  // namespace weightpress::job
