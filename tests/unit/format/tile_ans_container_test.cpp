// Containers of strangers: every shape, type and number that is not as the layout has it.
#include "format/tile_ans_container.h"

#include <functional>

#include <gtest/gtest.h>

#include "format/tile_ans_tables.h"

namespace weightpress::tile_ans {
namespace {

using Shape = std::vector<std::uint64_t>;

/// 1000 elements of two bytes in tiles of 400; lane 0 raw, lane 1 coded.
struct Parts {
  Shape payload{900}, offsets{7}, states{3, 32}, decode_tables{2, 512}, lane_modes{2}, layout{4};
  std::array<BufferType, kNumBuffers> types{BufferType::kU16, BufferType::kU32, BufferType::kU32,
                                            BufferType::kU32, BufferType::kU8,  BufferType::kI64};
  Shape tensor{10, 100};
  std::uint32_t element_bytes = 2;
  std::array<std::int64_t, 4> numbers{400, 9, 2, 1000};
  std::vector<std::uint8_t> modes{1, 0};
  std::vector<std::uint32_t> tables;
  std::uint32_t first_offset = 0, last_offset = 900;

  Parts() {
    Frequencies frequencies{};
    frequencies[1] = 500;
    frequencies[2] = 12;
    tables.resize(1024);
    write_decode_table(frequencies, std::span(tables).first(512));
    write_decode_table(frequencies, std::span(tables).last(512));
  }

