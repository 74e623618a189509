#include "ptxvm/lane_access.h"

#include <array>
#include <cstdio>
#include <string_view>

#include "ptxvm/access_log.h"
#include "ptxvm/shared_shadow.h"

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kAllocationShift) - 1;

std::string hex(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string access_of(std::uint32_t bytes, AccessType type) {
  const std::string_view verb = type == AccessType::kLoad    ? "a read of "
                                : type == AccessType::kStore ? "a write of "
                                                             : "an atomic operation on ";
  return std::string(verb) + std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string name_of(const Memory::Allocation& allocation, std::uint64_t address) {
  return allocation.name.empty() ? "the allocation at " + hex(address & ~kOffsetMask) : allocation.name;
}

std::uint8_t* refuse(Machine& machine, FaultKind kind, std::string what) {
  machine.fault = PendingFault{kind, std::move(what)};
  return nullptr;
}

/// In a window of `window_bytes` that begins at kWindowBase.
std::uint8_t* locate_in_window(Machine& machine, std::string_view name, std::uint8_t* window,
                               std::uint64_t window_bytes, std::uint64_t address, std::uint32_t bytes,
                               AccessType type) {
  const std::uint64_t offset = address - kWindowBase;
  if (offset < window_bytes && bytes <= window_bytes - offset) {
    if (offset % bytes == 0) return window + offset;
    return refuse(machine, FaultKind::kMisaligned,
                  access_of(bytes, type) + " at offset " + std::to_string(offset) + " of " +
                      std::string(name) + " memory, which is not a multiple of " + std::to_string(bytes));
  }
  std::string where = " at ";
  const auto from_begin = static_cast<std::int64_t>(offset);
  if (from_begin < 0) {
    where += from_begin >= -static_cast<std::int64_t>(kWindowBase)
                 ? std::to_string(-from_begin) + " bytes before the begin of "
                 : "address " + hex(address) + ", outside ";
  } else {
    where += "offset " + std::to_string(offset) + " of ";
  }
  return refuse(machine, FaultKind::kOutOfBounds,
                access_of(bytes, type) + where + std::string(name) + " memory, which has " +
                    std::to_string(window_bytes) + " bytes");
}

std::uint8_t* locate_in_allocation(Machine& machine, std::uint64_t address, std::uint32_t bytes,
                                   AccessType type) {
  const std::uint64_t number = (address >> kAllocationShift) - kFirstAllocation;
  std::uint64_t offset = address & kOffsetMask;
  const bool is_store = type != AccessType::kLoad;
  // A little before the begin of an allocation is far behind the one before.
  constexpr std::uint64_t kNear = std::uint64_t{1} << (kAllocationShift - 1);
  if (offset >= kNear && number + 1 < machine.num_allocations && machine.details[number + 1]->is_live) {
    const Memory::Allocation& next = *machine.details[number + 1];
    return refuse(machine, FaultKind::kOutOfBounds,
                  access_of(bytes, type) + " at " + std::to_string(kOffsetMask + 1 - offset) +
                      " bytes before the begin of " +
                      (next.name.empty() ? hex(address + kOffsetMask + 1 - offset) : next.name));
  }
  if (number >= machine.num_allocations) {
    return refuse(machine, FaultKind::kOutOfBounds,
                  access_of(bytes, type) + " at address " + hex(address) +
                      (address < kOffsetMask + 1 ? ", which is the null pointer or near it"
                                                 : ", where nothing is allocated"));
  }
  const Memory::Allocation& allocation = *machine.details[number];
  const std::string name = name_of(allocation, address);
  if (!allocation.is_live) {
    return refuse(machine, FaultKind::kOutOfBounds,
                  access_of(bytes, type) + " at offset " + std::to_string(offset) + " of " + name);
  }
  if (offset % bytes != 0) {
    return refuse(machine, FaultKind::kMisaligned,
                  access_of(bytes, type) + " at offset " + std::to_string(offset) + " of " + name +
                      ", which is not a multiple of " + std::to_string(bytes));
  }
  if (offset + bytes > allocation.size_bytes) {
    if (!is_store && offset + bytes <= allocation.size_bytes + allocation.slack_bytes) {
      static thread_local std::array<std::uint8_t, 32> slack;
      slack.fill(allocation.slack_value);
      for (std::uint32_t i = 0; i < bytes && offset + i < allocation.size_bytes; ++i)
        slack[i] = allocation.bytes[offset + i];
      allocation.slack_reads->fetch_add(1, std::memory_order_relaxed);
      return slack.data();
    }
    return refuse(machine, FaultKind::kOutOfBounds,
                  access_of(bytes, type) + " at offset " + std::to_string(offset) + " of " + name +
                      ", which has " + std::to_string(allocation.size_bytes) + " bytes");
  }
  if (is_store && !allocation.is_writable) {
    return refuse(machine, FaultKind::kOutOfBounds,
                  access_of(bytes, type) + " at offset " + std::to_string(offset) + " of " + name +
                      ", which is read-only");
  }
  return allocation.bytes + offset;
}

/// The space that a generic address lies in, and the address in that space.
Space resolve(std::uint64_t& address) {
  switch (address >> kAllocationShift) {
    case kSharedWindow >> kAllocationShift:
      address -= kSharedWindow;
      return Space::kShared;
    case kLocalWindow >> kAllocationShift:
      address -= kLocalWindow;
      return Space::kLocal;
    case kParamWindow >> kAllocationShift:
      address -= kParamWindow;
      return Space::kParam;
    default:
      return Space::kGlobal;
  }
}

/// Whether what is read was written before. Writes are remembered.
bool was_written(std::uint8_t* marks, std::uint32_t bytes, AccessType type, std::uint32_t used) {
  if (type != AccessType::kStore)
    for (std::uint32_t i = 0; i < bytes; ++i)
      if ((used >> i & 1) != 0 && __atomic_load_n(marks + i, __ATOMIC_RELAXED) == 0) return false;
  if (type != AccessType::kLoad)
    for (std::uint32_t i = 0; i < bytes; ++i) __atomic_store_n(marks + i, std::uint8_t{1}, __ATOMIC_RELAXED);
  return true;
}

bool not_written(Machine& machine, std::uint64_t offset, const std::string& name, std::uint32_t bytes,
                 AccessType type) {
  refuse(machine, FaultKind::kUninitialised,
         access_of(bytes, type) + " at offset " + std::to_string(offset) + " of " + name +
             ", which nothing has written");
  return false;
}

AccessLog::Kind kind_of(Space space, AccessType type) {
  using Kind = AccessLog::Kind;
  if (space == Space::kShared)
    return type == AccessType::kLoad    ? Kind::kSharedLoad
           : type == AccessType::kStore ? Kind::kSharedStore
                                        : Kind::kSharedAtomic;
  return type == AccessType::kLoad    ? Kind::kGlobalLoad
         : type == AccessType::kStore ? Kind::kGlobalStore
                                      : Kind::kGlobalAtomic;
}

void log_access(Machine& machine, const MicroOp& op, Space space, std::uint64_t address, std::uint32_t bytes,
                AccessType type) {
  if (machine.log == nullptr || (space != Space::kShared && space != Space::kGlobal)) return;
  machine.log->add(machine.thread, static_cast<std::uint32_t>(&op - machine.first_op), kind_of(space, type),
                   address, bytes);
}

bool note_shared(Machine& machine, std::uint64_t address, std::uint32_t bytes, AccessType type,
                 std::uint32_t used) {
  const std::uint64_t offset = address - kWindowBase;
  if (machine.shadow != nullptr) {
    using Access = SharedShadow::Access;
    const Access access = type == AccessType::kLoad    ? Access::kRead
                          : type == AccessType::kStore ? Access::kWrite
                                                       : Access::kAtomic;
    if (const auto race = machine.shadow->access(machine.thread, offset, bytes, access)) {
      const std::string_view other = race->other == Access::kRead    ? "read"
                                     : race->other == Access::kWrite ? "write"
                                                                     : "atomic operation";
      refuse(machine, FaultKind::kRace,
             access_of(bytes, type) + " at offset " + std::to_string(offset) +
                 " of shared memory races with a " + std::string(other) + " by thread " +
                 std::to_string(race->other_thread) + ": no barrier lies between them");
      return false;
    }
  }
  if (machine.shared_marks == nullptr || was_written(machine.shared_marks + offset, bytes, type, used))
    return true;
  return not_written(machine, offset, "shared memory", bytes, type);
}

bool note_global(Machine& machine, std::uint64_t address, std::uint32_t bytes, AccessType type,
                 std::uint32_t used) {
  if (!machine.checks_initialised) return true;
  const std::uint64_t number = (address >> kAllocationShift) - kFirstAllocation;
  const std::uint64_t offset = address & kOffsetMask;
  const Memory::Allocation& allocation = *machine.details[number];
  if (allocation.initialised == nullptr || offset + bytes > allocation.size_bytes) return true;
  if (was_written(allocation.initialised + offset, bytes, type, used)) return true;
  return not_written(machine, offset, name_of(allocation, address), bytes, type);
}

}  // namespace

std::uint8_t* locate(Machine& machine, Space space, std::uint64_t address, std::uint32_t bytes,
                     AccessType type, std::uint32_t bits) {
  if (space == Space::kGeneric) {
    space = resolve(address);
  } else if (space != Space::kGlobal && (bits & kNarrowAddress) != 0) {
    address = static_cast<std::uint32_t>(address);  // base and offset wrapped around
  }
  switch (space) {
    case Space::kShared:
      return locate_in_window(machine, "shared", machine.shared, machine.shared_bytes, address, bytes, type);
    case Space::kLocal:
      return locate_in_window(machine, "local", machine.local, machine.local_bytes, address, bytes, type);
    case Space::kParam: {
      if (type != AccessType::kLoad)
        return refuse(machine, FaultKind::kOutOfBounds,
                      access_of(bytes, type) + " to the kernel's parameters, which are read-only");
      auto* const parameters = const_cast<std::uint8_t*>(machine.parameters);  // only read, as just checked
      return locate_in_window(machine, "parameter", parameters, machine.parameter_bytes,
                              address + kWindowBase, bytes, type);
    }
    default:
      return locate_in_allocation(machine, address, bytes, type);
  }
}

bool note_access(Machine& machine, const MicroOp& op, Space space, std::uint64_t address, std::uint32_t bytes,
                 AccessType type) {
  if (space == Space::kGeneric) {
    space = resolve(address);
  } else if (space == Space::kShared && (op.bits & kNarrowAddress) != 0) {
    address = static_cast<std::uint32_t>(address);
  }
  if ((op.bits & kPartOfVector) == 0) log_access(machine, op, space, address, bytes, type);
  const std::uint32_t used = op.bits >> kUsedBytesShift & 0xFFFF;
  if (space == Space::kShared) return note_shared(machine, address, bytes, type, used);
  return space != Space::kGlobal || note_global(machine, address, bytes, type, used);
}

std::uint32_t vector_info(Space space, std::uint32_t bytes, AccessType type) {
  return bytes | static_cast<std::uint32_t>(space) << 8 | static_cast<std::uint32_t>(type) << 16;
}

bool check_vector(Machine& machine, std::uint64_t* frame, const MicroOp& op) {
  const std::uint32_t bytes = op.bits & 255;
  auto space = static_cast<Space>(op.bits >> 8 & 255);
  const auto type = static_cast<AccessType>(op.bits >> 16);
  std::uint64_t address = frame[op.a] + static_cast<std::uint64_t>(op.imm);
  if (address % bytes != 0) {
    refuse(machine, FaultKind::kMisaligned,
           access_of(bytes, type) + " at address " + hex(address) + ", which is not a multiple of " +
               std::to_string(bytes));
    return false;
  }
  if (space == Space::kGeneric) space = resolve(address);
  log_access(machine, op, space, address, bytes, type);
  return true;
}

}  // namespace weightpress::ptxvm
