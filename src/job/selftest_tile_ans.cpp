#include "job/selftest_tile_ans.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <span>
#include <utility>

#include "format/tile_ans_tables.h"
#include "job/selftest_path_log.h"
#include "job/selftest_random.h"
#include "model/sha256.h"
#include "selftest/slow_tile_ans.h"

namespace weightpress::job {
namespace {

using tile_ans::Buffer;
using tile_ans::LaneMode;
using tile_ans::Layout;
using tile_ans::StageStatus;
using tile_ans::TileRange;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kFaultsOfTensor = 4;  // flipped bits, one at a time

template <class T>
std::span<const std::uint8_t> bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

template <class T>
std::span<const std::uint8_t> bytes_of(const std::vector<T>& values) {
  return bytes_of(std::span<const T>(values));
}

/// A tensor's six buffers.
struct Container {
  std::vector<std::uint16_t> payload;
  std::vector<std::uint32_t> offsets, states, decode_tables;
  Bytes lane_modes;
  std::array<std::int64_t, tile_ans::kLayoutNumbers> layout{};

  std::span<const std::uint8_t> bytes(Buffer buffer) const {
    switch (buffer) {
      case Buffer::kPayload:
        return bytes_of(payload);
      case Buffer::kOffsets:
        return bytes_of(offsets);
      case Buffer::kStates:
        return bytes_of(states);
      case Buffer::kDecodeTables:
        return bytes_of(decode_tables);
      case Buffer::kLaneModes:
        return lane_modes;
      case Buffer::kLayout:
        return bytes_of(std::span<const std::int64_t>(layout));
    }
    return {};
  }
};

constexpr auto kBuffers = [] {
  std::array<Buffer, tile_ans::kNumBuffers> buffers{};
  for (std::uint8_t i = 0; i < tile_ans::kNumBuffers; ++i) buffers[i] = static_cast<Buffer>(i);
  return buffers;
}();

std::string name_of(Buffer buffer) {
  return std::string(tile_ans::kBufferNames[static_cast<std::size_t>(buffer)]);
}

std::string status_text(const StageStatus& status) {
  if (status.ok()) return "no fault";
  return "in tile " + text(status.tile) + ", lane " + text(status.lane) + " '" +
         tile_ans::stage_code_text(status.code) + "'";
}

// ---- how a path cuts a tensor

struct Pieces {
  std::uint64_t histogram_elements = UINT64_MAX;
  std::uint64_t slab_tiles = UINT64_MAX;
  std::uint64_t shift_bytes = 0;  ///< of a slab in memory
  bool lane_by_lane = false;
  std::string text;  ///< of small ones
};

/// At most 8 slabs: a GPU has to be waited for after each of them.
Pieces pieces_for(const TileAnsPath& path, const SelftestTensor& tensor) {
  Pieces pieces;
  if (!path.in_pieces) return pieces;
  const std::uint64_t count = tensor.num_elements();
  std::uint64_t tile = tensor.settings.tile_elements;
  if (tile == 0) tile = tile_ans::automatic_tile_elements(tensor.bytes.size());
  const std::uint64_t num_tiles = (count - 1) / tile + 1;
  pieces.histogram_elements = count / 8 + 1 + chosen(tensor.seed, 0, count);
  pieces.slab_tiles = num_tiles / 8 + 1 + chosen(tensor.seed, 1, 3);
  pieces.shift_bytes = 1 + chosen(tensor.seed, 2, 15);
  pieces.lane_by_lane = chosen(tensor.seed, 3, 2) == 0;
  pieces.text = " [histograms of " + text(pieces.histogram_elements) + " elements, slabs of " +
                text(pieces.slab_tiles) + " tiles" + (pieces.lane_by_lane ? ", lane by lane]" : "]");
  return pieces;
}

std::vector<TileRange> slabs_of(const Layout& layout, const Pieces& pieces) {
  std::vector<TileRange> slabs;
  for (std::uint64_t first = 0; first < layout.num_tiles();) {
    slabs.push_back({first, std::min(pieces.slab_tiles, layout.num_tiles() - first)});
    first += slabs.back().num_tiles;
  }
  return slabs;
}

struct ByteRange {
  std::uint64_t first = 0, count = 0;
};

ByteRange bytes_of_slab(const Layout& layout, const TileRange& tiles) {
  return {layout.first_element(tiles.first_tile) * layout.num_lanes,
          layout.elements_of(tiles.first_tile, tiles.num_tiles) * layout.num_lanes};
}

enum class Reading : std::uint8_t { kElements, kComparison, kCheck };
constexpr const char* kReadingNames[] = {"decoding", "comparing with the tensor", "checking"};

struct Found {
  StageStatus status;
  Bytes elements;  ///< if they were asked for and there is no fault
};

/// A path's stages, with its way to cut and its memory.
class Codec {
 public:
  Codec(const TileAnsPath& path, PathLog* log) : path_(path), log_(log) {}

