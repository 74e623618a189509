// The failures that variables plan: memory, launches, the device.
#include <bit>
#include <utility>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

// The results of everything that counts as an allocation, in order.
std::vector<CUresult> allocation_results() {
  std::vector<CUresult> results;
  CUcontext context = nullptr;
  results.push_back(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0));
  if (results.back() != CUDA_SUCCESS) {
    EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS) << "it was to fail once";
  }
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  static std::uint32_t words[4];
  CUmodule module = nullptr;
  results.push_back(WP_CUDA(cuModuleLoadData)(&module, kTestKernels));
  results.push_back(WP_CUDA(cuMemAlloc_v2)(&memory, 4));
  results.push_back(WP_CUDA(cuMemAllocAsync)(&memory, 4, nullptr));
  results.push_back(WP_CUDA(cuMemHostAlloc)(&pinned, 4, 0));
  results.push_back(WP_CUDA(cuMemHostRegister_v2)(words, sizeof words, 0));
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  return results;
}

TEST(PlannedFailures, MemoryEndsAtEachAllocation) {
  for (std::size_t k = 1; k <= 6; ++k) {
    std::vector<CUresult> expected(6, CUDA_SUCCESS);
    expected[k - 1] = CUDA_ERROR_OUT_OF_MEMORY;
    {
      // A context that could not be had is asked for once more, which counts too.
      const EmulatedMachine machine({{"OOM_AT", std::to_string(k)}}, false);
      EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_SUCCESS);
      EXPECT_EQ(allocation_results(), expected) << k;
    }
    if (k == 1) continue;
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(k), expected.end(), CUDA_ERROR_OUT_OF_MEMORY);
    const EmulatedMachine machine({{"OOM_AT", std::to_string(k)}, {"OOM_STAYS", "1"}}, false);
    EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_SUCCESS);
    EXPECT_EQ(allocation_results(), expected) << k << " and later";
  }
}

TEST(PlannedFailures, ALaunchFailsLate) {
  const EmulatedMachine machine({{"FAIL_LAUNCH_AT", "2"}});
  const CUfunction add = kernel(load_test_kernels(), "add");
  const CUdeviceptr memory = allocate_zeros(4);
  auto* const pinned = static_cast<std::uint32_t*>(allocate_pinned(4));
  *pinned = 99;
  EXPECT_EQ(launch(add, 1, 1, nullptr, {memory, 1}), CUDA_SUCCESS);
  EXPECT_EQ(read_word(memory), 1u);
  EXPECT_EQ(launch(add, 1, 1, nullptr, {memory, 1}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 4, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(nullptr), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(*pinned, 99u) << "what was behind it did not happen";
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST(PlannedFailures, ALaunchFailsAtOnce) {
  const EmulatedMachine machine(
      {{"FAIL_LAUNCH_AT", "1"}, {"LAUNCH_RESULT", std::to_string(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)}});
  const CUfunction add = kernel(load_test_kernels(), "add");
  const CUdeviceptr memory = allocate_zeros(4);
  EXPECT_EQ(launch(add, 1, 1, nullptr, {memory, 1}), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(add, 1, 1, nullptr, {memory, 1}), CUDA_SUCCESS);
  EXPECT_EQ(read_word(memory), 1u);
}

TEST(PlannedFailures, TheDeviceIsLostAtEachCall) {
  // The result of a small program, the first error it met.
  const auto program = [](std::uint32_t& word) {
    CUresult result = CUDA_SUCCESS;
    const auto ok = [&result](CUresult next) { return (result = next) == CUDA_SUCCESS; };
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    std::uint64_t amount = 4;
    void* values[] = {&memory, &amount};
    if (ok(WP_CUDA(cuInit)(0)) && ok(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0)) &&
        ok(WP_CUDA(cuCtxSetCurrent)(context)) && ok(WP_CUDA(cuModuleLoadData)(&module, kTestKernels)) &&
        ok(WP_CUDA(cuModuleGetFunction)(&function, module, "add")) &&
        ok(WP_CUDA(cuMemAlloc_v2)(&memory, 4)) && ok(WP_CUDA(cuStreamCreate)(&stream, 0)) &&
        ok(WP_CUDA(cuMemsetD32Async)(memory, 1, 1, stream)) &&
        ok(WP_CUDA(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, values, nullptr)) &&
        ok(WP_CUDA(cuStreamSynchronize)(stream))) {
      ok(WP_CUDA(cuMemcpyDtoH_v2)(&word, memory, 4));
    }
    return result;
  };
  for (const CUresult lost : {CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_ECC_UNCORRECTABLE}) {
    int number = 1;
    for (;; ++number) {
      const EmulatedMachine machine(
          {{"LOSE_DEVICE_AT", std::to_string(number)}, {"LOSE_RESULT", std::to_string(lost)}}, false);
      std::uint32_t word = 0;
      const CUresult result = program(word);
      if (result == CUDA_SUCCESS) {
        EXPECT_EQ(word, 5u);
        break;
      }
      ASSERT_EQ(result, lost) << "call " << number;
      EXPECT_EQ(word, 0u);
      // It stays so, even with another context.
      CUcontext context = nullptr;
      WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0);
      EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), lost);
    }
    EXPECT_EQ(number, 12) << "eleven calls";
  }
}

