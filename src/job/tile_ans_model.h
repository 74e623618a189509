// The Tile-ANS containers of a checkpoint: found by the names of their tensors, read and checked.
//
// All is a stranger's. What a container claims is checked before anything is decoded: its header and the
// shapes of its buffers when the model is surveyed, the small buffers when the container is opened, streams
// as they are decoded.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weightpress/error.h>

#include "format/result.h"
#include "format/tile_ans_plan.h"
#include "job/tile_ans_slab.h"
#include "model/checkpoint.h"
#include "model/tile_ans_header.h"

namespace weightpress::job {

/// One tensor that is stored as a container.
struct StoredTileAns {
  std::string name;  ///< of the tensor
  model::TileAnsHeader header;
  std::size_t header_tensor = 0;                             ///< into Checkpoint::tensors(), as all below
  std::array<std::size_t, tile_ans::kNumBuffers> buffers{};  ///< of kTileAns
  std::size_t data = 0;                                      ///< of kRaw
  std::uint64_t stored_bytes = 0;                            ///< of buffers and header

  bool is_raw() const { return header.method == model::TileAnsHeader::Method::kRaw; }
  /// Of the tensor. Every size that survey_tile_ans() lets through fits 63 bits.
  std::uint64_t num_elements() const;
  std::uint64_t size_bytes() const;
};

struct TileAnsSurvey {
  std::vector<StoredTileAns> containers;  ///< sound as far as headers tell; by name
  /// Containers that cannot be read, with `tensor` and a message that begins with the file.
  std::vector<ErrorDetails> broken;
  std::vector<std::size_t> kept;  ///< tensors that are no part of a container
};

/// Reads the headers of all containers. Throws what reading throws.
TileAnsSurvey survey_tile_ans(const model::Checkpoint& checkpoint);

bool holds_tile_ans(const model::Checkpoint& checkpoint);
/// Whether a path that a user gave is a Tile-ANS output: it holds a container, or a record beside it says
/// that it is one, of which no tensor has shrunk. False also if it cannot be opened: whoever opens it then
/// tells why.
bool is_tile_ans_output(const std::filesystem::path& path);

/// A container whose small buffers are read and found right.
struct OpenedTileAns {
  tile_ans::TensorPlan plan;
  std::uint64_t payload_words = 0;
  StoredBuffers buffers;
};

/// Precondition: it is not raw. Errors: kCorruptFile, with a message that begins with the file.
Result<OpenedTileAns> open_container(const model::Checkpoint& checkpoint, const StoredTileAns& stored);

/// "FILE: tensor 'T': what", for errors.
ErrorDetails container_error(const model::Checkpoint& checkpoint, std::size_t header_tensor,
                             std::string_view name, ErrorCode code, const std::string& what);
/// A clause on a stream at fault: "lane 1, tile 7: it has fewer words than its symbols take".
std::string describe_fault(const tile_ans::StageStatus& status);

/// The index that lies beside the tensors, if the path is a folder that has one or is itself one: its name.
std::optional<std::string> find_index_name(const std::filesystem::path& path);

/// How much memory slabs of decoding take: enough for one tile of each of the containers, else about as
/// much as is of use. Throws kOutOfMemory if a tile needs more than is free.
std::uint64_t decode_memory_bytes(const model::Checkpoint& checkpoint,
                                  const std::vector<StoredTileAns>& containers, int num_threads);

}  // namespace weightpress::job
