// The emulated driver, loaded as a program loads the real one, and a machine to test it on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>

namespace weightpress::cuda_driver::testing {

/// A symbol of the driver; ends the test program if it is missing.
void* driver_symbol(const char* name);

/// A call by its real name, suffix included: WP_CUDA(cuMemAlloc_v2)(&address, 4).
#define WP_CUDA(name) \
  reinterpret_cast<decltype(&name)>(::weightpress::cuda_driver::testing::driver_symbol(#name))

/// The driver started anew with environment variables (names without WEIGHTPRESS_CUDA_), device 0's primary
/// context current. What was set is forgotten at the end.
class EmulatedMachine {
 public:
  /// Names and values. Not a vector, which {"A", "B"} could also mean as a range.
  class Variables {
   public:
    using Variable = std::pair<std::string, std::string>;
    Variables() = default;
    Variables(std::initializer_list<Variable> list) : list_(list) {}
    void emplace_back(const std::string& name, const std::string& value) { list_.emplace_back(name, value); }
    const Variable& operator[](std::size_t i) const { return list_[i]; }
    std::vector<Variable>::iterator begin() { return list_.begin(); }
    std::vector<Variable>::iterator end() { return list_.end(); }
    std::vector<Variable>::const_iterator begin() const { return list_.begin(); }
    std::vector<Variable>::const_iterator end() const { return list_.end(); }

   private:
    std::vector<Variable> list_;
  };

  explicit EmulatedMachine(const Variables& variables = {}, bool starts = true);
  ~EmulatedMachine();
  EmulatedMachine(const EmulatedMachine&) = delete;
  EmulatedMachine& operator=(const EmulatedMachine&) = delete;

  /// Ends the machine, so that its trace is complete.
  void end();

  CUcontext context = nullptr;

 private:
  std::vector<std::string> names_;
};

// Shorter forms for tests; each checks that its calls succeed.
CUdeviceptr allocate(std::size_t bytes);
CUdeviceptr allocate_zeros(std::size_t bytes);
void* allocate_pinned(std::size_t bytes);
CUdeviceptr device_pointer(void* pinned);
CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
CUevent new_event(unsigned flags = CU_EVENT_DEFAULT);
std::vector<std::uint32_t> read_words(CUdeviceptr address, std::size_t count);
std::uint32_t read_word(CUdeviceptr address);
void write_words(CUdeviceptr address, const std::vector<std::uint32_t>& words);

/// The module of test_kernels.cpp, loaded into the current context.
CUmodule load_test_kernels();
CUfunction kernel(CUmodule module, const char* name);
extern const char* const kTestKernels;

/// Launches a kernel of one-word and address parameters; the call's result.
CUresult launch(CUfunction function, unsigned grid, unsigned block, CUstream stream,
                std::vector<std::uint64_t> values, unsigned dynamic_shared_bytes = 0);

/// A line of a trace: keys to values, strings without their quotes.
using TraceLine = std::map<std::string, std::string>;
std::vector<TraceLine> read_trace(const std::string& path);
std::uint64_t number(const TraceLine& line, const std::string& key);
/// Lines of one "op".
std::vector<TraceLine> of_kind(const std::vector<TraceLine>& lines, const std::string& op);
/// A path for a trace of the running test.
std::string trace_path();

}  // namespace weightpress::cuda_driver::testing
