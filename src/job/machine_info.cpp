#include "job/machine_info.h"

#include <algorithm>
#include <optional>

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "job/system_file.h"

namespace weightpress::job {
namespace {

// The value of a line "key\t: value", nothing if there is no such line or the value is empty.
std::optional<std::string_view> value_of(std::string_view cpuinfo, std::string_view key) {
  auto rest = rest_of_line(cpuinfo, key);
  if (!rest || !rest->starts_with(':')) return std::nullopt;
  const std::string_view value = trimmed(rest->substr(1));
  return value.empty() ? std::nullopt : std::optional(value);
}

unsigned count_cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    return static_cast<unsigned>(std::max(CPU_COUNT(&allowed), 1));
  // More than CPU_SETSIZE (1024) of them.
  return static_cast<unsigned>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

std::uint64_t installed_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
}

std::string kernel_name() {
  utsname names = {};
  if (::uname(&names) != 0) return "unknown";
  return std::string(names.sysname) + " " + names.release + " " + names.machine;
}

}  // namespace

MachineInfo find_machine_info() {
  return {cpu_name(read_system_file("/proc/cpuinfo").text), count_cores(), installed_memory_bytes(),
          kernel_name()};
}

std::string cpu_name(std::string_view cpuinfo) {
  for (const std::string_view key : {"model name", "Hardware"})
    if (const auto value = value_of(cpuinfo, key)) return std::string(*value);
  if (const auto part = value_of(cpuinfo, "CPU part")) return "CPU part " + std::string(*part);
  return "unknown";
}

std::string_view simd_level() {
  return "portable";
}

}  // namespace weightpress::job
