// --device: which device the stages of a run use, and why.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/device_paths.h"

namespace weightpress::job {

struct DeviceChoice {
  std::unique_ptr<device::GpuPath> gpu;  ///< nullptr: the CPU
  bool is_required = false;              ///< a GPU was asked for: its failure ends the run
  std::string name = "cpu";              ///< or "cuda:0 (NVIDIA H200, cubin for sm_90)"
  std::string why;                       ///< a clause
};

/// device: "auto", "cpu", "cuda" (the first GPU) or "cuda:N". Throws Error: kUsage for anything else,
/// kDeviceFailed for a GPU that was asked for and cannot be used. auto takes the first GPU that can.
DeviceChoice choose_device(std::string_view device);

}  // namespace weightpress::job
