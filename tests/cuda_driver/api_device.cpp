// Devices and their primary contexts.
#include <algorithm>
#include <cstring>
#include <string>

#include "calls.h"

using namespace weightpress::cuda_driver;

namespace {

// body(machine, device)
template <class Body>
CUresult with_device(CUdevice ordinal, const Body& body) {
  return with_machine([&](Machine& machine) {
    Device* const device = machine.find_device(ordinal);
    return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : body(machine, *device);
  });
}

}  // namespace

WP_CUDA_API CUresult cuDeviceGetCount(int* count) {
  return with_machine([&](Machine& machine) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(machine.devices.size());
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_machine([&](Machine& machine) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (machine.find_device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Machine& machine, Device&) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    const std::string& full = machine.settings.device_name;
    const std::size_t bytes = std::min(full.size(), static_cast<std::size_t>(length) - 1);
    std::memcpy(name, full.data(), bytes);
    name[bytes] = '\0';
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return with_device(ordinal, [&](Machine&, Device& device) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    static_assert(sizeof uuid->bytes == 16);
    std::memcpy(uuid->bytes, "weightpress-gpu", 16);
    uuid->bytes[15] = static_cast<char>('0' + device.index());
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  return with_device(ordinal, [&](Machine&, Device& device) {
    const auto known = device.attribute(attribute);
    if (value == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
    *value = *known;
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  return with_device(ordinal, [&](Machine&, Device& device) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device.total_bytes();
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
  return with_device(ordinal, [&](Machine& machine, Device& device) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t number = 0;
    const CUresult result = machine.retain(device, &number);
    if (result == CUDA_SUCCESS) *context = handle_of<CUcontext>(number);
    return result;
  });
}

WP_CUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return with_device(ordinal, [](Machine& machine, Device& device) {
    if (device.num_retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.num_retains == 0) machine.destroy(device.context);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return with_device(ordinal, [](Machine& machine, Device& device) {
    if (device.context != 0) machine.destroy(device.context);
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  return with_device(ordinal, [&](Machine&, Device& device) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = device.context_flags;
    *active = device.context != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

WP_CUDA_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  return with_device(ordinal, [&](Machine&, Device& device) {
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0 ||
        (schedule != 0 && (schedule & (schedule - 1)) != 0))
      return CUDA_ERROR_INVALID_VALUE;
    device.context_flags = flags;
    return CUDA_SUCCESS;
  });
}
