// Programs with one missing dependency give a wrong result for some seed; whole ones are right for every
// seed.
#include <cstring>
#include <functional>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

constexpr int kNumSeeds = 20;
constexpr std::size_t kCount = 64, kBytes = kCount * 4;

// Runs a program under a seed; whether its result was right.
using Program = std::function<bool()>;

int num_wrong(const Program& program, std::string* seeds = nullptr) {
  int wrong = 0;
  for (int seed = 1; seed <= kNumSeeds; ++seed) {
    const EmulatedMachine machine({{"SEED", std::to_string(seed)}});
    if (program()) continue;
    ++wrong;
    if (seeds != nullptr) *seeds += " " + std::to_string(seed);
  }
  return wrong;
}

void expect_right(const Program& program) {
  std::string seeds;
  EXPECT_EQ(num_wrong(program, &seeds), 0) << "wrong with seeds" << seeds;
  const EmulatedMachine machine;
  EXPECT_TRUE(program()) << "seed 0";
}

void expect_wrong_for_some_seed(const Program& program) {
  EXPECT_GT(num_wrong(program), 0);
}

void follow(CUstream from, CUstream to) {
  const CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(WP_CUDA(cuEventRecord)(event, from), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamWaitEvent)(to, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuEventDestroy_v2)(event), CUDA_SUCCESS);
}

bool all_are(const void* words, std::uint32_t value) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (std::memcmp(static_cast<const std::uint8_t*>(words) + i * 4, &value, 4) != 0) return false;
  return true;
}

void set_all(void* words, std::uint32_t value) {
  for (std::size_t i = 0; i < kCount; ++i) std::memcpy(static_cast<std::uint8_t*>(words) + i * 4, &value, 4);
}

enum class Missing { kNothing, kCopyBeforeKernel, kKernelBeforeCopy, kLastWait };

// In, a kernel, out: three streams.
bool pipeline(Missing missing) {
  const CUfunction add = kernel(load_test_kernels(), "add");
  const CUdeviceptr memory = allocate_zeros(kBytes);
  void* const in = allocate_pinned(kBytes);
  void* const out = allocate_pinned(kBytes);
  set_all(in, 5);
  set_all(out, 0);
  const CUstream first = new_stream(), second = new_stream(), third = new_stream();
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, in, kBytes, first), CUDA_SUCCESS);
  if (missing != Missing::kCopyBeforeKernel) follow(first, second);
  EXPECT_EQ(launch(add, 2, 32, second, {memory, 1}), CUDA_SUCCESS);
  if (missing != Missing::kKernelBeforeCopy) follow(second, third);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(out, memory, kBytes, third), CUDA_SUCCESS);
  if (missing != Missing::kLastWait) {
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(third), CUDA_SUCCESS);
  }
  return all_are(out, 6);
}

TEST(MissingDependency, WholePipelinesAreRight) {
  expect_right([] { return pipeline(Missing::kNothing); });
}

TEST(MissingDependency, ACopyThatTheKernelDoesNotWaitFor) {
  expect_wrong_for_some_seed([] { return pipeline(Missing::kCopyBeforeKernel); });
}

TEST(MissingDependency, AKernelThatTheCopyDoesNotWaitFor) {
  expect_wrong_for_some_seed([] { return pipeline(Missing::kKernelBeforeCopy); });
}

TEST(MissingDependency, AResultThatTheHostDoesNotWaitFor) {
  EXPECT_EQ(num_wrong([] { return pipeline(Missing::kLastWait); }), kNumSeeds)
      << "copies act as late as can be";
}

// A pinned buffer is filled anew for a second copy.
bool reuse(bool waits) {
  const CUdeviceptr first = allocate(kBytes), second = allocate(kBytes);
  void* const in = allocate_pinned(kBytes);
  const CUstream stream = new_stream();
  set_all(in, 1);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(first, in, kBytes, stream), CUDA_SUCCESS);
  if (waits) {
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  }
  set_all(in, 2);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(second, in, kBytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  return read_words(first, kCount) == std::vector<std::uint32_t>(kCount, 1) &&
         read_words(second, kCount) == std::vector<std::uint32_t>(kCount, 2);
}

