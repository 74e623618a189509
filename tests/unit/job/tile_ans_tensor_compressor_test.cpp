// Compressing a tensor slab by slab: the golden tensors' bytes for slabs of any size, in as much memory as is
// counted; what is told when the source, the file or the stages are not as they should be.
#include "job/tile_ans_tensor_compressor.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "host/tile_ans_stages.h"
#include "model/model_test_support.h"
#include "model/tile_ans_header.h"
#include "support/guarded_slab_memory.h"
#include "support/tile_ans_golden.h"
#include "support/tile_ans_random.h"

namespace weightpress::job {
namespace {

using namespace testing;
using tile_ans::Buffer;
using tile_ans::Completion;
using tile_ans::LaneMode;
using tile_ans::Layout;
using tile_ans::StageCode;
using tile_ans::StageStatus;

struct NamedTensor {
  std::string name;
  model::Dtype dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// A model in a file.
class Model {
 public:
  explicit Model(const std::vector<NamedTensor>& tensors) {
    std::vector<model::TensorSpec> specs;
    for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    const model::SafetensorsLayout layout = model::plan_safetensors_layout(specs, {}).value();
    std::string file = layout.header;
    for (const model::TensorPlacement& placed : layout.tensors) {
      const std::vector<std::uint8_t>& bytes = tensors[placed.spec_index].bytes;
      file.append(bytes.begin(), bytes.end());
    }
    path = folder.write("model.safetensors", file);
    checkpoint = std::make_unique<model::Checkpoint>(model::Checkpoint::open(path));
  }
  std::size_t index_of(std::string_view name) const {
    return static_cast<std::size_t>(checkpoint->find(name) - checkpoint->tensors().data());
  }

  model::TempFolder folder;
  std::filesystem::path path;
  std::unique_ptr<model::Checkpoint> checkpoint;
};

/// A new file, and where a container goes in it: buffers in any order, and not side by side.
struct Output {
  Output(const model::TempFolder& folder, const PlannedTileAns& planned, std::uint64_t seed)
      : path(folder / ("output-" + std::to_string(seed))),
        file(model::File::create(path)),
        places{.file = file} {
    const tile_ans::TensorPlan& plan = planned.plan;
    const Layout& layout = plan.layout;
    sizes = {2 * planned.payload_words(),
             4 * layout.num_offsets(),
             4 * tile_ans::kNumStates * plan.num_ans_lanes() * layout.num_tiles(),
             4 * std::uint64_t{layout.num_lanes} * layout.table_size(),
             layout.num_lanes,
             8 * tile_ans::kLayoutNumbers,
             planned.header.size()};
    Random random(seed);
    std::uint64_t end = 0;
    const std::uint64_t first = random.below(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t buffer = (first + i) % sizes.size();
      end += kGap;
      offset_of(buffer) = end;
      end += sizes[buffer];
    }
    const std::string blank(end + kGap, '#');
    file.write_at(blank.data(), blank.size(), 0);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }

  std::uint64_t& offset_of(std::size_t buffer) {
    return buffer < tile_ans::kNumBuffers ? places.offsets_bytes[buffer] : places.header_offset_bytes;
  }
  template <class T>
  std::vector<T> read(std::size_t buffer) {
    std::vector<T> values(sizes[buffer] / sizeof(T));
    file.read_at(values.data(), sizes[buffer], offset_of(buffer));
    return values;
  }
  void expect_holds(const TileAnsBuffers& expected, const std::string& header) {
    EXPECT_TRUE(read<std::uint16_t>(0) == expected.payload);
    EXPECT_TRUE(read<std::uint32_t>(1) == expected.offsets);
    EXPECT_TRUE(read<std::uint32_t>(2) == expected.states);
    EXPECT_TRUE(read<std::uint32_t>(3) == expected.decode_tables);
    EXPECT_EQ(read<std::uint8_t>(4), expected.lane_modes);
    EXPECT_EQ(read<std::int64_t>(5), expected.layout);
    const std::vector<char> text = read<char>(6);
    EXPECT_EQ(std::string(text.begin(), text.end()), header);
    // And nothing lies between.
    std::string all(file.size_bytes(), '\0');
    file.read_at(all.data(), all.size(), 0);
    for (std::size_t buffer = 0; buffer < sizes.size(); ++buffer)
      all.replace(offset_of(buffer), sizes[buffer], sizes[buffer], '#');
    EXPECT_EQ(all.find_first_not_of('#'), all.npos);
  }

