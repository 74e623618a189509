#include "settings.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include <unistd.h>

namespace weightpress::cuda_driver {
namespace {

constexpr std::uint32_t kMostResult = CUDA_ERROR_UNKNOWN;
constexpr std::string_view kPrefix = "WEIGHTPRESS_CUDA_";

// Reads variables one by one; keeps the first problem.
class Reader {
 public:
  const char* text(const char* name) {
    known_.insert(name);
    return std::getenv((std::string(kPrefix) + name).c_str());
  }

  void read(const char* name, std::string& value) {
    if (const char* const given = text(name)) value = given;
  }

  void read(const char* name, std::uint64_t& value, std::uint64_t most = ~std::uint64_t{0}) {
    const char* const given = text(name);
    if (given == nullptr) return;
    char* end = nullptr;
    errno = 0;
    std::uint64_t number = std::strtoull(given, &end, 10);
    int shift = 0;
    if (*end == 'K') shift = 10;
    if (*end == 'M') shift = 20;
    if (*end == 'G') shift = 30;
    if (shift != 0) ++end;
    if (*given < '0' || *given > '9' || errno != 0 || *end != '\0' || number > (most >> shift))
      return complain(name, given, "a whole number up to " + std::to_string(most) + " (K, M, G: binary)");
    number <<= shift;
    value = number;
  }

  void read(const char* name, std::uint32_t& value,
            std::uint32_t most = std::numeric_limits<std::int32_t>::max()) {
    std::uint64_t number = value;
    read(name, number, most);
    value = static_cast<std::uint32_t>(number);
  }

  void read(const char* name, bool& value) {
    std::uint64_t number = value ? 1 : 0;
    read(name, number, 1);
    value = number != 0;
  }

  void read(const char* name, double& value) {
    const char* const given = text(name);
    if (given == nullptr) return;
    char* end = nullptr;
    const double number = std::strtod(given, &end);
    if (end == given || *end != '\0' || !std::isfinite(number) || number <= 0)
      return complain(name, given, "a number above 0");
    value = number;
  }

  void complain(const char* name, const std::string& given, const std::string& wanted) {
    if (problem_.empty())
      problem_ = std::string(kPrefix) + name + "=" + given + " is not understood: " + wanted + " is expected";
  }

  // A misspelt variable would otherwise test nothing.
  std::string finish() {
    for (char** entry = environ; problem_.empty() && entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view line = *entry;
      if (!line.starts_with(kPrefix)) continue;
      const std::string name(line.substr(kPrefix.size(), line.find('=') - kPrefix.size()));
      if (!known_.contains(name))
        problem_ = std::string(kPrefix) + name + " is not a variable of this driver";
    }
    return problem_;
  }

 private:
  std::set<std::string> known_;
  std::string problem_;
};

void read_compute(Reader& reader, Settings& settings) {
  const char* const given = reader.text("COMPUTE");
  if (given == nullptr) return;
  const std::size_t length = std::strlen(given);
  const char* const point = std::strchr(given, '.');
  const std::string digits = "0123456789";
  if (point == nullptr || point == given || length - static_cast<std::size_t>(point - given) != 2 ||
      length > 4 || std::strspn(given, "0123456789.") != length)
    return reader.complain("COMPUTE", given, "a compute capability like 8.6");
  settings.compute_major = static_cast<std::uint32_t>(std::atoi(given));
  settings.compute_minor = static_cast<std::uint32_t>(std::atoi(point + 1));
}

void read_checks(Reader& reader, Settings& settings) {
  std::string checks;
  reader.read("CHECK", checks);
  for (std::size_t begin = 0; begin < checks.size();) {
    const std::size_t end = std::min(checks.find(',', begin), checks.size());
    const std::string check = checks.substr(begin, end - begin);
    if (check != "init" && check != "race" && check != "barrier" && check != "all")
      reader.complain("CHECK", checks, "a list of init, race, barrier, all");
    settings.check_initialised |= check == "init" || check == "all";
    settings.check_races |= check == "race" || check == "all";
    settings.check_barriers |= check == "barrier" || check == "all";
    begin = end + 1;
  }
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  Reader reader;
  reader.read("SEED", settings.seed);
  reader.read("TRACE", settings.trace_path);
  reader.read("DEVICES", settings.num_devices, 8);
  reader.read("MEMORY", settings.memory_bytes, std::uint64_t{1} << 40);
  reader.read("CONTEXT_MEMORY", settings.context_bytes, std::uint64_t{1} << 40);
  reader.read("NAME", settings.device_name);
  read_compute(reader, settings);
  reader.read("MULTIPROCESSORS", settings.num_multiprocessors, 1024);
  reader.read("DRIVER_VERSION", settings.driver_version);
  reader.read("COPY_IN_GBPS", settings.copy_in_gbps);
  reader.read("COPY_OUT_GBPS", settings.copy_out_gbps);
  reader.read("PAGEABLE_GBPS", settings.pageable_gbps);
  reader.read("MEMORY_GBPS", settings.memory_gbps);
  reader.read("INSTRUCTIONS_PER_NS", settings.instructions_per_ns);
  reader.read("COPY_LATENCY_NS", settings.copy_latency_ns, 1'000'000'000);
  reader.read("LAUNCH_LATENCY_NS", settings.launch_latency_ns, 1'000'000'000);
  std::string clock = "thread";
  reader.read("HOST_CLOCK", clock);
  if (clock != "thread" && clock != "process") reader.complain("HOST_CLOCK", clock, "thread or process");
  settings.host_clock = clock == "process" ? HostClock::kProcess : HostClock::kThread;
  reader.read("THREADS", settings.num_threads, 256);
  reader.read("COUNT", settings.count_accesses);
  read_checks(reader, settings);
  reader.read("MAX_BRANCHES", settings.max_branches);
  reader.read("EAGER_PERCENT", settings.eager_percent, 100);
  reader.read("HOST_FUNCTION_MS", settings.host_function_ms);
  reader.read("FILL", settings.fills_memory);
  reader.read("INIT_RESULT", settings.init_result, kMostResult);
  reader.read("OOM_AT", settings.out_of_memory_at);
  reader.read("OOM_STAYS", settings.out_of_memory_stays);
  reader.read("FAIL_LAUNCH_AT", settings.fail_launch_at);
  reader.read("LAUNCH_RESULT", settings.launch_result, kMostResult);
  reader.read("FLIP_AT", settings.flip_at);
  reader.read("LOSE_DEVICE_AT", settings.lose_device_at);
  reader.read("LOSE_DEVICE", settings.lost_device);
  reader.read("LOSE_RESULT", settings.lost_result, kMostResult);
  if (settings.num_threads == 0) reader.complain("THREADS", "0", "at least 1");
  if (settings.num_multiprocessors == 0) reader.complain("MULTIPROCESSORS", "0", "at least 1");
  settings.problem = reader.finish();
  return settings;
}

}  // namespace weightpress::cuda_driver
