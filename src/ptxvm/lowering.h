// A kernel's PTX instructions to the operations that lanes execute, with every form checked.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "format/result.h"
#include "ptxvm/intermediate.h"
#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

/// Where things of a kernel lie.
struct KernelLayout {
  std::vector<std::uint32_t> parameter_offsets;
  std::uint32_t parameter_bytes = 0;
  std::uint64_t static_shared_bytes = 0;
  std::uint64_t shared_align = 16;  ///< of what begins behind the static part
  std::uint64_t local_bytes = 0;
};

struct LoweredKernel {
  Intermediate code;
  KernelLayout layout;
};

/// Operations of a kernel at most; called functions count once a call.
constexpr std::size_t kMaxKernelOps = std::size_t{1} << 21;

/// module_addresses: of Module::variables, for those in global and constant memory. Errors: kCorruptFile,
/// "line N: ...".
Result<LoweredKernel> lower_kernel(const Module& module, const Function& kernel,
                                   const std::vector<std::uint64_t>& module_addresses);

}  // namespace weightpress::ptxvm
