#include "emulated_machine.h"

#include <cstdlib>
#include <fstream>
#include <iostream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "weightpress_cuda.h"

namespace weightpress::cuda_driver::testing {

void* driver_symbol(const char* name) {
  static void* const library = dlopen(WP_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) {
    std::cerr << name << ": " << dlerror() << "\n";
    std::abort();
  }
  return symbol;
}

EmulatedMachine::EmulatedMachine(const Variables& variables, bool starts) {
  for (const auto& [name, value] : variables) {
    names_.push_back("WEIGHTPRESS_CUDA_" + name);
    setenv(names_.back().c_str(), value.c_str(), 1);
  }
  WP_CUDA(weightpress_cuda_reset)();
  if (!starts) return;
  EXPECT_EQ(WP_CUDA(cuInit)(0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSetCurrent)(context), CUDA_SUCCESS);
}

EmulatedMachine::~EmulatedMachine() {
  end();
}

void EmulatedMachine::end() {
  WP_CUDA(weightpress_cuda_reset)();
  for (const std::string& name : names_) unsetenv(name.c_str());
  names_.clear();
}

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(WP_CUDA(cuMemAlloc_v2)(&address, bytes), CUDA_SUCCESS);
  return address;
}

CUdeviceptr allocate_zeros(std::size_t bytes) {
  const CUdeviceptr address = allocate(bytes);
  EXPECT_EQ(WP_CUDA(cuMemsetD8_v2)(address, 0, bytes), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
  return address;
}

void* allocate_pinned(std::size_t bytes) {
  void* pointer = nullptr;
  EXPECT_EQ(WP_CUDA(cuMemHostAlloc)(&pointer, bytes, 0), CUDA_SUCCESS);
  return pointer;
}

CUdeviceptr device_pointer(void* pinned) {
  CUdeviceptr address = 0;
  EXPECT_EQ(WP_CUDA(cuMemHostGetDevicePointer_v2)(&address, pinned, 0), CUDA_SUCCESS);
  return address;
}

CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(WP_CUDA(cuStreamCreate)(&stream, flags), CUDA_SUCCESS);
  return stream;
}

CUevent new_event(unsigned flags) {
  CUevent event = nullptr;
  EXPECT_EQ(WP_CUDA(cuEventCreate)(&event, flags), CUDA_SUCCESS);
  return event;
}

std::vector<std::uint32_t> read_words(CUdeviceptr address, std::size_t count) {
  std::vector<std::uint32_t> words(count);
  EXPECT_EQ(WP_CUDA(cuMemcpyDtoH_v2)(words.data(), address, count * 4), CUDA_SUCCESS);
  return words;
}

std::uint32_t read_word(CUdeviceptr address) {
  return read_words(address, 1)[0];
}

void write_words(CUdeviceptr address, const std::vector<std::uint32_t>& words) {
  EXPECT_EQ(WP_CUDA(cuMemcpyHtoD_v2)(address, words.data(), words.size() * 4), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuCtxSynchronize)(), CUDA_SUCCESS);
}

CUmodule load_test_kernels() {
  CUmodule module = nullptr;
  EXPECT_EQ(WP_CUDA(cuModuleLoadData)(&module, kTestKernels), CUDA_SUCCESS);
  return module;
}

CUfunction kernel(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  EXPECT_EQ(WP_CUDA(cuModuleGetFunction)(&function, module, name), CUDA_SUCCESS) << name;
  return function;
}

CUresult launch(CUfunction function, unsigned grid, unsigned block, CUstream stream,
                std::vector<std::uint64_t> values, unsigned dynamic_shared_bytes) {
  std::vector<void*> pointers;
  for (std::uint64_t& value : values) pointers.push_back(&value);
  pointers.push_back(nullptr);
  return WP_CUDA(cuLaunchKernel)(function, grid, 1, 1, block, 1, 1, dynamic_shared_bytes, stream,
                                 pointers.data(), nullptr);
}

std::vector<TraceLine> read_trace(const std::string& path) {
  std::vector<TraceLine> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    TraceLine line;
    EXPECT_TRUE(text.starts_with('{') && text.ends_with('}')) << text;
    for (std::size_t at = 1; at < text.size() && text[at] == '"';) {
      const std::size_t key_end = text.find('"', at + 1);
      const std::string key = text.substr(at + 1, key_end - at - 1);
      std::size_t begin = key_end + 3, end = begin;
      if (text[begin] == '"') {
        for (end = ++begin; text[end] != '"'; ++end)
          if (text[end] == '\\') ++end;
        line[key] = text.substr(begin, end - begin);
        ++end;
      } else {
        end = text.find_first_of(",}", begin);
        line[key] = text.substr(begin, end - begin);
      }
      at = end + 2;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::uint64_t number(const TraceLine& line, const std::string& key) {
  const auto found = line.find(key);
  EXPECT_NE(found, line.end()) << key;
  return found == line.end() ? 0 : std::stoull(found->second);
}

std::vector<TraceLine> of_kind(const std::vector<TraceLine>& lines, const std::string& op) {
  std::vector<TraceLine> found;
  for (const TraceLine& line : lines)
    if (line.at("op") == op) found.push_back(line);
  return found;
}

std::string trace_path() {
  return ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + "." +
         std::to_string(getpid()) + ".jsonl";
}

}  // namespace weightpress::cuda_driver::testing
