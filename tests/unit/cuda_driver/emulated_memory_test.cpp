// Device memory, pools, pinned memory, and what pointers are.
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(WP_CUDA(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
  return free;
}

TEST(EmulatedMemory, IsAllocatedAndFreedOnce) {
  const EmulatedMachine machine;
  CUdeviceptr memory = 0;
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(nullptr, 4), CUDA_ERROR_INVALID_VALUE);
  memory = allocate(100);
  EXPECT_EQ(memory % 256, 0u);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(memory + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(memory), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(0), CUDA_SUCCESS);
  int local = 0;
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(reinterpret_cast<CUdeviceptr>(&local)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoD_v2)(memory, &local, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedMemory, HasAnEnd) {
  const EmulatedMachine machine({{"MEMORY", "1M"}, {"CONTEXT_MEMORY", "0"}});
  const CUdeviceptr half = allocate(512 << 10);
  EXPECT_EQ(free_bytes(), 512u << 10);
  CUdeviceptr other = 0;
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&other, (512 << 10) + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&other, std::size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&other, 512 << 10), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), 0u);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(half), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), 512u << 10);
  // What a stream frees makes room for an allocation that would not fit otherwise.
  EXPECT_EQ(WP_CUDA(cuMemFreeAsync)(other, new_stream()), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), 512u << 10) << "not yet freed";
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&other, 1 << 20), CUDA_SUCCESS);
}

TEST(EmulatedMemory, FreeWaitsForWork) {
  const EmulatedMachine machine;
  const CUdeviceptr from = allocate_zeros(4), to = allocate(4);
  EXPECT_EQ(launch(kernel(load_test_kernels(), "copy"), 1, 1, new_stream(), {to, from}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(from), CUDA_SUCCESS);
  EXPECT_EQ(read_word(to), 0u);
}

TEST(EmulatedMemory, IsNotZeroAtFirst) {
  const EmulatedMachine machine;
  for (const std::uint32_t word : read_words(allocate(64), 16)) EXPECT_NE(word, 0u);
  const auto* const pinned = static_cast<const std::uint8_t*>(allocate_pinned(16));
  for (int i = 0; i < 16; ++i) EXPECT_NE(pinned[i], 0);
}

TEST(EmulatedMemory, UninitialisedReadsAreFoundOnRequest) {
  for (const bool checks : {false, true}) {
    const EmulatedMachine machine({{"CHECK", checks ? "init" : ""}});
    const CUfunction copy = kernel(load_test_kernels(), "copy");
    const CUdeviceptr from = allocate(12), middle = allocate(12), to = allocate(12);
    EXPECT_EQ(WP_CUDA(cuMemsetD32_v2)(from, 1, 1), CUDA_SUCCESS);
    const std::uint32_t word = 2;
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoD_v2)(from + 4, &word, 4), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoD_v2)(middle, from, 12), CUDA_SUCCESS);  // the last word is still nobody's
    EXPECT_EQ(launch(copy, 1, 2, nullptr, {to, middle}), CUDA_SUCCESS);
    EXPECT_EQ(read_words(to, 2), (std::vector<std::uint32_t>{1, 2}));
    EXPECT_EQ(launch(copy, 1, 3, nullptr, {to, middle}), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), checks ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
  }
}

