// Modules, functions, variables.
#include <gtest/gtest.h>

#include "emulated_machine.h"

namespace weightpress::cuda_driver::testing {
namespace {

std::string module_text(const std::string& version, const std::string& target, const std::string& body = "") {
  return ".version " + version + "\n.target " + target + "\n.address_size 64\n" + body;
}

CUresult load(const std::string& text) {
  CUmodule module = nullptr;
  return WP_CUDA(cuModuleLoadData)(&module, text.c_str());
}

TEST(EmulatedModules, OnlyPtxTextIsLoaded) {
  const EmulatedMachine machine;
  EXPECT_EQ(load(module_text("7.0", "sm_75")), CUDA_SUCCESS);
  EXPECT_EQ(load("// a comment\n/* and\n another */\n" + module_text("7.0", "sm_75")), CUDA_SUCCESS);
  EXPECT_EQ(load("\x7F"
                 "ELF\x02"),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load("\x50\xED\x55\xBA"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load("\x7F"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load(""), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load("nonsense"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load(module_text("7.0", "sm_75", ".visible .entry k() { wrong.u32 %r1; ret; }")),
            CUDA_ERROR_INVALID_PTX);
  CUmodule module = nullptr;
  EXPECT_EQ(WP_CUDA(cuModuleLoadData)(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuModuleLoadData)(nullptr, kTestKernels), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedModules, AnOldDriverRefusesNewPtx) {
  struct Case {
    const char *driver, *newest, *next;
  };
  for (const Case& c : {Case{"11080", "7.8", "8.0"}, Case{"12020", "8.2", "8.3"}, Case{"12060", "8.5", "8.6"},
                        Case{"12090", "8.8", "9.0"}, Case{"13000", "9.0", "9.1"}}) {
    const EmulatedMachine machine({{"DRIVER_VERSION", c.driver}});
    EXPECT_EQ(load(module_text(c.newest, "sm_75")), CUDA_SUCCESS) << c.driver;
    EXPECT_EQ(load(module_text(c.next, "sm_75")), CUDA_ERROR_UNSUPPORTED_PTX_VERSION) << c.driver;
  }
}

TEST(EmulatedModules, TheTargetMustFitTheDevice) {
  const EmulatedMachine machine({{"COMPUTE", "9.0"}});
  for (const char* const target : {"sm_52", "sm_75", "sm_90", "sm_90a"})
    EXPECT_EQ(load(module_text("8.0", target)), CUDA_SUCCESS) << target;
  for (const char* const target : {"sm_100", "sm_80a", "sm_120"})
    EXPECT_EQ(load(module_text("8.0", target)), CUDA_ERROR_INVALID_PTX) << target;
}

TEST(EmulatedModules, TheLogSaysWhatIsWrong) {
  const EmulatedMachine machine;
  const auto load_with = [](const std::string& text, std::size_t room, std::size_t& written) {
    std::string log(room, '#');
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS,
                              CU_JIT_ERROR_LOG_BUFFER};
    void* values[] = {reinterpret_cast<void*>(room), reinterpret_cast<void*>(std::size_t{32}), log.data()};
    CUmodule module = nullptr;
    const CUresult result = WP_CUDA(cuModuleLoadDataEx)(&module, text.c_str(), 3, options, values);
    written = reinterpret_cast<std::size_t>(values[0]);
    if (written != 0) log.resize(written);
    return std::pair(result, log);
  };
  std::size_t written = 0;
  const std::string bad =
      module_text("7.0", "sm_75", ".visible .entry k()\n{\n.reg .b32 %r<2>;\nwrong.u32 %r1;\nret;\n}\n");
  auto [result, log] = load_with(bad, 200, written);
  EXPECT_EQ(result, CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(log.find("line 7"), std::string::npos) << log;
  EXPECT_NE(log.find("wrong"), std::string::npos) << log;
  std::tie(result, log) = load_with(bad, 8, written);
  EXPECT_EQ(result, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(written, 7u) << "and a zero";
  std::tie(result, log) = load_with(module_text("7.0", "sm_90"), 200, written);
  EXPECT_EQ(result, CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(log.find("sm_90"), std::string::npos) << log;
  std::tie(result, log) = load_with(kTestKernels, 200, written);
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(written, 0u);
  CUmodule module = nullptr;
  EXPECT_EQ(WP_CUDA(cuModuleLoadDataEx)(&module, kTestKernels, 1, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedModules, FunctionsAndVariablesAreFoundByName) {
  const EmulatedMachine machine;
  const CUmodule module = load_test_kernels();
  CUfunction function = nullptr;
  const auto get = WP_CUDA(cuModuleGetFunction);
  EXPECT_EQ(get(&function, module, "add"), CUDA_SUCCESS);
  EXPECT_EQ(get(&function, module, "subtract"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(get(&function, module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&function, nullptr, "add"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(kernel(module, "add"), kernel(module, "add"));
  CUdeviceptr variable = 0, constant = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(WP_CUDA(cuModuleGetGlobal_v2)(&variable, &bytes, module, "variable"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(read_word(variable), 42u);
  EXPECT_EQ(WP_CUDA(cuModuleGetGlobal_v2)(&constant, nullptr, module, "constant"), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuModuleGetGlobal_v2)(nullptr, &bytes, module, "constant"), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuModuleGetGlobal_v2)(nullptr, nullptr, module, "constant"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuModuleGetGlobal_v2)(&variable, nullptr, module, "other"), CUDA_ERROR_NOT_FOUND);
  write_words(variable, {1});
  write_words(constant, {2});
  const CUdeviceptr out = allocate(8);
  EXPECT_EQ(launch(kernel(module, "read_variables"), 1, 1, nullptr, {out}), CUDA_SUCCESS);
  EXPECT_EQ(read_words(out, 2), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(WP_CUDA(cuMemFree_v2)(variable), CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedModules, UnloadingWaitsForItsKernelsAndEndsItsHandles) {
  const EmulatedMachine machine;
  const CUmodule module = load_test_kernels();
  const CUfunction add = kernel(module, "add");
  const CUdeviceptr memory = allocate_zeros(4);
  EXPECT_EQ(launch(add, 1, 1, new_stream(), {memory, 3}), CUDA_SUCCESS);
  EXPECT_EQ(WP_CUDA(cuModuleUnload)(module), CUDA_SUCCESS);
  EXPECT_EQ(read_word(memory), 3u);
  EXPECT_EQ(WP_CUDA(cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(add, 1, 1, nullptr, {memory, 3}), CUDA_ERROR_INVALID_HANDLE);
  CUfunction function = nullptr;
  EXPECT_EQ(WP_CUDA(cuModuleGetFunction)(&function, module, "add"), CUDA_ERROR_INVALID_HANDLE);
  int value = 0;
  EXPECT_EQ(WP_CUDA(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, add), CUDA_ERROR_INVALID_HANDLE);
}

TEST(EmulatedModules, FunctionsHaveAttributes) {
  const EmulatedMachine machine;
  const CUmodule module = load_test_kernels();
  const auto get = [](CUfunction function, CUfunction_attribute attribute) {
    int value = -100;
    EXPECT_EQ(WP_CUDA(cuFuncGetAttribute)(&value, attribute, function), CUDA_SUCCESS);
    return value;
  };
  const CUfunction small = kernel(module, "small_blocks"), shared = kernel(module, "much_shared");
  EXPECT_EQ(get(small, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 64);
  EXPECT_EQ(get(shared, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  EXPECT_EQ(get(shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 40960);
  EXPECT_EQ(get(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 48 * 1024 - 40960);
  EXPECT_EQ(get(shared, CU_FUNC_ATTRIBUTE_PTX_VERSION), 75);
  EXPECT_EQ(get(shared, CU_FUNC_ATTRIBUTE_BINARY_VERSION), 86);
  EXPECT_GT(get(kernel(module, "add"), CU_FUNC_ATTRIBUTE_NUM_REGS), 0);
  const auto set = WP_CUDA(cuFuncSetAttribute);
  EXPECT_EQ(set(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 * 1024 - 40960), CUDA_SUCCESS);
  EXPECT_EQ(get(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 99 * 1024 - 40960);
  EXPECT_EQ(set(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 * 1024 - 40959),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(shared, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100), CUDA_SUCCESS);
  EXPECT_EQ(set(shared, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(shared, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(nullptr, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 1), CUDA_ERROR_INVALID_HANDLE);
  int value = 0;
  EXPECT_EQ(WP_CUDA(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX, small), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuFuncGetAttribute)(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, small),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(EmulatedModules, OccupancyFollowsThreadsAndSharedMemory) {
  const EmulatedMachine machine;  // 8.6: 1536 threads, 16 blocks, 100 KiB, 1 KiB of it taken a block
  const CUmodule module = load_test_kernels();
  const auto blocks = [&](const char* name, int threads, std::size_t dynamic) {
    int number = -1;
    EXPECT_EQ(
        WP_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&number, kernel(module, name), threads, dynamic),
        CUDA_SUCCESS);
    return number;
  };
  EXPECT_EQ(blocks("add", 32, 0), 16);
  EXPECT_EQ(blocks("add", 512, 0), 3);
  EXPECT_EQ(blocks("add", 500, 0), 3);
  EXPECT_EQ(blocks("add", 1024, 0), 1);
  EXPECT_EQ(blocks("add", 128, 24 * 1024), 4);
  EXPECT_EQ(blocks("much_shared", 128, 0), 2);
  EXPECT_EQ(blocks("small_blocks", 128, 0), 0);
  EXPECT_EQ(blocks("add", 128, 49 * 1024), 0);
  int number = 0;
  EXPECT_EQ(WP_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&number, kernel(module, "add"), 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(WP_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor)(nullptr, kernel(module, "add"), 32, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      WP_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(&number, kernel(module, "add"), 32, 0, 8),
      CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace weightpress::cuda_driver::testing