  /// Nothing: a problem was told.
  std::optional<Container> encode(const SelftestTensor& tensor, const Pieces& pieces,
                                  tile_ans::TensorPlan& plan);
  Found read(const Container& stored, const tile_ans::TensorPlan& plan, const Pieces& pieces, Reading reading,
             const Bytes& source);
  /// The answer of encoding, or of counting sizes, for a tensor that may not be what the plan is made of.
  StageStatus try_to_encode(const Bytes& bytes, const tile_ans::TensorPlan& plan, const Pieces& pieces,
                            bool only_sizes);

  /// Without a log: the first problem.
  const std::string& problem() const { return problem_; }
  void tell(const std::string& problem) {
    if (log_ != nullptr) log_->add_problem(problem);
    if (problem_.empty()) problem_ = problem;
  }

 private:
  struct LaneBuffers {
    SlabBuffer<std::uint32_t> stream_words, states, offsets;
    SlabBuffer<std::uint16_t> words;
  };

  std::span<const std::uint8_t> load(SlabBuffer<std::uint8_t>& buffer, std::span<const std::uint8_t> bytes,
                                     std::uint64_t shift_bytes) {
    const std::span<std::uint8_t> place =
        buffer.get(path_.memory, bytes.size() + shift_bytes).subspan(shift_bytes);
    std::ranges::copy(bytes, place.begin());
    return place;
  }
  std::vector<tile_ans::Histogram> count(const SelftestTensor& tensor, const Pieces& pieces);
  std::vector<tile_ans::LaneOutput> outputs_for(const tile_ans::TensorPlan& plan, const TileRange& tiles);
  /// sizes() or encode(), of all lanes at once or one after the other: the lowest tile's fault, of the lowest
  /// lane.
  StageStatus run(const tile_ans::TensorPlan& plan, const TileRange& tiles,
                  std::span<const std::uint8_t> elements, std::span<const tile_ans::LaneOutput> outputs,
                  bool lane_by_lane, bool only_sizes);

