// Of a build without the CUDA toolkit, whose headers talking to the driver takes.
#include <string>

#include "device/device_list.h"
#include "device/embedded_kernels.h"

namespace weightpress::device {

void add_devices(DevicesReport& report) {
  report.why_no_kernels = why_no_kernels();
  report.why_no_driver = "this build does not ask for one";
}

}  // namespace weightpress::device
