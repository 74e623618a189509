// Times against hand computation. A GB/s is a byte a nanosecond.
#include <algorithm>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

// 1 byte/ns in, 2 bytes/ns out, half a byte/ns pageable; a kernel takes 100 ns and 1 ns an instruction.
EmulatedMachine::Variables plain_numbers(const std::string& seed = "0") {
  return {{"SEED", seed},           {"COPY_IN_GBPS", "1"},       {"COPY_OUT_GBPS", "2"},
          {"PAGEABLE_GBPS", "0.5"}, {"COPY_LATENCY_NS", "10"},   {"LAUNCH_LATENCY_NS", "100"},
          {"MEMORY_GBPS", "1e9"},   {"INSTRUCTIONS_PER_NS", "1"}};
}

constexpr std::uint64_t kNothingNs = 100 + 2 * 32;  // "nothing": 2 instructions, 32 lanes

std::uint64_t elapsed_ns(CUevent start, CUevent end) {
  float milliseconds = -1;
  EXPECT_EQ(WP_CUDA(cuEventElapsedTime_v2)(&milliseconds, start, end), CUDA_SUCCESS);
  return static_cast<std::uint64_t>(milliseconds * 1e6F + 0.5F);
}

CUevent record(CUstream stream) {
  const CUevent event = new_event();
  EXPECT_EQ(WP_CUDA(cuEventRecord)(event, stream), CUDA_SUCCESS);
  return event;
}

// (start, end) of the operations of one kind.
using Spans = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
Spans spans(const std::vector<TraceLine>& lines, const std::string& op) {
  Spans found;
  for (const TraceLine& line : of_kind(lines, op))
    found.emplace_back(number(line, "start_ns"), number(line, "end_ns"));
  return found;
}

TEST(VirtualTime, CopiesAndAKernelOfThreeStreamsOverlap) {
  for (const std::string seed : {"0", "1", "2", "3"}) {
    auto variables = plain_numbers(seed);
    const std::string path = trace_path();
    variables.emplace_back("TRACE", path);
    EmulatedMachine machine(variables);
    const CUfunction nothing = kernel(load_test_kernels(), "nothing");
    const CUdeviceptr in = allocate(1000), out = allocate(1000);
    void* const pinned = allocate_pinned(2000);
    const CUstream first = new_stream(), second = new_stream(), third = new_stream();
    const CUevent begin = record(first);
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(in, pinned, 990, first), CUDA_SUCCESS);
    EXPECT_EQ(launch(nothing, 1, 32, second, {}), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(static_cast<char*>(pinned) + 1000, out, 980, third),
              CUDA_SUCCESS);
    const CUevent kernel_end = record(second), out_end = record(third), in_end = record(first);
    // The same engine: after the first copy. In its stream alone it could begin at once after the kernel.
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(in, pinned, 490, second), CUDA_SUCCESS);
    const CUevent second_in_end = record(second);
    EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(elapsed_ns(begin, in_end), 1000u);
    EXPECT_EQ(elapsed_ns(begin, kernel_end), kNothingNs);
    EXPECT_EQ(elapsed_ns(begin, out_end), 500u);
    EXPECT_EQ(elapsed_ns(begin, second_in_end), 1500u);
    EXPECT_EQ(elapsed_ns(out_end, second_in_end), 1000u);
    machine.end();
    const auto lines = read_trace(path);
    EXPECT_EQ(spans(lines, "copy_in"), (Spans{{0, 1000}, {1000, 1500}}));
    EXPECT_EQ(spans(lines, "copy_out"), (Spans{{0, 500}}));
    EXPECT_EQ(spans(lines, "kernel"), (Spans{{0, kNothingNs}}));
    const TraceLine ran = of_kind(lines, "kernel").at(0);
    EXPECT_EQ(ran.at("name"), "nothing");
    EXPECT_EQ(ran.at("engine"), "compute");
    EXPECT_EQ(ran.at("state"), "done");
    EXPECT_EQ(number(ran, "lane_instructions"), 64u);
  }
}

TEST(VirtualTime, KernelsShareOneEngine) {
  const EmulatedMachine machine(plain_numbers());
  const CUfunction nothing = kernel(load_test_kernels(), "nothing");
  const CUstream first = new_stream(), second = new_stream();
  const CUevent begin = record(first);
  EXPECT_EQ(launch(nothing, 1, 32, first, {}), CUDA_SUCCESS);
  EXPECT_EQ(launch(nothing, 1, 32, second, {}), CUDA_SUCCESS);
  const CUevent end = record(second);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(elapsed_ns(begin, end), 2 * kNothingNs);
}

TEST(VirtualTime, AnOperationThatMustWaitLetsLaterOnesGoFirst) {
  const EmulatedMachine machine(plain_numbers());
  const CUdeviceptr memory = allocate(1000);
  void* const pinned = allocate_pinned(1000);
  const CUfunction nothing = kernel(load_test_kernels(), "nothing");
  const CUstream first = new_stream(), second = new_stream();
  const CUevent begin = record(first);
  EXPECT_EQ(launch(nothing, 1, 32, first, {}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 90, first), CUDA_SUCCESS);   // from kNothingNs on
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 90, second), CUDA_SUCCESS);  // at once
  const CUevent first_end = record(first), second_end = record(second);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(elapsed_ns(begin, second_end), 100u);
  EXPECT_EQ(elapsed_ns(begin, first_end), kNothingNs + 100);
}

