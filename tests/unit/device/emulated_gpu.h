// GPUs for unit tests: the stages of src/device on the emulated driver (tests/cuda_driver).
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/driver/gpu.h"
#include "device/gpu_kernels.h"
#include "device/gpu_stages.h"
#include "ptxvm/launch.h"

namespace weightpress::device {

/// One at a time in a process.
class EmulatedGpu {
 public:
  /// WEIGHTPRESS_CUDA_<name> = value: tests/cuda_driver/README.md.
  class Variables {
   public:
    using Variable = std::pair<std::string, std::string>;
    Variables() = default;
    // Not a vector, which {"A", "B"} could also mean as a range.
    Variables(std::initializer_list<Variable> list) : list_(list) {}
    void set_default(const std::string& name, const std::string& value);
    std::vector<Variable>::const_iterator begin() const { return list_.begin(); }
    std::vector<Variable>::const_iterator end() const { return list_.end(); }

   private:
    std::vector<Variable> list_;
  };

  enum class Opens : std::uint8_t { kStages, kNothing };  ///< with kNothing, there is only end()

  /// The driver, started anew. Unless the variables say otherwise: with all checks (races, memory that
  /// nothing has written, barriers; bounds are always checked), each of which makes the launch fail.
  explicit EmulatedGpu(const Variables& variables = {}, Opens opens = Opens::kStages);
  ~EmulatedGpu();
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  const Gpu& gpu() const { return *gpu_; }
  const GpuKernels& kernels() const { return *kernels_; }
  GpuStages& stages() { return *stages_; }

  struct KernelRun {
    std::string name;
    ptxvm::Counters counters;
  };
  /// Gives everything back and ends the driver. The launches so far, in order.
  std::vector<KernelRun> end();
  /// After end(): what the contexts still had when they were released.
  const std::vector<std::string>& left_over() const { return left_over_; }

 private:
  bool is_running_ = false;
  std::vector<std::string> left_over_;
  std::vector<std::string> names_;
  std::filesystem::path trace_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuKernels> kernels_;
  std::unique_ptr<GpuStages> stages_;
};

}  // namespace weightpress::device
