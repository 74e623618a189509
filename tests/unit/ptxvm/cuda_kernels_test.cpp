// Kernels that nvcc compiled: whatever the order of lanes, warps and blocks, on one host thread or several,
// with all checks and with none, they return what the host computes.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "cuda_kernel_cases.h"
#include "ptxvm/launch.h"

namespace weightpress::ptxvm {
namespace {

using testing::Bytes;
using testing::CudaKernel;
using testing::CudaKernelCase;
using testing::KernelArgument;

#ifdef WP_PTXVM_PTX_FOLDER
const std::string kPtxFolder = WP_PTXVM_PTX_FOLDER;
#else
const std::string kPtxFolder;
#endif

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

/// Modules are loaded once a file and stay.
const LoadedModule* loaded(const std::string& file, Memory& memory) {
  static std::string current;
  static std::unique_ptr<LoadedModule> module;
  if (current != file) {
    module.reset();
    auto result = LoadedModule::load(read_text(kPtxFolder + "/" + file), memory);
    EXPECT_TRUE(result.has_value()) << file << ": " << result.error().message;
    if (!result.has_value()) return nullptr;
    module = std::move(*result);
    current = file;
  }
  return module.get();
}

Memory& memory_of_modules() {
  static Memory memory;
  return memory;
}

struct Mode {
  std::uint64_t seed = 0;
  int num_threads = 1;
  bool checks = false;
};

std::string text_of(const Mode& mode) {
  return "order " + std::to_string(mode.seed) + ", " + std::to_string(mode.num_threads) + " host threads, " +
         (mode.checks ? "checked" : "not checked");
}

void expect_bytes(const std::string& what, std::uint64_t address, const Bytes& expected,
                  const Memory& memory) {
  Bytes bytes(expected.size());
  ASSERT_TRUE(memory.read(address, bytes)) << what;
  const auto [here, there] = std::mismatch(bytes.begin(), bytes.end(), expected.begin());
  if (here == bytes.end()) return;
  const auto number = [](const Bytes& from, std::size_t at) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8 && at + i < from.size(); ++i)
      word |= std::uint64_t{from[at + i]} << (8 * i);
    return word;
  };
  const auto at = static_cast<std::size_t>(here - bytes.begin()) / 8 * 8;
  ADD_FAILURE() << what << " differs in the 8 bytes at " << at << " of " << bytes.size() << ": 0x" << std::hex
                << number(bytes, at) << " instead of 0x" << number(expected, at);
}

/// A case's memory, as long as it lives.
class PreparedCase {
 public:
  PreparedCase(const LoadedModule& module, const CudaKernelCase& one, Memory& memory)
      : module_(module), case_(one), memory_(memory) {
    for (std::size_t i = 0; i < one.arguments.size(); ++i) add(i, one.arguments[i]);
    for (const testing::KernelVariable& variable : one.variables) {
      const auto found = module.find_variable(variable.name);
      if (!found.has_value()) {
        ADD_FAILURE() << "there is no variable " << variable.name;
        continue;
      }
      EXPECT_EQ(found->size_bytes, variable.content.size()) << variable.name;
      EXPECT_TRUE(memory.write(found->address, variable.content));
    }
  }
  ~PreparedCase() {
    for (const std::uint64_t address : owned_) EXPECT_TRUE(memory_.free(address));
  }
  PreparedCase(const PreparedCase&) = delete;
  PreparedCase& operator=(const PreparedCase&) = delete;

  Result<LaunchReport> run(const char* entry, const LaunchOptions& options) const {
    LaunchConfig config;
    config.grid = {case_.grid[0], case_.grid[1], case_.grid[2]};
    config.block = {case_.block[0], case_.block[1], case_.block[2]};
    config.dynamic_shared_bytes = case_.dynamic_shared_bytes;
    return launch(module_, entry, config, std::span<const std::uint64_t>(parameters_), memory_, options);
  }

