#include "device/driver/gpu.h"

#include <array>
#include <string>

#include "device/text.h"

namespace weightpress::device {
namespace {

std::string of_bytes(std::uint64_t bytes) {
  return "of " + std::to_string(bytes) + " bytes";
}

std::string of_device(int number) {
  return "for GPU " + std::to_string(number);
}

int attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute which, int number) {
  int value = 0;
  WP_CUDA_CHECK(driver, device_get_attribute, of_device(number), &value, which, device);
  return value;
}

}  // namespace

GpuInfo gpu_info(const CudaDriver& driver, int number) {
  GpuInfo info;
  info.number = number;
  CUdevice device = 0;
  WP_CUDA_CHECK(driver, device_get, of_device(number), &device, number);
  std::array<char, 256> name{};
  WP_CUDA_CHECK(driver, device_get_name, of_device(number), name.data(), static_cast<int>(name.size()) - 1,
                device);
  info.name = printable_text(name.data());
  info.arch = 10 * attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number) +
              attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number);
  std::size_t bytes = 0;
  WP_CUDA_CHECK(driver, device_total_mem, of_device(number), &bytes, device);
  info.memory_bytes = bytes;
  info.num_multiprocessors = attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, number);
  info.num_copy_engines = attribute(driver, device, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, number);
  info.max_shared_bytes =
      attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, number);
  return info;
}

// ---- Gpu

Gpu::Gpu(const CudaDriver& driver, int number) : driver_(driver), info_(gpu_info(driver, number)) {
  WP_CUDA_CHECK(driver_, device_get, of_device(number), &device_, number);
  WP_CUDA_CHECK(driver_, device_primary_ctx_retain, of_device(number), &context_, device_);
  try {
    use();
  } catch (...) {
    driver_.calls().device_primary_ctx_release(device_);
    throw;
  }
}

Gpu::~Gpu() {
  CUcontext current = nullptr;
  if (driver_.calls().ctx_get_current(&current) == CUDA_SUCCESS && current == context_)
    driver_.calls().ctx_set_current(nullptr);
  driver_.calls().device_primary_ctx_release(device_);
}

void Gpu::use() const {
  WP_CUDA_CHECK(driver_, ctx_set_current, of_device(info_.number), context_);
}

Gpu::Memory Gpu::memory() const {
  std::size_t free = 0, total = 0;
  WP_CUDA_CHECK(driver_, mem_get_info, {}, &free, &total);
  return {free, total};
}

void Gpu::synchronize() const {
  driver_.check(driver_.calls().ctx_synchronize(), "ctx_synchronize");
}

// ---- Event

Event::Event(const Gpu& gpu, Timing timing) : gpu_(&gpu) {
  CUevent event = nullptr;
  const unsigned flags = timing == Timing::kYes ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  WP_CUDA_CHECK(gpu.driver(), event_create, {}, &event, flags);
  event_ = {event, gpu.driver().calls().event_destroy};
}

bool Event::is_done() const {
  const CUresult result = gpu_->driver().calls().event_query(get());
  if (result == CUDA_ERROR_NOT_READY) return false;
  gpu_->driver().check(result, "event_query");
  return true;
}

void Event::wait() const {
  WP_CUDA_CHECK(gpu_->driver(), event_synchronize, {}, get());
}

double Event::milliseconds_to(const Event& later) const {
  float milliseconds = 0;
  WP_CUDA_CHECK(gpu_->driver(), event_elapsed_time, {}, &milliseconds, get(), later.get());
  return milliseconds;
}

// ---- memory

DeviceBuffer::DeviceBuffer(const Gpu& gpu, std::uint64_t bytes) : size_bytes_(bytes) {
  if (bytes == 0) return;
  CUdeviceptr memory = 0;
  WP_CUDA_CHECK(gpu.driver(), mem_alloc, of_bytes(bytes), &memory, bytes);
  memory_ = {memory, gpu.driver().calls().mem_free};
}

PinnedBuffer::PinnedBuffer(const Gpu& gpu, std::uint64_t bytes) : gpu_(&gpu), size_bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  WP_CUDA_CHECK(gpu.driver(), mem_host_alloc, of_bytes(bytes), &memory, bytes,
                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  memory_ = {memory, gpu.driver().calls().mem_free_host};
}

