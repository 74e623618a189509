#include "job/process_memory.h"

#include <cstdlib>
#include <fstream>
#include <string>

namespace weightpress::job {

std::uint64_t peak_memory_bytes() {
  // Not getrusage(): its figure begins with that of the process that started this one.
  constexpr std::string_view kKey = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kKey)) return std::strtoull(line.c_str() + kKey.size(), nullptr, 10) * 1024;
  return 0;
}

}  // namespace weightpress::job