  void expect_results() const {
    for (std::size_t i = 0; i < case_.arguments.size(); ++i) {
      const auto kind = case_.arguments[i].kind;
      if (kind == KernelArgument::Kind::kOutput || kind == KernelArgument::Kind::kInOut)
        expect_bytes("argument " + std::to_string(i), parameters_[i], case_.arguments[i].expected, memory_);
    }
    for (const testing::KernelVariable& variable : case_.variables)
      if (const auto found = module_.find_variable(variable.name))
        expect_bytes(variable.name, found->address, variable.expected, memory_);
  }

 private:
  void add(std::size_t number, const KernelArgument& argument) {
    if (argument.kind == KernelArgument::Kind::kValue) {
      parameters_.push_back(argument.value);
      return;
    }
    const bool is_output = argument.kind == KernelArgument::Kind::kOutput;
    AllocationOptions options;
    options.name = "argument " + std::to_string(number);
    options.read_only = argument.kind == KernelArgument::Kind::kInput;
    options.starts_uninitialised = is_output;
    const std::span<const std::uint8_t> content = argument.content;
    const std::uint64_t address =
        options.read_only ? memory_.adopt(content, options)
                          : memory_.allocate(is_output ? argument.expected.size() : content.size(), options);
    if (argument.kind == KernelArgument::Kind::kInOut) {
      EXPECT_TRUE(memory_.write(address, content));
    }
    parameters_.push_back(address);
    owned_.push_back(address);
  }

  const LoadedModule& module_;
  const CudaKernelCase& case_;
  Memory& memory_;
  std::vector<std::uint64_t> parameters_, owned_;
};

