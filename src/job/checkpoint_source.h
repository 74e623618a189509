// A unit's weights out of a checkpoint: its tensors, concatenated, cast to BF16 where the view says so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "job/block_hash.h"
#include "job/unit_compressor.h"
#include "model/bf16_cast.h"
#include "model/checkpoint.h"
#include "model/model_view.h"
#include "model/units.h"

namespace weightpress::job {

/// Reads `count` elements of a tensor that is BF16 in the output, from its element `first` on, into `data`
/// ([2 * count]). Returns what a cast did. Thread-safe.
model::CastCounts read_elements(const model::Checkpoint& checkpoint, const model::ModelTensor& tensor,
                                std::uint64_t first, std::uint64_t count, std::uint8_t* data);

/// Whether two tensors have the same type, shape and bytes in the output.
bool same_content(const model::Checkpoint& checkpoint, const model::ModelTensor& a,
                  const model::ModelTensor& b);

class CheckpointSource final : public WeightSource {
 public:
  /// hashes: whether source_hash() is of use.
  CheckpointSource(const model::Checkpoint& checkpoint, const model::ModelView& view, const model::Unit& unit,
                   int num_threads, bool hashes = false);

  std::uint64_t num_weights() const override { return begins_.back(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override;

  /// The source tensor that weight `index` of the unit belongs to (into Checkpoint::tensors()), and its index
  /// there.
  std::pair<std::size_t, std::uint64_t> locate(std::uint64_t index) const;

  /// What casts did to the weights read so far, each weight counted once; second uses of a tensor not at all.
  const model::CastCounts& cast_counts() const { return cast_counts_; }

  /// Of the weights as BF16, once all were read in order.
  std::uint64_t source_hash() const;

 private:
  /// Which of the unit's tensors holds weight `index`.
  std::size_t tensor_of(std::uint64_t index) const;

  const model::Checkpoint& checkpoint_;
  const model::ModelView& view_;
  const model::Unit& unit_;
  int num_threads_;
  std::vector<std::uint64_t> begins_;  // [tensors + 1] first weight of each, then the number of weights
  std::uint64_t counted_weights_ = 0;  // those before it are in cast_counts_
  model::CastCounts cast_counts_;
  std::vector<BlockHash> hashes_;  // of each tensor, if wanted
};

}  // namespace weightpress::job
