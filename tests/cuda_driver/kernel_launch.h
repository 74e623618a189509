// A kernel's launch: what is checked at the call, how it runs, how long it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <cuda.h>

#include "machine.h"

namespace weightpress::cuda_driver {

struct KernelLaunch {
  FunctionEntry function;
  ptxvm::Dim3 grid, block;
  std::uint64_t dynamic_shared_bytes = 0;
  std::vector<std::uint8_t> parameters;
  std::uint64_t seed = 0;
};

/// CUDA_SUCCESS, or what the call gives at once: sizes that no launch may have.
CUresult check_launch(const KernelLaunch& launch, const Device& device);

/// The parameters' bytes, from cuLaunchKernel's two ways to give them.
CUresult read_parameters(const ptxvm::KernelInfo& kernel, void** values, void** extra,
                         std::vector<std::uint8_t>& bytes);

/// Runs it; sets the operation's counters and time.
std::optional<Failure> run_launch(const KernelLaunch& launch, Device& device, const Settings& settings,
                                  Operation& operation);

}  // namespace weightpress::cuda_driver
