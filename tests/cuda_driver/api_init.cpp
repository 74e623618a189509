// cuInit, cuDriverGetVersion, and how the driver starts anew and ends.
#include <cstdio>

#include "calls.h"
#include "weightpress_cuda.h"

namespace weightpress::cuda_driver {
namespace {

// At the process's end the trace is made complete. Not with the ends of static objects, which host functions
// and other threads may still use.
__attribute__((destructor)) void finish_trace() {
  Driver& driver = Driver::get();
  const std::unique_lock lock(driver.mutex, std::try_to_lock);
  if (!lock || driver.machine == nullptr || !driver.machine->trace.is_open()) return;
  driver.machine->finish();
}

}  // namespace
}  // namespace weightpress::cuda_driver

using namespace weightpress::cuda_driver;

WP_CUDA_API CUresult cuInit(unsigned int flags) {
  if (is_in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return guarded([] {
    Driver& driver = Driver::get();
    const std::lock_guard lock(driver.mutex);
    if (driver.machine == nullptr) {
      Settings settings = Settings::from_environment();
      if (!settings.problem.empty()) {
        std::fprintf(stderr, "emulated CUDA driver: %s\n", settings.problem.c_str());
        return CUDA_ERROR_INVALID_VALUE;
      }
      if (settings.init_result != 0) return static_cast<CUresult>(settings.init_result);
      if (settings.num_devices == 0) return CUDA_ERROR_NO_DEVICE;
      driver.machine = std::make_unique<Machine>(driver.mutex, std::move(settings));
    }
    driver.machine->count_call();
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDriverGetVersion(int* version) {
  if (is_in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return guarded([version] {
    Driver& driver = Driver::get();
    const std::lock_guard lock(driver.mutex);
    *version = static_cast<int>(driver.machine != nullptr ? driver.machine->settings.driver_version
                                                          : Settings::from_environment().driver_version);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API void weightpress_cuda_reset(void) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.mutex);
  if (driver.machine == nullptr) return;
  driver.machine->scheduler.wait_until_idle();  // the thread of host functions may be in it
  driver.machine->finish();
  driver.machine.reset();
  ++driver.generation;
}