TEST(VirtualTime, EventsAndTheDefaultStreamOrderStreams) {
  const EmulatedMachine machine(plain_numbers());
  const CUdeviceptr memory = allocate(1000);
  void* const pinned = allocate_pinned(1000);
  const CUfunction nothing = kernel(load_test_kernels(), "nothing");
  const CUstream first = new_stream(CU_STREAM_DEFAULT), second = new_stream(CU_STREAM_DEFAULT),
                 free = new_stream();
  const CUevent begin = record(free);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 990, first), CUDA_SUCCESS);
  EXPECT_EQ(launch(nothing, 1, 32, nullptr, {}), CUDA_SUCCESS);  // waits for the copy
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 980, second),
            CUDA_SUCCESS);  // waits for the kernel
  const CUevent end = record(second), free_end = record(free);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(elapsed_ns(begin, end), 1000 + kNothingNs + 500);
  EXPECT_EQ(elapsed_ns(begin, free_end), 0u);
}

TEST(VirtualTime, WhatAThreadWaitedForIsOverWhenItGoesOn) {
  for (const std::string clock : {"thread", "process"}) {
    auto variables = plain_numbers();
    variables.emplace_back("HOST_CLOCK", clock);
    const EmulatedMachine machine(variables);
    const CUdeviceptr memory = allocate(1000);
    void* const pinned = allocate_pinned(1000);
    const CUstream first = new_stream(), second = new_stream();
    const CUevent begin = record(first);
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 990, first), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(first), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, memory, 980, second), CUDA_SUCCESS);
    const CUevent end = record(second);
    EXPECT_EQ(WP_CUDA(cuEventSynchronize)(end), CUDA_SUCCESS);
    EXPECT_EQ(elapsed_ns(begin, end), 1500u);
  }
}

TEST(VirtualTime, PageableCopiesAreSlowAndHoldTheThread) {
  const EmulatedMachine machine(plain_numbers());
  const CUdeviceptr memory = allocate(1000);
  std::vector<char> pageable(100);
  const CUstream first = new_stream(), second = new_stream();
  const CUevent begin = record(first);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pageable.data(), 100, first), CUDA_SUCCESS);
  const CUevent end = record(second);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(elapsed_ns(begin, end), 210u);
}

TEST(VirtualTime, MemoryBoundsAKernelWhenItIsTheSlower) {
  auto variables = plain_numbers();
  for (auto& [name, value] : variables) {
    if (name == "MEMORY_GBPS") value = "1";
    if (name == "INSTRUCTIONS_PER_NS") value = "1e9";
  }
  const EmulatedMachine machine(variables);
  const CUfunction add = kernel(load_test_kernels(), "add");
  const CUdeviceptr memory = allocate_zeros(128);
  const CUstream stream = new_stream();
  const CUevent begin = record(stream);
  EXPECT_EQ(launch(add, 1, 32, stream, {memory, 1}),
            CUDA_SUCCESS);  // 128 bytes in 4 sectors, read and written
  const CUevent kernel_end = record(stream);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoDAsync_v2)(memory + 64, memory, 50, stream), CUDA_SUCCESS);
  const CUevent copy_end = record(stream);
  EXPECT_EQ(WP_CUDA(cuMemsetD8Async)(memory, 1, 50, stream), CUDA_SUCCESS);
  const CUevent fill_end = record(stream);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(elapsed_ns(begin, kernel_end), 100u + 256);
  EXPECT_EQ(elapsed_ns(kernel_end, copy_end), 100u + 2 * 50);
  EXPECT_EQ(elapsed_ns(copy_end, fill_end), 100u + 50);
}

TEST(VirtualTime, DevicesHaveEnginesOfTheirOwn) {
  auto variables = plain_numbers();
  variables.emplace_back("DEVICES", "2");
  const std::string path = trace_path();
  variables.emplace_back("TRACE", path);
  EmulatedMachine machine(variables);
  void* const pinned = allocate_pinned(1000);
  for (const int device : {0, 1}) {
    CUcontext context = nullptr;
    EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(allocate(1000), pinned, 990, new_stream()), CUDA_SUCCESS);
  }
  machine.end();
  EXPECT_EQ(spans(read_trace(path), "copy_in"), (Spans{{0, 1000}, {0, 1000}}));
}

