// The parser of Tile-ANS headers on arbitrary bytes, and what a container says of itself on arbitrary shapes
// and numbers: both must judge, not crash; what is accepted must survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "format/tile_ans_container.h"
#include "model/tile_ans_header.h"

using namespace weightpress;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// Numbers from the input; 0 behind its end.
class Numbers {
 public:
  Numbers(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint64_t next(std::size_t num_bytes) {
    std::uint64_t number = 0;
    const std::size_t have = std::min(num_bytes, size_);
    std::memcpy(&number, data_, have);
    data_ += have;
    size_ -= have;
    return number;
  }
  /// Often what would be right: a fault seldom comes alone otherwise.
  std::uint64_t next_or(std::uint64_t right) { return next(1) % 8 == 0 ? next(8) : right; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

void try_container(Numbers numbers) {
  using namespace tile_ans;
  const std::uint32_t lanes = 1u << numbers.next(1) % 4;
  const std::vector<std::uint64_t> tensor = {1 + numbers.next(1), numbers.next_or(3)};
  const std::uint64_t elements = tensor[0] * tensor[1];
  const std::uint64_t tile = 1 + numbers.next(2);
  const std::uint64_t tiles = (elements + tile - 1) / tile;
  const std::uint64_t bits = 9 + numbers.next(1) % 4;
  const std::uint64_t payload = numbers.next(4);
  const std::vector<std::uint64_t> shapes_of[kNumBuffers] = {
      {numbers.next_or(payload)},
      {numbers.next_or(tiles * lanes + 1)},
      {numbers.next_or(tiles * lanes), 32},
      {lanes, numbers.next_or(std::uint64_t{1} << bits)},
      {numbers.next_or(lanes)},
      {numbers.next_or(4)}};
  ContainerShapes shapes;
  for (std::uint32_t i = 0; i < kNumBuffers; ++i) {
    const BufferType right = buffer_type(static_cast<Buffer>(i));
    shapes.buffers[i] = {static_cast<BufferType>(numbers.next_or(static_cast<std::uint64_t>(right)) % 5),
                         shapes_of[i]};
  }
  shapes.tensor_shape = tensor;
  shapes.element_bytes = lanes;
  if (!check_layout_buffer(shapes)) return;
  std::int64_t words[kLayoutNumbers];
  const std::uint64_t right[] = {tile, bits, lanes, elements};
  for (std::uint32_t i = 0; i < kLayoutNumbers; ++i)
    words[i] = static_cast<std::int64_t>(numbers.next_or(right[i]));
  const auto layout = read_layout(shapes, words);
  if (!layout)
    return require(layout.error().code == ErrorCode::kCorruptFile && !layout.error().message.empty());
  require(layout->num_lanes == lanes && layout->num_elements == tensor[0] * tensor[1]);
  require(layout->num_tiles() * layout->tile_elements >= layout->num_elements);

  std::vector<std::uint8_t> modes;
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    modes.push_back(static_cast<std::uint8_t>(numbers.next_or(0)));
  std::vector<std::uint32_t> tables(lanes * layout->table_size());
  for (std::uint32_t& entry : tables)
    entry = layout->table_size() == 4096 ? 7 : layout->table_size() << 8 | 7;
  if (const std::uint64_t faults = numbers.next(1) % 4) {
    for (std::uint64_t i = 0; i < faults; ++i)
      tables[numbers.next(2) % tables.size()] = static_cast<std::uint32_t>(numbers.next(4));
  }
  const auto plan = read_container(shapes, *layout,
                                   {modes, tables, static_cast<std::uint32_t>(numbers.next_or(0)),
                                    static_cast<std::uint32_t>(numbers.next_or(shapes_of[0][0]))});
  if (!plan) return require(plan.error().code == ErrorCode::kCorruptFile && !plan.error().message.empty());
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    std::uint64_t sum = 0;
    for (const std::uint16_t frequency : plan->lanes[lane].frequencies) sum += frequency;
    require(sum == layout->table_size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try_container(Numbers(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto header = model::parse_tile_ans_header(text);
  if (!header) {
    require(!header.error().message.empty());
    return 0;
  }
  model::TileAnsHeader written = *header;
  if (written.method == model::TileAnsHeader::Method::kTileAns) require(written.reason.empty());
  const auto again = model::parse_tile_ans_header(model::write_tile_ans_header(written));
  require(again.has_value() && *again == *header);
  return 0;
}