  const TileAnsPath& path_;
  PathLog* log_;
  std::string problem_;
  SlabBuffer<std::uint8_t> elements_, decoded_;
  std::array<LaneBuffers, tile_ans::kMaxLanes> lanes_;
};

// ---- encoding

/// The counts, whatever the stage says: nobody can tell what a tensor with wrong ones would become.
std::vector<tile_ans::Histogram> Codec::count(const SelftestTensor& tensor, const Pieces& pieces) {
  const std::uint32_t num_lanes = tensor.num_lanes;
  std::vector<tile_ans::Histogram> counts(num_lanes), base(num_lanes), found;
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) ++counts[i % num_lanes][tensor.bytes[i]];
  // The stage adds to what is there.
  for (std::uint32_t lane = 0; lane < num_lanes; ++lane)
    for (std::size_t symbol = 0; symbol < 256; ++symbol) base[lane][symbol] = 1000 * lane + symbol;
  found = base;
  for (std::uint64_t first = 0; first < tensor.num_elements();) {
    const std::uint64_t part = std::min(pieces.histogram_elements, tensor.num_elements() - first);
    const auto bytes = std::span(tensor.bytes).subspan(first * num_lanes, part * num_lanes);
    path_.stages->histogram({load(elements_, bytes, pieces.shift_bytes), num_lanes, found}).wait();
    first += part;
  }
  for (std::uint32_t lane = 0; lane < num_lanes; ++lane) {
    for (std::size_t symbol = 0; symbol < 256; ++symbol) {
      const std::uint64_t is = found[lane][symbol] - base[lane][symbol];
      if (is == counts[lane][symbol]) continue;
      tell("the histogram of lane " + text(lane) + " has " + text(is) + " bytes " + text(symbol) +
           " instead of " + text(counts[lane][symbol]));
      return counts;
    }
  }
  return counts;
}

std::vector<tile_ans::LaneOutput> Codec::outputs_for(const tile_ans::TensorPlan& plan,
                                                     const TileRange& tiles) {
  std::vector<tile_ans::LaneOutput> outputs;
  for (std::uint32_t l = 0; l < plan.layout.num_lanes; ++l) {
    const bool is_ans = plan.lanes[l].mode == LaneMode::kAns;
    outputs.push_back(
        {.lane = l,
         .stream_words = lanes_[l].stream_words.get(path_.memory, tiles.num_tiles),
         .words = lanes_[l].words.get(path_.memory, tile_ans::lane_words_capacity(plan, l, tiles)),
         .states = lanes_[l].states.get(path_.memory, is_ans ? tile_ans::kNumStates * tiles.num_tiles : 0)});
    fill_with_garbage(outputs.back().stream_words);
    fill_with_garbage(outputs.back().words);
    fill_with_garbage(outputs.back().states);
  }
  return outputs;
}

StageStatus Codec::run(const tile_ans::TensorPlan& plan, const TileRange& tiles,
                       std::span<const std::uint8_t> elements, std::span<const tile_ans::LaneOutput> outputs,
                       bool lane_by_lane, bool only_sizes) {
  StageStatus lowest;
  const std::size_t step = lane_by_lane ? 1 : outputs.size();
  for (std::size_t first = 0; first < outputs.size(); first += step) {
    const tile_ans::EncodeArguments arguments{&plan, tiles, elements, outputs.subspan(first, step)};
    const StageStatus status =
        (only_sizes ? path_.stages->sizes(arguments) : path_.stages->encode(arguments)).wait();
    if (!status.ok() && (lowest.ok() || status.tile < lowest.tile)) lowest = status;
  }
  return lowest;
}

std::optional<Container> Codec::encode(const SelftestTensor& tensor, const Pieces& pieces,
                                       tile_ans::TensorPlan& plan) {
  plan = tile_ans::plan_tensor(tensor.settings, count(tensor, pieces)).value();
  const Layout& layout = plan.layout;
  Container made;
  made.layout = {static_cast<std::int64_t>(layout.tile_elements), layout.probability_bits, layout.num_lanes,
                 static_cast<std::int64_t>(layout.num_elements)};
  made.decode_tables.resize(layout.num_lanes * layout.table_size());
  made.states.resize(plan.num_ans_lanes() * layout.num_tiles() * tile_ans::kNumStates);
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
    made.lane_modes.push_back(static_cast<std::uint8_t>(plan.lanes[l].mode));
    tile_ans::write_decode_table(
        plan.lanes[l].frequencies,
        std::span(made.decode_tables).subspan(l * layout.table_size(), layout.table_size()));
  }

