// Compresses one tensor to Tile-ANS, slab by slab: counts it, plans it, writes its buffers to their places.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/tile_ans_plan.h"
#include "format/tile_ans_stages.h"
#include "job/stage_times.h"
#include "job/tile_ans_slab.h"
#include "model/checkpoint.h"
#include "model/file.h"

namespace weightpress::job {

/// A tensor that will be stored as Tile-ANS.
struct PlannedTileAns {
  std::size_t tensor = 0;  ///< into Checkpoint::tensors()
  tile_ans::TensorPlan plan;
  std::array<std::uint64_t, tile_ans::kMaxLanes> lane_words{};  ///< of the payload
  std::string header;                                           ///< of the container

  std::uint64_t payload_words() const;
  /// Of all six buffers and the header.
  std::uint64_t stored_bytes() const { return plan.stored_bytes(payload_words()) + header.size(); }
};

/// Where a tensor's buffers and header go.
struct TileAnsPlaces {
  model::File& file;
  std::array<std::uint64_t, tile_ans::kNumBuffers> offsets_bytes{};
  std::uint64_t header_offset_bytes = 0;

  std::uint64_t of(tile_ans::Buffer buffer) const { return offsets_bytes[static_cast<std::size_t>(buffer)]; }
};

/// The least bytes that any container of a tensor takes: one that is no larger is kept without a look.
std::uint64_t least_stored_bytes(const tile_ans::Settings& settings, const model::SourceTensor& tensor);
/// The layout with the tile that the settings choose, and any precision.
tile_ans::Layout layout_before_plan(const tile_ans::Settings& settings, const model::SourceTensor& tensor);

class TileAnsTensorCompressor {
 public:
  struct Options {
    tile_ans::Settings settings;
    int num_threads = 1;
    bool reads_back = true;       ///< everything, to compare it
    StageTimes* times = nullptr;  ///< may be null
  };
  /// Bytes of the tensor that went through.
  using OnSlab = std::function<void(std::uint64_t num_bytes)>;

  /// All must outlive the object. memory: encode_bytes() of one tile at least.
  TileAnsTensorCompressor(const model::Checkpoint& source, tile_ans::TileAnsStages& stages,
                          tile_ans::TileAnsDecodeStage& decode_stage, TileAnsSlabMemory& memory,
                          const Options& options)
      : source_(source), stages_(stages), decode_stage_(decode_stage), memory_(memory), options_(options) {}

  /// Whether such a tensor is in memory as a whole while it is worked on.
  bool is_one_slab(const tile_ans::Layout& layout) const { return slab_tiles(layout) >= layout.num_tiles(); }

  /// Counts a tensor that Tile-ANS can hold: one of its dtypes, with elements and dimensions. Nothing: it
  /// would not shrink. on_slab gets twice the tensor's bytes. Throws kSourceChanged, and what reading does.
  std::optional<PlannedTileAns> plan(std::size_t tensor, const OnSlab& on_slab);

  /// Writes the container, all of it. Throws kSourceChanged if the tensor is not what was planned,
  /// kVerificationFailed if it does not read back, and what files do.
  void encode(const PlannedTileAns& planned, const TileAnsPlaces& places, const OnSlab& on_slab);

  /// Whether all that encode() would write is there: it decodes to the source. The file must be as long as it
  /// will be.
  bool is_written(const PlannedTileAns& planned, const TileAnsPlaces& places, const OnSlab& on_slab);

 private:
  std::span<const std::uint8_t> read(const model::SourceTensor& tensor, const tile_ans::Layout& layout,
                                     const tile_ans::TileRange& tiles);
  std::uint64_t slab_tiles(const tile_ans::Layout& layout) const;
  void write(const TileAnsPlaces& places, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes);
  /// A part of the container that is no stream.
  struct SmallBuffer {
    std::uint64_t offset_bytes = 0;  ///< in the file
    std::vector<std::uint8_t> bytes;
  };
  static std::vector<SmallBuffer> small_buffers(const PlannedTileAns& planned, const TileAnsPlaces& places);
  static bool holds(const model::File& file, const SmallBuffer& buffer);
  /// What is stored of a slab, with its elements.
  tile_ans::StageStatus compare(const PlannedTileAns& planned, const StoredBuffers& stored,
                                const tile_ans::TileRange& tiles, std::span<const std::uint8_t> elements);
  [[noreturn]] void fail_changed(std::size_t tensor) const;
  [[noreturn]] void fail_read_back(const PlannedTileAns& planned, const TileAnsPlaces& places,
                                   const std::string& what) const;

  const model::Checkpoint& source_;
  tile_ans::TileAnsStages& stages_;
  tile_ans::TileAnsDecodeStage& decode_stage_;
  TileAnsSlabMemory& memory_;
  const Options options_;
};

}  // namespace weightpress::job
