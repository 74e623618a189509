// What the kernels of kernels/*.cu are launched with, and what they must return: plain data, made by host
// code that shares nothing with them, so that whatever can run PTX or a GPU can be put to it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/weights.h"

namespace weightpress::ptxvm::testing {

using weightpress::testing::Random;
using Bytes = std::vector<std::uint8_t>;

struct KernelArgument {
  enum class Kind : std::uint8_t { kValue, kInput, kOutput, kInOut };
  Kind kind = Kind::kValue;
  std::uint64_t value = 0;
  Bytes content;   ///< before the launch: kInput, kInOut
  Bytes expected;  ///< after it, all of it written by the kernel: kOutput; kInOut
};

/// A variable of the module: set before the launch, compared after it.
struct KernelVariable {
  std::string name;
  Bytes content, expected;
};

struct CudaKernelCase {
  std::string name;  ///< sizes and whatever else tells it from the kernel's other cases
  std::array<std::uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  std::uint64_t dynamic_shared_bytes = 0;
  std::vector<KernelArgument> arguments;
  std::vector<KernelVariable> variables;
};

struct CudaKernel {
  const char* ptx_file;  ///< as CudaKernels.cmake names it
  const char* entry;
  /// The seed is that of the data.
  std::vector<CudaKernelCase> (*cases)(std::uint64_t seed);
};

std::vector<CudaKernel> block_kernels();
std::vector<CudaKernel> warp_kernels();
std::vector<CudaKernel> atomic_kernels();
std::vector<CudaKernel> arithmetic_kernels();
std::vector<CudaKernel> control_kernels();

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline KernelArgument value(std::uint64_t number) {
  return {KernelArgument::Kind::kValue, number, {}, {}};
}

template <class T>
KernelArgument input(const std::vector<T>& content) {
  return {KernelArgument::Kind::kInput, 0, bytes_of(content), {}};
}

template <class T>
KernelArgument output(const std::vector<T>& expected) {
  return {KernelArgument::Kind::kOutput, 0, {}, bytes_of(expected)};
}

template <class T>
KernelArgument in_out(const std::vector<T>& content, const std::vector<T>& expected) {
  return {KernelArgument::Kind::kInOut, 0, bytes_of(content), bytes_of(expected)};
}

inline std::uint32_t blocks_for(std::size_t items, std::uint32_t per_block) {
  return static_cast<std::uint32_t>((items + per_block - 1) / per_block);
}

inline CudaKernelCase launch_of(std::string name, std::uint32_t blocks, std::uint32_t threads,
                                std::vector<KernelArgument> arguments) {
  return {std::move(name), {blocks, 1, 1}, {threads, 1, 1}, 0, std::move(arguments), {}};
}

inline std::string size_name(std::uint64_t size) {
  return "size " + std::to_string(size);
}

/// Any bits, with small numbers and ends of the range among them.
template <class T>
std::vector<T> mixed_words(std::size_t count, Random& random) {
  std::vector<T> words(count);
  for (T& word : words) {
    const std::uint64_t any = random.next();
    switch (random.below(6)) {
      case 0:
        word = static_cast<T>(any % 9);
        break;
      case 1:
        word = static_cast<T>(0 - any % 9);
        break;
      case 2:
        word = static_cast<T>(std::uint64_t{1} << any % (8 * sizeof(T)));
        break;
      case 3:
        word = static_cast<T>(any & random.next() & random.next());
        break;
      default:
        word = static_cast<T>(any);
        break;
    }
  }
  return words;
}

}  // namespace weightpress::ptxvm::testing
