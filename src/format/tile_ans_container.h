// What a stored tensor says of itself, checked before anything is decoded (docs/format.md, "Tile-ANS:
// buffers"). Every number is a stranger's. Offsets, states and words, which can be large, are checked by the
// decode stage as it comes to them; all else here.
//
// A container whose checks pass can still stand for a tensor far larger than itself: a lane of equal bytes
// takes 128 bytes a tile, and a tile may have 2^31 - 1 elements. Callers see to it that there is room.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "format/result.h"
#include "format/tile_ans_layout.h"
#include "format/tile_ans_plan.h"

namespace weightpress::tile_ans {

/// Names of the buffers in the order in which they are stored.
inline constexpr std::string_view kBufferNames[] = {"payload",       "offsets",    "states",
                                                    "decode_tables", "lane_modes", "layout"};
enum class Buffer : std::uint8_t { kPayload, kOffsets, kStates, kDecodeTables, kLaneModes, kLayout };
inline constexpr std::uint32_t kNumBuffers = 6;

enum class BufferType : std::uint8_t { kU8, kU16, kU32, kI64, kOther };
/// The type that a buffer must have.
BufferType buffer_type(Buffer buffer);

struct StoredBuffer {
  BufferType type = BufferType::kOther;
  std::span<const std::uint64_t> shape;
};

struct ContainerShapes {
  StoredBuffer buffers[kNumBuffers];  ///< indexed by Buffer
  /// What the header says of the tensor.
  std::span<const std::uint64_t> tensor_shape;
  std::uint32_t element_bytes = 0;  ///< of its dtype: 1, 2, 4 or 8

  const StoredBuffer& operator[](Buffer buffer) const { return buffers[static_cast<std::uint32_t>(buffer)]; }
};

inline constexpr std::uint32_t kLayoutNumbers = 4;

/// First the buffer `layout` alone, which says how large the others must be: whether it can be read at all.
/// Errors: kCorruptFile, with a clause such as "the buffer 'layout' has shape [5], not [4]".
Result<void> check_layout_buffer(const ContainerShapes& shapes);

/// Then its four numbers, and types and shapes of all other buffers, but how many lanes have states.
/// Precondition: check_layout_buffer() found no error. Errors: kCorruptFile.
Result<Layout> read_layout(const ContainerShapes& shapes,
                           std::span<const std::int64_t, kLayoutNumbers> numbers);

/// The contents that can be looked at whole, with the sizes that read_layout() found right.
struct ContainerContents {
  std::span<const std::uint8_t> lane_modes;      ///< [num_lanes]
  std::span<const std::uint32_t> decode_tables;  ///< [num_lanes * table_size]
  std::uint32_t first_offset = 0;
  std::uint32_t last_offset = 0;
};

/// At last modes, tables, both ends of the offsets, and the shape of the states. Every table, also a raw
/// lane's, must be to the bit what its own frequencies make. Errors: kCorruptFile.
Result<TensorPlan> read_container(const ContainerShapes& shapes, const Layout& layout,
                                  const ContainerContents& contents);

}  // namespace weightpress::tile_ans
