// The official kernel in the PTX interpreter, launched as the official loader launches it.
//
// It sees the whole unit's grid and indices, but of each buffer only the slab's bytes lie in memory: pointers
// are shifted back by what comes before them, and any access elsewhere is a fault.
#pragma once

#include <memory>
#include <string>

#include "format/result.h"
#include "job/official_kernel_runner.h"
#include "ptxvm/launch.h"
#include "ptxvm/memory.h"

namespace weightpress::job {

class InterpretedKernel final : public OfficialKernelRunner {
 public:
  /// Errors are kUsage, a clause: the text is no PTX, does what the interpreter does not know, or holds no
  /// entry `decode` with the official parameters.
  static Result<std::unique_ptr<InterpretedKernel>> load(std::string ptx);

  const std::string& name() const override;
  bool is_interpreter() const override { return true; }
  KernelRun run(const KernelSlab& slab) override;

 private:
  InterpretedKernel() = default;

  ptxvm::Memory memory_;
  std::unique_ptr<ptxvm::LoadedModule> module_;
};

}  // namespace weightpress::job
