// Memory for tests, of the host and of a GPU, which shows when something beside it is touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "device/driver/gpu.h"

namespace weightpress::device {

/// Host memory with guards around it.
template <class T>
class GuardedSpan {
 public:
  explicit GuardedSpan(std::uint64_t count) : count_(count), memory_(bytes_of(count), kUntouched) {}

  std::span<T> get() { return {reinterpret_cast<T*>(memory_.data() + kGuardBytes), count_}; }
  std::span<const T> get() const {
    return {reinterpret_cast<const T*>(memory_.data() + kGuardBytes), count_};
  }
  bool is_intact() const {
    const auto is_untouched = [](std::uint8_t byte) { return byte == kUntouched; };
    return std::ranges::all_of(std::span(memory_).first(kGuardBytes), is_untouched) &&
           std::ranges::all_of(std::span(memory_).last(kGuardBytes), is_untouched);
  }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::uint8_t kUntouched = 0xA5;

  static std::size_t bytes_of(std::uint64_t count) { return 2 * kGuardBytes + count * sizeof(T); }

  std::uint64_t count_;
  std::vector<std::uint8_t> memory_;
};

/// Values in device memory, the first of them `offset` of them after a multiple of 256 bytes. What is read
/// before or after them was never written, or is out of bounds.
template <class T>
class DeviceValues {
 public:
  DeviceValues(const Gpu& gpu, std::span<const T> values, std::uint64_t offset = 0)
      : gpu_(gpu), count_(values.size()), offset_(offset), memory_(gpu, (offset + count_) * sizeof(T)) {
    const Stream stream(gpu);
    stream.copy_to_device(get(), values.data(), values.size_bytes());
    stream.wait();
  }

  CUdeviceptr get() const { return memory_.get() + offset_ * sizeof(T); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    const Stream stream(gpu_);
    stream.copy_to_host(values.data(), get(), count_ * sizeof(T));
    stream.wait();
    return values;
  }

 private:
  const Gpu& gpu_;
  std::uint64_t count_, offset_;
  DeviceBuffer memory_;
};

/// Device memory for outputs, with guards around it. Aligned to 256.
template <class T>
class GuardedDeviceSpan {
 public:
  GuardedDeviceSpan(const Gpu& gpu, std::uint64_t count)
      : count_(count),
        memory_(gpu, std::vector<std::uint8_t>(2 * kGuardBytes + count * sizeof(T), kUntouched)) {}

  CUdeviceptr get() const { return memory_.get() + kGuardBytes; }
  /// The values; is_intact: whether both guards are.
  std::vector<T> read(bool& is_intact) const {
    const std::vector<std::uint8_t> bytes = memory_.read();
    const auto is_untouched = [](std::uint8_t byte) { return byte == kUntouched; };
    is_intact = std::ranges::all_of(std::span(bytes).first(kGuardBytes), is_untouched) &&
                std::ranges::all_of(std::span(bytes).last(kGuardBytes), is_untouched);
    std::vector<T> values(count_);
    if (count_ != 0) std::memcpy(values.data(), bytes.data() + kGuardBytes, count_ * sizeof(T));
    return values;
  }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::uint8_t kUntouched = 0xA5;

  std::uint64_t count_;
  DeviceValues<std::uint8_t> memory_;
};

}  // namespace weightpress::device
