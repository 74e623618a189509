// Copies and fills in all directions.
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

using Words = std::vector<std::uint32_t>;

CUdeviceptr as_address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

TEST(EmulatedCopies, GoInEveryDirection) {
  const EmulatedMachine machine;
  Words words(64), back(64);
  std::iota(words.begin(), words.end(), 100);
  const CUdeviceptr first = allocate(256), second = allocate(256);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoD_v2)(first, words.data(), 256), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoD_v2)(second, first, 256), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoH_v2)(back.data(), second, 256), CUDA_SUCCESS);
  EXPECT_EQ(back, words);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoD_v2)(second + 4, second, 8), CUDA_SUCCESS);
  EXPECT_EQ(read_words(second, 4), (Words{100, 100, 101, 103}));
  const CUstream stream = new_stream();
  void* const pinned = allocate_pinned(256);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoHAsync_v2)(pinned, first, 256, stream), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(pinned, words.data(), 256), 0) << "not yet";
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoDAsync_v2)(second, first, 256, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(pinned, words.data(), 256), 0);
  EXPECT_EQ(read_words(second, 64), words);
}

TEST(EmulatedCopies, UnifiedOnesFindTheirDirection) {
  const EmulatedMachine machine;
  Words words(4, 9), back(4);
  const CUdeviceptr first = allocate(16), second = allocate(16);
  void* const pinned = allocate_pinned(16);
  const auto copy = WP_CUDA(cuMemcpy);
  EXPECT_EQ(copy(first, as_address(words.data()), 16), CUDA_SUCCESS);
  EXPECT_EQ(copy(second, first, 16), CUDA_SUCCESS);
  EXPECT_EQ(copy(as_address(pinned), second, 16), CUDA_SUCCESS);
  EXPECT_EQ(copy(as_address(back.data()), as_address(pinned), 16), CUDA_SUCCESS);
  EXPECT_EQ(back, words);
  EXPECT_EQ(copy(device_pointer(pinned), as_address(Words{1, 2, 3, 4}.data()), 16), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(pinned, Words{1, 2, 3, 4}.data(), 16), 0);
  const CUstream stream = new_stream();
  EXPECT_EQ(WP_CUDA(cuMemcpyAsync)(first, as_address(pinned), 16, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemcpyAsync)(as_address(back.data()), first, 16, stream), CUDA_SUCCESS);
  EXPECT_EQ(back, (Words{1, 2, 3, 4})) << "pageable memory is written before the call returns";
  EXPECT_EQ(copy(first, 0, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy(0, first, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedCopies, PageableMemoryIsReadAtTheCall) {
  for (const char* const seed : {"0", "1", "2"}) {
    const EmulatedMachine machine({{"SEED", seed}});
    const CUdeviceptr memory = allocate(4);
    const CUstream stream = new_stream();
    std::uint32_t word = 1;
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, &word, 4, stream), CUDA_SUCCESS);
    word = 2;
    EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    EXPECT_EQ(read_word(memory), 1u);
    EXPECT_EQ(WP_CUDA(cuMemcpyHtoD_v2)(memory, &word, 4), CUDA_SUCCESS);
    word = 3;
    EXPECT_EQ(read_word(memory), 2u);
  }
}

TEST(EmulatedCopies, SynchronousOnesFromPinnedMemoryAreOver) {
  const EmulatedMachine machine;
  const CUdeviceptr memory = allocate(4);
  auto* const pinned = static_cast<std::uint32_t*>(allocate_pinned(4));
  *pinned = 1;
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoD_v2)(memory, pinned, 4), CUDA_SUCCESS);
  *pinned = 2;
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoH_v2)(pinned, memory, 4), CUDA_SUCCESS);
  EXPECT_EQ(*pinned, 1u);
}

TEST(EmulatedCopies, FillsOfEveryWidth) {
  const EmulatedMachine machine;
  const CUdeviceptr memory = allocate(16);
  const CUstream stream = new_stream();
  EXPECT_EQ(WP_CUDA(cuMemsetD32_v2)(memory, 0x01020304, 4), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD16_v2)(memory + 4, 0xABCD, 1), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(memory + 9, 0xEE, 2), CUDA_SUCCESS);
  EXPECT_EQ(read_words(memory, 4), (Words{0x01020304, 0x0102ABCD, 0x01EEEE04, 0x01020304}));
  EXPECT_EQ(WP_CUDA(cuMemsetD32Async)(memory, 1, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD16Async)(memory + 4, 2, 2, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemsetD8Async)(memory + 8, 3, 8, stream), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuStreamSynchronize)(stream), CUDA_SUCCESS);
  EXPECT_EQ(read_words(memory, 4), (Words{1, 0x00020002, 0x03030303, 0x03030303}));
  EXPECT_EQ(WP_CUDA(cuMemsetD32_v2)(memory + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemsetD16_v2)(memory + 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(memory + 1, 1, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemsetD32_v2)(memory, 1, std::size_t{1} << 62), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(memory, 1, 0), CUDA_SUCCESS);
}

TEST(EmulatedCopies, MixedUpAndWrongPointersAreRefused) {
  const EmulatedMachine machine;
  std::vector<char> host(64);
  const CUdeviceptr memory = allocate(64);
  auto* const pinned = static_cast<char*>(allocate_pinned(64));
  auto* const wrong_host = reinterpret_cast<void*>(memory);
  const auto in = WP_CUDA(cuMemcpyHtoD_v2);
  const auto out = WP_CUDA(cuMemcpyDtoH_v2);
  const auto both = WP_CUDA(cuMemcpyDtoD_v2);
  const CUstream stream = new_stream();
  EXPECT_EQ(in(as_address(host.data()), host.data(), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(as_address(pinned), host.data(), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(memory, wrong_host, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(memory, nullptr, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(0, host.data(), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(memory + 61, host.data(), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(memory, pinned + 61, 4), CUDA_ERROR_INVALID_VALUE) << "half of it pinned";
  EXPECT_EQ(in(memory, host.data(), ~std::size_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(out(wrong_host, memory, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(out(host.data(), as_address(host.data()), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(out(nullptr, memory, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(both(memory, as_address(host.data()), 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(both(as_address(host.data()), memory, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(in(memory, host.data(), 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 65, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoDAsync_v2)(memory, pinned, 4, reinterpret_cast<CUstream>(pinned)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS) << "nothing of this broke the context";
}

TEST(EmulatedCopies, ReachTheOtherDevice) {
  const EmulatedMachine machine({{"DEVICES", "2"}});
  const CUdeviceptr here = allocate(4);
  CUcontext other = nullptr;
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&other, 1), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(other), CUDA_SUCCESS);
  const CUdeviceptr there = allocate(4);
  EXPECT_NE(here, there) << "addresses are unique among devices";
  write_words(there, {77});
  EXPECT_EQ(WP_CUDA(cuMemcpy)(here, there, 4), CUDA_SUCCESS);
  EXPECT_EQ(read_word(here), 77u);
  // Kernels do not.
  EXPECT_EQ(launch(kernel(load_test_kernels(), "add"), 1, 1, nullptr, {here, 1}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(machine.context), CUDA_SUCCESS);
  EXPECT_EQ(read_word(here), 77u) << "the other device's fault is not this one's";
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
