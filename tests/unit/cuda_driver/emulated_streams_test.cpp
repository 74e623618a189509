// Streams, events, host functions, the default streams.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

template <class Handle>
Handle wild_handle() {
  return reinterpret_cast<Handle>(std::uintptr_t{0xC0DA000000123450});
}

TEST(EmulatedStreams, HandlesAreChecked) {
  const EmulatedMachine machine;
  CUstream stream = nullptr;
  EXPECT_EQ(WP_CUDA(cuStreamCreate)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuStreamCreate)(&stream, 2), CUDA_ERROR_INVALID_VALUE);
  int least = 1, greatest = 1, priority = 1;
  EXPECT_EQ(WP_CUDA(cuCtxGetStreamPriorityRange)(&least, &greatest), CUDA_SUCCESS);
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  EXPECT_EQ(WP_CUDA(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, -100), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamGetPriority)(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  unsigned flags = 0;
  EXPECT_EQ(WP_CUDA(cuStreamGetFlags)(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(WP_CUDA(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
  for (const CUstream gone : {stream, wild_handle<CUstream>(), reinterpret_cast<CUstream>(&stream)}) {
    EXPECT_EQ(WP_CUDA(cuStreamDestroy_v2)(gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuStreamQuery)(gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(gone, new_event(), 0), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuEventRecord)(new_event(), gone), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(WP_CUDA(cuStreamDestroy_v2)(nullptr), CUDA_ERROR_INVALID_HANDLE);
  const CUevent event = new_event();
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(reinterpret_cast<CUstream>(event)), CUDA_ERROR_INVALID_HANDLE);
}

TEST(EmulatedStreams, WhatADestroyedStreamHoldsGoesOn) {
  const EmulatedMachine machine({{"SEED", "3"}});
  const CUdeviceptr memory = allocate_zeros(4);
  const CUfunction add = kernel(load_test_kernels(), "add");
  for (const unsigned flags : {unsigned{CU_STREAM_DEFAULT}, unsigned{CU_STREAM_NON_BLOCKING}}) {
    const CUstream stream = new_stream(flags);
    EXPECT_EQ(launch(add, 1, 1, stream, {memory, 1}), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    // The default stream still waits for a blocking one.
    if (flags != CU_STREAM_DEFAULT) {
      EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    EXPECT_EQ(read_word(memory), flags == CU_STREAM_DEFAULT ? 1u : 2u);
  }
}

TEST(EmulatedStreams, QueriesComeTrueAfterAWhile) {
  std::size_t most = 0, least = 1000;
  for (int seed = 0; seed <= 20; ++seed) {
    const EmulatedMachine machine({{"SEED", std::to_string(seed)}});
    const CUdeviceptr memory = allocate(4);
    const CUstream stream = new_stream();
    const CUevent event = new_event();
    EXPECT_EQ(WP_CUDA(cuStreamQuery)(stream), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuEventQuery)(event), CUDA_SUCCESS) << "never recorded";
    EXPECT_EQ(WP_CUDA(cuEventSynchronize)(event), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 4, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuEventRecord)(event, stream), CUDA_SUCCESS);
    std::size_t queries = 0;
    for (;; ++queries) {
      const CUresult result = seed % 2 == 0 ? WP_CUDA(cuStreamQuery)(stream) : WP_CUDA(cuEventQuery)(event);
      if (result == CUDA_SUCCESS) break;
      ASSERT_EQ(result, CUDA_ERROR_NOT_READY);
      ASSERT_LT(queries, 100u);
    }
    most = std::max(most, queries);
    least = std::min(least, queries);
    EXPECT_EQ(WP_CUDA(cuStreamQuery)(stream), CUDA_SUCCESS);
    EXPECT_EQ(read_word(memory), 4u);
  }
  EXPECT_GT(most, 1u);
  EXPECT_EQ(least, 0u);
}

TEST(EmulatedStreams, TheDefaultStreamIsABarrier) {
  for (int seed = 0; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const EmulatedMachine machine({{"SEED", std::to_string(seed)}});
    const CUfunction copy = kernel(load_test_kernels(), "copy");
    const CUdeviceptr first = allocate_zeros(4), second = allocate_zeros(4), third = allocate_zeros(4);
    const CUstream before = new_stream(CU_STREAM_DEFAULT), after = new_stream(CU_STREAM_DEFAULT);
    EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(first, 6, 1, before), CUDA_SUCCESS);
    EXPECT_EQ(launch(copy, 1, 1, seed % 2 == 0 ? nullptr : CU_STREAM_LEGACY, {second, first}), CUDA_SUCCESS);
    EXPECT_EQ(launch(copy, 1, 1, after, {third, second}), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(after), CUDA_SUCCESS);
    EXPECT_EQ(read_word(third), 6u);
  }
}

TEST(EmulatedStreams, NonBlockingOnesPassTheDefaultStream) {
  int wrong = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    const EmulatedMachine machine({{"SEED", std::to_string(seed)}});
    const CUdeviceptr first = allocate_zeros(4), second = allocate_zeros(4);
    const CUstream before = new_stream();
    EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(first, 6, 1, before), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel(load_test_kernels(), "copy"), 1, 1, nullptr, {second, first}), CUDA_SUCCESS);
    if (read_word(second) != 6) ++wrong;
  }
  EXPECT_GT(wrong, 0);
}

TEST(EmulatedStreams, EachThreadHasADefaultStreamOfItsOwn) {
  const EmulatedMachine machine;
  const CUdeviceptr memory = allocate_zeros(4);
  EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 8, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  CUresult other = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(machine.context), CUDA_SUCCESS);
    other = WP_CUDA(cuStreamQuery)(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_EQ(other, CUDA_SUCCESS) << "nothing is in the other thread's";
  EXPECT_EQ(WP_CUDA(cuStreamQuery)(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(read_word(memory), 8u) << "the legacy stream waits for it";
}

TEST(EmulatedEvents, HandlesAndFlagsAreChecked) {
  const EmulatedMachine machine({{"DEVICES", "2"}});
  CUevent event = nullptr;
  EXPECT_EQ(WP_CUDA(cuEventCreate)(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuEventCreate)(&event, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuEventCreate)(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuEventCreate)(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(WP_CUDA(cuEventCreate)(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(nullptr, event, 0), CUDA_SUCCESS) << "never recorded";
  EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(nullptr, event, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuEventRecordWithFlags)(event, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuEventRecordWithFlags)(event, nullptr, 2), CUDA_ERROR_INVALID_VALUE);
  // Streams and events of different devices: waiting is possible, recording is not.
  CUcontext other = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(other), CUDA_SUCCESS);
  const CUstream stream = new_stream();
  EXPECT_EQ(WP_CUDA(cuEventRecord)(event, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuEventQuery)(event), CUDA_SUCCESS) << "the stream waited for it";
  EXPECT_EQ(WP_CUDA(cuEventDestroy_v2)(event), CUDA_SUCCESS);
  for (const CUevent gone : {event, wild_handle<CUevent>(), CUevent{nullptr}}) {
    EXPECT_EQ(WP_CUDA(cuEventDestroy_v2)(gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuEventRecord)(gone, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuEventQuery)(gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuEventSynchronize)(gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(nullptr, gone, 0), CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST(EmulatedEvents, AreAsRecordedWhenTheyAreWaitedFor) {
  const EmulatedMachine machine({{"SEED", "5"}});
  const CUfunction copy = kernel(load_test_kernels(), "copy");
  const CUdeviceptr source = allocate_zeros(4), target = allocate_zeros(4);
  const CUstream first = new_stream(), second = new_stream(), third = new_stream();
  const CUevent event = new_event();
  EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(source, 1, 1, first), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuEventRecord)(event, first), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(second, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuEventRecord)(event, third), CUDA_SUCCESS);  // moves it, but not the wait
  EXPECT_EQ(WP_CUDA(cuEventDestroy_v2)(event), CUDA_SUCCESS);
  EXPECT_EQ(launch(copy, 1, 1, second, {target, source}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(second), CUDA_SUCCESS);
  EXPECT_EQ(read_word(target), 1u);
}

struct HostFunctionResult {
  const std::uint32_t* word = nullptr;
  std::uint32_t seen = 0;
  CUresult call = CUDA_SUCCESS;
  std::atomic<bool> is_done{false};
};

void CUDA_CB look(void* data) {
  auto& result = *static_cast<HostFunctionResult*>(data);
  result.seen = *result.word;
  CUdeviceptr memory = 0;
  result.call = WP_CUDA(cuMemAlloc_v2)(&memory, 4);
  result.is_done = true;
}

TEST(EmulatedHostFunctions, RunInTheOrderOfTheirStreamAndMayNotCallCuda) {
  for (int seed = 0; seed <= 10; ++seed) {
    const EmulatedMachine machine({{"SEED", std::to_string(seed)}, {"HOST_FUNCTION_MS", "1000000"}});
    const CUdeviceptr memory = allocate_zeros(4);
    auto* const pinned = static_cast<std::uint32_t*>(allocate_pinned(4));
    HostFunctionResult result;
    result.word = pinned;
    const CUstream stream = new_stream();
    EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 1, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuLaunchHostFunc)(stream, look, &result), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 2, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 4, stream), CUDA_SUCCESS);
    EXPECT_FALSE(result.is_done);
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_TRUE(result.is_done);
    EXPECT_EQ(result.seen, 1u);
    EXPECT_EQ(result.call, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(*pinned, 2u);
    EXPECT_EQ(WP_CUDA(cuLaunchHostFunc)(stream, nullptr, &result), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(WP_CUDA(cuLaunchHostFunc)(wild_handle<CUstream>(), look, &result), CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST(EmulatedHostFunctions, RunWithoutAnybodyCallingTheDriver) {
  const EmulatedMachine machine({{"HOST_FUNCTION_MS", "1"}});
  const std::uint32_t word = 3;
  HostFunctionResult result;
  result.word = &word;
  EXPECT_EQ(WP_CUDA(cuLaunchHostFunc)(new_stream(), look, &result), CUDA_SUCCESS);
  for (int i = 0; i < 3000 && !result.is_done; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(result.is_done);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
}

TEST(EmulatedHostFunctions, AreNotCalledAfterAFault) {
  const EmulatedMachine machine({{"HOST_FUNCTION_MS", "1000000"}});
  const std::uint32_t word = 3;
  HostFunctionResult result;
  result.word = &word;
  const CUstream stream = new_stream();
  EXPECT_EQ(launch(kernel(load_test_kernels(), "trapped"), 1, 1, stream, {}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuLaunchHostFunc)(stream, look, &result), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  EXPECT_FALSE(result.is_done);
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
