// Modules, their functions and variables. Only PTX text can be loaded.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "calls.h"
#include "ptx_text.h"
#include "ptxvm/loaded_module.h"
#include "ptxvm/ptx_parser.h"

using namespace weightpress::cuda_driver;
namespace ptxvm = weightpress::ptxvm;

namespace {

// The options of cuModuleLoadDataEx that this driver heeds.
class JitLog {
 public:
  CUresult read(unsigned count, CUjit_option* options, void** values) {
    if (count == 0) return CUDA_SUCCESS;
    if (options == nullptr || values == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) error_.buffer = static_cast<char*>(values[i]);
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) error_.size = &values[i];
      if (options[i] == CU_JIT_INFO_LOG_BUFFER) info_.buffer = static_cast<char*>(values[i]);
      if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) info_.size = &values[i];
    }
    return CUDA_SUCCESS;
  }

  // Whatever the result: the sizes become the number of bytes written.
  void write(const std::string& error) {
    error_.write(error);
    info_.write("");
  }

 private:
  struct Log {
    char* buffer = nullptr;
    void** size = nullptr;

    void write(const std::string& text) {
      if (size == nullptr) return;
      const auto room = reinterpret_cast<std::uintptr_t>(*size) & 0xFFFFFFFF;  // an unsigned int
      std::size_t written = 0;
      if (buffer != nullptr && room != 0) {
        written = std::min<std::size_t>(room - 1, text.size());
        std::memcpy(buffer, text.data(), written);
        buffer[written] = '\0';
      }
      *size = reinterpret_cast<void*>(static_cast<std::uintptr_t>(written));
    }
  };
  Log error_, info_;
};

CUresult load(Machine& machine, Context& context, CUmodule* handle, const void* image, std::string& log) {
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_binary_image(static_cast<const unsigned char*>(image))) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const char* const begin = static_cast<const char*>(image);
  const std::string_view text(begin, strnlen(begin, ptxvm::kMaxPtxBytes + 1));
  const auto version = ptx_version(text);
  if (!version) {
    log = "ptxas fatal   : the text does not begin with .version";
    return CUDA_ERROR_INVALID_PTX;
  }
  const std::uint32_t newest = newest_ptx_version(machine.settings.driver_version);
  if (*version > newest) {
    log = "ptxas application ptx input, line 1; fatal   : Unsupported .version " +
          std::to_string(*version / 10) + "." + std::to_string(*version % 10) + "; current version is '" +
          std::to_string(newest / 10) + "." + std::to_string(newest % 10) + "'";
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  if (machine.allocation_fails()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto module = ptxvm::LoadedModule::load(std::string(text), context.device->memory());
  if (!module) {
    log = "ptxas application ptx input, " + module.error().message;
    return CUDA_ERROR_INVALID_PTX;
  }
  const std::string_view target = (*module)->state().module.target;
  if (!target_fits(target, machine.settings.compute_major, machine.settings.compute_minor)) {
    log = "ptxas fatal   : Program with .target '" + std::string(target) +
          "' cannot be compiled to architecture 'sm_" + std::to_string(machine.settings.compute_major) +
          std::to_string(machine.settings.compute_minor) + "'";
    return CUDA_ERROR_INVALID_PTX;
  }
  const std::uint64_t number = machine.new_number();
  ModuleEntry& entry = machine.modules[number];
  entry.context = context.number;
  entry.ptx_target = target_number(target);
  entry.module = std::move(*module);
  *handle = handle_of<CUmodule>(number);
  return CUDA_SUCCESS;
}

ModuleEntry* find_module(Machine& machine, CUmodule handle) {
  const auto found = machine.modules.find(number_of(handle));
  return found == machine.modules.end() ? nullptr : &found->second;
}

// body(machine, context, function)
template <class Body>
CUresult with_function(CUfunction handle, const Body& body) {
  return with_context([&](Machine& machine, Context& context) {
    const auto found = machine.functions.find(number_of(handle));
    return found == machine.functions.end() ? CUDA_ERROR_INVALID_HANDLE
                                            : body(machine, context, found->second);
  });
}

}  // namespace

WP_CUDA_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return with_context([&](Machine& machine, Context& context) {
    std::string log;
    return load(machine, context, module, image, log);
  });
}

