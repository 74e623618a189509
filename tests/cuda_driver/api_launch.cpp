// Launches of kernels and of host functions.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "calls.h"
#include "kernel_launch.h"

using namespace weightpress::cuda_driver;

namespace {

// A program may wait for a host function without calling the driver. So when nobody has called it for a
// while, host functions that are due, and what they wait for, are run.
[[noreturn]] void run_host_functions() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kMostSleep(5);
  Driver& driver = Driver::get();
  std::uint64_t seen = 0;
  Clock::time_point since = Clock::now();  // nobody has called
  for (std::chrono::milliseconds pause(1);;) {
    std::this_thread::sleep_for(std::min(pause, kMostSleep));
    const std::lock_guard lock(driver.mutex);
    if (std::exchange(seen, driver.num_calls) != driver.num_calls) since = Clock::now();
    if (driver.machine == nullptr) continue;
    pause = std::chrono::milliseconds(std::max(driver.machine->settings.host_function_ms, 1U));
    if (Clock::now() - since >= pause) driver.machine->scheduler.force_host_functions();
  }
}

CUresult launch_now(Machine& machine, const KernelLaunch& launch, Context& context, Stream& stream) {
  const bool fails = machine.launch_fails();
  const auto planned = static_cast<CUresult>(machine.settings.launch_result);
  // These a call gives at once, and nothing is broken.
  if (fails && (planned == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || planned == CUDA_ERROR_OUT_OF_MEMORY ||
                planned == CUDA_ERROR_INVALID_VALUE))
    return planned;
  Operation operation;
  operation.kind = "kernel";
  operation.name = launch.function.name;
  operation.engine = Engine::kCompute;
  if (fails) {
    operation.run = [planned](Operation&) -> std::optional<Failure> {
      return Failure{planned, "the launch was planned to fail"};
    };
  } else {
    operation.run = [launch, &machine, device = context.device](Operation& running) {
      const auto failure = run_launch(launch, *device, machine.settings, running);
      machine.note_kernel(*device);
      return failure;
    };
  }
  put(machine, stream, std::move(operation));
  return CUDA_SUCCESS;
}

}  // namespace

WP_CUDA_API CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int dynamic_shared_bytes,
                                    CUstream stream_handle, void** values, void** extra) {
  return with_context([&](Machine& machine, Context& context) {
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream(machine, context, stream_handle, true, stream);
    if (result != CUDA_SUCCESS) return result;
    const auto found = machine.functions.find(number_of(handle));
    if (found == machine.functions.end() || found->second.context != context.number)
      return CUDA_ERROR_INVALID_HANDLE;
    KernelLaunch launch;
    launch.function = found->second;
    launch.grid = {grid_x, grid_y, grid_z};
    launch.block = {block_x, block_y, block_z};
    launch.dynamic_shared_bytes = dynamic_shared_bytes;
    result = check_launch(launch, *context.device);
    if (result == CUDA_SUCCESS)
      result = read_parameters(*launch.function.info, values, extra, launch.parameters);
    if (result != CUDA_SUCCESS) return result;
    launch.seed = machine.scheduler.seed() == 0 ? 0 : machine.scheduler.random();
    return launch_now(machine, launch, context, *stream);
  });
}

WP_CUDA_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return with_context([&](Machine& machine, Context& context) {
    std::shared_ptr<Stream> stream;
    const CUresult result = find_stream(machine, context, handle, false, stream);
    if (result != CUDA_SUCCESS) return result;
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Operation operation;
    operation.kind = "host_function";
    operation.engine = Engine::kHost;
    operation.unlocks = true;
    operation.run = [function, data](Operation&) -> std::optional<Failure> {
      set_in_host_function(true);
      function(data);
      set_in_host_function(false);
      return std::nullopt;
    };
    put(machine, *stream, std::move(operation));
    Driver& driver = Driver::get();
    if (!std::exchange(driver.has_host_function_thread, true)) std::thread(run_host_functions).detach();
    return CUDA_SUCCESS;
  });
}