void run_case(const LoadedModule& module, const char* entry, const CudaKernelCase& one, const Mode& mode,
              Memory& memory) {
  LaunchOptions options;
  options.seed = mode.seed;
  options.num_threads = mode.num_threads;
  options.check_initialised = options.check_races = options.check_barriers = mode.checks;
  options.count_accesses = mode.checks;
  options.max_branches = std::uint64_t{1} << 31;  // blocks may wait for one whose host thread is not running
  const PreparedCase prepared(module, one, memory);
  const auto report = prepared.run(entry, options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const auto& fault = report->fault;
  ASSERT_FALSE(fault.has_value()) << fault_name(fault->kind) << " in line " << fault->line << ": "
                                  << fault->message;
  EXPECT_GT(report->counters.lane_instructions, 0u);
  prepared.expect_results();
}

class CudaKernels : public ::testing::TestWithParam<CudaKernel> {
 protected:
  void SetUp() override {
    if (kPtxFolder.empty()) GTEST_SKIP() << "no nvcc when this was built: there are no kernels to run";
  }
};

TEST_P(CudaKernels, ReturnWhatTheHostComputes) {
  const CudaKernel& kernel = GetParam();
  Memory& memory = memory_of_modules();
  const LoadedModule* const module = loaded(kernel.ptx_file, memory);
  ASSERT_NE(module, nullptr);
  ASSERT_NE(module->find_kernel(kernel.entry), nullptr);
  for (const std::uint64_t data_seed : {1u, 2u})
    for (const CudaKernelCase& one : kernel.cases(data_seed))
      for (const Mode mode : {Mode{0, 1, false}, Mode{0, 1, true}, Mode{1 + data_seed, 1, true},
                              Mode{11 + data_seed, 3, true}, Mode{21 + data_seed, 3, false}}) {
        SCOPED_TRACE("data " + std::to_string(data_seed) + ", " + one.name + ", " + text_of(mode));
        run_case(*module, kernel.entry, one, mode, memory);
        if (HasFailure()) return;
      }
}

/// The lines of an entry that hold a barrier with which nothing is computed.
std::vector<std::size_t> barriers_of(const std::string& ptx, const std::string& entry) {
  std::vector<std::size_t> lines;
  std::size_t at = ptx.find(".entry " + entry + "(");
  const std::size_t end = ptx.find("\n}", at);
  while (at < end) {
    const std::size_t next = ptx.find('\n', at) + 1;
    const std::string_view line = std::string_view(ptx).substr(at, next - at);
    for (const char* const barrier : {"bar.sync", "bar.warp.sync", "barrier.sync"})
      if (line.find(barrier) != std::string_view::npos) lines.push_back(at);
    at = next;
  }
  return lines;
}

std::vector<CudaKernel> all_kernels() {
  std::vector<CudaKernel> all;
  for (const auto& some : {testing::block_kernels(), testing::warp_kernels(), testing::atomic_kernels(),
                           testing::arithmetic_kernels(), testing::control_kernels()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// Whether the checks find anything in some case and order.
bool finds_fault(const LoadedModule& module, const CudaKernel& kernel, Memory& memory) {
  for (const CudaKernelCase& one : kernel.cases(1))
    for (const std::uint64_t seed : {0u, 1u, 2u}) {
      LaunchOptions options;
      options.seed = seed;
      options.check_initialised = options.check_races = options.check_barriers = true;
      options.max_branches = options.max_meetings = 100'000;
      const auto report = PreparedCase(module, one, memory).run(kernel.entry, options);
      EXPECT_TRUE(report.has_value()) << report.error().message;
      if (report.has_value() && report->fault.has_value()) return true;
    }
  return false;
}

/// CUB has barriers that only matter when its storage is used again, so of its kernels only some are asked
/// for.
TEST(CudaKernelBarriers, AreMissedWhenLeftOut) {
  if (kPtxFolder.empty()) GTEST_SKIP() << "no nvcc when this was built: there are no kernels to run";
  const std::set<std::string> all_needed = {"atomic_shared",       "atomic_exchange",  "atomic_cas",
                                            "atomic_float_add",    "atomic_histogram", "look_back_by_ticket",
                                            "look_back_by_number", "generic_pointers", "dynamic_shared",
                                            "vector_loads",        "matrix_transpose", "block_discontinuity"};
  const std::set<std::string> some_needed = {
      "block_scan_warps", "block_scan_raking",     "block_scan_largest",      "block_reduce",
      "block_sort_pairs", "block_sort_descending", "block_run_length_decode", "block_exchange",
      "warp_transpose",   "named_barriers",        "producers_consumers"};
  std::size_t num_kernels = 0;
  for (const CudaKernel& kernel : all_kernels()) {
    const bool all = all_needed.count(kernel.entry) != 0, some = some_needed.count(kernel.entry) != 0;
    if (!all && !some) continue;
    SCOPED_TRACE(kernel.entry);
    ++num_kernels;
    const std::string ptx = read_text(kPtxFolder + "/" + kernel.ptx_file);
    const std::vector<std::size_t> barriers = barriers_of(ptx, kernel.entry);
    ASSERT_FALSE(barriers.empty());
    std::size_t num_missed = 0;
    for (const std::size_t barrier : barriers) {
      std::string without = ptx;
      without.erase(barrier, without.find(';', barrier) + 1 - barrier);
      Memory memory;
      const auto module = LoadedModule::load(without, memory);
      ASSERT_TRUE(module.has_value()) << module.error().message;
      const bool is_missed = finds_fault(**module, kernel, memory);
      num_missed += is_missed;
      EXPECT_TRUE(is_missed || !all) << "barrier in line "
                                     << std::count(ptx.begin(),
                                                   ptx.begin() + static_cast<std::ptrdiff_t>(barrier), '\n') +
                                            1;
    }
    EXPECT_GT(num_missed, 0u);
  }
  EXPECT_GE(num_kernels, all_needed.size() + some_needed.size());
}

std::string test_name(const ::testing::TestParamInfo<CudaKernel>& kernel) {
  const std::string file = kernel.param.ptx_file;
  const std::size_t arch = file.find("compute_") + 8;
  return std::string(kernel.param.entry) + "_" + file.substr(arch, file.find('.', arch) - arch);
}

INSTANTIATE_TEST_SUITE_P(Compiled, CudaKernels, ::testing::ValuesIn(all_kernels()), test_name);

}  // namespace
}  // namespace weightpress::ptxvm
