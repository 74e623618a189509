#include "format/tile_ans_container.h"

#include <cassert>
#include <optional>
#include <string>

#include "format/tile_ans_tables.h"

namespace weightpress::tile_ans {
namespace {

Unexpected corrupt(std::string what) {
  return Unexpected(ErrorCode::kCorruptFile, std::move(what));
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

std::string_view type_name(BufferType type) {
  switch (type) {
    case BufferType::kU8:
      return "U8";
    case BufferType::kU16:
      return "U16";
    case BufferType::kU32:
      return "U32";
    case BufferType::kI64:
      return "I64";
    case BufferType::kOther:
      break;
  }
  return "another type";
}

std::string the_buffer(Buffer buffer) {
  return "the buffer '" + std::string(kBufferNames[static_cast<std::uint32_t>(buffer)]) + "'";
}

Result<void> check_type(const ContainerShapes& shapes, Buffer buffer) {
  const BufferType expected = buffer_type(buffer);
  if (shapes[buffer].type == expected) return {};
  return corrupt(the_buffer(buffer) + " is not " + std::string(type_name(expected)) + ", as Tile-ANS has it");
}

Result<void> check_shape(const ContainerShapes& shapes, Buffer buffer,
                         std::span<const std::uint64_t> expected) {
  if (auto checked = check_type(shapes, buffer); !checked) return checked;
  const std::span<const std::uint64_t> shape = shapes[buffer].shape;
  if (std::equal(shape.begin(), shape.end(), expected.begin(), expected.end())) return {};
  return corrupt(the_buffer(buffer) + " has shape " +
                 shape_text(shape.first(std::min<std::size_t>(shape.size(), 8))) + ", not " +
                 shape_text(expected) + ", as its layout has it");
}

/// Nothing: more than kMaxElements.
std::optional<std::uint64_t> num_elements(std::span<const std::uint64_t> shape) {
  for (const std::uint64_t size : shape)
    if (size == 0) return 0;
  std::uint64_t product = 1;
  for (const std::uint64_t size : shape) {
    if (size > kMaxElements / product) return std::nullopt;
    product *= size;
  }
  return product;
}

}  // namespace

BufferType buffer_type(Buffer buffer) {
  switch (buffer) {
    case Buffer::kPayload:
      return BufferType::kU16;
    case Buffer::kOffsets:
    case Buffer::kStates:
    case Buffer::kDecodeTables:
      return BufferType::kU32;
    case Buffer::kLaneModes:
      return BufferType::kU8;
    case Buffer::kLayout:
      return BufferType::kI64;
  }
  return BufferType::kOther;
}

Result<void> check_layout_buffer(const ContainerShapes& shapes) {
  const std::uint64_t expected[] = {kLayoutNumbers};
  return check_shape(shapes, Buffer::kLayout, expected);
}

Result<Layout> read_layout(const ContainerShapes& shapes,
                           std::span<const std::int64_t, kLayoutNumbers> numbers) {
  assert(is_lane_count(shapes.element_bytes));
  const auto [tile, bits, lanes, elements] =
      std::array<std::int64_t, kLayoutNumbers>{numbers[0], numbers[1], numbers[2], numbers[3]};
  if (tile < 1 || tile > static_cast<std::int64_t>(kMaxTileElements))
    return corrupt("its layout has tiles of " + std::to_string(tile) + " elements");
  if (bits < std::int64_t{kMinProbabilityBits} || bits > std::int64_t{kMaxProbabilityBits})
    return corrupt("its layout has " + std::to_string(bits) + " probability bits, not 9 to 12");
  if (lanes != std::int64_t{shapes.element_bytes}) {
    return corrupt("its layout has " + std::to_string(lanes) + " lanes, but the elements of its type have " +
                   std::to_string(shapes.element_bytes) + " bytes");
  }
  const std::optional<std::uint64_t> of_shape = num_elements(shapes.tensor_shape);
  if (!of_shape) return corrupt("its shape has more than " + std::to_string(kMaxElements) + " elements");
  if (elements < 1 || static_cast<std::uint64_t>(elements) != *of_shape) {
    return corrupt("its layout has " + std::to_string(elements) + " elements, its shape " +
                   std::to_string(*of_shape));
  }
  const Layout layout{.tile_elements = static_cast<std::uint64_t>(tile),
                      .probability_bits = static_cast<std::uint32_t>(bits),
                      .num_lanes = shapes.element_bytes,
                      .num_elements = *of_shape};

  if (auto checked = check_type(shapes, Buffer::kPayload); !checked) return Unexpected(checked.error());
  const StoredBuffer& payload = shapes[Buffer::kPayload];
  if (payload.shape.size() != 1) return corrupt(the_buffer(Buffer::kPayload) + " is not a list of words");
  if (payload.shape[0] >= kPayloadWordsLimit)
    return corrupt(the_buffer(Buffer::kPayload) + " has more words than 32-bit offsets can reach");
  const std::uint64_t offsets[] = {layout.num_offsets()};
  const std::uint64_t tables[] = {layout.num_lanes, layout.table_size()};
  const std::uint64_t modes[] = {layout.num_lanes};
  for (const auto& checked :
       {check_shape(shapes, Buffer::kOffsets, offsets), check_shape(shapes, Buffer::kDecodeTables, tables),
        check_shape(shapes, Buffer::kLaneModes, modes), check_type(shapes, Buffer::kStates)}) {
    if (!checked) return Unexpected(checked.error());
  }
  return layout;
}

Result<TensorPlan> read_container(const ContainerShapes& shapes, const Layout& layout,
                                  const ContainerContents& contents) {
  assert(contents.lane_modes.size() == layout.num_lanes);
  assert(contents.decode_tables.size() == std::size_t{layout.num_lanes} * layout.table_size());
  TensorPlan plan;
  plan.layout = layout;
  for (std::uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
    const std::uint8_t mode = contents.lane_modes[lane];
    if (mode != static_cast<std::uint8_t>(LaneMode::kAns) &&
        mode != static_cast<std::uint8_t>(LaneMode::kRaw)) {
      return corrupt("the mode of lane " + std::to_string(lane) + " is " + std::to_string(mode) +
                     ", neither 0 (coded) nor 1 (raw)");
    }
    plan.lanes[lane].mode = static_cast<LaneMode>(mode);
    const std::optional<Frequencies> frequencies = read_decode_table(
        contents.decode_tables.subspan(std::size_t{lane} * layout.table_size(), layout.table_size()));
    if (!frequencies)
      return corrupt("the decode table of lane " + std::to_string(lane) + " contradicts itself");
    plan.lanes[lane].frequencies = *frequencies;
  }

  const std::uint64_t states[] = {plan.num_ans_lanes() * layout.num_tiles(), kNumStates};
  if (auto checked = check_shape(shapes, Buffer::kStates, states); !checked)
    return Unexpected(checked.error());
  const std::uint64_t num_words = shapes[Buffer::kPayload].shape[0];
  if (contents.first_offset != 0 || contents.last_offset != num_words) {
    return corrupt("its offsets lead from " + std::to_string(contents.first_offset) + " to " +
                   std::to_string(contents.last_offset) + ", but the payload from 0 to " +
                   std::to_string(num_words));
  }
  if (num_words > plan.max_payload_words()) {
    return corrupt("its payload has " + std::to_string(num_words) +
                   " words, more than its elements can take");
  }
  return plan;
}

}  // namespace weightpress::tile_ans
