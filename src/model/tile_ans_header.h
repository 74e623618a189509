// The header of a Tile-ANS container: the JSON that is stored beside a tensor's buffers (docs/format.md,
// "Tile-ANS: container"). Written byte for byte as the reference does; read from strangers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "format/tile_ans_container.h"
#include "model/dtype.h"

namespace weightpress::model {

struct TileAnsHeader {
  enum class Method : std::uint8_t {
    kTileAns,  ///< the six buffers of format/tile_ans_container.h
    kRaw       ///< one buffer `data`: the tensor itself, in its own dtype and shape
  };

  Method method = Method::kTileAns;
  Dtype dtype = Dtype::kBf16;
  std::vector<std::uint64_t> shape;  ///< empty: a scalar
  /// Why a tensor that was to be Tile-ANS is raw; empty: raw storage was asked for.
  std::string reason = {};

  bool operator==(const TileAnsHeader&) const = default;
};

/// Reasons as the reference words them.
inline constexpr std::string_view kTileAnsEmptyReason = "ValueError: tile_ans does not support empty tensors";
inline constexpr std::string_view kTileAnsTooLongReason =
    "ValueError: tile_ans payload exceeds uint32 offset capacity";

/// What a tensor's name is followed by: "T._entropack.header", "T._entropack.buffers.payload".
inline constexpr std::string_view kTileAnsPrefix = "._entropack.";
inline constexpr std::string_view kTileAnsHeaderName = "header";
inline constexpr std::string_view kTileAnsBuffersPrefix = "buffers.";
inline constexpr std::string_view kRawBufferName = "data";

/// The 16 dtypes of Tile-ANS.
bool is_tile_ans_dtype(Dtype dtype);

/// What PyTorch calls a dtype, e.g. "bfloat16"; nothing for those it does not have.
std::optional<std::string_view> torch_dtype_name(Dtype dtype);
std::optional<Dtype> parse_torch_dtype(std::string_view name);

/// The header's bytes, without terminator or padding. Precondition: PyTorch has the dtype.
std::string write_tile_ans_header(const TileAnsHeader& header);

/// No header that the reference can write for a real tensor comes near.
inline constexpr std::uint64_t kMaxTileAnsHeaderBytes = 65'536;

/// json: the header's bytes. Any JSON with the five keys will do, in any order and spelling, with others
/// beside them; which buffers there are must agree with the method. Errors: kCorruptFile; kUnsupportedDtype
/// for a dtype that the method or safetensors does not have. Messages are clauses, e.g. "its header has no
/// 'shape'".
Result<TileAnsHeader> parse_tile_ans_header(std::string_view json);

/// Whether the buffer `data` of a raw container is what its header says: dtype and shape. Errors:
/// kCorruptFile.
Result<void> check_raw_container(const TileAnsHeader& header, Dtype data_dtype,
                                 std::span<const std::uint64_t> data_shape);

/// A stored tensor's dtype as format/tile_ans_container.h takes it.
tile_ans::BufferType tile_ans_buffer_type(Dtype dtype);
/// The dtype that a buffer has in a file.
Dtype tile_ans_buffer_dtype(tile_ans::Buffer buffer);

}  // namespace weightpress::model
