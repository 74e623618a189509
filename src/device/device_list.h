// The GPUs' part of include/weightpress/devices.h.
#pragma once

#include <weightpress/devices.h>

namespace weightpress::device {

/// Fills in all but the CPU's fields.
void add_devices(DevicesReport& report);

}  // namespace weightpress::device
