// The slow decoder of Tile-ANS. Names in quotation marks are sections of docs/format.md, its only source.
#include "slow_tile_ans.h"

namespace weightpress::selftest {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint64_t kStates = 32;
constexpr std::uint64_t kLowestState = 1u << 15, kStatesEnd = std::uint64_t{1} << 31;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 47;

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

/// The number of `size` bytes at place `index` of an array.
std::uint64_t number_at(Bytes bytes, unsigned size, std::uint64_t index) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < size; ++i) value |= std::uint64_t{bytes[size * index + i]} << 8 * i;
  return value;
}

struct Layout {
  std::uint64_t tile_elements = 0, bits = 0, lanes = 0, elements = 0;

  std::uint64_t slots() const { return std::uint64_t{1} << bits; }
  std::uint64_t tiles() const { return (elements + tile_elements - 1) / tile_elements; }
};

struct Entry {
  std::uint64_t start = 0, frequency = 0, symbol = 0;
};

/// "Tile-ANS: decode tables"
Entry entry_at(const TileAnsBytes& stored, const Layout& layout, std::uint64_t lane, std::uint64_t slot) {
  const std::uint64_t word = number_at(stored.decode_tables, 4, lane * layout.slots() + slot);
  Entry entry{word >> 20, word >> 8 & 0xFFF, word & 0xFF};
  if (entry.frequency == 0) entry.frequency = 4096;
  return entry;
}

/// "Tile-ANS: buffers". Returns the problem, or nothing.
std::string read_layout(const TileAnsBytes& stored, Layout& layout) {
  if (stored.layout.size() != 32) return "layout: " + text(stored.layout.size()) + " bytes instead of 32";
  layout = {number_at(stored.layout, 8, 0), number_at(stored.layout, 8, 1), number_at(stored.layout, 8, 2),
            number_at(stored.layout, 8, 3)};
  if (layout.tile_elements < 1 || layout.tile_elements >= kStatesEnd)
    return "layout: a tile cannot be so long";
  if (layout.bits < 9 || layout.bits > 12) return "layout: tables have no such precision";
  if (layout.lanes != 1 && layout.lanes != 2 && layout.lanes != 4 && layout.lanes != 8)
    return "layout: elements have no such size";
  if (layout.elements < 1 || layout.elements > kMaxElements) return "layout: no such number of elements";
  return {};
}

std::string check_sizes(const TileAnsBytes& stored, const Layout& layout) {
  if (stored.lane_modes.size() != layout.lanes) return "lane_modes: not a byte a lane";
  std::uint64_t coded = 0;
  for (const std::uint8_t mode : stored.lane_modes) {
    if (mode > 1) return "lane_modes: a lane is neither coded nor raw";
    coded += mode == 0;
  }
  const auto wrong = [](const char* name, std::uint64_t is, std::uint64_t should_be) {
    return is == should_be ? std::string()
                           : std::string(name) + ": " + text(is) + " bytes instead of " + text(should_be);
  };
  const std::uint64_t streams = layout.tiles() * layout.lanes;
  std::string problem = wrong("offsets", stored.offsets.size(), 4 * (streams + 1));
  if (problem.empty()) problem = wrong("states", stored.states.size(), 4 * kStates * layout.tiles() * coded);
  if (problem.empty())
    problem = wrong("decode_tables", stored.decode_tables.size(), 4 * layout.lanes * layout.slots());
  if (!problem.empty()) return problem;
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i <= streams; ++i) {
    const std::uint64_t offset = number_at(stored.offsets, 4, i);
    if (offset < before || (i == 0 && offset != 0))
      return "offsets: entry " + text(i) + " is " + text(offset);
    before = offset;
  }
  return wrong("payload", stored.payload.size(), 2 * before);
}

std::string check_table(const TileAnsBytes& stored, const Layout& layout, std::uint64_t lane) {
  std::uint64_t next_symbol = 0;
  for (std::uint64_t slot = 0; slot < layout.slots();) {
    const Entry run = entry_at(stored, layout, lane, slot);
    const std::string place = "decode_tables: lane " + text(lane) + ", slot " + text(slot);
    if (run.start != slot || run.symbol < next_symbol) return place + ": no symbol begins like this here";
    if (run.frequency > layout.slots() - slot) return place + ": the frequency is too large";
    for (const std::uint64_t end = slot + run.frequency; slot < end; ++slot) {
      const Entry entry = entry_at(stored, layout, lane, slot);
      if (entry.start != run.start || entry.frequency != run.frequency || entry.symbol != run.symbol)
        return place + ": not all entries of the symbol are alike";
    }
    next_symbol = run.symbol + 1;
  }
  return {};
}

