// A GPU, and what lives on it. Objects belong to the GPU's primary context, which a Gpu holds; it has to
// outlive them.
//
// Calls are made by the thread for which use() was called last. Destructors never throw: what a broken GPU no
// longer takes back is lost with its context.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/driver/cuda_driver.h"

namespace weightpress::device {

/// What a GPU says of itself.
struct GpuInfo {
  int number = 0;  ///< of the driver, from 0
  std::string name;
  int arch = 0;  ///< compute capability, 10 * major + minor
  std::uint64_t memory_bytes = 0;
  int num_multiprocessors = 0;
  int num_copy_engines = 0;
  int max_shared_bytes = 0;  ///< of a block, on request
};

/// Without a context. Throws CudaError.
GpuInfo gpu_info(const CudaDriver& driver, int number);

class Gpu {
 public:
  /// Takes the primary context, which the process's other users of the GPU share, and calls use(). Throws
  /// CudaError.
  Gpu(const CudaDriver& driver, int number);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Makes the context that of the calling thread.
  void use() const;
  const CudaDriver& driver() const { return driver_; }
  const GpuInfo& info() const { return info_; }

  struct Memory {
    std::uint64_t free_bytes = 0, total_bytes = 0;
  };
  Memory memory() const;
  /// Waits for all that was given to it.
  void synchronize() const;

 private:
  const CudaDriver& driver_;
  const GpuInfo info_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// A handle that is given back once. Move-only.
template <class Handle>
class Owned {
 public:
  using GiveBack = CUresult (*)(Handle);

  Owned() = default;
  Owned(Handle handle, GiveBack give_back) : handle_(handle), give_back_(give_back) {}
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, Handle{})),
        give_back_(std::exchange(other.give_back_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(give_back_, other.give_back_);
    return *this;
  }
  ~Owned() {
    if (give_back_ != nullptr) give_back_(handle_);
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_{};
  GiveBack give_back_ = nullptr;
};

class Event {
 public:
  enum class Timing : std::uint8_t { kNo, kYes };
  explicit Event(const Gpu& gpu, Timing timing = Timing::kNo);

  CUevent get() const { return event_.get(); }
  bool is_done() const;  ///< all before its last record() is
  void wait() const;     ///< until it is
  /// From this one to a later one, both done and with timing.
  double milliseconds_to(const Event& later) const;

 private:
  const Gpu* gpu_;
  Owned<CUevent> event_;
};

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// bytes may be 0: then there is no memory. Throws CudaError, kOutOfMemory if there is not enough.
  DeviceBuffer(const Gpu& gpu, std::uint64_t bytes);

  CUdeviceptr get() const { return memory_.get(); }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::uint64_t size_bytes_ = 0;
  Owned<CUdeviceptr> memory_;
};

/// Memory of the host that GPUs reach by themselves: copies to and from it run beside everything else.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const Gpu& gpu, std::uint64_t bytes);

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(memory_.get()); }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::span<std::uint8_t> bytes() const { return {data(), size_bytes_}; }
  /// By which kernels on the current GPU reach it.
  CUdeviceptr device_address() const;

 private:
  const Gpu* gpu_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  Owned<void*> memory_;
};

struct LaunchShape {
  unsigned num_blocks = 1, num_threads = 1;  ///< of a block
  unsigned shared_bytes = 0;                 ///< dynamic
};

class Kernel {
 public:
  Kernel(const Gpu& gpu, CUfunction function, std::string name)
      : gpu_(&gpu), function_(function), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  CUfunction get() const { return function_; }
  int attribute(CUfunction_attribute attribute) const;
  /// Launches may ask for as much dynamic shared memory from now on: more than 48 KiB want that.
  void allow_shared_bytes(unsigned bytes) const;
  /// Blocks that a multiprocessor runs at once.
  int max_active_blocks(const LaunchShape& shape) const;

 private:
  const Gpu* gpu_;
  CUfunction function_;
  std::string name_;
};

class GpuModule {
 public:
  /// image: a cubin for the GPU, or PTX text that ends with a 0. Throws CudaError, with what the driver's
  /// compiler says.
  GpuModule(const Gpu& gpu, const void* image);

  /// Throws CudaError if there is none of that name.
  Kernel kernel(const std::string& name) const;

 private:
  const Gpu* gpu_;
  Owned<CUmodule> module_;
};

/// Work in order. Nothing waits but wait(): memory that is copied has to stay until then, or an event after
/// it.
class Stream {
 public:
  explicit Stream(const Gpu& gpu);

  CUstream get() const { return stream_.get(); }
  void copy_to_device(CUdeviceptr to, const void* from, std::uint64_t bytes) const;
  void copy_to_host(void* to, CUdeviceptr from, std::uint64_t bytes) const;
  void copy_on_device(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes) const;
  void fill(CUdeviceptr to, std::uint8_t value, std::uint64_t bytes) const;
  /// arguments: their values, in the kernel's order and types.
  template <class... Arguments>
  void launch(const Kernel& kernel, const LaunchShape& shape, Arguments... arguments) const {
    void* places[] = {static_cast<void*>(&arguments)..., nullptr};
    launch_places(kernel, shape, places);
  }
  void record(const Event& event) const;
  void wait_for(const Event& event) const;  ///< the stream does, not the caller
  void wait() const;                        ///< the caller

 private:
  void launch_places(const Kernel& kernel, const LaunchShape& shape, void** places) const;

  const Gpu* gpu_;
  Owned<CUstream> stream_;
};

}  // namespace weightpress::device