TEST(PlannedFailures, OneDeviceIsLostAndTheOtherGoesOn) {
  const EmulatedMachine machine({{"DEVICES", "2"}, {"LOSE_DEVICE", "1"}, {"LOSE_DEVICE_AT", "6"}});
  CUcontext other = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);  // call 4
  const CUdeviceptr memory = allocate(4);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(other), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(machine.context), CUDA_SUCCESS);
  write_words(memory, {1});
  EXPECT_EQ(read_word(memory), 1u);
}

TEST(PlannedFailures, OneBitOfDeviceMemoryFlips) {
  for (const char* const seed : {"0", "1", "2", "3"}) {
    const std::string path = trace_path();
    EmulatedMachine machine({{"FLIP_AT", "2"}, {"SEED", seed}, {"TRACE", path}});
    const CUfunction nothing = kernel(load_test_kernels(), "nothing");
    const CUdeviceptr first = allocate_zeros(1000), second = allocate_zeros(3000);
    const auto num_bits = [&] {
      int bits = 0;
      for (const auto& [address, count] : {std::pair{first, 250}, std::pair{second, 750}})
        for (const std::uint32_t word : read_words(address, static_cast<std::size_t>(count)))
          bits += std::popcount(word);
      return bits;
    };
    for (const int expected : {0, 1, 1}) {
      EXPECT_EQ(launch(nothing, 1, 1, nullptr, {}), CUDA_SUCCESS);
      EXPECT_EQ(num_bits(), expected) << "seed " << seed;
    }
    machine.end();
    EXPECT_EQ(of_kind(read_trace(path), "bit_flipped").size(), 1u);
  }
}

TEST(PlannedFailures, TheTraceCountsWhatCouldFail) {
  const std::string path = trace_path();
  EmulatedMachine machine({{"TRACE", path}});  // 3 calls, one of them a context
  const CUfunction nothing = kernel(load_test_kernels(), "nothing");
  allocate(4);
  allocate_pinned(4);
  EXPECT_EQ(launch(nothing, 1, 1, nullptr, {}), CUDA_SUCCESS);
  EXPECT_EQ(launch(nothing, 1, 1, nullptr, {}), CUDA_SUCCESS);
  machine.end();
  const TraceLine totals = of_kind(read_trace(path), "totals").at(0);
  EXPECT_EQ(number(totals, "calls"), 9u);
  EXPECT_EQ(number(totals, "allocations"), 4u);
  EXPECT_EQ(number(totals, "launches"), 2u);
}

TEST(PlannedFailures, AreInTheTrace) {
  const std::string path = trace_path();
  EmulatedMachine machine({{"FAIL_LAUNCH_AT", "1"}, {"TRACE", path}});
  const CUdeviceptr memory = allocate(4);
  EXPECT_EQ(launch(kernel(load_test_kernels(), "nothing"), 1, 1, nullptr, {}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(memory, 1, 4), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_LAUNCH_FAILED);
  machine.end();
  const auto lines = read_trace(path);
  EXPECT_NE(of_kind(lines, "context_lost").at(0).at("message").find("CUDA_ERROR_LAUNCH_FAILED"),
            std::string::npos);
  EXPECT_EQ(of_kind(lines, "kernel").at(0).at("failure"), "the launch was planned to fail");
  EXPECT_EQ(of_kind(lines, "fill").at(0).at("state"), "cancelled");
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
