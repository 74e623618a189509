// Launches: parameters, sizes, faults.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

CUresult launch_sizes(CUfunction function, std::array<unsigned, 6> sizes, unsigned dynamic_shared_bytes = 0) {
  return WP_CUDA(cuLaunchKernel)(function, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5],
                                 dynamic_shared_bytes, nullptr, nullptr, nullptr);
}

TEST(EmulatedLaunches, TakeParametersInBothWays) {
  const EmulatedMachine machine;
  const CUfunction mixed = kernel(load_test_kernels(), "mixed");
  const CUdeviceptr out = allocate(24);
  // .u64, .u8, .u16, .u64: at 0, 8, 10 and 16.
  struct {
    std::uint64_t to;
    std::uint8_t small;
    std::uint16_t middle;
    std::uint64_t large;
  } values{out, 200, 60000, std::uint64_t{1} << 60};
  void* pointers[] = {&values.to, &values.small, &values.middle, &values.large};
  const auto call = [mixed](void** params, void** extra) {
    return WP_CUDA(cuLaunchKernel)(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra);
  };
  const auto check = [&] {
    std::vector<std::uint64_t> results(3);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoH_v2)(results.data(), out, 24), CUDA_SUCCESS);
    EXPECT_EQ(results, (std::vector<std::uint64_t>{200, 60000, std::uint64_t{1} << 60}));
    EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(out, 0, 24), CUDA_SUCCESS);
  };
  EXPECT_EQ(call(pointers, nullptr), CUDA_SUCCESS);
  values.large = 5;  // they were copied at the call
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  values.large = std::uint64_t{1} << 60;
  check();
  std::size_t size = sizeof values;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &values, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  EXPECT_EQ(call(nullptr, extra), CUDA_SUCCESS);
  check();
  EXPECT_EQ(call(pointers, extra), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  for (const std::size_t wrong : {0, 23, 40}) {
    size = wrong;
    EXPECT_EQ(call(nullptr, extra), CUDA_ERROR_INVALID_VALUE) << wrong;
  }
  pointers[2] = nullptr;
  EXPECT_EQ(call(pointers, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedLaunches, HaveLimits) {
  const EmulatedMachine machine;
  const CUmodule module = load_test_kernels();
  const CUfunction nothing = kernel(module, "nothing");
  EXPECT_EQ(launch_sizes(nothing, {1, 1, 1, 1024, 1, 1}), CUDA_SUCCESS);
  EXPECT_EQ(launch_sizes(nothing, {1, 2, 3, 4, 5, 6}), CUDA_SUCCESS);
  for (const auto& sizes : std::vector<std::array<unsigned, 6>>{{0, 1, 1, 1, 1, 1},
                                                                {1, 0, 1, 1, 1, 1},
                                                                {1, 1, 0, 1, 1, 1},
                                                                {1, 1, 1, 0, 1, 1},
                                                                {1, 1, 1, 1, 0, 1},
                                                                {1, 1, 1, 1, 1, 0},
                                                                {0x80000000, 1, 1, 1, 1, 1},
                                                                {1, 65536, 1, 1, 1, 1},
                                                                {1, 1, 65536, 1, 1, 1},
                                                                {1, 1, 1, 1025, 1, 1},
                                                                {1, 1, 1, 1, 1025, 1},
                                                                {1, 1, 1, 1, 1, 65},
                                                                {1, 1, 1, 33, 32, 1}})
    EXPECT_EQ(launch_sizes(nothing, sizes), CUDA_ERROR_INVALID_VALUE) << ::testing::PrintToString(sizes);
  EXPECT_EQ(launch(kernel(module, "small_blocks"), 1, 65, nullptr, {0}), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(kernel(module, "small_blocks"), 1, 64, nullptr, {0}), CUDA_SUCCESS);
  EXPECT_EQ(launch_sizes(kernel(module, "exact_blocks"), {1, 1, 1, 32, 1, 1}), CUDA_SUCCESS);
  EXPECT_EQ(launch_sizes(kernel(module, "exact_blocks"), {1, 1, 1, 31, 1, 1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch_sizes(nullptr, {1, 1, 1, 1, 1, 1}), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch_sizes(reinterpret_cast<CUfunction>(module), {1, 1, 1, 1, 1, 1}),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
}

TEST(EmulatedLaunches, AskForDynamicSharedMemory) {
  const EmulatedMachine machine;
  const CUfunction reverse = kernel(load_test_kernels(), "reverse");
  std::vector<std::uint32_t> words(256);
  std::iota(words.begin(), words.end(), 0);
  const CUdeviceptr memory = allocate(1024);
  write_words(memory, words);
  EXPECT_EQ(launch(reverse, 1, 256, nullptr, {memory}, 1024), CUDA_SUCCESS);
  std::reverse(words.begin(), words.end());
  EXPECT_EQ(read_words(memory, 256), words);
  EXPECT_EQ(launch(reverse, 1, 256, nullptr, {memory}, 48 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(launch(reverse, 1, 256, nullptr, {memory}, 48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuFuncSetAttribute)(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024),
            CUDA_SUCCESS);
  EXPECT_EQ(launch(reverse, 1, 256, nullptr, {memory}, 64 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(launch(reverse, 1, 256, nullptr, {memory}, 64 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(read_words(memory, 256), words) << "turned twice more";
  EXPECT_EQ(launch(reverse, 1, 256, nullptr, {memory}, 1000), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS) << "too little";
}

TEST(EmulatedLaunches, AreTheContextsOfTheirStreamAndFunction) {
  const EmulatedMachine machine({{"DEVICES", "2"}});
  const CUfunction nothing = kernel(load_test_kernels(), "nothing");
  const CUstream stream = new_stream();
  CUcontext other = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(other), CUDA_SUCCESS);
  EXPECT_EQ(launch(nothing, 1, 1, nullptr, {}), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(kernel(load_test_kernels(), "nothing"), 1, 1, stream, {}), CUDA_ERROR_INVALID_HANDLE);
}

// A fault is told by every call until the context is gone.
void expect_fault(const char* name, std::vector<std::uint64_t> values, CUresult expected,
                  const EmulatedMachine::Variables& variables = {}) {
  SCOPED_TRACE(name);
  const EmulatedMachine machine(variables);
  const CUmodule module = load_test_kernels();
  const CUdeviceptr memory = allocate_zeros(64);
  if (!values.empty() && values[0] < 64) values[0] += memory;
  const CUstream stream = new_stream();
  const CUevent event = new_event();
  const CUfunction nothing = kernel(module, "nothing");
  EXPECT_EQ(launch(kernel(module, name), 1, 1, stream, values), CUDA_SUCCESS) << "told later";
  EXPECT_EQ(WP_CUDA(cuEventRecord)(event, stream), CUDA_SUCCESS);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), expected);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find(name), std::string::npos) << told;
  EXPECT_NE(told.find("line"), std::string::npos) << told;
  CUdeviceptr other = 0;
  std::uint32_t word = 0;
  CUmodule second = nullptr;
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&other, 4), expected);
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(memory), expected);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoH_v2)(&word, memory, 4), expected);
  EXPECT_EQ(WP_CUDA(cuStreamQuery)(stream), expected);
  EXPECT_EQ(WP_CUDA(cuEventQuery)(event), expected);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), expected);
  EXPECT_EQ(WP_CUDA(cuModuleLoadData)(&second, kTestKernels), expected);
  EXPECT_EQ(launch(nothing, 1, 1, stream, {}), expected);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  EXPECT_EQ(read_word(allocate_zeros(4)), 0u) << "a new context is sound";
}

