// cuGetErrorName, cuGetErrorString: names from cuda.h, texts as the real driver has them.
#include <algorithm>

#include "calls.h"

namespace weightpress::cuda_driver {
namespace {

struct ErrorText {
  CUresult result;
  const char* name;
  const char* text;
};

#define WP_ERROR(name, text) {name, #name, text}
constexpr ErrorText kTexts[] = {
    WP_ERROR(CUDA_SUCCESS, "no error"),
    WP_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    WP_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    WP_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    WP_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    WP_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    WP_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    WP_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    WP_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WP_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    WP_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    WP_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    WP_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    WP_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    WP_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    WP_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    WP_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    WP_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    WP_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    WP_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    WP_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
             "the provided PTX was compiled with an unsupported toolchain."),
    WP_ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    WP_ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    WP_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    WP_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    WP_ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    WP_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    WP_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    WP_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    WP_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    WP_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    WP_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WP_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    WP_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    WP_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    WP_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    WP_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    WP_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
             "part or all of the requested memory range is already mapped"),
    WP_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
             "pointer does not correspond to a registered memory region"),
    WP_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    WP_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    WP_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    WP_ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space"),
    WP_ERROR(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    WP_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    WP_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    WP_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    WP_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    WP_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
             "system has unsupported display driver / cuda driver combination"),
    WP_ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
             "forward compatibility was attempted on non supported HW"),
    WP_ERROR(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    WP_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef WP_ERROR

const ErrorText* find(CUresult result) {
  const auto* const found = std::ranges::find(kTexts, result, &ErrorText::result);
  return found == std::end(kTexts) ? nullptr : found;
}

}  // namespace
}  // namespace weightpress::cuda_driver

using weightpress::cuda_driver::find;

WP_CUDA_API CUresult cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* const found = find(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

WP_CUDA_API CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* const found = find(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
