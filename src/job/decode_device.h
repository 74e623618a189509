// What decodes the units of a stored model: a GPU with the CPU behind it, or the CPU.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "host/decode.h"
#include "job/decode_stage_of_either.h"
#include "job/device_choice.h"
#include "job/unit_decoder.h"

namespace weightpress::job {

class DecodeDevice {
 public:
  /// on_warning: called with a sentence when the GPU fails and the CPU goes on; may be empty.
  using OnWarning = std::function<void(const std::string&)>;

  /// A GPU that fails, now or later, is a warning, or kDeviceFailed if it was asked for.
  DecodeDevice(DeviceChoice choice, int num_threads, OnWarning on_warning);
  DecodeDevice(const DecodeDevice&) = delete;
  DecodeDevice& operator=(const DecodeDevice&) = delete;

  df11::Df11DecodeStage& stage();
  /// For that stage.
  DecodeBuffers& buffers() { return *buffers_; }

  bool uses_gpu() const { return uses_gpu_; }
  // As reports say them; what is used last.
  const std::string& name() const { return name_; }  ///< "cpu", or as DeviceChoice::name
  const std::string& why() const { return why_; }    ///< a clause
  const char* decoder() const { return uses_gpu_ ? "wp_decode" : "host decoder"; }

 private:
  void give_up(const GpuFailure& failure);

  const DeviceChoice choice_;
  const OnWarning on_warning_;
  std::string name_, why_;
  bool uses_gpu_ = false;
  host::HostDecodeStage host_;
  std::unique_ptr<device::SlabDecoder> gpu_;
  std::unique_ptr<DecodeBuffers> buffers_;  // pinned ones are the GPU's
  std::unique_ptr<DecodeStageOfEither> either_;
};

}  // namespace weightpress::job
