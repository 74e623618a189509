// A device of the emulated machine: its memory, its numbers, what it has allocated.
//
// Addresses are the interpreter's: an allocation's number from bit 36 on. Numbers begin above those that a
// pointer of a 64-bit Linux process has there (47 bits), so that no pointer of the host is an address of a
// device, nor the other way round; each device has numbers of its own.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <cuda.h>

#include "ptxvm/memory.h"
#include "settings.h"

namespace weightpress::cuda_driver {

constexpr std::uint64_t kNumHostNumbers = std::uint64_t{1} << (47 - ptxvm::kAllocationShift);
constexpr std::uint64_t kFirstDeviceNumber = ptxvm::kFirstAllocation + kNumHostNumbers;
constexpr std::uint64_t kNumbersPerDevice = 8192;

/// Whether a value can only be an address of some device, not of the host.
constexpr bool looks_like_device_address(std::uint64_t value) {
  return value >> ptxvm::kAllocationShift >= kFirstDeviceNumber;
}

struct FreeBytes {
  void operator()(std::uint8_t* bytes) const { std::free(bytes); }
};
using HostBytes = std::unique_ptr<std::uint8_t, FreeBytes>;
/// Not written to, so large ones cost nothing until they are used; nullptr if there is no memory.
HostBytes allocate_host_bytes(std::uint64_t bytes, std::uint64_t align);

struct DeviceAllocation {
  std::uint64_t bytes = 0;
  std::uint64_t context = 0;
  bool is_stream_ordered = false;
  bool is_being_freed = false;  ///< by cuMemFreeAsync
  HostBytes own;                ///< empty if the interpreter's memory has them
};

/// Limits that follow from the compute capability.
struct Limits {
  int threads_per_multiprocessor = 1536;
  int blocks_per_multiprocessor = 16;
  int shared_per_multiprocessor = 100 << 10;
  int shared_per_block_optin = 99 << 10;
};

class Device {
 public:
  Device(std::uint32_t index, const Settings& settings);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::uint32_t index() const { return index_; }
  const Limits& limits() const { return limits_; }
  ptxvm::Memory& memory() { return memory_; }
  std::uint64_t total_bytes() const { return settings_.memory_bytes; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  /// Of stream-ordered allocations.
  std::uint64_t pool_bytes() const { return pool_bytes_; }
  std::uint64_t pool_high_bytes() const { return pool_high_bytes_; }
  void reset_pool_high() { pool_high_bytes_ = pool_bytes_; }
  std::uint64_t free_bytes() const { return total_bytes() - used_bytes_; }

  /// The address, or nothing if there is no room. Memory is rounded up to kGranularity for the account.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t context, bool is_stream_ordered);
  static constexpr std::uint64_t kGranularity = 512;
  /// Overwrites an allocation with a pattern, as if somebody else had used it; it counts as uninitialised.
  void spoil(std::uint64_t address, std::uint8_t pattern);
  /// Larger ones are not spoilt: that would fill the memory of the build machine.
  static constexpr std::uint64_t kMostSpoiltBytes = std::uint64_t{64} << 20;
  /// Flips one bit of all that is allocated; says where, or nothing if there is no memory.
  std::string flip_bit(std::uint64_t random);
  DeviceAllocation* find(std::uint64_t address);  ///< that begins there
  bool release(std::uint64_t address);
  /// Frees all that a context has; how many those were.
  std::uint64_t release_all(std::uint64_t context);
  /// Memory that a context takes for itself; false if there is no room.
  bool take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes) { used_bytes_ -= bytes; }

  std::optional<int> attribute(CUdevice_attribute attribute) const;

  // The primary context.
  std::uint64_t context = 0;  ///< 0: none
  std::uint64_t num_retains = 0;
  unsigned context_flags = 0;
  CUresult lost = CUDA_SUCCESS;  ///< every call that needs the device gives this
  std::uint64_t release_threshold = 0;

 private:
  const std::uint32_t index_;
  const Settings& settings_;
  const Limits limits_;
  std::map<std::uint64_t, DeviceAllocation> allocations_;  // before memory_, which points into them
  ptxvm::Memory memory_;
  std::uint64_t used_bytes_ = 0, pool_bytes_ = 0, pool_high_bytes_ = 0;
};

}  // namespace weightpress::cuda_driver