struct Stream {
  std::uint64_t first_word = 0, end_word = 0;  // of the payload
  std::uint64_t lane = 0;
  std::uint64_t first_element = 0, num_elements = 0;
  std::uint64_t states_row = 0;
};

std::string copy_raw(const TileAnsBytes& stored, const Layout& layout, const Stream& stream,
                     std::vector<std::uint8_t>& elements) {
  const std::uint64_t num_words = stream.end_word - stream.first_word;
  if (num_words != (stream.num_elements + 1) / 2) return "it has " + text(num_words) + " words";
  const Bytes bytes = stored.payload.subspan(2 * stream.first_word, 2 * num_words);
  for (std::uint64_t i = 0; i < stream.num_elements; ++i)
    elements[(stream.first_element + i) * layout.lanes + stream.lane] = bytes[i];
  return bytes.size() > stream.num_elements && bytes.back() != 0 ? "its padding is not 0" : "";
}

/// "Back", from the last element to the first.
std::string decode(const TileAnsBytes& stored, const Layout& layout, const Stream& stream,
                   std::vector<std::uint8_t>& elements) {
  std::uint64_t states[kStates];
  for (std::uint64_t i = 0; i < kStates; ++i) {
    states[i] = number_at(stored.states, 4, stream.states_row * kStates + i);
    if (states[i] < kLowestState || states[i] >= kStatesEnd)
      return "state " + text(i) + " is " + text(states[i]);
  }
  std::uint64_t end_word = stream.end_word;
  for (std::uint64_t i = stream.num_elements; i-- > 0;) {
    std::uint64_t& x = states[i % kStates];
    const std::uint64_t slot = x % layout.slots();
    const Entry entry = entry_at(stored, layout, stream.lane, slot);
    elements[(stream.first_element + i) * layout.lanes + stream.lane] =
        static_cast<std::uint8_t>(entry.symbol);
    x = entry.frequency * (x / layout.slots()) + slot - entry.start;
    if (x >= kLowestState) continue;
    if (end_word == stream.first_word) return "its words end at element " + text(i) + " of the tile";
    x = x * 65536 + number_at(stored.payload, 2, --end_word);
  }
  if (end_word != stream.first_word) return text(end_word - stream.first_word) + " of its words are left";
  for (std::uint64_t i = 0; i < kStates; ++i)
    if (states[i] != kLowestState) return "state " + text(i) + " begins as " + text(states[i]);
  return {};
}

std::string decode_all(const TileAnsBytes& stored, std::vector<std::uint8_t>& elements) {
  Layout layout;
  std::string problem = read_layout(stored, layout);
  if (problem.empty()) problem = check_sizes(stored, layout);
  for (std::uint64_t lane = 0; lane < layout.lanes && problem.empty(); ++lane)
    problem = check_table(stored, layout, lane);
  if (!problem.empty()) return problem;

  elements.resize(layout.elements * layout.lanes);
  std::uint64_t coded_below = 0;
  for (std::uint64_t lane = 0; lane < layout.lanes; ++lane) {
    const bool is_coded = stored.lane_modes[lane] == 0;
    for (std::uint64_t tile = 0; tile < layout.tiles(); ++tile) {
      const std::uint64_t number = lane * layout.tiles() + tile, first = tile * layout.tile_elements;
      const std::uint64_t left = layout.elements - first;
      const Stream stream{.first_word = number_at(stored.offsets, 4, number),
                          .end_word = number_at(stored.offsets, 4, number + 1),
                          .lane = lane,
                          .first_element = first,
                          .num_elements = left < layout.tile_elements ? left : layout.tile_elements,
                          .states_row = coded_below * layout.tiles() + tile};
      problem =
          is_coded ? decode(stored, layout, stream, elements) : copy_raw(stored, layout, stream, elements);
      if (!problem.empty())
        return "the stream of lane " + text(lane) + ", tile " + text(tile) + ": " + problem;
    }
    coded_below += is_coded;
  }
  return {};
}

}  // namespace

SlowTileAnsDecoding slow_tile_ans_decode(const TileAnsBytes& stored) {
  SlowTileAnsDecoding result;
  result.problem = decode_all(stored, result.elements);
  result.ok = result.problem.empty();
  return result;
}

}  // namespace weightpress::selftest