TEST(MissingDependency, APinnedBufferThatIsReusedTooEarly) {
  expect_right([] { return reuse(true); });
  EXPECT_EQ(num_wrong([] { return reuse(false); }), kNumSeeds);
}

// The next copy in overwrites what a kernel of another stream still reads.
bool overwrite(bool waits, bool asks_the_kernel_first) {
  const CUfunction copy = kernel(load_test_kernels(), "copy");
  const CUdeviceptr slab = allocate_zeros(kBytes), result = allocate_zeros(kBytes);
  void* const in = allocate_pinned(kBytes);
  set_all(in, 9);
  const CUstream computing = new_stream(), copying = new_stream();
  EXPECT_EQ(launch(copy, 2, 32, computing, {result, slab}), CUDA_SUCCESS);
  if (waits) follow(computing, copying);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(slab, in, kBytes, copying), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(asks_the_kernel_first ? computing : copying), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  return read_words(result, kCount) == std::vector<std::uint32_t>(kCount, 0);
}

TEST(MissingDependency, ACopyOverWhatAKernelReads) {
  for (const bool first : {false, true}) {
    SCOPED_TRACE(first);
    expect_right([first] { return overwrite(true, first); });
    expect_wrong_for_some_seed([first] { return overwrite(false, first); });
  }
}

// Memory is used in one stream and freed in another; a fault.
bool free_elsewhere(bool waits) {
  const CUfunction add = kernel(load_test_kernels(), "add");
  const CUstream first = new_stream(), second = new_stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(WP_CUDA(cuMemAllocAsync)(&memory, kBytes, first), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 3, kCount, first), CUDA_SUCCESS);
  EXPECT_EQ(launch(add, 2, 32, first, {memory, 1}), CUDA_SUCCESS);
  if (waits) follow(first, second);
  EXPECT_EQ(WP_CUDA(cuMemFreeAsync)(memory, second), CUDA_SUCCESS);
  return WP_CUDA(cuCtxSynchronize)() == CUDA_SUCCESS;
}

TEST(MissingDependency, MemoryThatAnotherStreamFreesTooEarly) {
  expect_right([] { return free_elsewhere(true); });
  expect_wrong_for_some_seed([] { return free_elsewhere(false); });
}

// Memory is another stream's before its allocation came true.
bool allocate_elsewhere(bool waits) {
  const CUstream first = new_stream(), second = new_stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(WP_CUDA(cuMemAllocAsync)(&memory, kBytes, first), CUDA_SUCCESS);
  if (waits) follow(first, second);
  EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 3, kCount, second), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  return read_words(memory, kCount) == std::vector<std::uint32_t>(kCount, 3);
}

TEST(MissingDependency, MemoryThatIsUsedBeforeItsStreamAllocatesIt) {
  expect_right([] { return allocate_elsewhere(true); });
  expect_wrong_for_some_seed([] { return allocate_elsewhere(false); });
}

TEST(MissingDependency, EagerSeedsActBeforeAnybodyWaits) {
  const EmulatedMachine machine({{"SEED", "1"}, {"EAGER_PERCENT", "100"}});
  EXPECT_TRUE(pipeline(Missing::kLastWait)) << "everything runs when it is enqueued";
}

TEST(MissingDependency, TheSameSeedGivesTheSameOrder) {
  const auto order = [](const std::string& seed) {
    const EmulatedMachine machine({{"SEED", seed}});
    const CUfunction copy = kernel(load_test_kernels(), "copy");
    const CUdeviceptr target = allocate_zeros(4);
    std::vector<std::uint32_t> seen;
    for (std::uint32_t round = 0; round < 10; ++round) {  // several streams write one word
      for (std::uint32_t i = 0; i < 8; ++i) {
        const CUdeviceptr source = allocate_zeros(4);
        write_words(source, {i});
        EXPECT_EQ(launch(copy, 1, 1, new_stream(), {target, source}), CUDA_SUCCESS);
      }
      EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
      seen.push_back(read_word(target));
    }
    return seen;
  };
  EXPECT_EQ(order("7"), order("7"));
  EXPECT_EQ(order("0"), std::vector<std::uint32_t>(10, 7)) << "seed 0: in the order of the calls";
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
