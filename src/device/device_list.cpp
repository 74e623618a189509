// include/weightpress/devices.h: what the driver says, and whether a kernel of ours runs right.
#include "device/device_list.h"

#include <algorithm>
#include <vector>

#include <weightpress/devices.h>

#include "device/compare_stage.h"
#include "device/driver/cuda_driver.h"
#include "device/driver/gpu.h"
#include "device/embedded_kernels.h"
#include "device/gpu_kernels.h"

namespace weightpress::device {
namespace {

// Of the buffers that are compared.
constexpr std::uint64_t kTriedBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kTriedOffsets[] = {1, kTriedBytes / 3, kTriedBytes - 1};

/// Two buffers that differ in known places, through every part that later work needs: module, stream, pinned
/// and device memory, copies, kernel, event. Returns what is wrong; empty: nothing.
std::string try_kernel(const Gpu& gpu, const GpuKernels& kernels) {
  CompareStage compare(gpu, kernels);
  const Stream stream(gpu);
  const Event copied(gpu);
  const DeviceBuffer d_a(gpu, kTriedBytes), d_b(gpu, kTriedBytes);
  const PinnedBuffer bytes(gpu, kTriedBytes);
  for (std::uint64_t i = 0; i < kTriedBytes; ++i)
    bytes.data()[i] = static_cast<std::uint8_t>(i * 0x9E3779B1U >> 13);
  stream.copy_to_device(d_a.get(), bytes.data(), kTriedBytes);
  stream.record(copied);
  copied.wait();
  for (const std::uint64_t offset : kTriedOffsets) bytes.data()[offset] ^= 1;
  stream.copy_to_device(d_b.get(), bytes.data(), kTriedBytes);
  compare.enqueue(stream, d_a.get(), d_b.get(), kTriedBytes);
  stream.wait();
  const Comparison found = compare.result();
  if (found.num_different == std::size(kTriedOffsets) && found.first_different == kTriedOffsets[0]) return {};
  return "it computes wrong results: of 3 bytes that differ, from byte 1 on, it found " +
         std::to_string(found.num_different) + ", the first at " + std::to_string(found.first_different);
}

DeviceReport report_on(const CudaDriver& driver, int number) {
  DeviceReport report;
  report.number = number;
  try {
    const GpuInfo info = gpu_info(driver, number);
    report.name = info.name;
    report.arch = "sm_" + std::to_string(info.arch);
    report.memory_bytes = info.memory_bytes;
    report.num_multiprocessors = info.num_multiprocessors;
    report.num_copy_engines = info.num_copy_engines;
    const Gpu gpu(driver, number);
    report.free_bytes = gpu.memory().free_bytes;
    if (embedded_images().empty()) {
      report.problem = std::string(why_no_kernels());
      return report;
    }
    const GpuKernels kernels(gpu);
    report.kernels = kernels.image();
    report.notes = kernels.notes();
    report.problem = try_kernel(gpu, kernels);
  } catch (const Error& error) {
    report.problem = error.what();
  }
  return report;
}

}  // namespace

void add_devices(DevicesReport& report) {
  report.has_kernels = !embedded_images().empty();
  report.why_no_kernels = why_no_kernels();
  const CudaDriver* const driver = CudaDriver::find(&report.why_no_driver);
  if (driver == nullptr) return;
  report.driver_path = driver->path();
  report.driver_cuda = cuda_version_text(driver->version());
  for (int number = 0; number < driver->num_devices(); ++number)
    report.devices.push_back(report_on(*driver, number));
}

}  // namespace weightpress::device