  static constexpr std::uint64_t kGap = 5;
  std::filesystem::path path;
  model::File file;
  TileAnsPlaces places;
  std::array<std::uint64_t, tile_ans::kNumBuffers + 1> sizes{};
};

PlannedTileAns planned_of(std::size_t index, const model::SourceTensor& tensor,
                          const tile_ans::TensorPlan& plan, const TileAnsBuffers& stored) {
  PlannedTileAns planned{.tensor = index, .plan = plan};
  for (std::uint32_t l = 0; l < plan.layout.num_lanes; ++l)
    planned.lane_words[l] =
        stored.offsets[plan.layout.stream_of(l + 1, 0)] - stored.offsets[plan.layout.stream_of(l, 0)];
  planned.header = model::write_tile_ans_header({.dtype = tensor.dtype, .shape = tensor.shape});
  return planned;
}

TEST(TileAnsTensorCompressor, GoldenTensorsInSlabsOfAnySize) {
  std::vector<NamedTensor> tensors;
  const std::vector<std::string> names = GoldenTileAns::coded_tensors();
  ASSERT_EQ(names.size(), 74u);
  std::vector<GoldenTileAns> goldens;
  std::vector<std::string> headers;
  for (const std::string& name : names) {
    goldens.emplace_back(name);
    const std::vector<std::uint8_t> header = read_bytes(golden_folder() / "tile_ans" / name / "header.json");
    headers.emplace_back(header.begin(), header.end());
    const auto dtype = model::parse_tile_ans_header(headers.back()).value().dtype;
    tensors.push_back({name, dtype, goldens.back().shape, goldens.back().bytes});
  }
  const Model source(tensors);
  host::HostTileAnsStages stages(2);
  host::HostTileAnsDecodeStage decode_stage(2);
  std::uint64_t num_shrunk = 0, num_runs = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    SCOPED_TRACE(names[i]);
    const GoldenTileAns& golden = goldens[i];
    const std::size_t index = source.index_of(names[i]);
    const model::SourceTensor& tensor = source.checkpoint->tensors()[index];
    const tile_ans::TensorPlan plan = plan_with(stages, golden.bytes, golden.num_lanes, golden.settings);
    const PlannedTileAns planned = planned_of(index, tensor, plan, golden.stored);
    const Layout layout = layout_before_plan(golden.settings, tensor);
    const std::uint64_t num_tiles = layout.num_tiles();
    // Thousands of tiny tiles not one by one.
    for (const std::uint64_t slab : {num_tiles / 100 + 1, num_tiles / 40 + 2, num_tiles / 2 + 1, num_tiles}) {
      if (slab > num_tiles) continue;
      for (const bool reads_back : {false, true}) {
        SCOPED_TRACE("slabs of " + std::to_string(slab) + " of " + std::to_string(num_tiles) + " tiles");
        GuardedSlabMemory memory(encode_bytes(layout, slab, reads_back));
        TileAnsTensorCompressor compressor(
            *source.checkpoint, stages, decode_stage, memory.get(),
            {.settings = golden.settings, .num_threads = 2, .reads_back = reads_back});
        EXPECT_TRUE(slab < num_tiles || compressor.is_one_slab(layout));
        std::uint64_t seen = 0;
        const auto on_slab = [&](std::uint64_t bytes) { seen += bytes; };
        const auto made = compressor.plan(index, on_slab);
        EXPECT_EQ(seen, 2 * tensor.size_bytes);
        EXPECT_EQ(made.has_value(), planned.stored_bytes() < tensor.size_bytes);
        if (made) {
          ++num_shrunk;
          EXPECT_EQ(made->tensor, index);
          EXPECT_EQ(made->plan.layout, plan.layout);
          EXPECT_EQ(made->lane_words, planned.lane_words);
          EXPECT_EQ(made->header, headers[i]);
          EXPECT_EQ(made->stored_bytes(), planned.stored_bytes());
          EXPECT_GE(made->stored_bytes(), least_stored_bytes(golden.settings, tensor));
        }
        Output output(source.folder, planned, ++num_runs);
        seen = 0;
        compressor.encode(planned, output.places, on_slab);
        EXPECT_EQ(seen, tensor.size_bytes);
        output.expect_holds(golden.stored, headers[i]);
        if (reads_back) {
          seen = 0;
          EXPECT_TRUE(compressor.is_written(planned, output.places, on_slab));
          EXPECT_EQ(seen, tensor.size_bytes);
        }
        EXPECT_TRUE(memory.is_intact());
      }
    }
  }
  EXPECT_GT(num_shrunk, 60u);
  EXPECT_GT(num_runs, 200u);
}

TEST(TileAnsTensorCompressor, RandomTensorsInSlabsOfAnySize) {
  Random random(1);
  const model::Dtype dtypes[] = {model::Dtype::kU8, model::Dtype::kBf16, model::Dtype::kF32,
                                 model::Dtype::kF64};
  host::HostTileAnsStages stages(1);
  host::HostTileAnsDecodeStage decode_stage(1);
  for (std::uint64_t run = 0; run < 120; ++run) {
    SCOPED_TRACE(run);
    const RandomTensor tensor(random);
    const std::uint64_t count = tensor.bytes.size() / tensor.num_lanes;
    const auto bits = static_cast<std::size_t>(std::countr_zero(tensor.num_lanes));
    const Model source({{"t", dtypes[bits], {count}, tensor.bytes}});
    const tile_ans::TensorPlan plan = plan_with(stages, tensor.bytes, tensor.num_lanes, tensor.settings);
    const TileAnsBuffers expected = encode_with(stages, tensor.bytes, plan);
    const PlannedTileAns planned = planned_of(0, source.checkpoint->tensors()[0], plan, expected);
    const Layout layout = layout_before_plan(tensor.settings, source.checkpoint->tensors()[0]);
    const bool reads_back = run % 2 == 0;
    GuardedSlabMemory memory(encode_bytes(layout, layout.num_tiles() / 20 + 1 + random.below(4), reads_back));
    TileAnsTensorCompressor compressor(*source.checkpoint, stages, decode_stage, memory.get(),
                                       {.settings = tensor.settings, .reads_back = reads_back});
    const auto made = compressor.plan(0, [](std::uint64_t) {});
    EXPECT_EQ(made.has_value(), planned.stored_bytes() < tensor.bytes.size());
    if (made) {
      EXPECT_EQ(made->lane_words, planned.lane_words);
    }
    Output output(source.folder, planned, run);
    compressor.encode(planned, output.places, [](std::uint64_t) {});
    output.expect_holds(expected, planned.header);
    EXPECT_TRUE(memory.is_intact());
  }
}

/// Short tiles with states, and a tile of symbols that are rare elsewhere, which take 12 bits each.
TEST(TileAnsTensorCompressor, SlabsThatTakeAllThatIsCounted) {
  constexpr std::uint64_t kTile = 20'000;
  std::vector<std::uint8_t> rare(20 * kTile);
  for (std::uint64_t i = 7 * kTile; i < 8 * kTile; ++i) rare[i] = static_cast<std::uint8_t>(i);
  const Model source({{"rare", model::Dtype::kU8, {rare.size()}, rare},
                      {"short", model::Dtype::kF64, {129 * 40}, std::vector<std::uint8_t>(8 * 129 * 40)}});
  host::HostTileAnsStages stages(1);
  host::HostTileAnsDecodeStage decode_stage(1);
  for (const auto& [name, settings, slab] :
       {std::tuple{"rare", tile_ans::Settings{.tile_elements = kTile, .probability_bits = 12}, 1},
        std::tuple{"short", tile_ans::Settings{.tile_elements = 129, .probability_bits = 9}, 40}}) {
    SCOPED_TRACE(name);
    const std::size_t index = source.index_of(name);
    const model::SourceTensor& tensor = source.checkpoint->tensors()[index];
    std::vector<std::uint8_t> bytes(tensor.size_bytes);
    source.checkpoint->read(tensor, 0, bytes.size(), bytes.data());
    const Layout layout = layout_before_plan(settings, tensor);
    const tile_ans::TensorPlan plan = plan_with(stages, bytes, layout.num_lanes, settings);
    const TileAnsBuffers expected = encode_with(stages, bytes, plan);
    EXPECT_EQ(plan.num_ans_lanes(), layout.num_lanes);
    for (const bool reads_back : {false, true}) {
      GuardedSlabMemory memory(encode_bytes(layout, static_cast<std::uint64_t>(slab), reads_back));
      TileAnsTensorCompressor compressor(*source.checkpoint, stages, decode_stage, memory.get(),
                                         {.settings = settings, .reads_back = reads_back});
      compressor.plan(index, [](std::uint64_t) {});
      const PlannedTileAns planned = planned_of(index, tensor, plan, expected);
      Output output(source.folder, planned, 1);
      compressor.encode(planned, output.places, [](std::uint64_t) {});
      output.expect_holds(expected, planned.header);
      EXPECT_TRUE(memory.is_intact());
    }
  }
}

TEST(TileAnsTensorCompressor, OneSlabIsOneWhenItFits) {
  const Model source({{"t", model::Dtype::kBf16, {10'000}, std::vector<std::uint8_t>(20'000)}});
  host::HostTileAnsStages stages(1);
  host::HostTileAnsDecodeStage decode_stage(1);
  for (const bool reads_back : {false, true}) {
    const TileAnsTensorCompressor::Options options{.settings = {.tile_elements = 300},
                                                   .reads_back = reads_back};
    const Layout layout = layout_before_plan(options.settings, source.checkpoint->tensors()[0]);
    const std::uint64_t whole = encode_bytes(layout, layout.num_tiles(), reads_back);
    for (const auto& [bytes, expected] : {std::pair{whole, true}, {whole - 64, false}}) {
      TileAnsSlabMemory memory(bytes);
      EXPECT_EQ(TileAnsTensorCompressor(*source.checkpoint, stages, decode_stage, memory, options)
                    .is_one_slab(layout),
                expected);
    }
  }
}

/// The CPU's stages, whose results are changed.
class LyingStages final : public tile_ans::TileAnsStages, public tile_ans::TileAnsDecodeStage {
 public:
  Completion histogram(const tile_ans::HistogramArguments& arguments) override {
    return host_.histogram(arguments);
  }
  Completion sizes(const tile_ans::EncodeArguments& arguments) override {
    const StageStatus status = host_.sizes(arguments).wait();
    return Completion(change_sizes ? change_sizes(arguments) : status);
  }
  Completion encode(const tile_ans::EncodeArguments& arguments) override {
    const StageStatus status = host_.encode(arguments).wait();
    return Completion(change_words ? change_words(arguments) : status);
  }
  Completion decode(const tile_ans::DecodeArguments& arguments) override {
    const StageStatus status = host_decode_.decode(arguments).wait();
    return Completion(decoding_fault ? *decoding_fault : status);
  }