TEST(EmulatedPools, AllocateAndFreeInTheOrderOfStreams) {
  const EmulatedMachine machine;
  const CUstream stream = new_stream();
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(WP_CUDA(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDeviceGetDefaultMemPool)(&pool, 1), CUDA_ERROR_INVALID_DEVICE);
  cuuint64_t value = 12345;
  EXPECT_EQ(WP_CUDA(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value), CUDA_SUCCESS);
  value = 0;
  EXPECT_EQ(WP_CUDA(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 12345u);
  EXPECT_EQ(WP_CUDA(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemPoolSetAttribute)(nullptr, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemPoolTrimTo)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr memory = 0;
  EXPECT_EQ(WP_CUDA(cuMemAllocAsync)(&memory, 512, reinterpret_cast<CUstream>(std::uintptr_t{0x50})),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(WP_CUDA(cuMemAllocAsync)(&memory, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemAllocAsync)(&memory, 512, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 512u);
  EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 5, 128, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(read_word(memory), 5u);
  EXPECT_EQ(WP_CUDA(cuMemFreeAsync)(memory, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFreeAsync)(memory, stream), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(memory), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 0u);
  EXPECT_EQ(WP_CUDA(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 512u);
}

TEST(EmulatedPools, UseAfterAFreeOfTheSameStreamIsAFault) {
  const EmulatedMachine machine;
  const CUstream stream = new_stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(WP_CUDA(cuMemAllocAsync)(&memory, 512, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFreeAsync)(memory, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD8Async)(memory, 5, 512, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(EmulatedPinnedMemory, DevicesReachItUnderAnAddressOfItsOwn) {
  const EmulatedMachine machine;
  const CUmodule module = load_test_kernels();
  auto* const pinned = static_cast<std::uint32_t*>(allocate_pinned(8));
  pinned[0] = 1;
  pinned[1] = 2;
  const CUdeviceptr address = device_pointer(pinned);
  EXPECT_EQ(device_pointer(pinned + 1), address + 4);
  EXPECT_NE(address, reinterpret_cast<CUdeviceptr>(pinned));
  EXPECT_EQ(launch(kernel(module, "add"), 1, 2, nullptr, {address, 10}), CUDA_SUCCESS);
  EXPECT_EQ(pinned[1], 2u) << "as late as can be";
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(pinned[0], 11u);
  EXPECT_EQ(pinned[1], 12u);
  // The host's own pointer is not the device's.
  EXPECT_EQ(launch(kernel(module, "add"), 1, 1, nullptr, {reinterpret_cast<std::uint64_t>(pinned), 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(EmulatedPinnedMemory, IsAllocatedAndFreedOnce) {
  const EmulatedMachine machine;
  void* pointer = nullptr;
  const auto allocate_host = WP_CUDA(cuMemHostAlloc);
  EXPECT_EQ(allocate_host(nullptr, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate_host(&pointer, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate_host(&pointer, 4, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate_host(&pointer, 4, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  unsigned flags = 0;
  EXPECT_EQ(WP_CUDA(cuMemHostGetFlags)(&flags, pointer), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP});
  EXPECT_EQ(WP_CUDA(cuMemHostGetFlags)(&flags, &flags), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemHostUnregister)(pointer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(static_cast<char*>(pointer) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(pointer), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemAllocHost_v2)(&pointer, 4), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(WP_CUDA(cuMemHostGetDevicePointer_v2)(&address, pointer, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemHostGetDevicePointer_v2)(&address, &address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemHostGetDevicePointer_v2)(nullptr, pointer, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(pointer), CUDA_SUCCESS);
}

TEST(EmulatedPinnedMemory, FreeingItWaitsForCopies) {
  const EmulatedMachine machine;
  void* const pinned = allocate_pinned(4);
  std::memset(pinned, 1, 4);
  const CUdeviceptr memory = allocate(4);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 4, new_stream()), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(pinned), CUDA_SUCCESS);
  EXPECT_EQ(read_word(memory), 0x01010101u);
}

TEST(EmulatedPinnedMemory, MemoryOfTheProgramIsRegistered) {
  const EmulatedMachine machine;
  std::vector<std::uint32_t> words(100, 7);
  const auto add = WP_CUDA(cuMemHostRegister_v2);
  EXPECT_EQ(add(nullptr, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(words.data(), 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(words.data(), 4, 0x100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(words.data() + 10, 200, 0), CUDA_SUCCESS);
  EXPECT_EQ(add(words.data() + 10, 200, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(words.data(), 41, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(words.data() + 59, 4, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(words.data(), 40, 0), CUDA_SUCCESS);
  EXPECT_EQ(
      launch(kernel(load_test_kernels(), "add"), 1, 50, nullptr, {device_pointer(words.data() + 10), 1}),
      CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemFreeHost)(words.data() + 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemHostUnregister)(words.data() + 11), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(WP_CUDA(cuMemHostUnregister)(words.data() + 10), CUDA_SUCCESS) << "waits for the kernel";
  EXPECT_EQ(WP_CUDA(cuMemHostUnregister)(words.data() + 10), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(WP_CUDA(cuMemHostUnregister)(nullptr), CUDA_ERROR_INVALID_VALUE);
  std::vector<std::uint32_t> expected(100, 7);
  for (std::size_t i = 10; i < 60; ++i) expected[i] = 8;
  EXPECT_EQ(words, expected);
}

TEST(EmulatedPointers, AreDescribed) {
  const EmulatedMachine machine({{"DEVICES", "2"}});
  CUcontext other = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxPushCurrent_v2)(other), CUDA_SUCCESS);
  const CUdeviceptr memory = allocate(100);
  EXPECT_EQ(WP_CUDA(cuCtxPopCurrent_v2)(&other), CUDA_SUCCESS);
  auto* const pinned = static_cast<char*>(allocate_pinned(64));
  const auto get = [](auto& value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return WP_CUDA(cuPointerGetAttribute)(&value, attribute, pointer);
  };
  unsigned type = 0;
  int ordinal = -1;
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  void* host = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(get(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 99), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(get(ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory), CUDA_SUCCESS);
  EXPECT_EQ(ordinal, 1);
  EXPECT_EQ(get(context, CU_POINTER_ATTRIBUTE_CONTEXT, memory), CUDA_SUCCESS);
  EXPECT_EQ(context, other);
  EXPECT_EQ(get(address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 5), CUDA_SUCCESS);
  EXPECT_EQ(address, memory);
  EXPECT_EQ(get(bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 5), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 100u);
  EXPECT_EQ(get(host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory), CUDA_ERROR_INVALID_VALUE);
  for (const CUdeviceptr pointer : {reinterpret_cast<CUdeviceptr>(pinned + 8), device_pointer(pinned + 8)}) {
    EXPECT_EQ(get(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer), CUDA_SUCCESS);
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
    EXPECT_EQ(get(host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer), CUDA_SUCCESS);
    EXPECT_EQ(host, pinned + 8);
    EXPECT_EQ(get(address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer), CUDA_SUCCESS);
    EXPECT_EQ(address, device_pointer(pinned + 8));
    EXPECT_EQ(get(context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer), CUDA_SUCCESS);
    EXPECT_EQ(context, machine.context);
  }
  EXPECT_EQ(get(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&type)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(type, CU_POINTER_ATTRIBUTE_P2P_TOKENS, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemGetAddressRange_v2)(&address, &bytes, memory + 1), CUDA_SUCCESS);
  EXPECT_EQ(address, memory);
  EXPECT_EQ(bytes, 100u);
  EXPECT_EQ(WP_CUDA(cuMemGetAddressRange_v2)(&address, &bytes, 5), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
