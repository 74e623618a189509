// Pinned memory of the host, and what pointers point to.
//
// A device reaches pinned memory under an address of its own, cuMemHostGetDevicePointer's, never under the
// host's pointer: so a kernel that is given a plain host pointer is caught even where a real machine would
// forgive it.
#include <cstring>
#include <span>
#include <utility>

#include "calls.h"

using namespace weightpress::cuda_driver;

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kAdoptAlign = 16;  // of Memory::adopt()
constexpr std::uint64_t kMostPinnedBytes = weightpress::ptxvm::kMaxAllocationBytes - kAdoptAlign;  // at once

bool overlaps_pinned(Machine& machine, std::uint8_t* begin, std::uint64_t bytes) {
  if (machine.find_pinned(begin) != nullptr) return true;
  const auto next = machine.pinned.lower_bound(begin);
  return next != machine.pinned.end() && static_cast<std::uint64_t>(next->first - begin) < bytes;
}

// Makes memory known to every device.
void pin(Machine& machine, Pinned range, bool is_read_only) {
  const std::uint64_t before = reinterpret_cast<std::uint64_t>(range.begin) % kAdoptAlign;
  const std::span bytes(range.begin - before, range.bytes + before);
  const std::string name = std::to_string(range.bytes) + " bytes of pinned memory";
  for (const auto& device : machine.devices) {
    range.bases.push_back(device->memory().adopt(bytes, {.name = name, .read_only = is_read_only}));
    range.addresses.push_back(range.bases.back() + before);
  }
  std::uint8_t* const begin = range.begin;
  machine.pinned.emplace(begin, std::move(range));
}

CUresult allocate(void** pointer, std::size_t bytes, unsigned flags) {
  return with_context([&](Machine& machine, Context& context) {
    constexpr unsigned kFlags =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pointer == nullptr || bytes == 0 || (flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (machine.allocation_fails() || bytes > kMostPinnedBytes) return CUDA_ERROR_OUT_OF_MEMORY;
    Pinned range;
    range.own = allocate_host_bytes(bytes, kPageBytes);
    if (range.own == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    range.begin = range.own.get();
    range.bytes = bytes;
    range.flags = flags;
    range.context = context.number;
    if (machine.settings.fills_memory && bytes <= Device::kMostSpoiltBytes)
      std::memset(range.begin, static_cast<int>(0xB0 | (machine.scheduler.random() & 15)), bytes);
    *pointer = range.begin;
    pin(machine, std::move(range), false);
    return CUDA_SUCCESS;
  });
}

// Forgets pinned memory that begins at a pointer, after the work that may use it.
CUresult unpin(void* pointer, bool is_registered, CUresult otherwise) {
  return with_context([&](Machine& machine, Context&) {
    auto* const begin = static_cast<std::uint8_t*>(pointer);
    const auto known = [&] {
      const auto found = machine.pinned.find(begin);
      return found != machine.pinned.end() && found->second.is_registered == is_registered
                 ? found
                 : machine.pinned.end();
    };
    if (known() == machine.pinned.end()) return otherwise;
    machine.scheduler.force_all();
    const auto found = known();
    if (found == machine.pinned.end()) return otherwise;
    machine.unpin(found->second);
    machine.pinned.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult describe(Machine& machine, CUpointer_attribute attribute, CUdeviceptr pointer, void* data) {
  const auto give = [data](auto value) {
    std::memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  // What it is: memory of a device, or pinned memory under either of its addresses.
  Device* device = machine.device_of(pointer);
  const Pinned* range = nullptr;
  std::uint64_t offset = 0, base = 0, bytes = 0, context = 0;
  if (device == nullptr) {
    range = machine.find_pinned(reinterpret_cast<void*>(pointer));
    if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
    offset = pointer - reinterpret_cast<std::uint64_t>(range->begin);
    device = machine.contexts.at(range->context)->device;
  } else {
    base = pointer >> weightpress::ptxvm::kAllocationShift << weightpress::ptxvm::kAllocationShift;
    for (const auto& [begin, other] : machine.pinned)
      if (other.bases[device->index()] == base) range = &other;
    if (range != nullptr) offset = pointer - range->addresses[device->index()];
  }
  if (range != nullptr) {
    base = range->addresses[device->index()];
    bytes = range->bytes;
    context = range->context;
  } else {
    if (machine.device_bytes(pointer, 1) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bytes = *device->memory().size_of(base);
    const DeviceAllocation* const allocation = device->find(base);
    context = allocation != nullptr ? allocation->context : device->context;
    offset = pointer - base;
  }
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(handle_of<CUcontext>(context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(static_cast<unsigned>(range != nullptr ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(CUdeviceptr{base + offset});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return range == nullptr ? CUDA_ERROR_INVALID_VALUE : give(static_cast<void*>(range->begin + offset));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(static_cast<int>(device->index()));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(CUdeviceptr{base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(static_cast<std::size_t>(bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(true);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

WP_CUDA_API CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return allocate(pointer, bytes, flags);
}

WP_CUDA_API CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, 0);
}

WP_CUDA_API CUresult cuMemFreeHost(void* pointer) {
  return unpin(pointer, false, CUDA_ERROR_INVALID_VALUE);
}

WP_CUDA_API CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
  return with_context([&](Machine& machine, Context& context) {
    constexpr unsigned kFlags =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    auto* const begin = static_cast<std::uint8_t*>(pointer);
    const auto value = reinterpret_cast<std::uint64_t>(pointer);
    if (pointer == nullptr || bytes == 0 || looks_like_device_address(value) || bytes > ~value)
      return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if ((flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (overlaps_pinned(machine, begin, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (machine.allocation_fails() || bytes > kMostPinnedBytes) return CUDA_ERROR_OUT_OF_MEMORY;
    Pinned range;
    range.begin = begin;
    range.bytes = bytes;
    range.flags = flags;
    range.is_registered = true;
    range.context = context.number;
    pin(machine, std::move(range), (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuMemHostUnregister(void* pointer) {
  if (pointer == nullptr) {
    return with_context([](Machine&, Context&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  return unpin(pointer, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

WP_CUDA_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned int flags) {
  return with_context([&](Machine& machine, Context& context) {
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const Pinned* const range = machine.find_pinned(pointer);
    if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *address = range->addresses[context.device->index()] +
               static_cast<std::uint64_t>(static_cast<std::uint8_t*>(pointer) - range->begin);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return with_context([&](Machine& machine, Context&) {
    const Pinned* const range = machine.find_pinned(pointer);
    if (flags == nullptr || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->is_registered ? range->flags : range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return with_context([&](Machine& machine, Context&) {
    return data == nullptr ? CUDA_ERROR_INVALID_VALUE : describe(machine, attribute, pointer, data);
  });
}

WP_CUDA_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return with_context([&](Machine& machine, Context&) {
    if (machine.device_of(address) == nullptr) return CUDA_ERROR_NOT_FOUND;
    CUdeviceptr begin = 0;
    std::size_t size = 0;
    if (describe(machine, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address, &begin) != CUDA_SUCCESS ||
        describe(machine, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address, &size) != CUDA_SUCCESS)
      return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = begin;
    if (bytes != nullptr) *bytes = size;
    return CUDA_SUCCESS;
  });
}
