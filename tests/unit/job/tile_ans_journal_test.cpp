// What the journal says of Tile-ANS tensors comes back as it was; what no run can have written is refused.
#include "job/tile_ans_journal.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "host/tile_ans_stages.h"
#include "model/tile_ans_header.h"
#include "support/tile_ans_random.h"

namespace weightpress::job {
namespace {

using namespace testing;
using nlohmann::json;

model::SourceTensor tensor_of(std::string name, model::Dtype dtype, std::uint64_t num_elements) {
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = {num_elements},
          .file_index = 0,
          .offset_bytes = 0,
          .size_bytes = num_elements * model::dtype_bits(dtype) / 8};
}

PlannedTileAns planned_of(const tile_ans::Settings& settings, const model::SourceTensor& tensor,
                          std::span<const std::uint8_t> bytes) {
  host::HostTileAnsStages host(1);
  PlannedTileAns planned;
  planned.plan = plan_with(host, bytes, model::dtype_bits(tensor.dtype) / 8, settings);
  const TileAnsBuffers stored = encode_with(host, bytes, planned.plan);
  const tile_ans::Layout& layout = planned.plan.layout;
  for (std::uint32_t l = 0; l < layout.num_lanes; ++l)
    planned.lane_words[l] =
        stored.offsets[layout.stream_of(l + 1, 0)] - stored.offsets[layout.stream_of(l, 0)];
  planned.header = model::write_tile_ans_header({.dtype = tensor.dtype, .shape = tensor.shape});
  return planned;
}

void expect_same(const PlannedTileAns& found, const PlannedTileAns& planned) {
  EXPECT_EQ(found.plan.layout, planned.plan.layout);
  for (std::uint32_t l = 0; l < planned.plan.layout.num_lanes; ++l) {
    EXPECT_EQ(found.plan.lanes[l].mode, planned.plan.lanes[l].mode);
    EXPECT_EQ(found.plan.lanes[l].frequencies, planned.plan.lanes[l].frequencies);
  }
  EXPECT_EQ(found.lane_words, planned.lane_words);
  EXPECT_EQ(found.header, planned.header);
}

model::Dtype dtype_of(std::uint32_t num_lanes) {
  return num_lanes == 1   ? model::Dtype::kU8
         : num_lanes == 2 ? model::Dtype::kBf16
         : num_lanes == 4 ? model::Dtype::kF32
                          : model::Dtype::kF64;
}

TEST(TileAnsJournal, WhatIsPlannedComesBack) {
  Random random(1);
  const std::vector<std::string> names = {"model.layers.0.weight",      "",         "\"", "a\\b\n\t\x01",
                                          std::string("nul\0in it", 9), "größe/🙂", "{}", "\u2028",
                                          std::string(5'000, 'n')};
  for (int run = 0; run < 200; ++run) {
    const RandomTensor random_tensor(random);
    const std::uint32_t num_lanes = random_tensor.num_lanes;
    const model::SourceTensor tensor = tensor_of(names[static_cast<std::size_t>(run) % names.size()],
                                                 dtype_of(num_lanes), random_tensor.bytes.size() / num_lanes);
    const PlannedTileAns planned = planned_of(random_tensor.settings, tensor, random_tensor.bytes);
    TileAnsPastRun past;
    const std::string line = planned_tile_ans_line(tensor.name, planned);
    EXPECT_EQ(line.find('\n'), line.npos);
    EXPECT_FALSE(past.planned(random_tensor.settings, tensor));
    ASSERT_TRUE(past.add(line));
    const auto found = past.planned(random_tensor.settings, tensor);
    ASSERT_TRUE(found) << line;
    expect_same(*found, planned);
    EXPECT_FALSE(past.would_not_shrink(tensor.name) || past.written(tensor.name));
    model::SourceTensor other = tensor;
    other.name += "x";
    EXPECT_FALSE(past.planned(random_tensor.settings, other));

    EXPECT_TRUE(past.add(written_tile_ans_line(tensor.name)));
    EXPECT_TRUE(past.written(tensor.name));
    EXPECT_TRUE(past.planned(random_tensor.settings, tensor));
    TileAnsPastRun kept;
    EXPECT_TRUE(kept.add(kept_tile_ans_line(tensor.name)));
    EXPECT_TRUE(kept.would_not_shrink(tensor.name));
    EXPECT_FALSE(kept.written(tensor.name) || kept.would_not_shrink(other.name));
  }
}

/// A tensor with a raw and a coded lane.
class TileAnsJournalLine : public ::testing::Test {
 protected:
  TileAnsJournalLine() {
    Random random(2);
    bytes = RandomTensor::gaussian_bytes(random, 3'000, 2, 9);
    for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<std::uint8_t>(random.next());
    planned = planned_of(settings, tensor, bytes);
    line = json::parse(planned_tile_ans_line(tensor.name, planned));
    EXPECT_EQ(line.at("modes"), json({1, 0}));
  }

  const tile_ans::Settings settings{.tile_elements = 1'000, .probability_bits = 0};
  const model::SourceTensor tensor = tensor_of("t", model::Dtype::kBf16, 3'000);
  std::vector<std::uint8_t> bytes;
  PlannedTileAns planned;
  json line;
};

TEST_F(TileAnsJournalLine, OtherLinesAreRefused) {
  TileAnsPastRun past;
  for (const char* text : {"", "{", "[]", "7", "null", "\"tile_ans_kept\"", "{}", R"({"tile_ans_kept":7})",
                           R"({"tile_ans_written":null})", R"({"tile_ans_planned":["t"]})",
                           R"({"tile_ans_planned":"t"})", R"({"planned":"t"})", R"({"TILE_ANS_KEPT":"t"})"})
    EXPECT_FALSE(past.add(text)) << text;
  // Cut anywhere.
  const std::string whole = planned_tile_ans_line("t", planned);
  for (std::size_t length = 0; length < whole.size(); ++length)
    ASSERT_FALSE(past.add(std::string_view(whole).substr(0, length))) << length;
  EXPECT_FALSE(past.planned(settings, tensor));
}

TEST_F(TileAnsJournalLine, NumbersThatAreNone) {
  const json bad[] = {nullptr, "9", true, -1, 9.0, 9.5, json::array(), json::object(), 1e300};
  for (const char* key : {"bits", "modes", "words", "frequencies"}) {
    for (const json& value : bad) {
      TileAnsPastRun past;
      json changed = line;
      if (changed[key].is_array()) {
        changed[key][1] = value;
        EXPECT_FALSE(past.add(changed.dump())) << key << " " << value;
        changed[key] = value;
        // An empty list is one, of no tensor.
        EXPECT_EQ(past.add(changed.dump()), value == json::array()) << key << " " << value;
      } else {
        changed[key] = value;
        EXPECT_FALSE(past.add(changed.dump())) << key << " " << value;
      }
      EXPECT_FALSE(past.planned(settings, tensor));
    }
    json without = line;
    without.erase(key);
    EXPECT_FALSE(TileAnsPastRun().add(without.dump()));
  }
  // What would be another number in fewer bits.
  const std::pair<const char*, std::uint64_t> wide[] = {
      {"bits", std::uint64_t{1} << 32}, {"modes", 256}, {"frequencies", 65'536}};
  for (const auto& [key, more] : wide) {
    json changed = line;
    json& value = changed[key].is_array() ? changed[key][0] : changed[key];
    value = value.get<std::uint64_t>() + more;
    EXPECT_FALSE(TileAnsPastRun().add(changed.dump())) << key;
  }
}

TEST_F(TileAnsJournalLine, PlansThatAreNoneOfThisTensor) {
  const std::function<void(json&)> changes[] = {
      [](json& one) { one["bits"] = 8; },
      [](json& one) { one["bits"] = 13; },
      // Frequencies are of another table size then.
      [](json& one) { one["bits"] = one["bits"] == 9 ? 10 : 9; },
      [](json& one) { one["modes"] = {1}; },
      [](json& one) { one["modes"] = {1, 0, 0}; },
      [](json& one) { one["modes"] = {1, 2}; },
      [](json& one) { one["words"] = {1}; },
      [](json& one) { one["words"][1] = 3'001; },
      [](json& one) { one["words"][0] = ~std::uint64_t{0}; },
      [](json& one) { one["frequencies"].push_back(0); },
      [](json& one) { one["frequencies"].erase(0); },
      [](json& one) { one["frequencies"][0] = one["frequencies"][0].get<int>() + 1; },
      // The sum of both lanes is still right.
      [](json& one) {
        one["frequencies"][7] = one["frequencies"][7].get<int>() + 1;
        json& of_second = one["frequencies"][256];
        of_second = of_second.get<int>() - 1;
      },
  };
  for (const auto& change : changes) {
    json changed = line;
    change(changed);
    TileAnsPastRun past;
    EXPECT_TRUE(past.add(changed.dump()));
    EXPECT_FALSE(past.planned(settings, tensor)) << &change - changes;
  }
  TileAnsPastRun past;
  ASSERT_TRUE(past.add(line.dump()));
  EXPECT_TRUE(past.planned(settings, tensor));
  EXPECT_FALSE(past.planned(settings, tensor_of("t", model::Dtype::kF32, 3'000)));
  EXPECT_FALSE(past.planned(settings, tensor_of("t", model::Dtype::kBf16, 1'400)));
}

/// With such tiles every lane is raw, and slabs have no room for states.
TEST_F(TileAnsJournalLine, CodedLanesWhereNoneCanBe) {
  TileAnsPastRun past;
  ASSERT_TRUE(past.add(line.dump()));
  EXPECT_TRUE(past.planned({.tile_elements = 129}, tensor));
  for (const std::uint64_t tile : {1u, 127u, 128u})
    EXPECT_FALSE(past.planned({.tile_elements = tile}, tensor));
  json raw = line;
  raw["modes"] = {1, 1};
  ASSERT_TRUE(past.add(raw.dump()));
  EXPECT_TRUE(past.planned({.tile_elements = 128}, tensor));
}

TEST_F(TileAnsJournalLine, OffsetsOfMoreThan32BitsAreNone) {
  const std::uint64_t many = std::uint64_t{3} << 30;
  const model::SourceTensor large = tensor_of("t", model::Dtype::kBf16, many);
  TileAnsPastRun past;
  line["words"] = {many / 2, many};
  ASSERT_TRUE(past.add(line.dump()));
  EXPECT_FALSE(past.planned(settings, large));
  line["words"] = {many / 2, (std::uint64_t{1} << 32) - 1 - many / 2};
  ASSERT_TRUE(past.add(line.dump()));
  EXPECT_TRUE(past.planned(settings, large));
}

/// A run that planned a file again, without the GPU, has written both.
TEST_F(TileAnsJournalLine, TheLastLineCounts) {
  const std::string kept = kept_tile_ans_line("t"), is_planned = line.dump();
  json other_line = line;
  other_line["words"][1] = 1;
  const std::string other = other_line.dump();

  TileAnsPastRun past;
  ASSERT_TRUE(past.add(other) && past.add(is_planned));
  EXPECT_EQ(past.planned(settings, tensor)->lane_words, planned.lane_words);
  ASSERT_TRUE(past.add(kept));
  EXPECT_TRUE(past.would_not_shrink("t"));
  EXPECT_FALSE(past.planned(settings, tensor));
  ASSERT_TRUE(past.add(is_planned));
  EXPECT_FALSE(past.would_not_shrink("t"));
  EXPECT_TRUE(past.planned(settings, tensor));
}

}  // namespace
}  // namespace weightpress::job
