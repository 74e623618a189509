// What environment variables say about the emulated machine. README.md lists them.
#pragma once

#include <cstdint>
#include <string>

#include <cuda.h>

namespace weightpress::cuda_driver {

enum class HostClock : std::uint8_t { kThread, kProcess };

struct Settings {
  std::uint64_t seed = 0;
  std::string trace_path;

  // The machine.
  std::uint32_t num_devices = 1;
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;
  std::uint64_t context_bytes = std::uint64_t{256} << 20;  ///< of device memory, taken by a context
  std::string device_name = "weightpress emulated GPU";
  std::uint32_t compute_major = 8, compute_minor = 6;
  std::uint32_t num_multiprocessors = 46;
  std::uint32_t driver_version = 13000;

  // Virtual time. A decimal GB/s is a byte a nanosecond.
  double copy_in_gbps = 24, copy_out_gbps = 24;  ///< pinned memory
  double pageable_gbps = 8;                      ///< either way
  double memory_gbps = 448;                      ///< of the device
  double instructions_per_ns = 10000;            ///< of all lanes together
  std::uint64_t copy_latency_ns = 2000, launch_latency_ns = 3000;
  HostClock host_clock = HostClock::kThread;

  // The interpreter.
  std::uint32_t num_threads = 1;
  bool count_accesses = true;
  bool check_initialised = false, check_races = false, check_barriers = false;
  std::uint64_t max_branches = 0;  ///< 0: the interpreter's own limit

  // What a program sees of the order.
  std::uint32_t eager_percent = 0;
  std::uint32_t host_function_ms = 10;
  bool fills_memory = true;

  // Failures; counted from 1, 0: never.
  std::uint32_t init_result = 0;
  std::uint64_t out_of_memory_at = 0;
  bool out_of_memory_stays = false;
  std::uint64_t fail_launch_at = 0;
  std::uint32_t launch_result = CUDA_ERROR_LAUNCH_FAILED;
  std::uint64_t flip_at = 0;
  std::uint64_t lose_device_at = 0;
  std::uint32_t lost_device = 0;
  std::uint32_t lost_result = CUDA_ERROR_DEVICE_UNAVAILABLE;

  std::string problem;  ///< a variable that makes no sense: which, and why; empty if all do

  static Settings from_environment();
};

}  // namespace weightpress::cuda_driver