  Result<TensorPlan> read() const {
    ContainerShapes shapes;
    const Shape* const all[] = {&payload, &offsets, &states, &decode_tables, &lane_modes, &layout};
    for (std::uint32_t i = 0; i < kNumBuffers; ++i) shapes.buffers[i] = {types[i], *all[i]};
    shapes.tensor_shape = tensor;
    shapes.element_bytes = element_bytes;
    if (auto checked = check_layout_buffer(shapes); !checked) return Unexpected(checked.error());
    const auto read_numbers = read_layout(shapes, numbers);
    if (!read_numbers) return Unexpected(read_numbers.error());
    return read_container(shapes, *read_numbers, {modes, tables, first_offset, last_offset});
  }
};

TEST(TileAnsContainer, AGoodOne) {
  const auto plan = Parts().read();
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->layout, (Layout{400, 9, 2, 1000}));
  EXPECT_EQ(plan->lanes[0].mode, LaneMode::kRaw);
  EXPECT_EQ(plan->lanes[1].mode, LaneMode::kAns);
  EXPECT_EQ(plan->lanes[1].frequencies[1], 500);
}

TEST(TileAnsContainer, EveryFaultHasItsMessage) {
  const struct {
    std::function<void(Parts&)> spoil;
    const char* message;
  } cases[] = {
      {[](Parts& p) { p.layout = {5}; }, "the buffer 'layout' has shape [5], not [4], as its layout has it"},
      {[](Parts& p) { p.layout = {}; }, "the buffer 'layout' has shape [], not [4], as its layout has it"},
      {[](Parts& p) { p.types[5] = BufferType::kU32; }, "the buffer 'layout' is not I64, as Tile-ANS has it"},
      {[](Parts& p) { p.numbers[0] = 0; }, "its layout has tiles of 0 elements"},
      {[](Parts& p) { p.numbers[0] = -400; }, "its layout has tiles of -400 elements"},
      {[](Parts& p) { p.numbers[0] = std::int64_t{1} << 31; }, "its layout has tiles of 2147483648 elements"},
      {[](Parts& p) { p.numbers[1] = 8; }, "its layout has 8 probability bits, not 9 to 12"},
      {[](Parts& p) { p.numbers[1] = 13; }, "its layout has 13 probability bits, not 9 to 12"},
      {[](Parts& p) { p.numbers[1] = (std::int64_t{1} << 32) + 9; },
       "its layout has 4294967305 probability bits, not 9 to 12"},
      {[](Parts& p) { p.numbers[2] = 4; },
       "its layout has 4 lanes, but the elements of its type have 2 bytes"},
      {[](Parts& p) { p.numbers[2] = INT64_MIN; },
       "its layout has -9223372036854775808 lanes, but the elements of its type have 2 bytes"},
      {[](Parts& p) { p.numbers[3] = 999; }, "its layout has 999 elements, its shape 1000"},
      {[](Parts& p) { p.numbers[3] = -1; }, "its layout has -1 elements, its shape 1000"},
      {[](Parts& p) {
         p.numbers[3] = 0;
         p.tensor = {0, std::uint64_t{1} << 62};
       },
       "its layout has 0 elements, its shape 0"},
      {[](Parts& p) { p.tensor = {std::uint64_t{1} << 32, std::uint64_t{1} << 32, 1000}; },
       "its shape has more than 140737488355328 elements"},
      {[](Parts& p) { p.tensor = {(std::uint64_t{1} << 47) + 1}; },
       "its shape has more than 140737488355328 elements"},
      {[](Parts& p) { p.types[0] = BufferType::kOther; },
       "the buffer 'payload' is not U16, as Tile-ANS has it"},
      {[](Parts& p) { p.payload = {900, 1}; }, "the buffer 'payload' is not a list of words"},
      {[](Parts& p) { p.payload = {}; }, "the buffer 'payload' is not a list of words"},
      {[](Parts& p) { p.payload = {std::uint64_t{1} << 32}; },
       "the buffer 'payload' has more words than 32-bit offsets can reach"},
      {[](Parts& p) { p.types[1] = BufferType::kU16; },
       "the buffer 'offsets' is not U32, as Tile-ANS has it"},
      {[](Parts& p) { p.offsets = {8}; },
       "the buffer 'offsets' has shape [8], not [7], as its layout has it"},
      {[](Parts& p) { p.numbers[0] = 100; },
       "the buffer 'offsets' has shape [7], not [21], as its layout has it"},
      {[](Parts& p) { p.types[3] = BufferType::kOther; },
       "the buffer 'decode_tables' is not U32, as Tile-ANS has it"},
      {[](Parts& p) { p.numbers[1] = 10; },
       "the buffer 'decode_tables' has shape [2, 512], not [2, 1024], as its layout has it"},
      {[](Parts& p) { p.decode_tables = Shape(9, 1); },
       "the buffer 'decode_tables' has shape [1, 1, 1, 1, 1, 1, 1, 1], not [2, 512], as its layout has it"},
      {[](Parts& p) { p.lane_modes = {3}; },
       "the buffer 'lane_modes' has shape [3], not [2], as its layout has it"},
      {[](Parts& p) { p.types[4] = BufferType::kOther; },
       "the buffer 'lane_modes' is not U8, as Tile-ANS has it"},
      {[](Parts& p) { p.types[2] = BufferType::kI64; }, "the buffer 'states' is not U32, as Tile-ANS has it"},
      {[](Parts& p) { p.states = {96}; },
       "the buffer 'states' has shape [96], not [3, 32], as its layout has it"},
      {[](Parts& p) { p.states = {6, 32}; },
       "the buffer 'states' has shape [6, 32], not [3, 32], as its layout has it"},
      {[](Parts& p) { p.modes = {1, 2}; }, "the mode of lane 1 is 2, neither 0 (coded) nor 1 (raw)"},
      {[](Parts& p) { p.modes = {0, 0}; },
       "the buffer 'states' has shape [3, 32], not [6, 32], as its layout has it"},
      {[](Parts& p) { p.tables[600] ^= 1; }, "the decode table of lane 1 contradicts itself"},
      {[](Parts& p) { p.tables[0] ^= 1; }, "the decode table of lane 0 contradicts itself"},
      {[](Parts& p) { p.first_offset = 1; }, "its offsets lead from 1 to 900, but the payload from 0 to 900"},
      {[](Parts& p) { p.last_offset = 899; },
       "its offsets lead from 0 to 899, but the payload from 0 to 900"},
      {[](Parts& p) {
         p.payload = {1501};
         p.last_offset = 1501;
       },
       "its payload has 1501 words, more than its elements can take"},
  };
  for (const auto& [spoil, message] : cases) {
    Parts parts;
    spoil(parts);
    const auto plan = parts.read();
    ASSERT_FALSE(plan) << message;
    EXPECT_EQ(plan.error().message, message);
    EXPECT_EQ(plan.error().code, ErrorCode::kCorruptFile);
  }
}

TEST(TileAnsContainer, TheOnlyHarmlessFault) {
  // Tiles of 400 and of 401 elements are as many.
  Parts parts;
  parts.numbers[0] = 401;
  EXPECT_TRUE(parts.read());
}

}  // namespace
}  // namespace weightpress::tile_ans
