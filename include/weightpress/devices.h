// The GPUs of this machine, and whether weightpress can use them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weightpress {

struct DeviceReport {
  int number = 0;  ///< as the driver counts, from 0
  std::string name;
  std::string arch;  ///< "sm_90"
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;  ///< 0 if it could not be asked
  int num_multiprocessors = 0;
  int num_copy_engines = 0;
  std::string kernels;  ///< which of the built-in kernels it runs: "cubin for sm_90", "PTX for compute_75"
  std::string problem;  ///< a clause: why it cannot be used; empty: it can
  std::vector<std::string> notes;  ///< clauses: what was tried before
};

struct DevicesReport {
  bool has_kernels = false;    ///< built with the CUDA toolkit
  std::string why_no_kernels;  ///< a clause, without them
  std::string driver_path;     ///< of libcuda.so.1; empty without a driver that can be used
  std::string driver_cuda;     ///< the newest CUDA version that the driver knows, "13.0"
  std::string why_no_driver;   ///< a clause, without one
  std::vector<DeviceReport> devices;
  std::string cpu;
  int cpu_threads = 0;

  bool has_usable_gpu() const;
};

/// Asks the driver, loads the kernels on each GPU, and has one of them compare two buffers. Takes a context
/// on each GPU for that time. GPUs with problems are no errors. Throws std::bad_alloc only.
DevicesReport list_devices();

}  // namespace weightpress
