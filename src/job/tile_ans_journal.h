// What the journal of a compression to Tile-ANS says of tensors: how one is stored, that it is written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "job/tile_ans_tensor_compressor.h"
#include "model/checkpoint.h"

namespace weightpress::job {

// One line each.
std::string planned_tile_ans_line(std::string_view tensor, const PlannedTileAns& planned);
/// It would not shrink.
std::string kept_tile_ans_line(std::string_view tensor);
std::string written_tile_ans_line(std::string_view tensor);

/// What an earlier run of the same job has done. Lines were written by it, but are checked all the same. Of
/// what lines say of how a tensor is stored, the last counts.
class TileAnsPastRun {
 public:
  /// A line of its journal. Returns false if it is none of the above.
  bool add(std::string_view json);

  bool would_not_shrink(const std::string& tensor) const { return kept_.contains(tensor); }
  bool written(const std::string& tensor) const { return written_.contains(tensor); }
  /// How the tensor is stored; nothing if that is not known. settings and tensor: of this run.
  std::optional<PlannedTileAns> planned(const tile_ans::Settings& settings,
                                        const model::SourceTensor& tensor) const;

 private:
  struct Planned {
    std::uint32_t probability_bits = 0;
    std::vector<std::uint8_t> modes;
    std::vector<std::uint64_t> words;        // by lane
    std::vector<std::uint16_t> frequencies;  // by lane and symbol
  };
  std::unordered_map<std::string, Planned> planned_;
  std::unordered_set<std::string> kept_, written_;
};

}  // namespace weightpress::job
