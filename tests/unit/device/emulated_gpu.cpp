#include "device/emulated_gpu.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <dlfcn.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace weightpress::device {
namespace {

/// Loaded before the program looks for libcuda.so.1, so that it finds this one.
void* symbol(const char* name) {
  static void* const library = dlopen(WP_CUDA_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string(name) + ": " + dlerror());
  return found;
}

void start_anew() {
  reinterpret_cast<void (*)()>(symbol("weightpress_cuda_reset"))();
}

}  // namespace

void EmulatedGpu::Variables::set_default(const std::string& name, const std::string& value) {
  if (std::ranges::find(list_, name, &Variable::first) == list_.end()) list_.emplace_back(name, value);
}

EmulatedGpu::EmulatedGpu(const Variables& wanted, Opens opens) {
  Variables variables = wanted;
  static int number = 0;
  trace_ = std::filesystem::temp_directory_path() /
           ("weightpress-trace-" + std::to_string(getpid()) + "-" + std::to_string(number++));
  variables.set_default("CHECK", "all");
  variables.set_default("COUNT", "0");
  variables.set_default("TRACE", trace_.string());
  for (const auto& [name, value] : variables) {
    names_.push_back("WEIGHTPRESS_CUDA_" + name);
    setenv(names_.back().c_str(), value.c_str(), 1);
  }
  start_anew();
  const CudaDriver* const driver = CudaDriver::find();
  if (driver == nullptr) throw std::runtime_error("the emulated driver was not found");
  driver->check(driver->calls().init(0), "init");  // find() does it once for the process
  is_running_ = true;
  if (opens == Opens::kNothing) return;
  gpu_ = std::make_unique<Gpu>(*driver, 0);
  kernels_ = std::make_unique<GpuKernels>(*gpu_);
  stages_ = std::make_unique<GpuStages>(*gpu_, *kernels_);
}

EmulatedGpu::~EmulatedGpu() {
  try {
    end();
  } catch (const std::exception&) {  // of a trace that a test did not ask for
  }
}

std::vector<EmulatedGpu::KernelRun> EmulatedGpu::end() {
  if (!is_running_) return {};
  is_running_ = false;
  stages_.reset();
  kernels_.reset();
  gpu_.reset();
  start_anew();
  for (const std::string& name : names_) unsetenv(name.c_str());

  std::vector<KernelRun> runs;
  std::ifstream trace(trace_);
  for (std::string line; std::getline(trace, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.value("op", "") == "left_over") left_over_.push_back(json.value("message", ""));
    if (json.value("op", "") != "kernel") continue;
    const auto number = [&](const char* key) { return json.value(key, std::uint64_t{0}); };
    KernelRun& run = runs.emplace_back();
    run.name = json.value("name", "");
    run.counters.lane_instructions = number("lane_instructions");
    run.counters.global_load_sectors = number("global_load_sectors");
    run.counters.global_store_sectors = number("global_store_sectors");
    run.counters.shared_instructions = number("shared_instructions");
    run.counters.shared_bank_words = number("shared_bank_words");
    run.counters.atomic_instructions = number("atomic_instructions");
    run.counters.atomic_lanes = number("atomic_lanes");
  }
  trace.close();
  std::error_code ignored;
  std::filesystem::remove(trace_, ignored);
  return runs;
}

}  // namespace weightpress::device
