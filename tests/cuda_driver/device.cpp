#include "device.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace weightpress::cuda_driver {
namespace {

constexpr std::uint64_t kAlignBytes = 256;

Limits limits_of(std::uint32_t major, std::uint32_t minor) {
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  if (major == 7 && minor == 5) return {1024, 16, 64 << 10, 64 << 10};
  if (major == 7) return {2048, 32, 96 << 10, 96 << 10};
  if (major == 8 && minor == 0) return {2048, 32, 164 << 10, 163 << 10};
  if (major == 8 && minor == 9) return {1536, 24, 100 << 10, 99 << 10};
  if (major == 9 || major == 10 || major == 11) return {2048, 32, 228 << 10, 227 << 10};
  if (major == 12) return {1536, 24, 100 << 10, 99 << 10};
  return {};
}

std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + Device::kGranularity - 1) / Device::kGranularity * Device::kGranularity;
}

}  // namespace

HostBytes allocate_host_bytes(std::uint64_t bytes, std::uint64_t align) {
  const std::uint64_t room = std::max((bytes + align - 1) / align * align, align);
  return HostBytes(static_cast<std::uint8_t*>(std::aligned_alloc(align, room)));
}

Device::Device(std::uint32_t index, const Settings& settings)
    : index_(index), settings_(settings), limits_(limits_of(settings.compute_major, settings.compute_minor)) {
  for (std::uint64_t i = 0; i < kNumHostNumbers + index * kNumbersPerDevice; ++i)
    memory_.adopt(std::span<std::uint8_t>(), {.name = "nothing"});
}

std::optional<std::uint64_t> Device::allocate(std::uint64_t bytes, std::uint64_t context_id,
                                              bool is_stream_ordered) {
  if (bytes > ptxvm::kMaxAllocationBytes || rounded(bytes) > free_bytes()) return std::nullopt;
  DeviceAllocation allocation{.bytes = bytes,
                              .context = context_id,
                              .is_stream_ordered = is_stream_ordered,
                              .is_being_freed = false,
                              .own = nullptr};
  const std::string name = std::to_string(bytes) + " bytes of device memory";
  std::uint64_t address = 0;
  if (settings_.check_initialised) {
    try {
      address = memory_.allocate(bytes, {.name = name, .starts_uninitialised = true});
    } catch (const std::bad_alloc&) {
      return std::nullopt;
    }
  } else {
    allocation.own = allocate_host_bytes(bytes, kAlignBytes);
    if (allocation.own == nullptr) return std::nullopt;
    address = memory_.adopt(std::span(allocation.own.get(), bytes), {.name = name});
  }
  const std::uint64_t number = (address >> ptxvm::kAllocationShift) - kFirstDeviceNumber;
  if (index_ + 1 < settings_.num_devices && number / kNumbersPerDevice != index_) {
    memory_.free(address);  // its number would be another device's
    return std::nullopt;
  }
  allocations_.emplace(address, std::move(allocation));
  used_bytes_ += rounded(bytes);
  if (is_stream_ordered) pool_bytes_ += rounded(bytes);
  pool_high_bytes_ = std::max(pool_high_bytes_, pool_bytes_);
  return address;
}

void Device::spoil(std::uint64_t address, std::uint8_t pattern) {
  const DeviceAllocation* const allocation = find(address);
  if (allocation == nullptr) return;
  if (const auto* const known = memory_.find(address); known->initialised != nullptr)
    std::memset(known->initialised, 0, allocation->bytes);
  if (settings_.fills_memory && allocation->bytes <= kMostSpoiltBytes)
    std::memset(memory_.host_pointer(address, allocation->bytes), pattern, allocation->bytes);
}

std::string Device::flip_bit(std::uint64_t random) {
  std::uint64_t num_bytes = 0;
  for (const auto& [address, allocation] : allocations_) num_bytes += allocation.bytes;
  if (num_bytes == 0) return {};
  const std::uint64_t bit = random % 8;
  std::uint64_t offset = random / 8 % num_bytes;
  auto chosen = allocations_.begin();
  for (; offset >= chosen->second.bytes; ++chosen) offset -= chosen->second.bytes;
  *memory_.host_pointer(chosen->first + offset, 1) ^= static_cast<std::uint8_t>(1 << bit);
  return "bit " + std::to_string(bit) + " of byte " + std::to_string(offset) + " of " +
         std::to_string(chosen->second.bytes) + " bytes of device memory";
}

DeviceAllocation* Device::find(std::uint64_t address) {
  const auto found = allocations_.find(address);
  return found == allocations_.end() ? nullptr : &found->second;
}

bool Device::release(std::uint64_t address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  memory_.free(address);
  used_bytes_ -= rounded(found->second.bytes);
  if (found->second.is_stream_ordered) pool_bytes_ -= rounded(found->second.bytes);
  allocations_.erase(found);
  return true;
}

std::uint64_t Device::release_all(std::uint64_t context_id) {
  std::uint64_t count = 0;
  for (auto next = allocations_.begin(); next != allocations_.end();) {
    const auto [address, allocation] = std::pair(next->first, next->second.context);
    ++next;
    if (allocation == context_id && release(address)) ++count;
  }
  return count;
}

bool Device::take(std::uint64_t bytes) {
  if (bytes > free_bytes()) return false;
  used_bytes_ += bytes;
  return true;
}

std::optional<int> Device::attribute(CUdevice_attribute attribute) const {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 0x7FFFFFFF;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return limits_.shared_per_block_optin;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return limits_.shared_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return settings_.compute_major >= 8 ? 1024 : 0;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1'700'000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 7'000'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 256;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 4 << 20;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return static_cast<int>(settings_.num_multiprocessors);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return limits_.threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return limits_.blocks_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return static_cast<int>(settings_.compute_major);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return static_cast<int>(settings_.compute_minor);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return static_cast<int>(index_) + 1;
    default:
      break;
  }
  // What this machine does not have: ECC, managed memory, textures, clusters and so on.
  if (attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX) return 0;
  return std::nullopt;
}

}  // namespace weightpress::cuda_driver
