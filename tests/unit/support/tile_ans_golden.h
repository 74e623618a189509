// The golden tensors of Tile-ANS: what each is made of and becomes.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "format/tile_ans_layout.h"
#include "support/golden.h"
#include "support/tile_ans_slow_model.h"

namespace weightpress::testing {

struct GoldenTileAns {
  explicit GoldenTileAns(const std::string& name) {
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

  /// All but the one that is stored as it is.
  static std::vector<std::string> coded_tensors() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / "tile_ans")) {
      if (std::filesystem::exists(entry.path() / "payload.u16"))
        names.push_back(entry.path().filename().string());
    }
    return names;
  }

  template <class T>
  static std::vector<T> read_as(const std::filesystem::path& path) {
    const std::vector<std::uint8_t> bytes = read_bytes(path);
    std::vector<T> numbers(bytes.size() / sizeof(T));
    if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
    return numbers;
  }

  std::vector<std::uint64_t> shape;
  tile_ans::Settings settings;
  std::uint32_t num_lanes = 0;
  std::vector<std::uint8_t> bytes;
  TileAnsBuffers stored;
};

}  // namespace weightpress::testing
