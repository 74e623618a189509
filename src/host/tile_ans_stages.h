// The stages of format/tile_ans_stages.h on the CPU: OpenMP over batches of tiles.
//
// A tile is one thread's, whatever its size: its states are a chain.
#pragma once

#include <cstdint>
#include <vector>

#include "format/tile_ans_stages.h"
#include "host/tile_ans_stream_decoder.h"
#include "host/tile_ans_stream_encoder.h"

namespace weightpress::host {

class HostTileAnsStages final : public tile_ans::TileAnsStages {
 public:
  /// num_threads: 1 or more; usable_num_threads() says how many the system allows. Outputs depend neither on
  /// it nor on the SIMD level.
  explicit HostTileAnsStages(int num_threads, SimdLevel simd = best_simd_level())
      : num_threads_(num_threads), simd_(simd) {}

  tile_ans::Completion histogram(const tile_ans::HistogramArguments& arguments) override;
  tile_ans::Completion sizes(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion encode(const tile_ans::EncodeArguments& arguments) override;

 private:
  int num_threads_;
  SimdLevel simd_;
  std::vector<StreamEncodeTable> tables_;  // of the call's lanes
};

class HostTileAnsDecodeStage final : public tile_ans::TileAnsDecodeStage {
 public:
  explicit HostTileAnsDecodeStage(int num_threads, SimdLevel simd = best_simd_level())
      : num_threads_(num_threads), simd_(simd) {}

  tile_ans::Completion decode(const tile_ans::DecodeArguments& arguments) override;

 private:
  int num_threads_;
  SimdLevel simd_;
  std::vector<StreamDecodeTable> tables_;  // of the call's lanes
};

}  // namespace weightpress::host