  std::vector<std::uint32_t> stream_words(layout.num_streams());
  std::array<std::vector<std::uint16_t>, tile_ans::kMaxLanes> words;
  for (const TileRange& tiles : slabs_of(layout, pieces)) {
    const ByteRange range = bytes_of_slab(layout, tiles);
    const std::span<const std::uint8_t> elements =
        load(elements_, std::span(tensor.bytes).subspan(range.first, range.count), pieces.shift_bytes);
    for (const bool only_sizes : {true, false}) {
      const std::vector<tile_ans::LaneOutput> outputs = outputs_for(plan, tiles);
      const StageStatus status = run(plan, tiles, elements, outputs, pieces.lane_by_lane, only_sizes);
      if (!status.ok()) {
        tell(std::string(only_sizes ? "counting words" : "encoding") + " finds " + status_text(status));
        return std::nullopt;
      }
      for (const tile_ans::LaneOutput& output : outputs) {
        const std::uint64_t stream = layout.stream_of(output.lane, tiles.first_tile);
        const auto counted = std::span(stream_words).subspan(stream, tiles.num_tiles);
        if (only_sizes) {
          std::ranges::copy(output.stream_words, counted.begin());
          continue;
        }
        std::uint64_t total = 0;
        for (std::uint64_t i = 0; i < tiles.num_tiles; ++i) {
          total += output.stream_words[i];
          if (output.stream_words[i] == counted[i]) continue;
          tell("tile " + text(tiles.first_tile + i) + " of lane " + text(output.lane) + " is encoded to " +
               text(output.stream_words[i]) + " words, but " + text(counted[i]) + " were counted");
          return std::nullopt;
        }
        if (total > output.words.size()) {
          tell("lane " + text(output.lane) + " has " + text(total) + " words, more than its bytes can take");
          return std::nullopt;
        }
        words[output.lane].insert(words[output.lane].end(), output.words.begin(),
                                  output.words.begin() + static_cast<std::ptrdiff_t>(total));
        const std::uint64_t row = plan.ans_rank(output.lane) * layout.num_tiles() + tiles.first_tile;
        if (!output.states.empty())
          std::ranges::copy(output.states,
                            made.states.begin() + static_cast<std::ptrdiff_t>(tile_ans::kNumStates * row));
      }
    }
  }
  std::uint64_t end = 0;
  made.offsets.resize(layout.num_offsets());
  tile_ans::add_offsets(stream_words, end, std::span(made.offsets).subspan(1));
  for (const std::vector<std::uint16_t>& lane : words)
    made.payload.insert(made.payload.end(), lane.begin(), lane.end());
  return made;
}

StageStatus Codec::try_to_encode(const Bytes& bytes, const tile_ans::TensorPlan& plan, const Pieces& pieces,
                                 bool only_sizes) {
  for (const TileRange& tiles : slabs_of(plan.layout, pieces)) {
    const ByteRange range = bytes_of_slab(plan.layout, tiles);
    const std::span<const std::uint8_t> elements =
        load(elements_, std::span(bytes).subspan(range.first, range.count), pieces.shift_bytes);
    const StageStatus status =
        run(plan, tiles, elements, outputs_for(plan, tiles), pieces.lane_by_lane, only_sizes);
    if (!status.ok()) return status;
  }
  return {};
}

// ---- decoding

/// Of the elements as numbers.
std::uint64_t sum_of(std::span<const std::uint8_t> bytes, std::uint32_t num_lanes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) sum += std::uint64_t{bytes[i]} << 8 * (i % num_lanes);
  return sum;
}

