// Runs the codec on built-in units and reads them back with a decoder that shares no code with it.
#pragma once

#include <string>
#include <vector>

namespace weightpress {

struct SelftestCase {
  std::string name;
  bool passed = false;
  std::string problem;  ///< empty when passed
};

/// Takes a second or two. num_threads: 0 for as many as the machine has.
std::vector<SelftestCase> run_selftest(int num_threads = 0);

}  // namespace weightpress
