// What the process has used of the machine's memory.
#pragma once

#include <cstdint>

namespace weightpress::job {

/// Highest resident memory of the process so far; 0 where the system does not tell.
std::uint64_t peak_memory_bytes();
/// Resident memory of the process now; 0 where the system does not tell.
std::uint64_t resident_memory_bytes();

}  // namespace weightpress::job
