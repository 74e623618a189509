#include <algorithm>

#include <weightpress/devices.h>

#include "device/device_list.h"
#include "host/host_stages.h"
#include "job/machine_info.h"

namespace weightpress {

bool DevicesReport::has_usable_gpu() const {
  return std::ranges::any_of(devices, [](const DeviceReport& device) { return device.problem.empty(); });
}

DevicesReport list_devices() {
  DevicesReport report;
  device::add_devices(report);
  report.cpu = job::find_machine_info().cpu;
  report.cpu_threads = host::usable_num_threads(0);
  return report;
}

}  // namespace weightpress
