#include "kernel_launch.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "ptxvm/loaded_module.h"

namespace weightpress::cuda_driver {
namespace {

CUresult result_of(const ptxvm::Fault& fault) {
  switch (fault.kind) {
    case ptxvm::FaultKind::kOutOfBounds:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptxvm::FaultKind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptxvm::FaultKind::kEndless:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case ptxvm::FaultKind::kTrap:
      return fault.message.starts_with("the assertion") ? CUDA_ERROR_ASSERT : CUDA_ERROR_LAUNCH_FAILED;
    case ptxvm::FaultKind::kUninitialised:
    case ptxvm::FaultKind::kRace:
    case ptxvm::FaultKind::kBarrier:
    case ptxvm::FaultKind::kWarp:
      break;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// The larger of what memory and what instructions take. Without counted accesses only instructions are known.
std::uint64_t kernel_ns(const ptxvm::Counters& counters, const Settings& settings) {
  constexpr double kSectorBytes = 32;
  const auto sectors = static_cast<double>(counters.global_load_sectors + counters.global_store_sectors);
  return settings.launch_latency_ns +
         std::max(duration_of(sectors * kSectorBytes, settings.memory_gbps),
                  duration_of(static_cast<double>(counters.lane_instructions), settings.instructions_per_ns));
}

bool within(const ptxvm::Dim3& size, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  return size.x != 0 && size.y != 0 && size.z != 0 && size.x <= x && size.y <= y && size.z <= z;
}

std::uint64_t max_shared_bytes(const FunctionEntry& function) {
  return function.info->static_shared_bytes + static_cast<std::uint64_t>(max_dynamic_shared(function));
}

}  // namespace

CUresult check_launch(const KernelLaunch& launch, const Device& device) {
  const ptxvm::KernelInfo& kernel = *launch.function.info;
  const ptxvm::LoadedKernel* const code = launch.function.code->state().find(launch.function.name);
  if (!within(launch.grid, 0x7FFFFFFF, 65535, 65535) || !within(launch.block, 1024, 1024, 64) ||
      launch.block.count() > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  if (launch.block.count() > kernel.max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const std::uint32_t asked[] = {launch.block.x, launch.block.y, launch.block.z};
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t required = code->function->required_threads[i];
    if (required != 0 && required != asked[i]) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto most = static_cast<std::uint64_t>(device.limits().shared_per_block_optin);
  if (launch.dynamic_shared_bytes > static_cast<std::uint64_t>(max_dynamic_shared(launch.function)) ||
      kernel.static_shared_bytes + launch.dynamic_shared_bytes > most)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult read_parameters(const ptxvm::KernelInfo& kernel, void** values, void** extra,
                         std::vector<std::uint8_t>& bytes) {
  if (values != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  bytes.assign(kernel.parameter_bytes, 0);
  if (values != nullptr) {
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (values[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(bytes.data() + kernel.parameters[i].offset_bytes, values[i],
                  kernel.parameters[i].size_bytes);
    }
    return CUDA_SUCCESS;
  }
  const void* buffer = nullptr;
  std::size_t size = 0;
  if (extra != nullptr) {
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = extra[1];
      } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        std::memcpy(&size, extra[1], sizeof size);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
  }
  // A struct with the parameters may be padded to 16 bytes.
  if (size < bytes.size() || size >= bytes.size() + 16 || (buffer == nullptr && !bytes.empty()))
    return CUDA_ERROR_INVALID_VALUE;
  if (!bytes.empty()) std::memcpy(bytes.data(), buffer, bytes.size());
  return CUDA_SUCCESS;
}

std::optional<Failure> run_launch(const KernelLaunch& launch, Device& device, const Settings& settings,
                                  Operation& operation) {
  ptxvm::LaunchConfig config;
  config.grid = launch.grid;
  config.block = launch.block;
  config.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  // The interpreter's account includes the padding between static and dynamic memory.
  config.max_shared_bytes = max_shared_bytes(launch.function) + 1024;
  ptxvm::LaunchOptions options;
  options.seed = launch.seed;
  options.num_threads = static_cast<int>(settings.num_threads);
  options.check_initialised = settings.check_initialised;
  options.check_races = settings.check_races;
  options.check_barriers = settings.check_barriers;
  options.count_accesses = settings.count_accesses;
  if (settings.max_branches != 0) options.max_branches = settings.max_branches;
  const auto report =
      ptxvm::launch(*launch.function.code, launch.function.name, config,
                    std::span<const std::uint8_t>(launch.parameters), device.memory(), options);
  if (!report) return Failure{CUDA_ERROR_LAUNCH_FAILED, report.error().message};
  operation.counters = report->counters;
  operation.duration_ns = kernel_ns(report->counters, settings);
  if (const auto& fault = report->fault)
    return Failure{result_of(*fault), std::string(ptxvm::fault_name(fault->kind)) + ": " + fault->message};
  return std::nullopt;
}

}  // namespace weightpress::cuda_driver
