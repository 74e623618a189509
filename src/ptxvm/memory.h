// The memory of an emulated GPU: allocations in an address space of their own.
//
// An address holds its allocation's number from bit 36 on and the offset below, so that an access is checked
// with one look into a table, runs over no end into another allocation, and means nothing to the host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/result.h"

namespace weightpress::ptxvm {

constexpr int kAllocationShift = 36;
constexpr std::uint64_t kMaxAllocationBytes = std::uint64_t{1} << (kAllocationShift - 1);
/// The windows of generic addresses to shared and local memory (PTX ISA, "Generic addressing").
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << kAllocationShift;
constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << kAllocationShift;
constexpr std::uint64_t kParamWindow = std::uint64_t{3} << kAllocationShift;
constexpr std::uint64_t kFirstAllocation = 4;  ///< numbers below are windows; 0 holds the null pointer

struct AllocationOptions {
  std::string name;  ///< as faults call it
  bool read_only = false;
  /// Whether reading what nothing has written is a fault under LaunchOptions::check_initialised. write() and
  /// kernels write.
  bool starts_uninitialised = false;
  /// Bytes past the end that kernels may read, which is counted: they read as slack_value.
  std::uint32_t slack_bytes = 0;
  std::uint8_t slack_value = 0;
};

/// Safe to use from several threads, as long as no allocation is freed while a launch can reach it.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Zeroed bytes of its own, aligned to 256. Throws std::bad_alloc. `bytes` may be 0, and is at most
  /// kMaxAllocationBytes.
  std::uint64_t allocate(std::uint64_t bytes, AllocationOptions options = {});
  /// Bytes that belong to the caller, who keeps them until free(): not copied, counts as initialised. Aligned
  /// to 16.
  std::uint64_t adopt(std::span<std::uint8_t> bytes, AllocationOptions options = {});
  /// As adopt(), read-only.
  std::uint64_t adopt(std::span<const std::uint8_t> bytes, AllocationOptions options = {});
  /// Returns false if no allocation begins at the address.
  bool free(std::uint64_t address);

  /// The bytes at an address, all inside one allocation, or nullptr. The host may read and write them.
  std::uint8_t* host_pointer(std::uint64_t address, std::uint64_t bytes);
  /// Marks bytes as written, after the host wrote through host_pointer().
  void mark_initialised(std::uint64_t address, std::uint64_t bytes);
  /// Both return false, and do nothing, if the range is not inside one allocation (or read-only, for
  /// write()).
  bool write(std::uint64_t address, std::span<const std::uint8_t> bytes);
  bool read(std::uint64_t address, std::span<std::uint8_t> bytes) const;

  /// The size in bytes of the allocation that begins at an address; nothing is there: nullopt.
  std::optional<std::uint64_t> size_of(std::uint64_t address) const;
  /// How often kernels read past the end of it, inside its slack; per lane and access.
  std::uint64_t slack_reads(std::uint64_t address) const;

  /// For the interpreter.
  struct Allocation {
    std::uint8_t* bytes = nullptr;
    std::uint64_t size_bytes = 0;
    bool is_writable = false;
    std::uint32_t slack_bytes = 0;
    std::uint8_t slack_value = 0;
    std::uint8_t* initialised = nullptr;  ///< a byte each, not 0 once it is written; nullptr: all are
    std::string name;
    std::vector<std::uint8_t> owned;
    std::vector<std::uint8_t> owned_marks;
    std::unique_ptr<std::atomic<std::uint64_t>> slack_reads;
    bool is_live = false;
  };
  const Allocation* find(std::uint64_t address) const;
  /// By allocation number minus kFirstAllocation. A snapshot for one launch: stable while nothing is
  /// allocated or freed.
  std::vector<const Allocation*> table() const;

 private:
  std::uint64_t insert(Allocation allocation);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Allocation>> allocations_;
  std::deque<std::uint64_t>
      free_numbers_;  // used again from the front, late, so that dangling pointers are caught
};

}  // namespace weightpress::ptxvm
