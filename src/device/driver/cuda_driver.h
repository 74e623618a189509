// The CUDA driver of this machine, found at run time: the same binary runs where there is none.
//
// Every call is checked. A failure is a CudaError: the call, the driver's name and text for the code, and
// what was asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <cuda.h>

#include <weightpress/error.h>

#include "device/driver/cuda_calls.h"

namespace weightpress::device {

/// A call that the driver refused.
class CudaError : public Error {
 public:
  CudaError(CUresult result, std::string_view call, const std::string& message)
      : Error(result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kOutOfMemory : ErrorCode::kDeviceFailed,
              message),
        result_(result),
        call_(call) {}

  CUresult result() const { return result_; }
  const std::string& call() const { return call_; }

 private:
  CUresult result_;
  std::string call_;
};

class CudaDriver {
 public:
  struct Calls {
#define WP_CUDA_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
    WP_CUDA_CALLS(WP_CUDA_MEMBER)
#undef WP_CUDA_MEMBER
  };

  /// Loaded and initialised with the first call, once for the process. nullptr if there is none that can be
  /// used; why_not is then a clause. Thread-safe.
  static const CudaDriver* find(std::string* why_not = nullptr);

  const Calls& calls() const { return calls_; }
  int version() const { return version_; }  ///< 1000 * major + 10 * minor, of the newest CUDA that it knows
  const std::string& path() const { return path_; }  ///< of the library
  int num_devices() const { return num_devices_; }

  /// Throws CudaError unless the result is CUDA_SUCCESS. asked: what the call was for, e.g. "of 4096 bytes";
  /// may be empty.
  void check(CUresult result, std::string_view call, std::string_view asked = {}) const;
  /// "CUDA_ERROR_INVALID_VALUE (invalid argument)"
  std::string describe(CUresult result) const;

 private:
  CudaDriver() = default;
  /// Returns why it cannot be used; empty: it can.
  std::string load();

  Calls calls_;
  int version_ = 0, num_devices_ = 0;
  std::string path_;
};

/// driver.check(driver.calls().member(arguments...)), with the call's name.
#define WP_CUDA_CHECK(driver, member, asked, ...) \
  (driver).check((driver).calls().member(__VA_ARGS__), #member, asked)

std::string cuda_version_text(int version);  ///< "13.0"

}  // namespace weightpress::device
