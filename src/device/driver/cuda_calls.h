// The calls of the CUDA driver that weightpress makes, by the names that the library exports: cuda.h turns
// many names into macros for a later version of a call, which have to be looked up with their suffix.
#pragma once

#include <cuda.h>

// member, symbol
#define WP_CUDA_CALLS(X)                                                      \
  X(init, cuInit)                                                             \
  X(driver_get_version, cuDriverGetVersion)                                   \
  X(get_error_name, cuGetErrorName)                                           \
  X(get_error_string, cuGetErrorString)                                       \
  X(device_get_count, cuDeviceGetCount)                                       \
  X(device_get, cuDeviceGet)                                                  \
  X(device_get_name, cuDeviceGetName)                                         \
  X(device_get_attribute, cuDeviceGetAttribute)                               \
  X(device_total_mem, cuDeviceTotalMem_v2)                                    \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain)                      \
  X(device_primary_ctx_release, cuDevicePrimaryCtxRelease_v2)                 \
  X(ctx_set_current, cuCtxSetCurrent)                                         \
  X(ctx_get_current, cuCtxGetCurrent)                                         \
  X(ctx_synchronize, cuCtxSynchronize)                                        \
  X(mem_get_info, cuMemGetInfo_v2)                                            \
  X(module_load_data_ex, cuModuleLoadDataEx)                                  \
  X(module_unload, cuModuleUnload)                                            \
  X(module_get_function, cuModuleGetFunction)                                 \
  X(func_get_attribute, cuFuncGetAttribute)                                   \
  X(func_set_attribute, cuFuncSetAttribute)                                   \
  X(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(mem_alloc, cuMemAlloc_v2)                                                 \
  X(mem_free, cuMemFree_v2)                                                   \
  X(mem_host_alloc, cuMemHostAlloc)                                           \
  X(mem_free_host, cuMemFreeHost)                                             \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2)                \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2)                                  \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)                                  \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2)                                  \
  X(memset_d8_async, cuMemsetD8Async)                                         \
  X(stream_create, cuStreamCreate)                                            \
  X(stream_destroy, cuStreamDestroy_v2)                                       \
  X(stream_synchronize, cuStreamSynchronize)                                  \
  X(stream_wait_event, cuStreamWaitEvent)                                     \
  X(event_create, cuEventCreate)                                              \
  X(event_destroy, cuEventDestroy_v2)                                         \
  X(event_record, cuEventRecord)                                              \
  X(event_query, cuEventQuery)                                                \
  X(event_synchronize, cuEventSynchronize)                                    \
  X(event_elapsed_time, cuEventElapsedTime)                                   \
  X(launch_kernel, cuLaunchKernel)