WP_CUDA_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int num_options,
                                        CUjit_option* options, void** values) {
  return with_context([&](Machine& machine, Context& context) {
    JitLog jit_log;
    CUresult result = jit_log.read(num_options, options, values);
    if (result != CUDA_SUCCESS) return result;
    std::string log;
    result = load(machine, context, module, image, log);
    jit_log.write(log);
    return result;
  });
}

WP_CUDA_API CUresult cuModuleUnload(CUmodule module) {
  return with_context([&](Machine& machine, Context&) {
    ModuleEntry* const entry = find_module(machine, module);
    if (entry == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    machine.scheduler.force_context(entry->context);  // kernels may still use it
    if (find_module(machine, module) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    machine.unload(number_of(module));
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return with_context([&](Machine& machine, Context&) {
    if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ModuleEntry* const entry = find_module(machine, module);
    if (entry == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const ptxvm::KernelInfo* const info = entry->module->find_kernel(name);
    if (info == nullptr) return CUDA_ERROR_NOT_FOUND;
    std::uint64_t& number = entry->functions[name];
    if (number == 0) {
      number = machine.new_number();
      FunctionEntry& known = machine.functions[number];
      known.context = entry->context;
      known.module = number_of(module);
      known.name = name;
      known.target = entry->ptx_target;
      known.code = entry->module.get();
      known.info = info;
    }
    *function = handle_of<CUfunction>(number);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                          const char* name) {
  return with_context([&](Machine& machine, Context&) {
    if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    const ModuleEntry* const entry = find_module(machine, module);
    if (entry == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto variable = entry->module->find_variable(name);
    if (!variable) return CUDA_ERROR_NOT_FOUND;
    if (address != nullptr) *address = variable->address;
    if (bytes != nullptr) *bytes = variable->size_bytes;
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return with_function(handle, [&](Machine& machine, Context&, const FunctionEntry& function) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = static_cast<int>(function.info->max_threads);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = static_cast<int>(function.info->static_shared_bytes);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = static_cast<int>(function.info->local_bytes);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:  // of the interpreter, which are not ptxas's
        *value = static_cast<int>(std::clamp<std::uint32_t>(function.info->num_registers, 1, 255));
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = function.target;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = static_cast<int>(machine.settings.compute_major * 10 + machine.settings.compute_minor);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = max_dynamic_shared(function);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function.carveout;
        return CUDA_SUCCESS;
      default:
        break;
    }
    if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = 0;  // constant memory, cache modes, clusters
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return with_function(handle, [&](Machine&, Context& context, FunctionEntry& function) {
    const int most = context.device->limits().shared_per_block_optin -
                     static_cast<int>(function.info->static_shared_bytes);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 && value <= most) {
      function.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    }
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 && value <= 100) {
      function.carveout = value;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

WP_CUDA_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* num_blocks, CUfunction handle,
                                                                          int block_size,
                                                                          size_t dynamic_shared_bytes,
                                                                          unsigned int flags) {
  return with_function(handle, [&](Machine&, Context& context, const FunctionEntry& function) {
    if (num_blocks == nullptr || block_size <= 0 ||
        (flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const Limits& limits = context.device->limits();
    const std::uint64_t shared = function.info->static_shared_bytes + dynamic_shared_bytes;
    *num_blocks = 0;
    if (static_cast<std::uint32_t>(block_size) > function.info->max_threads ||
        dynamic_shared_bytes > static_cast<std::size_t>(max_dynamic_shared(function)))
      return CUDA_SUCCESS;
    int blocks = std::min(limits.blocks_per_multiprocessor,
                          limits.threads_per_multiprocessor / ((block_size + 31) / 32 * 32));
    const auto reserved = context.device->attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    const std::uint64_t taken = shared + static_cast<std::uint64_t>(*reserved);
    if (taken != 0)
      blocks = static_cast<int>(
          std::min<std::uint64_t>(static_cast<std::uint64_t>(blocks),
                                  static_cast<std::uint64_t>(limits.shared_per_multiprocessor) / taken));
    *num_blocks = blocks;  // registers are not ptxas's and do not count
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, CUfunction handle,
                                                                 int block_size,
                                                                 size_t dynamic_shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(num_blocks, handle, block_size,
                                                              dynamic_shared_bytes, CU_OCCUPANCY_DEFAULT);
}
