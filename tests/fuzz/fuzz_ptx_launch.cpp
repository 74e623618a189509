// Any text as a PTX module: what loads is run, on a block of 33 threads. It always ends, and no kernel
// reaches beyond the memory that it was given.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "ptxvm/launch.h"

using namespace weightpress::ptxvm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Memory memory;
  auto loaded = LoadedModule::load(std::string(reinterpret_cast<const char*>(data), size), memory);
  if (!loaded) {
    if (!loaded.error().message.starts_with("line ")) std::abort();
    return 0;
  }
  const std::uint64_t buffer = memory.allocate(4096, {.name = "buffer"});
  for (const std::string& name : (*loaded)->kernel_names()) {
    const KernelInfo& kernel = *(*loaded)->find_kernel(name);
    if (kernel.local_bytes > 4096) continue;  // times 33
    std::vector<std::uint8_t> parameters(kernel.parameter_bytes);
    for (std::size_t i = 0; i + sizeof buffer <= parameters.size(); i += sizeof buffer)
      for (std::size_t b = 0; b < sizeof buffer; ++b)
        parameters[i + b] = static_cast<std::uint8_t>(buffer >> 8 * b);
    for (const bool is_checked : {false, true}) {
      const LaunchOptions options{.seed = size,
                                  .check_initialised = is_checked,
                                  .check_races = is_checked,
                                  .check_barriers = is_checked,
                                  .count_accesses = is_checked,
                                  .max_branches = 50};
      const LaunchConfig config{.grid = {2, 1, 1}, .block = {33, 1, 1}, .dynamic_shared_bytes = 64};
      const auto report =
          launch(**loaded, name, config, std::span<const std::uint8_t>(parameters), memory, options);
      if (report && report->fault && report->fault->message.empty()) std::abort();
    }
  }
  return 0;
}
