// Initialisation, versions, error texts, devices, primary contexts and the current one.
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

TEST(EmulatedDriver, NothingWorksBeforeInit) {
  const EmulatedMachine machine({}, false);
  int number = 0;
  CUdeviceptr address = 0;
  CUcontext context = nullptr;
  EXPECT_EQ(WP_CUDA(cuDeviceGetCount)(&number), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&address, 4), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(WP_CUDA(cuDriverGetVersion)(&number), CUDA_SUCCESS);
  EXPECT_EQ(number, 13000);
  EXPECT_EQ(WP_CUDA(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDeviceGetCount)(&number), CUDA_SUCCESS);
  EXPECT_EQ(number, 1);
}

TEST(EmulatedDriver, InitFailsAsPlanned) {
  for (const CUresult result :
       {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH}) {
    const EmulatedMachine machine({{"INIT_RESULT", std::to_string(result)}}, false);
    EXPECT_EQ(WP_CUDA(cuInit)(0), result);
  }
  const EmulatedMachine machine({{"DEVICES", "0"}}, false);
  EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_ERROR_NO_DEVICE);
}

TEST(EmulatedDriver, VariablesThatMakeNoSenseAreRefused) {
  for (const EmulatedMachine::Variables& variables :
       std::vector<EmulatedMachine::Variables>{{{"SEED", "x"}},
                                               {{"SEED", "-1"}},
                                               {{"SEEED", "1"}},
                                               {{"MEMORY", "1T"}},
                                               {{"MEMORY", "1KK"}},
                                               {{"COMPUTE", "8"}},
                                               {{"CHECK", "init,rase"}},
                                               {{"COPY_IN_GBPS", "0"}},
                                               {{"HOST_CLOCK", "x"}},
                                               {{"THREADS", "0"}},
                                               {{"OOM_STAYS", "2"}},
                                               {{"EAGER_PERCENT", "101"}}}) {
    const EmulatedMachine machine(variables, false);
    EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_ERROR_INVALID_VALUE)
        << variables[0].first << "=" << variables[0].second;
  }
}

