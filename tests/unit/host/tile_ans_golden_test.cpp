// All golden tensors of Tile-ANS: every buffer, however the tensor is cut, by any number of threads, at every
// SIMD level; and back.
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "host/tile_ans_stages.h"
#include "support/golden.h"
#include "support/tile_ans_random.h"

namespace weightpress::host {
namespace {

using namespace testing;

template <class T>
std::vector<T> read_as(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> bytes = read_bytes(path);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

struct GoldenTensor {
  explicit GoldenTensor(const std::string& name) {
    const std::filesystem::path folder = golden_folder() / "tile_ans" / name;
    const nlohmann::json meta = nlohmann::json::parse(std::ifstream(folder / "meta.json"));
    shape = meta.at("shape").get<std::vector<std::uint64_t>>();
    settings = {.tile_elements = meta.at("config").at("tile_elements"),
                .probability_bits = meta.at("config").at("probability_bits"),
                .raw_lane_threshold = meta.at("config").at("raw_lane_threshold")};
    num_lanes = meta.at("layout").at("num_lanes");
    bytes = read_bytes(folder / "input.bin");
    stored = {.payload = read_as<std::uint16_t>(folder / "payload.u16"),
              .offsets = read_as<std::uint32_t>(folder / "offsets.u32"),
              .states = read_as<std::uint32_t>(folder / "states.u32"),
              .decode_tables = read_as<std::uint32_t>(folder / "decode_tables.u32"),
              .lane_modes = read_bytes(folder / "lane_modes.u8"),
              .layout = read_as<std::int64_t>(folder / "layout.i64")};
  }

  std::vector<std::uint64_t> shape;
  tile_ans::Settings settings;
  std::uint32_t num_lanes = 0;
  std::vector<std::uint8_t> bytes;
  TileAnsBuffers stored;
};

std::vector<std::string> coded_tensors() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / "tile_ans")) {
    if (std::filesystem::exists(entry.path() / "payload.u16"))
      names.push_back(entry.path().filename().string());
  }
  return names;
}

void check_stages(const GoldenTensor& golden) {
  const Slabs cuts[] = {{}, {.tiles = 1, .lane_by_lane = true, .histogram_elements = 999}, {.tiles = 3}};
  for (const SimdLevel simd : simd_levels()) {
    for (const int threads : {1, 2, 3, 4, 5, 6}) {
      const Slabs& slabs = cuts[(threads - 1) / 2];
      HostTileAnsStages stages(threads, simd);
      const tile_ans::TensorPlan plan =
          plan_with(stages, golden.bytes, golden.num_lanes, golden.settings, slabs);
      const TileAnsBuffers made = encode_with(stages, golden.bytes, plan, slabs);
      EXPECT_EQ(made.layout, golden.stored.layout);
      EXPECT_EQ(made.lane_modes, golden.stored.lane_modes);
      EXPECT_TRUE(made.decode_tables == golden.stored.decode_tables);
      EXPECT_TRUE(made.offsets == golden.stored.offsets);
      EXPECT_TRUE(made.states == golden.stored.states);
      EXPECT_TRUE(made.payload == golden.stored.payload);

      HostTileAnsDecodeStage decoder(threads, simd);
      const Decoded decoded = decode_with(decoder, golden.stored, golden.shape, golden.num_lanes, slabs);
      EXPECT_EQ(decoded.error, "");
      EXPECT_TRUE(decoded.status.ok()) << tile_ans::stage_code_text(decoded.status.code);
      EXPECT_TRUE(decoded.bytes == golden.bytes);
    }
  }
}

TEST(TileAnsGolden, EveryBufferAndBack) {
  const std::vector<std::string> names = coded_tensors();
  ASSERT_EQ(names.size(), 74u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    check_stages(GoldenTensor(name));
  }
}

TEST(TileAnsGolden, TheSlowModelToo) {
  for (const std::string& name : coded_tensors()) {
    const GoldenTensor golden(name);
    const TileAnsBuffers made = SlowTileAns::encode(
        golden.bytes, golden.num_lanes,
        {golden.settings.tile_elements, static_cast<int>(golden.settings.probability_bits),
         golden.settings.raw_lane_threshold});
    EXPECT_TRUE(made == golden.stored) << name;
  }
}

}  // namespace
}  // namespace weightpress::host
