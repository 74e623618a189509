// Runs the codecs on built-in units (DF11) and tensors (Tile-ANS) and reads them back with decoders that
// share no code with them; compares all paths of this machine, CPU and GPUs, with each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weightpress/compress.h>

namespace weightpress {

struct SelftestCase {
  std::string name;
  bool passed = false;
  std::string problem;  ///< empty when passed
};

/// Tensors' names begin with "Tile-ANS: ". Takes a second or two. num_threads: 0 for as many as the machine
/// has.
std::vector<SelftestCase> run_selftest(int num_threads = 0);

struct SelftestComparisonOptions {
  bool df11 = true, tile_ans = true;     ///< which formats; at least one
  int num_threads = 0;                   ///< of the path with many: 0 for as many as the machine has
  std::uint64_t num_random_units = 100;  ///< of each format
  std::uint64_t seed = 1;                ///< of the random ones
  /// Of a unit, 1 or more; of a tensor twice as many bytes, or one element. Longer built-in ones are cut.
  std::uint64_t max_weights = 100'000;
};

/// A back end with a way to cut units, or tensors, into pieces.
struct SelftestPath {
  std::string name;
  Format format = Format::kDf11;
  std::uint64_t num_units = 0;  ///< that were tried; fewer than there are after an error or many problems
  std::vector<std::string> problems;  ///< each names the unit; empty: all is as on the first path
};

struct SelftestComparison {
  std::uint64_t num_units = 0;    ///< of DF11
  std::uint64_t num_tensors = 0;  ///< of Tile-ANS
  /// All of DF11, then all of Tile-ANS. A format's first is checked by the slow decoder, the others against
  /// it.
  std::vector<SelftestPath> paths;
  /// What this machine does not have, and why: "cuda: no NVIDIA driver is installed ..."
  std::vector<std::string> not_run;

  bool passed() const;
};

/// Encodes and decodes the built-in units and tensors and random ones on every path of this machine: all
/// buffers byte by byte, all weights, and what is found where one bit is flipped. A GPU that fails is a
/// problem of its paths. Throws Error if the first path cannot encode a unit at all, and std::bad_alloc.
SelftestComparison compare_selftest_paths(const SelftestComparisonOptions& options = {});

}  // namespace weightpress
