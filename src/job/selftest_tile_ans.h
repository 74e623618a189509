// The Tile-ANS half of `weightpress selftest`: tensors through a path's stages, and through every path
// (selftest_compare.h, for DF11).
//
// The first path is the measure; the slow decoder, and the hashes of what the reference makes of the built-in
// tensors, are that of the first path. Faults are bits that are flipped in a sound container, in the tensor
// that it is compared with, or in one that was counted before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weightpress/selftest.h>

#include "format/tile_ans_stages.h"
#include "job/selftest_tensors.h"
#include "job/slab_memory.h"

namespace weightpress::job {

struct TileAnsPath {
  std::string name;
  tile_ans::TileAnsStages* stages = nullptr;
  tile_ans::TileAnsDecodeStage* decode_stage = nullptr;
  /// Tensors go through in slabs of a few tiles at odd addresses, and are encoded lane by lane.
  bool in_pieces = false;
  /// Called before the stages are: a GPU becomes that of the calling thread. May be empty.
  std::function<void()> use = {};
  /// Where slabs lie. Empty: ordinary memory.
  SlabMemory memory = {};
  /// TileAnsBackEnd::decoded_sum(). May be empty.
  std::function<std::uint64_t()> decoded_sum = {};
};

/// Encodes a tensor whole and reads it back. Empty, or what is wrong: a stage's answer, a buffer that is not
/// the reference's, what the slow decoder or the path's own finds. Throws what the stages do.
std::string check_tensor(const TileAnsPath& path, const SelftestTensor& tensor);

class TileAnsPathComparison {
 public:
  /// At least one path. What they point to must outlive the object.
  explicit TileAnsPathComparison(std::vector<TileAnsPath> paths);
  ~TileAnsPathComparison();

  /// As PathComparison::add().
  void add(const SelftestTensor& tensor);

  /// In the order of the paths.
  std::vector<SelftestPath> outcome() const;

 private:
  struct Path;

  std::vector<std::unique_ptr<Path>> paths_;
};

}  // namespace weightpress::job
