// On which machine a figure was measured: what a report says of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightpress::job {

struct MachineInfo {
  std::string cpu;             // "unknown" where the system does not tell
  unsigned logical_cores;      // those that this process may run on; at least 1
  std::uint64_t memory_bytes;  // of the whole machine, whatever this process may take; 0 if unknown
  std::string kernel;          // name, release and architecture: "Linux 6.1.0-18-amd64 x86_64"
};

MachineInfo find_machine_info();

/// The processor's name in the text of /proc/cpuinfo: "model name", or what ARM has instead ("Hardware", the
/// name of the board; else "CPU part 0xd0c"), or "unknown".
std::string cpu_name(std::string_view cpuinfo);

/// The instructions that the stages on the CPU were written for. Always "portable": there is no path chosen
/// at run time, and the compiler used what every processor of the architecture has. To be changed with the
/// first such path.
std::string_view simd_level();

}  // namespace weightpress::job
