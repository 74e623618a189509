// Device memory: allocated at once, or in the order of a stream; pools.
#include "calls.h"

using namespace weightpress::cuda_driver;

namespace {

// What a new allocation holds, never 0: nobody may rely on it.
std::uint8_t garbage(Machine& machine) {
  return static_cast<std::uint8_t>(0xA0 | (machine.scheduler.random() & 15));
}

// Room that stream-ordered frees will make is waited for, as a pool does.
CUresult allocate(Machine& machine, Context& context, CUdeviceptr* address, std::size_t bytes,
                  bool is_stream_ordered) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (machine.allocation_fails()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = context.device->allocate(bytes, context.number, is_stream_ordered);
  if (!made) {
    machine.scheduler.force_context(context.number);
    if (context.dead != CUDA_SUCCESS) return context.dead;
    made = context.device->allocate(bytes, context.number, is_stream_ordered);
  }
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  context.device->spoil(*made, garbage(machine));
  *address = *made;
  return CUDA_SUCCESS;
}

// An allocation that begins at an address, on any device, and is not being freed.
DeviceAllocation* find_allocation(Machine& machine, CUdeviceptr address, Device*& device) {
  device = machine.device_of(address);
  if (device == nullptr) return nullptr;
  DeviceAllocation* const found = device->find(address);
  return found == nullptr || found->is_being_freed ? nullptr : found;
}

// A device's default pool is known by its number.
constexpr std::uint64_t kFirstPool = std::uint64_t{1} << 40;

Device* find_pool(Machine& machine, CUmemoryPool pool) {
  const std::uint64_t number = number_of(pool);
  return number < kFirstPool ? nullptr : machine.find_device(static_cast<CUdevice>(number - kFirstPool));
}

}  // namespace

WP_CUDA_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](Machine&, Context& context) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *free = context.device->free_bytes();
    *total = context.device->total_bytes();
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return with_context(
      [&](Machine& machine, Context& context) { return allocate(machine, context, address, bytes, false); });
}

WP_CUDA_API CUresult cuMemFree_v2(CUdeviceptr address) {
  return with_context([&](Machine& machine, Context&) {
    if (address == 0) return CUDA_SUCCESS;
    Device* device = nullptr;
    const DeviceAllocation* const found = find_allocation(machine, address, device);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Waits for the context's work, unless the memory is of a pool.
    if (!found->is_stream_ordered) machine.scheduler.force_context(found->context);
    return device->release(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

WP_CUDA_API CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return with_context([&](Machine& machine, Context& context) {
    std::shared_ptr<Stream> stream;
    CUresult result = find_stream(machine, context, handle, true, stream);
    if (result == CUDA_SUCCESS) result = allocate(machine, context, address, bytes, true);
    if (result != CUDA_SUCCESS) return result;
    Operation operation;
    operation.kind = "allocate";
    operation.bytes = bytes;
    // Until the stream gets here the memory may be somebody else's.
    operation.run = [device = context.device, made = *address,
                     pattern = garbage(machine)](Operation&) -> std::optional<Failure> {
      device->spoil(made, pattern);
      return std::nullopt;
    };
    put(machine, *stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return with_context([&](Machine& machine, Context& context) {
    std::shared_ptr<Stream> stream;
    const CUresult result = find_stream(machine, context, handle, true, stream);
    if (result != CUDA_SUCCESS) return result;
    Device* device = nullptr;
    DeviceAllocation* const found = find_allocation(machine, address, device);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    found->is_being_freed = true;
    Operation operation;
    operation.kind = "free";
    operation.bytes = found->bytes;
    operation.run = [device, address](Operation&) -> std::optional<Failure> {
      device->release(address);
      return std::nullopt;
    };
    put(machine, *stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return with_machine([&](Machine& machine) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Device* const device = machine.find_device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *pool = handle_of<CUmemoryPool>(kFirstPool + device->index());
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return with_machine([&](Machine& machine) {
    return find_pool(machine, pool) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;  // keeps nothing
  });
}

WP_CUDA_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return with_machine([&](Machine& machine) {
    Device* const device = find_pool(machine, pool);
    if (device == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
      case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return CUDA_SUCCESS;  // hints
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        device->release_threshold = *static_cast<const cuuint64_t*>(value);
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
        device->reset_pool_high();
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

WP_CUDA_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return with_machine([&](Machine& machine) {
    const Device* const device = find_pool(machine, pool);
    if (device == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
      case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *static_cast<int*>(value) = 1;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *static_cast<cuuint64_t*>(value) = device->release_threshold;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *static_cast<cuuint64_t*>(value) = device->pool_bytes();
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *static_cast<cuuint64_t*>(value) = device->pool_high_bytes();
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}
