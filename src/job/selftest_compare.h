// `weightpress selftest --compare`: the same units on every path that a machine has. A path is a back end
// with a way to cut units; all must make the same bytes, and read the same weights and faults out of them.
//
// The first path is the measure, and the slow decoder that of the first path. Faults are bits that are
// flipped in a sound unit, or in the weights that it is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weightpress/selftest.h>

#include "format/decode_stage.h"
#include "format/stages.h"
#include "job/selftest_units.h"

namespace weightpress::job {

struct CodecPath {
  std::string name;
  df11::Df11Stages* stages = nullptr;
  df11::Df11DecodeStage* decode_stage = nullptr;
  std::uint64_t segment_weights = 0;  ///< 0: those of UnitCompressor
  /// Units go through in small slabs of segments of odd sizes, and back in slabs of a few chunks.
  bool in_pieces = false;
  /// Called before the stages are: a GPU becomes that of the calling thread. May be empty.
  std::function<void()> use = {};
};

class PathComparison {
 public:
  /// At least one path. What they point to must outlive the object.
  explicit PathComparison(std::vector<CodecPath> paths);
  ~PathComparison();

  /// Compares a unit. A path that throws, or has had a few problems, is tried no more; what the first one
  /// throws goes through.
  void add(const SelftestUnit& unit);

  /// In the order of the paths.
  std::vector<SelftestPath> outcome() const;

 private:
  struct Path;
  struct Expected;

  void measure(Path& path, const SelftestUnit& unit, Expected& expected) const;
  void check(Path& path, const SelftestUnit& unit, const Expected& expected) const;

  std::vector<std::unique_ptr<Path>> paths_;
};

}  // namespace weightpress::job