Found Codec::read(const Container& stored, const tile_ans::TensorPlan& plan, const Pieces& pieces,
                  Reading reading, const Bytes& source) {
  const Layout& layout = plan.layout;
  Found found;
  for (const TileRange& tiles : slabs_of(layout, pieces)) {
    std::vector<tile_ans::LaneInput> inputs;
    for (std::uint32_t l = 0; l < layout.num_lanes; ++l) {
      const LaneMode mode = plan.lanes[l].mode;
      const auto take = [&]<class T>(SlabBuffer<T>& buffer, std::span<const T> values) {
        const std::span<T> place = buffer.get(path_.memory, values.size());
        std::ranges::copy(values, place.begin());
        return std::span<const T>(place);
      };
      const auto offsets =
          take(lanes_[l].offsets,
               std::span(stored.offsets).subspan(layout.stream_of(l, tiles.first_tile), tiles.num_tiles + 1));
      const tile_ans::WordRange range =
          tile_ans::lane_words(layout, mode, tiles, offsets, stored.payload.size());
      const auto words =
          take(lanes_[l].words,
               std::span(stored.payload).subspan(range.count == 0 ? 0 : range.first, range.count));
      std::span<const std::uint32_t> states;
      if (mode == LaneMode::kAns) {
        const std::uint64_t row = plan.ans_rank(l) * layout.num_tiles() + tiles.first_tile;
        states = take(lanes_[l].states,
                      std::span(stored.states)
                          .subspan(tile_ans::kNumStates * row, tile_ans::kNumStates * tiles.num_tiles));
      }
      inputs.push_back({mode, &plan.lanes[l].frequencies, offsets, words, states});
    }
    const ByteRange range = bytes_of_slab(layout, tiles);
    std::span<const std::uint8_t> compared;
    if (reading == Reading::kComparison)
      compared = load(elements_, std::span(source).subspan(range.first, range.count), pieces.shift_bytes);
    std::span<std::uint8_t> elements;
    if (reading == Reading::kElements)
      elements = decoded_.get(path_.memory, range.count + pieces.shift_bytes).subspan(pieces.shift_bytes);
    fill_with_garbage(elements);
    found.status =
        path_.decode_stage
            ->decode(
                {.layout = layout, .tiles = tiles, .lanes = inputs, .source = compared, .elements = elements})
            .wait();
    if (!found.status.ok()) {
      found.elements.clear();
      break;
    }
    if (path_.decoded_sum && reading == Reading::kElements &&
        path_.decoded_sum() != sum_of(elements, layout.num_lanes))
      tell("decoding gives other elements than the sum of those that it decoded says");
    found.elements.insert(found.elements.end(), elements.begin(), elements.end());
  }
  return found;
}

/// A clause; empty: it is what was expected.
std::string difference(const Found& found, const Found& expected) {
  if (found.status != expected.status)
    return "finds " + status_text(found.status) + " instead of " + status_text(expected.status);
  if (found.elements.size() != expected.elements.size())
    return "gives " + text(found.elements.size()) + " bytes instead of " + text(expected.elements.size());
  const auto [is, should_be] = std::ranges::mismatch(found.elements, expected.elements);
  if (is == found.elements.end()) return {};
  return "gives another tensor, from byte " + text(static_cast<std::uint64_t>(is - found.elements.begin())) +
         " on: " + text(*is) + " instead of " + text(*should_be);
}

// ---- faults

/// A bit that is not as it should be, and how it is looked for.
struct Fault {
  enum class Place : std::uint8_t { kPayload, kOffsets, kStates, kSource, kCounted };

  Place place = Place::kSource;
  Reading reading = Reading::kElements;  ///< of a container's
  std::uint64_t index = 0;               ///< of a number in its buffer; of a byte in the tensor
  std::uint32_t bit = 0;

  bool is_in_container() const { return place < Place::kSource; }
  void flip(Container& stored, Bytes& tensor) const {
    if (place == Place::kPayload)
      stored.payload[index] = static_cast<std::uint16_t>(stored.payload[index] ^ 1u << bit);
    if (place == Place::kOffsets) stored.offsets[index] ^= 1u << bit;
    if (place == Place::kStates) stored.states[index] ^= 1u << bit;
    if (!is_in_container()) tensor[index] = static_cast<std::uint8_t>(tensor[index] ^ 1u << bit);
  }
  std::string text() const {
    constexpr const char* kNames[] = {"word ", "offset ", "state ", "byte ", "byte "};
    return "with bit " + std::to_string(bit) + " of " + kNames[static_cast<std::size_t>(place)] +
           std::to_string(index) + (is_in_container() ? "" : " of the tensor") + " flipped, ";
  }
};

