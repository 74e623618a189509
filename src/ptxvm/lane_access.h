// Accesses of a lane to memory, off the fast path: generic addresses, slack, faults, checks, counters.
#pragma once

#include <cstdint>

#include "ptxvm/lane_interpreter.h"

namespace weightpress::ptxvm {

enum class AccessType : std::uint8_t { kLoad, kStore, kAtomic };

// MicroOp::bits of loads and stores.
constexpr std::uint32_t kPartOfVector = 1;   ///< is not counted: check_vector() has done so
constexpr std::uint32_t kNarrowAddress = 2;  ///< the address is in a 32-bit register
constexpr int kUsedBytesShift = 8;           ///< 16 bits: bytes of the value that are used
constexpr std::uint32_t kAllBytesUsed = 0xFFFFU << kUsedBytesShift;

/// Finds the bytes at an address that the fast path did not take: nullptr after a fault. Reads of slack point
/// to bytes that stay valid until the next call in this thread.
std::uint8_t* locate(Machine& machine, Space space, std::uint64_t address, std::uint32_t bytes,
                     AccessType type, std::uint32_t bits);

/// Heeds the checks and counters that the machine has. Returns false after a fault. `address` as the lane has
/// it.
bool note_access(Machine& machine, const MicroOp& op, Space space, std::uint64_t address, std::uint32_t bytes,
                 AccessType type);

/// A SlotFunction: before a vector's parts are accessed. a and imm: the address; bits: vector_info().
bool check_vector(Machine& machine, std::uint64_t* frame, const MicroOp& op);
std::uint32_t vector_info(Space space, std::uint32_t bytes, AccessType type);

}  // namespace weightpress::ptxvm
