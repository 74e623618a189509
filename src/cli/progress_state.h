// Where a run is, whatever the command.
#pragma once

#include <cstdint>
#include <string_view>

namespace weightpress::cli {

struct ProgressState {
  std::string_view phase;  ///< what is being done, e.g. "compressing"
  std::string_view unit;   ///< the one in work; empty: none
  std::uint64_t units_done = 0;
  std::uint64_t num_units = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t bytes_resumed = 0;  ///< of those done, what an earlier run has done: no part of the rate
};

}  // namespace weightpress::cli
