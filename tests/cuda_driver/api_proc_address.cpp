// cuGetProcAddress: the calls by their plain names.
#include <algorithm>
#include <string_view>

#include "calls.h"

#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);

namespace weightpress::cuda_driver {
namespace {

struct Symbol {
  std::string_view name;
  int since;  ///< the CUDA version that brought this form of it
  void* address;
};

#define WP_SYMBOL(name, since, function) {#name, since, reinterpret_cast<void*>(&function)}

// Forms of one name stand from old to new.
const Symbol kSymbols[] = {
    WP_SYMBOL(cuCtxGetCurrent, 4000, cuCtxGetCurrent),
    WP_SYMBOL(cuCtxGetDevice, 2000, cuCtxGetDevice),
    WP_SYMBOL(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange),
    WP_SYMBOL(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    WP_SYMBOL(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    WP_SYMBOL(cuCtxSetCurrent, 4000, cuCtxSetCurrent),
    WP_SYMBOL(cuCtxSynchronize, 2000, cuCtxSynchronize),
    WP_SYMBOL(cuDeviceGet, 2000, cuDeviceGet),
    WP_SYMBOL(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute),
    WP_SYMBOL(cuDeviceGetCount, 2000, cuDeviceGetCount),
    WP_SYMBOL(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool),
    WP_SYMBOL(cuDeviceGetName, 2000, cuDeviceGetName),
    WP_SYMBOL(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
    WP_SYMBOL(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState),
    WP_SYMBOL(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
    WP_SYMBOL(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2),
    WP_SYMBOL(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain),
    WP_SYMBOL(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2),
    WP_SYMBOL(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
    WP_SYMBOL(cuDriverGetVersion, 2020, cuDriverGetVersion),
    WP_SYMBOL(cuEventCreate, 2000, cuEventCreate),
    WP_SYMBOL(cuEventDestroy, 4000, cuEventDestroy_v2),
    WP_SYMBOL(cuEventElapsedTime, 2000, cuEventElapsedTime),
    WP_SYMBOL(cuEventElapsedTime, 12080, cuEventElapsedTime_v2),
    WP_SYMBOL(cuEventQuery, 2000, cuEventQuery),
    WP_SYMBOL(cuEventRecord, 2000, cuEventRecord),
    WP_SYMBOL(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags),
    WP_SYMBOL(cuEventSynchronize, 2000, cuEventSynchronize),
    WP_SYMBOL(cuFuncGetAttribute, 2020, cuFuncGetAttribute),
    WP_SYMBOL(cuFuncSetAttribute, 9000, cuFuncSetAttribute),
    WP_SYMBOL(cuGetErrorName, 6000, cuGetErrorName),
    WP_SYMBOL(cuGetErrorString, 6000, cuGetErrorString),
    WP_SYMBOL(cuGetProcAddress, 12000, cuGetProcAddress_v2),
    WP_SYMBOL(cuInit, 2000, cuInit),
    WP_SYMBOL(cuLaunchHostFunc, 10000, cuLaunchHostFunc),
    WP_SYMBOL(cuLaunchKernel, 4000, cuLaunchKernel),
    WP_SYMBOL(cuMemAlloc, 3020, cuMemAlloc_v2),
    WP_SYMBOL(cuMemAllocAsync, 11020, cuMemAllocAsync),
    WP_SYMBOL(cuMemAllocHost, 3020, cuMemAllocHost_v2),
    WP_SYMBOL(cuMemFree, 3020, cuMemFree_v2),
    WP_SYMBOL(cuMemFreeAsync, 11020, cuMemFreeAsync),
    WP_SYMBOL(cuMemFreeHost, 2000, cuMemFreeHost),
    WP_SYMBOL(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
    WP_SYMBOL(cuMemGetInfo, 3020, cuMemGetInfo_v2),
    WP_SYMBOL(cuMemHostAlloc, 2020, cuMemHostAlloc),
    WP_SYMBOL(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2),
    WP_SYMBOL(cuMemHostGetFlags, 2030, cuMemHostGetFlags),
    WP_SYMBOL(cuMemHostRegister, 6050, cuMemHostRegister_v2),
    WP_SYMBOL(cuMemHostUnregister, 4000, cuMemHostUnregister),
    WP_SYMBOL(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute),
    WP_SYMBOL(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute),
    WP_SYMBOL(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo),
    WP_SYMBOL(cuMemcpy, 4000, cuMemcpy),
    WP_SYMBOL(cuMemcpyAsync, 4000, cuMemcpyAsync),
    WP_SYMBOL(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2),
    WP_SYMBOL(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2),
    WP_SYMBOL(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2),
    WP_SYMBOL(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2),
    WP_SYMBOL(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2),
    WP_SYMBOL(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2),
    WP_SYMBOL(cuMemsetD16, 3020, cuMemsetD16_v2),
    WP_SYMBOL(cuMemsetD16Async, 3020, cuMemsetD16Async),
    WP_SYMBOL(cuMemsetD32, 3020, cuMemsetD32_v2),
    WP_SYMBOL(cuMemsetD32Async, 3020, cuMemsetD32Async),
    WP_SYMBOL(cuMemsetD8, 3020, cuMemsetD8_v2),
    WP_SYMBOL(cuMemsetD8Async, 3020, cuMemsetD8Async),
    WP_SYMBOL(cuModuleGetFunction, 2000, cuModuleGetFunction),
    WP_SYMBOL(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2),
    WP_SYMBOL(cuModuleLoadData, 2000, cuModuleLoadData),
    WP_SYMBOL(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx),
    WP_SYMBOL(cuModuleUnload, 2000, cuModuleUnload),
    WP_SYMBOL(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor),
    WP_SYMBOL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,
              cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags),
    WP_SYMBOL(cuPointerGetAttribute, 4000, cuPointerGetAttribute),
    WP_SYMBOL(cuStreamCreate, 2000, cuStreamCreate),
    WP_SYMBOL(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority),
    WP_SYMBOL(cuStreamDestroy, 4000, cuStreamDestroy_v2),
    WP_SYMBOL(cuStreamGetFlags, 5050, cuStreamGetFlags),
    WP_SYMBOL(cuStreamGetPriority, 5050, cuStreamGetPriority),
    WP_SYMBOL(cuStreamQuery, 2000, cuStreamQuery),
    WP_SYMBOL(cuStreamSynchronize, 2000, cuStreamSynchronize),
    WP_SYMBOL(cuStreamWaitEvent, 3020, cuStreamWaitEvent),
};
#undef WP_SYMBOL

}  // namespace
}  // namespace weightpress::cuda_driver

using namespace weightpress::cuda_driver;

WP_CUDA_API CUresult cuGetProcAddress_v2(const char* symbol, void** address, int cuda_version,
                                         cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (is_in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  int driver_version = 0;
  if (symbol == nullptr || address == nullptr || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ||
      cuDriverGetVersion(&driver_version) != CUDA_SUCCESS || cuda_version > driver_version)
    return CUDA_ERROR_INVALID_VALUE;
  // The forms whose default stream is the thread's are not here.
  if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_NOT_SUPPORTED;
  *address = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (const Symbol& known : kSymbols) {
    if (known.name != symbol) continue;
    if (known.since <= cuda_version) {
      found = CU_GET_PROC_ADDRESS_SUCCESS;
      *address = known.address;
    } else if (*address == nullptr) {
      found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
  }
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}