  std::function<StageStatus(const tile_ans::EncodeArguments&)> change_sizes, change_words;
  std::optional<StageStatus> decoding_fault;

 private:
  host::HostTileAnsStages host_{1};
  host::HostTileAnsDecodeStage host_decode_{1};
};

/// Ten tiles of a raw and a coded lane, in slabs of three.
class TileAnsTrouble : public ::testing::Test {
 protected:
  TileAnsTrouble() {
    const Layout layout = layout_before_plan(settings, source->checkpoint->tensors()[0]);
    memory = std::make_unique<TileAnsSlabMemory>(encode_bytes(layout, 3, true));
    planned = make_compressor().plan(0, [](std::uint64_t) {}).value();
    EXPECT_EQ(planned.plan.lanes[0].mode, LaneMode::kRaw);
    EXPECT_EQ(planned.plan.lanes[1].mode, LaneMode::kAns);
    EXPECT_EQ(planned.plan.layout.num_tiles(), 10u);
  }

  static std::vector<std::uint8_t> make_bytes() {
    Random random(7);
    std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 29'501, 2, 3);
    for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<std::uint8_t>(random.next());
    return bytes;
  }
  TileAnsTensorCompressor make_compressor(bool reads_back = true) {
    return {*source->checkpoint, stages, stages, *memory, {.settings = settings, .reads_back = reads_back}};
  }
  /// Code and message of the error; kUsage and nothing if there is none.
  std::pair<ErrorCode, std::string> encode(bool reads_back = true) try {
    Output output(source->folder, planned, 1);
    make_compressor(reads_back).encode(planned, output.places, [](std::uint64_t) {});
    return {ErrorCode::kUsage, ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.details().tensor, "t");
    return {error.code(), error.what()};
  }

