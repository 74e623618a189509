#include "ptxvm/memory.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kAlignBytes = 256;
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kAllocationShift) - 1;
// A number that was freed is used again only after so many others, so that dangling pointers point nowhere
// for long.
constexpr std::size_t kNumbersKeptBack = 4096;

}  // namespace

Memory::Memory() = default;
Memory::~Memory() = default;

std::uint64_t Memory::insert(Allocation allocation) {
  allocation.is_live = true;
  allocation.slack_reads = std::make_unique<std::atomic<std::uint64_t>>(0);
  auto kept = std::make_unique<Allocation>(std::move(allocation));
  const std::lock_guard lock(mutex_);
  std::uint64_t number = allocations_.size();
  if (free_numbers_.size() > kNumbersKeptBack) {
    number = free_numbers_.front();
    free_numbers_.pop_front();
    allocations_[number] = std::move(kept);
  } else {
    allocations_.push_back(std::move(kept));
  }
  return (number + kFirstAllocation) << kAllocationShift;
}

std::uint64_t Memory::allocate(std::uint64_t bytes, AllocationOptions options) {
  if (bytes > kMaxAllocationBytes) throw std::bad_alloc();
  Allocation allocation;
  allocation.owned.resize(bytes + kAlignBytes);
  void* begin = allocation.owned.data();
  std::size_t room = allocation.owned.size();
  allocation.bytes = static_cast<std::uint8_t*>(std::align(kAlignBytes, bytes, begin, room));
  allocation.size_bytes = bytes;
  if (options.starts_uninitialised) {
    allocation.owned_marks.resize(bytes);
    allocation.initialised = allocation.owned_marks.data();
  }
  allocation.is_writable = !options.read_only;
  allocation.slack_bytes = options.slack_bytes;
  allocation.slack_value = options.slack_value;
  allocation.name = std::move(options.name);
  return insert(std::move(allocation));
}

std::uint64_t Memory::adopt(std::span<std::uint8_t> bytes, AllocationOptions options) {
  assert(reinterpret_cast<std::uintptr_t>(bytes.data()) % 16 == 0 && bytes.size() <= kMaxAllocationBytes);
  Allocation allocation;
  allocation.bytes = bytes.data();
  allocation.size_bytes = bytes.size();
  allocation.is_writable = !options.read_only;
  allocation.slack_bytes = options.slack_bytes;
  allocation.slack_value = options.slack_value;
  allocation.name = std::move(options.name);
  return insert(std::move(allocation));
}

std::uint64_t Memory::adopt(std::span<const std::uint8_t> bytes, AllocationOptions options) {
  options.read_only = true;
  return adopt(std::span(const_cast<std::uint8_t*>(bytes.data()), bytes.size()), std::move(options));
}

bool Memory::free(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = (address >> kAllocationShift) - kFirstAllocation;
  if ((address & kOffsetMask) != 0 || number >= allocations_.size() || !allocations_[number]->is_live)
    return false;
  Allocation gone;
  gone.name = allocations_[number]->name + " (freed)";
  *allocations_[number] = std::move(gone);
  free_numbers_.push_back(number);
  return true;
}

const Memory::Allocation* Memory::find(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = (address >> kAllocationShift) - kFirstAllocation;
  return number < allocations_.size() ? allocations_[number].get() : nullptr;
}

std::uint8_t* Memory::host_pointer(std::uint64_t address, std::uint64_t bytes) {
  const Allocation* allocation = find(address);
  const std::uint64_t offset = address & kOffsetMask;
  if (allocation == nullptr || !allocation->is_live || offset > allocation->size_bytes ||
      bytes > allocation->size_bytes - offset) {
    return nullptr;
  }
  return allocation->bytes + offset;
}

void Memory::mark_initialised(std::uint64_t address, std::uint64_t bytes) {
  if (host_pointer(address, bytes) == nullptr || bytes == 0) return;
  const Allocation* allocation = find(address);
  if (allocation->initialised != nullptr)
    std::memset(allocation->initialised + (address & kOffsetMask), 1, bytes);
}

bool Memory::write(std::uint64_t address, std::span<const std::uint8_t> bytes) {
  std::uint8_t* const to = host_pointer(address, bytes.size());
  if (to == nullptr || !find(address)->is_writable) return false;
  std::copy(bytes.begin(), bytes.end(), to);
  mark_initialised(address, bytes.size());
  return true;
}

bool Memory::read(std::uint64_t address, std::span<std::uint8_t> bytes) const {
  const std::uint8_t* const from = const_cast<Memory*>(this)->host_pointer(address, bytes.size());
  if (from == nullptr) return false;
  std::copy_n(from, bytes.size(), bytes.begin());
  return true;
}

std::optional<std::uint64_t> Memory::size_of(std::uint64_t address) const {
  const Allocation* allocation = find(address);
  if (allocation == nullptr || !allocation->is_live || (address & kOffsetMask) != 0) return std::nullopt;
  return allocation->size_bytes;
}

std::uint64_t Memory::slack_reads(std::uint64_t address) const {
  const Allocation* allocation = find(address);
  return allocation == nullptr || !allocation->is_live ? 0 : allocation->slack_reads->load();
}

std::vector<const Memory::Allocation*> Memory::table() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Allocation*> table;
  table.reserve(allocations_.size());
  for (const auto& allocation : allocations_) table.push_back(allocation.get());
  return table;
}

}  // namespace weightpress::ptxvm