Fault chosen_fault(const SelftestTensor& tensor, const Container& stored, std::uint64_t number) {
  const auto below = [&](std::uint64_t purpose, std::uint64_t bound) {
    return chosen(tensor.seed, 16 * (number + 1) + purpose, bound);
  };
  Fault fault;
  fault.reading = static_cast<Reading>(below(1, std::size(kReadingNames)));
  std::uint64_t size = tensor.bytes.size(), bits = 8;
  // The payload twice: most of a container is there.
  switch (below(0, 6)) {
    case 0:
    case 1:
      if (stored.payload.empty()) break;
      fault.place = Fault::Place::kPayload;
      size = stored.payload.size();
      bits = 16;
      break;
    case 2:
      fault.place = Fault::Place::kOffsets;
      size = stored.offsets.size();
      bits = 32;
      break;
    case 3:
      if (stored.states.empty()) break;
      fault.place = Fault::Place::kStates;
      size = stored.states.size();
      bits = 32;
      break;
    case 4:
      fault.place = Fault::Place::kCounted;
      break;
    default:
      break;
  }
  if (fault.place == Fault::Place::kSource) fault.reading = Reading::kComparison;
  fault.index = below(2, size);
  fault.bit = static_cast<std::uint32_t>(below(3, bits));
  return fault;
}

/// What a path finds with a fault.
Found find(Codec& codec, const Fault& fault, const SelftestTensor& tensor, const Container& sound,
           const tile_ans::TensorPlan& plan, const Pieces& pieces) {
  Container damaged = sound;
  Bytes bytes = tensor.bytes;
  fault.flip(damaged, bytes);
  if (fault.place == Fault::Place::kCounted) {
    const bool only_sizes = fault.reading == Reading::kCheck;
    return {.status = codec.try_to_encode(bytes, plan, pieces, only_sizes), .elements = {}};
  }
  return codec.read(damaged, plan, pieces, fault.reading, bytes);
}

/// Clauses about all buffers that are not the reference's; empty: they are, or nobody knows.
std::string difference_to_reference(const Container& made, const SelftestTensor& tensor) {
  if (tensor.hashes == nullptr) return {};
  const auto hash = [](std::span<const std::uint8_t> bytes) {
    model::Sha256 sha256;
    sha256.update(bytes);
    return model::hex_of(sha256.finish());
  };
  if (hash(tensor.bytes) != tensor.hashes->elements) return "the built-in tensor is not what it should be";
  std::string found;
  for (const Buffer buffer : kBuffers)
    if (hash(made.bytes(buffer)) != tensor.hashes->buffers[static_cast<std::size_t>(buffer)])
      found += (found.empty() ? "" : ", ") + name_of(buffer);
  return found.empty() ? found : "not what the reference, entropack 0.1.0, makes of it: " + found;
}

std::string check_by_slow_decoder(const Container& made, const SelftestTensor& tensor) {
  const selftest::SlowTileAnsDecoding slow =
      selftest::slow_tile_ans_decode({.payload = made.bytes(Buffer::kPayload),
                                      .offsets = made.bytes(Buffer::kOffsets),
                                      .states = made.bytes(Buffer::kStates),
                                      .decode_tables = made.bytes(Buffer::kDecodeTables),
                                      .lane_modes = made.bytes(Buffer::kLaneModes),
                                      .layout = made.bytes(Buffer::kLayout)});
  if (!slow.ok) return "the slow decoder finds '" + slow.problem + "'";
  return slow.elements == tensor.bytes ? "" : "the slow decoder reads another tensor";
}

}  // namespace