CUdeviceptr PinnedBuffer::device_address() const {
  CUdeviceptr address = 0;
  if (data() != nullptr)
    WP_CUDA_CHECK(gpu_->driver(), mem_host_get_device_pointer, of_bytes(size_bytes_), &address, data(), 0);
  return address;
}

// ---- modules

int Kernel::attribute(CUfunction_attribute which) const {
  int value = 0;
  WP_CUDA_CHECK(gpu_->driver(), func_get_attribute, "of kernel " + name_, &value, which, function_);
  return value;
}

void Kernel::allow_shared_bytes(unsigned bytes) const {
  WP_CUDA_CHECK(gpu_->driver(), func_set_attribute,
                "of kernel " + name_ + " (" + std::to_string(bytes) + " bytes of shared memory)", function_,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(bytes));
}

int Kernel::max_active_blocks(const LaunchShape& shape) const {
  int blocks = 0;
  WP_CUDA_CHECK(gpu_->driver(), occupancy_max_active_blocks, "of kernel " + name_, &blocks, function_,
                static_cast<int>(shape.num_threads), shape.shared_bytes);
  return blocks;
}

GpuModule::GpuModule(const Gpu& gpu, const void* image) : gpu_(&gpu) {
  std::array<char, 4096> log{};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver wants it
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule module = nullptr;
  const CUresult result = gpu.driver().calls().module_load_data_ex(&module, image, 2, options, values);
  const std::string said = printable_text(log.data());
  gpu.driver().check(result, "module_load_data_ex", said.empty() ? "" : "(" + said + ")");
  module_ = {module, gpu.driver().calls().module_unload};
}

Kernel GpuModule::kernel(const std::string& name) const {
  CUfunction function = nullptr;
  WP_CUDA_CHECK(gpu_->driver(), module_get_function, "for kernel " + name, &function, module_.get(),
                name.c_str());
  return {*gpu_, function, name};
}

// ---- Stream

Stream::Stream(const Gpu& gpu) : gpu_(&gpu) {
  CUstream stream = nullptr;
  WP_CUDA_CHECK(gpu.driver(), stream_create, {}, &stream, CU_STREAM_NON_BLOCKING);
  stream_ = {stream, gpu.driver().calls().stream_destroy};
}

void Stream::copy_to_device(CUdeviceptr to, const void* from, std::uint64_t bytes) const {
  if (bytes != 0) WP_CUDA_CHECK(gpu_->driver(), memcpy_htod_async, of_bytes(bytes), to, from, bytes, get());
}

void Stream::copy_to_host(void* to, CUdeviceptr from, std::uint64_t bytes) const {
  if (bytes != 0) WP_CUDA_CHECK(gpu_->driver(), memcpy_dtoh_async, of_bytes(bytes), to, from, bytes, get());
}

void Stream::copy_on_device(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes) const {
  if (bytes != 0) WP_CUDA_CHECK(gpu_->driver(), memcpy_dtod_async, of_bytes(bytes), to, from, bytes, get());
}

void Stream::fill(CUdeviceptr to, std::uint8_t value, std::uint64_t bytes) const {
  if (bytes != 0) WP_CUDA_CHECK(gpu_->driver(), memset_d8_async, of_bytes(bytes), to, value, bytes, get());
}

void Stream::launch_places(const Kernel& kernel, const LaunchShape& shape, void** places) const {
  WP_CUDA_CHECK(gpu_->driver(), launch_kernel,
                "of " + kernel.name() + " (" + std::to_string(shape.num_blocks) + " blocks of " +
                    std::to_string(shape.num_threads) + " threads, " + std::to_string(shape.shared_bytes) +
                    " bytes of shared memory)",
                kernel.get(), shape.num_blocks, 1, 1, shape.num_threads, 1, 1, shape.shared_bytes, get(),
                places, nullptr);
}

void Stream::record(const Event& event) const {
  WP_CUDA_CHECK(gpu_->driver(), event_record, {}, event.get(), get());
}

void Stream::wait_for(const Event& event) const {
  WP_CUDA_CHECK(gpu_->driver(), stream_wait_event, {}, get(), event.get(), 0);
}

void Stream::wait() const {
  WP_CUDA_CHECK(gpu_->driver(), stream_synchronize, {}, get());
}

}  // namespace weightpress::device
