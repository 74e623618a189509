// The stages of Tile-ANS as GPUs offer them. No CUDA header is needed.
#pragma once

#include <cstdint>
#include <memory>

#include "format/tile_ans_stages.h"

namespace weightpress::device {

/// What a call returns is the GPU's word: the caller compares it with what it gave. Calls and completions
/// throw Error: kOutOfMemory if the slab does not fit into the GPU's memory; then it may come in parts.
class TileAnsBackEnd : public tile_ans::TileAnsStages, public tile_ans::TileAnsDecodeStage {
 public:
  /// Of the elements that the last decode() to be waited for has decoded, as numbers, modulo 2^64. If it
  /// found a fault, unspecified.
  virtual std::uint64_t decoded_sum() const = 0;
  /// Memory of the host, aligned to 64, that copies reach by themselves; ordinary memory where the system
  /// gives no more of that. Must not outlive the object. Throws std::bad_alloc.
  virtual std::shared_ptr<void> pinned(std::uint64_t bytes) = 0;
};

}  // namespace weightpress::device