std::string check_tensor(const TileAnsPath& path, const SelftestTensor& tensor) {
  Codec codec(path, nullptr);
  tile_ans::TensorPlan plan;
  const std::optional<Container> made = codec.encode(tensor, {}, plan);
  if (!codec.problem().empty()) return codec.problem();
  std::string problem = difference_to_reference(*made, tensor);
  if (problem.empty()) problem = check_by_slow_decoder(*made, tensor);
  if (!problem.empty()) return problem;
  problem = difference(codec.read(*made, plan, {}, Reading::kElements, tensor.bytes),
                       {.status = {}, .elements = tensor.bytes});
  return problem.empty() ? codec.problem() : "the fast decoder " + problem;
}

// ---- paths

struct TileAnsPathComparison::Path : PathLog {
  explicit Path(TileAnsPath given) : PathLog(given.name), path(std::move(given)), codec(path, this) {}

  const TileAnsPath path;
  Codec codec;
};

TileAnsPathComparison::TileAnsPathComparison(std::vector<TileAnsPath> paths) {
  assert(!paths.empty());
  for (TileAnsPath& path : paths) paths_.push_back(std::make_unique<Path>(std::move(path)));
}

TileAnsPathComparison::~TileAnsPathComparison() = default;

void TileAnsPathComparison::add(const SelftestTensor& tensor) {
  // What the first path makes: the others must make the same.
  std::optional<Container> sound;
  tile_ans::TensorPlan plan;
  std::vector<Fault> faults;
  std::vector<Found> found;  // of each
  for (const std::unique_ptr<Path>& path : paths_) {
    const bool is_first = path == paths_.front();
    if (!is_first && !sound) return;
    const Pieces pieces = pieces_for(path->path, tensor);
    path->try_unit(tensor.name + pieces.text, is_first, [&] {
      if (path->path.use) path->path.use();
      Codec& codec = path->codec;
      tile_ans::TensorPlan own_plan;
      const std::optional<Container> made = codec.encode(tensor, pieces, own_plan);
      if (is_first) {
        if (!made) return;
        sound = made;
        plan = own_plan;
        for (const std::string& problem :
             {difference_to_reference(*made, tensor), check_by_slow_decoder(*made, tensor)})
          if (!problem.empty()) path->add_problem(problem);
      } else if (made) {
        std::string problem;
        for (const Buffer buffer : kBuffers)
          add_difference(problem, name_of(buffer), made->bytes(buffer), sound->bytes(buffer));
        if (!problem.empty()) path->add_problem(problem);
      }
      for (const Reading reading : {Reading::kElements, Reading::kComparison, Reading::kCheck}) {
        Found wanted;
        if (reading == Reading::kElements) wanted.elements = tensor.bytes;
        const std::string problem =
            difference(codec.read(*sound, plan, pieces, reading, tensor.bytes), wanted);
        if (!problem.empty())
          path->add_problem(kReadingNames[static_cast<std::size_t>(reading)] + (" " + problem));
      }
      for (std::uint64_t i = 0; i < kFaultsOfTensor; ++i) {
        if (is_first) faults.push_back(chosen_fault(tensor, *sound, i));
        const Fault& fault = faults[i];
        const Found finds = find(codec, fault, tensor, *sound, plan, pieces);
        const char* const name = fault.place == Fault::Place::kCounted
                                     ? "encoding"
                                     : kReadingNames[static_cast<std::size_t>(fault.reading)];
        if (!is_first) {
          const std::string problem = difference(finds, found[i]);
          if (!problem.empty()) path->add_problem(fault.text() + name + " " + problem);
          continue;
        }
        found.push_back(finds);
        const std::uint64_t tile = fault.index / (tensor.num_lanes * plan.layout.tile_elements);
        const StageStatus differs{tile_ans::StageCode::kDiffers, tile, 0};
        if (fault.place == Fault::Place::kSource && finds.status != differs)
          path->add_problem(fault.text() + name + " finds " + status_text(finds.status));
      }
    });
  }
}

std::vector<SelftestPath> TileAnsPathComparison::outcome() const {
  std::vector<SelftestPath> outcome;
  for (const std::unique_ptr<Path>& path : paths_) outcome.push_back(path->outcome());
  return outcome;
}

}  // namespace weightpress::job
