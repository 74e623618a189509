// What LoadedModule keeps.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ptxvm/launch.h"
#include "ptxvm/program.h"
#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

struct LoadedKernel {
  const Function* function = nullptr;
  KernelInfo info;
  Program program;
};

struct LoadedModule::State {
  explicit State(Memory& of) : memory(of) {}

  const LoadedKernel* find(std::string_view name) const {
    const auto found = kernels.find(name);
    return found == kernels.end() ? nullptr : &found->second;
  }

  Memory& memory;
  Module module;
  std::vector<std::uint64_t> addresses;  ///< of module.variables; 0: not in global or constant memory
  std::map<std::string, LoadedKernel, std::less<>> kernels;
};

}  // namespace weightpress::ptxvm