// Units go through copy in, kernel, copy out; a ring of slabs, a stream for each step.
std::uint64_t pipeline_ns(std::size_t num_slabs, const std::string& seed, std::vector<TraceLine>& lines) {
  auto variables = plain_numbers(seed);
  const std::string path = trace_path();
  variables.emplace_back("TRACE", path);
  EmulatedMachine machine(variables);
  const CUfunction add = kernel(load_test_kernels(), "add");
  constexpr std::size_t kUnits = 20, kWords = 96, kBytes = kWords * 4;
  struct Slab {
    CUdeviceptr memory = 0;
    std::uint32_t* in = nullptr;
    std::uint32_t* out = nullptr;
    CUevent copied = nullptr, computed = nullptr, done = nullptr;
  };
  std::vector<Slab> slabs(num_slabs);
  for (Slab& slab : slabs) {
    slab.memory = allocate(kBytes);
    slab.in = static_cast<std::uint32_t*>(allocate_pinned(kBytes));
    slab.out = static_cast<std::uint32_t*>(allocate_pinned(kBytes));
    for (CUevent* event : {&slab.copied, &slab.computed, &slab.done})
      *event = new_event(CU_EVENT_DISABLE_TIMING);
  }
  const CUstream copying_in = new_stream(), computing = new_stream(), copying_out = new_stream();
  const auto collect = [&](std::size_t unit) {
    const Slab& slab = slabs[unit % num_slabs];
    EXPECT_EQ(WP_CUDA(cuEventSynchronize)(slab.done), CUDA_SUCCESS);
    for (std::size_t i = 0; i < kWords; ++i) EXPECT_EQ(slab.out[i], 1000 * unit + i + 5) << "unit " << unit;
  };
  for (std::size_t unit = 0; unit < kUnits; ++unit) {
    const Slab& slab = slabs[unit % num_slabs];
    if (unit >= num_slabs) collect(unit - num_slabs);
    for (std::size_t i = 0; i < kWords; ++i) slab.in[i] = static_cast<std::uint32_t>(1000 * unit + i);
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(slab.memory, slab.in, kBytes, copying_in), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuEventRecord)(slab.copied, copying_in), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(computing, slab.copied, 0), CUDA_SUCCESS);
    EXPECT_EQ(launch(add, 3, 32, computing, {slab.memory, 5}), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuEventRecord)(slab.computed, computing), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(copying_out, slab.computed, 0), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(slab.out, slab.memory, kBytes, copying_out), CUDA_SUCCESS);
    EXPECT_EQ(WP_CUDA(cuEventRecord)(slab.done, copying_out), CUDA_SUCCESS);
  }
  for (std::size_t unit = kUnits - std::min(num_slabs, kUnits); unit < kUnits; ++unit) collect(unit);
  machine.end();
  lines = read_trace(path);
  std::uint64_t end_ns = 0;
  for (const TraceLine& line : of_kind(lines, "copy_out")) end_ns = std::max(end_ns, number(line, "end_ns"));
  return end_ns;
}

TEST(VirtualTime, ARingOfSlabsOverlapsWhatOneSlabDoesInTurn) {
  // A unit: in 10 + 384, kernel 100 + 12 * 96, out 10 + 192 ns.
  constexpr std::uint64_t kIn = 394, kKernel = 1252, kOut = 202;
  std::vector<TraceLine> lines;
  EXPECT_EQ(pipeline_ns(1, "0", lines), 20 * (kIn + kKernel + kOut));
  const std::uint64_t three = pipeline_ns(3, "0", lines);
  EXPECT_EQ(three, kIn + 20 * kKernel + kOut) << "the kernels never wait";
  std::vector<TraceLine> again;
  for (const std::string seed : {"1", "2", "3", "4", "5"}) {
    EXPECT_EQ(pipeline_ns(3, seed, again), three) << "times do not depend on the seed";
    ASSERT_EQ(again.size(), lines.size());
    for (std::size_t i = 1; i < lines.size(); ++i) EXPECT_EQ(again[i], lines[i]) << i;
  }
}

TEST(VirtualTime, TheTraceTellsWhatAContextLeftOver) {
  const std::string path = trace_path();
  EmulatedMachine machine({{"TRACE", path}});
  allocate(100);
  allocate_pinned(100);
  new_stream();
  load_test_kernels();
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
  machine.end();
  const auto left_over = of_kind(read_trace(path), "left_over");
  ASSERT_EQ(left_over.size(), 1u);
  EXPECT_EQ(left_over[0].at("message"),
            "1 device allocations, 1 pinned ranges, 1 modules, 1 streams, 0 events");
}

TEST(VirtualTime, ElapsedTimeNeedsTimedEventsThatAreOver) {
  const EmulatedMachine machine(plain_numbers());
  const CUstream stream = new_stream();
  const CUevent untimed = new_event(CU_EVENT_DISABLE_TIMING), never = new_event();
  const CUevent begin = record(stream);
  void* const pinned = allocate_pinned(100);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(allocate(100), pinned, 90, stream), CUDA_SUCCESS);
  const CUevent end = record(stream);
  EXPECT_EQ(WP_CUDA(cuEventRecord)(untimed, stream), CUDA_SUCCESS);
  float milliseconds = 0;
  const auto elapsed = WP_CUDA(cuEventElapsedTime_v2);
  EXPECT_EQ(elapsed(&milliseconds, begin, end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(elapsed(&milliseconds, begin, end), CUDA_SUCCESS);
  EXPECT_EQ(elapsed(nullptr, begin, end), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(elapsed(&milliseconds, begin, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(elapsed(&milliseconds, never, end), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(elapsed(&milliseconds, begin, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