TEST(EmulatedFaults, BreakTheContext) {
  int local = 0;
  expect_fault("add", {1, 0}, CUDA_ERROR_MISALIGNED_ADDRESS);
  expect_fault("add", {0x10000, 0}, CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_fault("add", {reinterpret_cast<std::uint64_t>(&local), 0}, CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_fault("endless", {}, CUDA_ERROR_LAUNCH_TIMEOUT, {{"MAX_BRANCHES", "1000"}});
  expect_fault("trapped", {}, CUDA_ERROR_LAUNCH_FAILED);
  expect_fault("asserted", {}, CUDA_ERROR_ASSERT);
}

TEST(EmulatedFaults, RacesAreFoundOnRequest) {
  for (const std::string check : {"", "race", "init,race"}) {
    const EmulatedMachine machine({{"CHECK", check}});
    EXPECT_EQ(launch(kernel(load_test_kernels(), "racing"), 1, 32, nullptr, {}), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), check.empty() ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
  }
}

TEST(EmulatedLaunches, AreTheSameWithSeveralThreadsAndWithoutCounting) {
  for (const EmulatedMachine::Variables& variables : std::vector<EmulatedMachine::Variables>{
           {{"THREADS", "3"}}, {{"COUNT", "0"}}, {{"CHECK", "all"}}, {{"SEED", "4"}, {"THREADS", "2"}}}) {
    const EmulatedMachine machine(variables);
    const CUdeviceptr memory = allocate_zeros(4096);
    EXPECT_EQ(launch(kernel(load_test_kernels(), "add"), 32, 32, nullptr, {memory, 3}), CUDA_SUCCESS);
    EXPECT_EQ(read_words(memory, 1024), std::vector<std::uint32_t>(1024, 3));
  }
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
