// Runs the codec on built-in units and reads them back with a decoder that shares no code with it; compares
// all paths of this machine, CPU and GPUs, with each other.
#pragma once

#include <cstdint>
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

struct SelftestComparisonOptions {
  int num_threads = 0;  ///< of the path with many: 0 for as many as the machine has
  std::uint64_t num_random_units = 100;
  std::uint64_t seed = 1;               ///< of the random units
  std::uint64_t max_weights = 100'000;  ///< of a unit, 1 or more; longer built-in ones are cut
};

/// A back end with a way to cut units into pieces.
struct SelftestPath {
  std::string name;
  std::uint64_t num_units = 0;  ///< that were tried; fewer than there are after an error or many problems
  std::vector<std::string> problems;  ///< each names the unit; empty: all is as on the first path
};

struct SelftestComparison {
  std::uint64_t num_units = 0;
  std::vector<SelftestPath> paths;  ///< the first is checked by the slow decoder, the others against it
  /// What this machine does not have, and why: "cuda: no NVIDIA driver is installed ..."
  std::vector<std::string> not_run;

  bool passed() const;
};

/// Encodes and decodes the built-in units and random ones on every path of this machine: all buffers byte by
/// byte, all weights, and what is found in units with one flipped bit. A GPU that fails is a problem of its
/// paths. Throws Error if the first path cannot encode a unit at all, and std::bad_alloc.
SelftestComparison compare_selftest_paths(const SelftestComparisonOptions& options = {});

}  // namespace weightpress
