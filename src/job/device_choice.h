// --device: which device the stages of a run use, and why.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weightpress/verify.h>

#include "device/device_paths.h"

namespace weightpress::job {

struct DeviceChoice {
  std::vector<std::unique_ptr<device::GpuPath>> gpus;  ///< none: the CPU
  bool is_required = false;  ///< GPUs were asked for: the failure of one ends the run
  std::string name = "cpu";  ///< or "cuda:0 (NVIDIA H200, cubin for sm_90)", joined by commas
  std::string why;           ///< a clause
};

/// device: "auto", "cpu", "cuda" (the first GPU), "cuda:N" or "cuda:N,M,...". Throws Error: kUsage for
/// anything else, kDeviceFailed for a GPU that was asked for and cannot be used. auto takes the first GPU
/// that can.
DeviceChoice choose_device(std::string_view device);
/// For our own decoder: kAuto, kCpu or kCuda. Throws likewise, and kUsage for an engine that does not run on
/// the device.
DeviceChoice choose_decode_device(VerifyEngine engine, std::string_view device);

}  // namespace weightpress::job