TEST(EmulatedDriver, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  EXPECT_EQ(WP_CUDA(cuGetErrorName)(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(WP_CUDA(cuGetErrorString)(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "an illegal memory access was encountered");
  EXPECT_EQ(WP_CUDA(cuGetErrorString)(CUDA_SUCCESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "no error");
  EXPECT_EQ(WP_CUDA(cuGetErrorString)(static_cast<CUresult>(997), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(WP_CUDA(cuGetErrorName)(static_cast<CUresult>(997), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuGetErrorName)(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedDriver, CallsAreFoundByTheirPlainNames) {
  const EmulatedMachine machine({{"DRIVER_VERSION", "12080"}});
  const auto get = WP_CUDA(cuGetProcAddress_v2);
  void* address = nullptr;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(get("cuMemAlloc", &address, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address, driver_symbol("cuMemAlloc_v2"));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(get("cuEventElapsedTime", &address, 12000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(address, driver_symbol("cuEventElapsedTime"));
  EXPECT_EQ(get("cuEventElapsedTime", &address, 12080, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(address, driver_symbol("cuEventElapsedTime_v2"));
  EXPECT_EQ(get("cuMemAllocAsync", &address, 11010, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(get("cuMakeCoffee", &address, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(get("cuInit", &address, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE) << "newer than the driver";
  EXPECT_EQ(get(nullptr, &address, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedDevices, AreAsTheVariablesSay) {
  const EmulatedMachine machine({{"DEVICES", "3"},
                                 {"MEMORY", "64M"},
                                 {"NAME", "a name of a device"},
                                 {"COMPUTE", "9.0"},
                                 {"CONTEXT_MEMORY", "1M"},
                                 {"MULTIPROCESSORS", "17"}});
  int count = 0, value = 0;
  EXPECT_EQ(WP_CUDA(cuDeviceGetCount)(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 3);
  CUdevice device = -1;
  EXPECT_EQ(WP_CUDA(cuDeviceGet)(&device, 2), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDeviceGet)(&device, 3), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(WP_CUDA(cuDeviceGet)(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(WP_CUDA(cuDeviceGet)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  char name[7];
  EXPECT_EQ(WP_CUDA(cuDeviceGetName)(name, sizeof name, device), CUDA_SUCCESS);
  EXPECT_STREQ(name, "a name");
  EXPECT_EQ(WP_CUDA(cuDeviceGetName)(name, 0, device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuDeviceGetName)(name, sizeof name, 3), CUDA_ERROR_INVALID_DEVICE);
  std::set<std::string> uuids;
  for (int i = 0; i < 3; ++i) {
    CUuuid uuid;
    EXPECT_EQ(WP_CUDA(cuDeviceGetUuid_v2)(&uuid, i), CUDA_SUCCESS);
    uuids.emplace(uuid.bytes, sizeof uuid.bytes);
  }
  EXPECT_EQ(uuids.size(), 3u);
  std::size_t total = 0, free = 0;
  EXPECT_EQ(WP_CUDA(cuDeviceTotalMem_v2)(&total, device), CUDA_SUCCESS);
  EXPECT_EQ(total, 64u << 20);
  EXPECT_EQ(WP_CUDA(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 63u << 20);
  const auto attribute = [&](CUdevice_attribute which) {
    EXPECT_EQ(WP_CUDA(cuDeviceGetAttribute)(&value, which, 1), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 17);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 48 << 10);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 227 << 10);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT), 2);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), 2);
  EXPECT_EQ(WP_CUDA(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuDeviceGetAttribute)(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 3),
            CUDA_ERROR_INVALID_DEVICE);
}

TEST(EmulatedContexts, PrimaryOnesAreCounted) {
  const EmulatedMachine machine;
  CUcontext again = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, machine.context);
  unsigned flags = 9;
  int active = 0;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxSetFlags_v2)(0, CU_CTX_SCHED_BLOCKING_SYNC), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxSetFlags_v2)(0, 0x8000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxGetState)(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
  EXPECT_EQ(active, 1);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  const CUdeviceptr memory = allocate(4);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxGetState)(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  // It is gone, with its memory.
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(machine.context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(again), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&again, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST(EmulatedContexts, TheCurrentOneIsTheTopOfAStack) {
  const EmulatedMachine machine({{"DEVICES", "2"}});
  CUcontext other = nullptr, context = nullptr;
  CUdevice device = -1;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxPushCurrent_v2)(other), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxGetDevice)(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(WP_CUDA(cuCtxPopCurrent_v2)(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, other);
  EXPECT_EQ(WP_CUDA(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, machine.context);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(WP_CUDA(cuCtxPopCurrent_v2)(&context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(WP_CUDA(cuCtxGetDevice)(&device), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(std::uintptr_t{0x1234})),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(WP_CUDA(cuCtxPushCurrent_v2)(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(EmulatedContexts, ManyOfOneProcess) {
  const EmulatedMachine machine({{"MEMORY", "16M"}, {"CONTEXT_MEMORY", "1M"}});
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  for (std::uint32_t i = 0; i < 300; ++i) {  // each leaves something behind
    CUcontext context = nullptr;
    ASSERT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS) << i;
    ASSERT_EQ(WP_CUDA(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    const CUdeviceptr memory = allocate(10 << 20);
    ASSERT_NE(memory, 0u);
    void* const pinned = allocate_pinned(100);
    const CUstream stream = new_stream();
    ASSERT_EQ(WP_CUDA(cuMemsetD32Async)(memory, i, 8, stream), CUDA_SUCCESS);
    ASSERT_EQ(launch(kernel(load_test_kernels(), "add"), 1, 8, stream, {memory, 1}), CUDA_SUCCESS);
    ASSERT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 32, stream), CUDA_SUCCESS);
    ASSERT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    std::uint32_t word = 0;
    std::memcpy(&word, pinned, 4);
    ASSERT_EQ(word, i + 1);
    ASSERT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
