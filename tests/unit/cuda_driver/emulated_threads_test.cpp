// Several threads and devices; how a process ends.
#include <atomic>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

// Rounds of copy in, kernel, copy out in a stream of the thread's own.
void work(CUcontext context, CUfunction add, std::uint32_t thread, std::string& problem) {
  if (WP_CUDA(cuCtxSetCurrent)(context) != CUDA_SUCCESS) problem = "no context";
  const CUdeviceptr memory = allocate(256);
  auto* const pinned = static_cast<std::uint32_t*>(allocate_pinned(256));
  const CUstream stream = new_stream();
  for (std::uint32_t round = 0; round < 40 && problem.empty(); ++round) {
    for (std::uint32_t i = 0; i < 64; ++i) pinned[i] = thread * 1000 + i;
    if (WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 256, stream) != CUDA_SUCCESS ||
        launch(add, 2, 32, stream, {memory, round}) != CUDA_SUCCESS ||
        WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 256, stream) != CUDA_SUCCESS)
      problem = "a call failed";
    CUresult result = CUDA_ERROR_NOT_READY;
    if (round % 2 == 0) result = WP_CUDA(cuStreamSynchronize)(stream);
    while (result == CUDA_ERROR_NOT_READY) result = WP_CUDA(cuStreamQuery)(stream);
    if (result != CUDA_SUCCESS) problem = "a wait failed";
    for (std::uint32_t i = 0; i < 64; ++i)
      if (pinned[i] != thread * 1000 + i + round) problem = "a wrong word in round " + std::to_string(round);
  }
}

TEST(EmulatedThreads, WorkSideBySide) {
  for (const char* const seed : {"0", "1", "2", "3", "4"}) {
    for (const int num_devices : {1, 2}) {
      const EmulatedMachine machine({{"SEED", seed}, {"DEVICES", std::to_string(num_devices)}});
      std::vector<CUcontext> contexts;
      std::vector<CUfunction> functions;
      for (int device = 0; device < num_devices; ++device) {
        contexts.emplace_back();
        EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&contexts.back(), device), CUDA_SUCCESS);
        EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(contexts.back()), CUDA_SUCCESS);
        functions.push_back(kernel(load_test_kernels(), "add"));
      }
      std::vector<std::string> problems(3);
      std::vector<std::thread> threads;
      for (std::uint32_t i = 0; i < 3; ++i) {
        const std::size_t device = i % contexts.size();
        threads.emplace_back([&, i, device] { work(contexts[device], functions[device], i, problems[i]); });
      }
      for (std::thread& thread : threads) thread.join();
      for (const std::string& problem : problems) EXPECT_EQ(problem, "") << "seed " << seed;
    }
  }
}

struct Handover {
  CUcontext context = nullptr;
  std::atomic<int> calls{0};
  std::thread other;
};

TEST(EmulatedThreads, AHostFunctionRunsWhileOthersCall) {
  const EmulatedMachine machine({{"HOST_FUNCTION_MS", "1000000"}});
  Handover handover;
  handover.context = machine.context;
  const CUstream stream = new_stream();
  EXPECT_EQ(WP_CUDA(cuLaunchHostFunc)(
                stream,
                [](void* data) {
                  auto& given = *static_cast<Handover*>(data);
                  given.other = std::thread([&given] {  // would never end if the driver's lock were held
                    EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(given.context), CUDA_SUCCESS);
                    EXPECT_NE(read_word(allocate(4)), 0u);
                    ++given.calls;
                  });
                  for (int i = 0; i < 3000 && given.calls == 0; ++i) usleep(10000);
                },
                &handover),
            CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(handover.calls, 1);
  handover.other.join();
}

TEST(EmulatedThreads, AThreadsClockIsItsOwnUnlessAskedOtherwise) {
  for (const std::string clock : {"thread", "process"}) {
    const EmulatedMachine machine({{"HOST_CLOCK", clock}, {"COPY_IN_GBPS", "1"}, {"COPY_LATENCY_NS", "0"}});
    const CUdeviceptr memory = allocate(1000);
    void* const pinned = allocate_pinned(1000);
    const CUstream first = new_stream(), second = new_stream();
    const CUevent begin = new_event(), end = new_event();
    EXPECT_EQ(WP_CUDA(cuEventRecord)(begin, first), CUDA_SUCCESS);
    std::thread([&] {
      EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(machine.context), CUDA_SUCCESS);
      EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 1000, first), CUDA_SUCCESS);
      EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(first), CUDA_SUCCESS);
    }).join();
    EXPECT_EQ(WP_CUDA(cuEventRecord)(end, second), CUDA_SUCCESS);  // this thread did not wait for anything
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(second), CUDA_SUCCESS);
    float milliseconds = -1;
    EXPECT_EQ(WP_CUDA(cuEventElapsedTime_v2)(&milliseconds, begin, end), CUDA_SUCCESS);
    EXPECT_FLOAT_EQ(milliseconds, clock == "thread" ? 0.0F : 0.001F);
  }
}

// Enqueues a copy and a kernel and ends the process without waiting.
[[noreturn]] void end_without_waiting(bool registers, const std::string& path) {
  static const EmulatedMachine* machine = nullptr;  // not destroyed
  machine = new EmulatedMachine({{"TRACE", path}, {"SEED", "3"}});
  void* const source = registers ? std::aligned_alloc(4096, 4096) : allocate_pinned(4096);
  if (registers) {
    EXPECT_EQ(WP_CUDA(cuMemHostRegister_v2)(source, 4096, 0), CUDA_SUCCESS);
  }
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(allocate(4096), source, 4096, new_stream()), CUDA_SUCCESS);
  EXPECT_EQ(launch(kernel(load_test_kernels(), "nothing"), 1, 1, new_stream(), {}), CUDA_SUCCESS);
  if (registers) std::free(source);
  std::exit(machine->context != nullptr && !::testing::Test::HasFailure() ? 0 : 1);
}

void check_end(bool registers, const std::string& state) {
  // In a process of its own, which is this program once more.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  constexpr const char* kVariable = "WP_TRACE_OF_THE_END";
  const char* const given = std::getenv(kVariable);
  const std::string path = given != nullptr ? given : trace_path();
  setenv(kVariable, path.c_str(), 1);
  EXPECT_EXIT(end_without_waiting(registers, path), ::testing::ExitedWithCode(0), "");
  unsetenv(kVariable);
  const auto lines = read_trace(path);
  ASSERT_EQ(of_kind(lines, "copy_in").size(), 1u);
  ASSERT_EQ(of_kind(lines, "kernel").size(), 1u);
  for (const char* const op : {"copy_in", "kernel"})
    EXPECT_EQ(of_kind(lines, op)[0].at("state"), state) << op;
  EXPECT_EQ(of_kind(lines, "kernel")[0].contains("lane_instructions"), !registers);
  EXPECT_GE(number(of_kind(lines, "copy_in")[0], "end_ns"), 4096u / 24);
}

TEST(EmulatedProcesses, TheTraceIsCompleteAtTheEnd) {
  check_end(false, "done");
}

TEST(EmulatedProcesses, WhatUsesMemoryOfTheProgramIsNotRunAtTheEnd) {
  check_end(true, "abandoned");
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
