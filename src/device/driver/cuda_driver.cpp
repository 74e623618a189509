#include "device/driver/cuda_driver.h"

#include <array>
#include <mutex>

#include <dlfcn.h>

#include "device/text.h"

namespace weightpress::device {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

struct Name {
  std::string_view member, symbol;
};
constexpr Name kNames[] = {
#define WP_CUDA_NAME(member, symbol) {#member, #symbol},
    WP_CUDA_CALLS(WP_CUDA_NAME)
#undef WP_CUDA_NAME
};

/// Users know the driver's own names.
std::string_view symbol_of(std::string_view member) {
  for (const Name& name : kNames)
    if (name.member == member) return name.symbol;
  return member;
}

}  // namespace

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const CudaDriver* CudaDriver::find(std::string* why_not) {
  static CudaDriver driver;
  static const std::string problem = driver.load();
  if (why_not != nullptr) *why_not = problem;
  return problem.empty() ? &driver : nullptr;
}

std::string CudaDriver::load() {
  // Never closed: the driver has threads and handlers of its own.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    const std::string text = why == nullptr ? "" : why;
    if (text.find("No such file") != std::string::npos)
      return "no NVIDIA driver is installed (there is no " + std::string(kLibrary) + ")";
    return "the NVIDIA driver cannot be loaded: " + printable_text(text);
  }
#define WP_CUDA_FIND(member, symbol)                                                    \
  calls_.member = reinterpret_cast<decltype(calls_.member)>(::dlsym(library, #symbol)); \
  if (calls_.member == nullptr)                                                         \
    return "the NVIDIA driver is too old: it does not know " #symbol ": install a newer one";
  WP_CUDA_CALLS(WP_CUDA_FIND)
#undef WP_CUDA_FIND
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(calls_.init), &info) != 0 && info.dli_fname != nullptr)
    path_ = info.dli_fname;
  if (const CUresult result = calls_.init(0); result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_NO_DEVICE) return "the NVIDIA driver finds no GPU";
    return "the NVIDIA driver does not start: " + describe(result);
  }
  if (const CUresult result = calls_.driver_get_version(&version_); result != CUDA_SUCCESS)
    return "the NVIDIA driver does not tell its version: " + describe(result);
  if (const CUresult result = calls_.device_get_count(&num_devices_); result != CUDA_SUCCESS)
    return "the NVIDIA driver does not tell its GPUs: " + describe(result);
  if (num_devices_ == 0) return "the NVIDIA driver finds no GPU";
  return {};
}

std::string CudaDriver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (calls_.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "error " + std::to_string(static_cast<int>(result));
  if (calls_.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

void CudaDriver::check(CUresult result, std::string_view call, std::string_view asked) const {
  if (result == CUDA_SUCCESS) return;
  const std::string_view symbol = symbol_of(call);
  throw CudaError(result, symbol,
                  "the GPU's driver failed in " + std::string(symbol) +
                      (asked.empty() ? "" : " " + std::string(asked)) + ": " + describe(result));
}

}  // namespace weightpress::device
