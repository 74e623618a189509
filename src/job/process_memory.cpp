#include "job/process_memory.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace weightpress::job {
namespace {

// Not getrusage(): its figure begins with that of the process that started this one.
std::uint64_t status_bytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::strtoull(line.c_str() + key.size(), nullptr, 10) * 1024;
  return 0;
}

}  // namespace

std::uint64_t peak_memory_bytes() {
  return status_bytes("VmHWM:");
}

std::uint64_t resident_memory_bytes() {
  return status_bytes("VmRSS:");
}

}  // namespace weightpress::job