  const tile_ans::Settings settings{.tile_elements = 3'000, .probability_bits = 9};
  std::vector<std::uint8_t> bytes = make_bytes();
  std::unique_ptr<Model> source =
      std::make_unique<Model>(std::vector<NamedTensor>{{"t", model::Dtype::kBf16, {29'501}, bytes}});
  LyingStages stages;
  std::unique_ptr<TileAnsSlabMemory> memory;
  PlannedTileAns planned;
};

TEST_F(TileAnsTrouble, WhatIsNotAsItWasPlanned) {
  EXPECT_EQ(encode(), std::pair(ErrorCode::kUsage, std::string()));
  const PlannedTileAns right = planned;
  for (const int change : {-1, 1}) {
    for (const std::size_t lane : {0u, 1u}) {
      planned = right;
      planned.lane_words[lane] += static_cast<std::uint64_t>(change);
      EXPECT_EQ(encode().first, ErrorCode::kSourceChanged) << change << " words of lane " << lane;
    }
  }
  // One lane has a word more, the other one less.
  planned = right;
  ++planned.lane_words[0];
  --planned.lane_words[1];
  EXPECT_EQ(encode().first, ErrorCode::kSourceChanged);
  // A symbol that no frequency is for.
  planned = right;
  auto& frequencies = planned.plan.lanes[1].frequencies;
  frequencies[1] = static_cast<std::uint16_t>(frequencies[1] + frequencies[0]);
  frequencies[0] = 0;
  EXPECT_EQ(encode().first, ErrorCode::kSourceChanged);
  planned = right;

  stages.change_sizes = [](auto&) { return StageStatus{StageCode::kSourceChanged, 4, 1}; };
  EXPECT_EQ(model::error_of([&] { make_compressor().plan(0, [](std::uint64_t) {}); }).code,
            ErrorCode::kSourceChanged);
}

TEST_F(TileAnsTrouble, WhatDoesNotReadBack) {
  int slab = 0;
  // A word of the third slab.
  stages.change_words = [&](const tile_ans::EncodeArguments& arguments) {
    if (slab++ == 2) arguments.lanes[1].words[50] ^= 4;
    return StageStatus{};
  };
  const auto found = encode();
  EXPECT_EQ(found.first, ErrorCode::kVerificationFailed);
  EXPECT_NE(found.second.find("lane 1, tile 6: "), found.second.npos) << found.second;
  slab = 0;
  EXPECT_EQ(encode(false).second, "") << "nobody has looked";

  // One raw byte, and a state.
  slab = 0;
  stages.change_words = [&](const tile_ans::EncodeArguments& arguments) {
    if (slab++ == 3) arguments.lanes[0].words[0] ^= 0x8000;
    return StageStatus{};
  };
  EXPECT_NE(encode().second.find("tile 9: it decodes to other bytes"), std::string::npos);
  slab = 0;
  stages.change_words = [&](const tile_ans::EncodeArguments& arguments) {
    if (slab++ == 0) arguments.lanes[1].states[0] = 1;
    return StageStatus{};
  };
  EXPECT_NE(encode().second.find("lane 1, tile 0: "), std::string::npos);

  stages.change_words = {};
  stages.decoding_fault = StageStatus{StageCode::kBadEnd, 8, 1};
  EXPECT_NE(encode().second.find("lane 1, tile 8: "), std::string::npos);
  EXPECT_EQ(encode(false).second, "");
}

TEST_F(TileAnsTrouble, WhatIsWrittenIsLookedAt) {
  Output output(source->folder, planned, 1);
  TileAnsTensorCompressor compressor = make_compressor();
  const auto is_written = [&] { return compressor.is_written(planned, output.places, [](std::uint64_t) {}); };
  EXPECT_FALSE(is_written());
  compressor.encode(planned, output.places, [](std::uint64_t) {});
  EXPECT_TRUE(is_written());
  Random random(8);
  for (std::size_t buffer = 0; buffer < output.sizes.size(); ++buffer) {
    const std::uint64_t size = output.sizes[buffer];
    for (const std::uint64_t at : {std::uint64_t{0}, random.below(size), random.below(size), size - 1}) {
      const std::uint64_t offset = output.offset_of(buffer) + at;
      std::uint8_t byte = 0;
      output.file.read_at(&byte, 1, offset);
      byte ^= static_cast<std::uint8_t>(1u << random.below(8));
      output.file.write_at(&byte, 1, offset);
      EXPECT_FALSE(is_written()) << "byte " << at << " of buffer " << buffer;
      make_compressor().encode(planned, output.places, [](std::uint64_t) {});
      EXPECT_TRUE(is_written());
    }
  }
  // Another source.
  bytes[2 * 29'500] ^= 1;
  const Model other({{"t", model::Dtype::kBf16, {29'501}, bytes}});
  TileAnsTensorCompressor of_other(*other.checkpoint, stages, stages, *memory, {.settings = settings});
  EXPECT_FALSE(of_other.is_written(planned, output.places, [](std::uint64_t) {}));
}

}  // namespace
}  // namespace weightpress::job
