// Headers of Tile-ANS containers: the bytes that the reference wrote, and what strangers may write.
#include "model/tile_ans_header.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "support/golden.h"

namespace weightpress::model {
namespace {

using namespace std::string_literals;
using testing::golden_folder;
using testing::read_bytes;

std::string golden_header(const std::filesystem::path& folder) {
  const std::vector<std::uint8_t> bytes = read_bytes(folder / "header.json");
  return {bytes.begin(), bytes.end()};
}

TEST(TileAnsHeader, EveryGoldenHeaderIsReadAndWrittenAgain) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / "tile_ans")) {
    if (!entry.is_directory()) continue;
    const std::string json = golden_header(entry.path());
    const auto header = parse_tile_ans_header(json);
    ASSERT_TRUE(header) << entry.path() << header.error().message;
    EXPECT_EQ(write_tile_ans_header(*header), json);
    ++count;
  }
  EXPECT_EQ(count, 75);
}

TEST(TileAnsHeader, WhatAGoldenHeaderSays) {
  const auto coded = parse_tile_ans_header(golden_header(golden_folder() / "tile_ans" / "int16_3d"));
  ASSERT_TRUE(coded);
  EXPECT_EQ(coded->method, TileAnsHeader::Method::kTileAns);
  EXPECT_EQ(coded->dtype, Dtype::kI16);
  EXPECT_EQ(coded->shape.size(), 3u);
  const auto empty = parse_tile_ans_header(golden_header(golden_folder() / "tile_ans" / "fallback_empty"));
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->method, TileAnsHeader::Method::kRaw);
  EXPECT_EQ(empty->shape, (std::vector<std::uint64_t>{0, 4}));
  EXPECT_EQ(empty->reason, kTileAnsEmptyReason);
}

// As json.dumps(..., sort_keys=True, separators=(",", ":")) of Python 3.11 printed them.
TEST(TileAnsHeader, WritesAsPythonDoes) {
  EXPECT_EQ(
      write_tile_ans_header({.dtype = Dtype::kF8E4m3fnuz, .shape = {}}),
      R"({"buffer_names":["payload","offsets","states","decode_tables","lane_modes","layout"],)"
      R"("compress_method":"tile_ans","dtype":"float8_e4m3fnuz","header":{"compress_method":"tile_ans"},)"
      R"("shape":[]})");
  EXPECT_EQ(
      write_tile_ans_header({.method = TileAnsHeader::Method::kRaw, .dtype = Dtype::kF64, .shape = {7}}),
      R"({"buffer_names":["data"],"compress_method":"raw","dtype":"float64","header":)"
      R"({"compress_method":"raw"},"shape":[7]})");
  EXPECT_EQ(
      write_tile_ans_header({.method = TileAnsHeader::Method::kRaw,
                             .dtype = Dtype::kU8,
                             .shape = {4294967296, 1},
                             .reason = "OSError: \"\\\n\x7F\xC3\xA9\xF0\x9F\x98\x80"}),
      R"({"buffer_names":["data"],"compress_method":"raw","dtype":"uint8","header":{"compress_method":"raw",)"
      R"("reason":"OSError: \"\\\n\u007f\u00e9\ud83d\ude00","requested":"tile_ans"},"shape":[4294967296,1]})");
}

TEST(TileAnsHeader, EveryDtype) {
  int count = 0;
  for (unsigned i = 0; i < kNumDtypes; ++i) {
    const Dtype dtype = static_cast<Dtype>(i);
    const auto name = torch_dtype_name(dtype);
    if (!name) {
      EXPECT_FALSE(is_tile_ans_dtype(dtype));
      continue;
    }
    EXPECT_EQ(parse_torch_dtype(*name), dtype);
    const auto coded = parse_tile_ans_header(write_tile_ans_header({.dtype = dtype, .shape = {2}}));
    EXPECT_EQ(coded.has_value(), is_tile_ans_dtype(dtype)) << *name;
    if (!coded) {
      EXPECT_EQ(coded.error().code, ErrorCode::kUnsupportedDtype);
    }
    EXPECT_TRUE(parse_tile_ans_header(
        write_tile_ans_header({.method = TileAnsHeader::Method::kRaw, .dtype = dtype, .shape = {2}})));
    count += is_tile_ans_dtype(dtype);
  }
  EXPECT_EQ(count, 16);
  EXPECT_EQ(torch_dtype_name(Dtype::kF4), std::nullopt);
}

std::string with(std::string_view from, std::string_view to) {
  std::string json = write_tile_ans_header({.dtype = Dtype::kBf16, .shape = {3, 5}});
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

TEST(TileAnsHeader, OtherSpellingsAreRead) {
  const TileAnsHeader expected{.dtype = Dtype::kBf16, .shape = {3, 5}};
  for (const std::string& json :
       {" {\n\"shape\": [3, 5], \"header\": {\"extra\": [{}], \"compress_method\": \"tile_ans\"}, \"dtype\": "
        "\"bfloat16\", \"compress_method\": \"anything\", \"more\": null, \"buffer_names\": [\"layout\", "
        "\"offsets\", "
        "\"states\", \"decode_tables\", \"payload\", \"lane_modes\"]}\n"s,
        with("\"payload\"", "\"\\u0070ayload\""), with("[3,5]", "[3,5],\"shape\":[3,5]")}) {
    const auto header = parse_tile_ans_header(json);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(*header, expected);
  }
}

TEST(TileAnsHeader, WhatIsNoHeader) {
  const struct {
    std::string json;
    const char* message;
  } cases[] = {
      {"", "its header is not a JSON object"},
      {"[]", "its header is not a JSON object"},
      {"{\"shape\":", "its header is not a JSON object"},
      {with("bfloat16", "bfloat16\xFF"), "its header is not a JSON object"},
      {std::string(100'000, '['), "its header has more than 65536 bytes"},
      {std::string(1000, '['), "its header is nested too deeply"},
      {with("\"buffer_names\"", "\"a\""), "its header has no 'buffer_names'"},
      {with("\"compress_method\"", "\"a\""), "its header has no 'compress_method'"},
      {with("\"dtype\"", "\"a\""), "its header has no 'dtype'"},
      {with("\"header\"", "\"a\""), "its header has no 'header'"},
      {with("\"shape\"", "\"a\""), "its header has no 'shape'"},
      {with("{\"compress_method\":\"tile_ans\"}", "7"), "its header does not say how the tensor is stored"},
      {with("{\"compress_method\":\"tile_ans\"}", "{}"), "its header does not say how the tensor is stored"},
      {with("{\"compress_method\":\"tile_ans\"}", "{\"compress_method\":[]}"),
       "its header does not say how the tensor is stored"},
      {with("{\"compress_method\":\"tile_ans\"}", "{\"compress_method\":\"\\u001bz\"}"),
       "it is stored as '\\x1bz', which is neither 'tile_ans' nor 'raw'"},
      {with("{\"compress_method\":\"tile_ans\"}", "{\"compress_method\":\"raw\"}"),
       "its header does not name the buffers of a raw container"},
      {with("\"bfloat16\"", "16"), "'dtype' in its header is not a text"},
      {with("\"bfloat16\"", "\"BF16\""), "its dtype is 'BF16', which tile_ans containers do not have"},
      {with("\"bfloat16\"", "\"float64\""), "its dtype is 'float64', which tile_ans containers do not have"},
      {with("[\"payload\"", "{},[\"payload\""), "its header is not a JSON object"},
      {with("\"payload\"", "0"), "'buffer_names' in its header holds something that is no name"},
      {with("\"payload\"", "\"\""), "its header does not name the buffers of a tile_ans container"},
      {with("\"payload\",", ""), "its header does not name the buffers of a tile_ans container"},
      {with("\"payload\",", "\"payload\",\"payload\","),
       "its header does not name the buffers of a tile_ans container"},
      {with("[3,5]", "null"), "'shape' in its header is not a list"},
      {with("[3,5]", "[3,-1]"), "'shape' in its header holds something that is no size"},
      {with("[3,5]", "[3,5.0]"), "'shape' in its header holds something that is no size"},
      {with("[3,5]", "[true]"), "'shape' in its header holds something that is no size"},
      {with("[3,5]", "[9223372036854775808]"), "'shape' in its header holds something that is no size"},
      {with("[3,5]", "[99999999999999999999]"), "'shape' in its header holds something that is no size"},
  };
  for (const auto& [json, message] : cases) {
    const auto header = parse_tile_ans_header(json);
    ASSERT_FALSE(header) << json.substr(0, 300);
    EXPECT_EQ(header.error().message, message);
  }
}

TEST(TileAnsHeader, RawDataAreWhatTheHeaderSays) {
  const TileAnsHeader header{.method = TileAnsHeader::Method::kRaw, .dtype = Dtype::kF64, .shape = {2, 3}};
  const std::uint64_t shape[] = {2, 3}, other[] = {3, 2};
  EXPECT_TRUE(check_raw_container(header, Dtype::kF64, shape));
  EXPECT_FALSE(check_raw_container(header, Dtype::kI64, shape));
  EXPECT_FALSE(check_raw_container(header, Dtype::kF64, other));
  EXPECT_FALSE(check_raw_container(header, Dtype::kF64, std::span(shape).first(1)));
}

TEST(TileAnsHeader, DtypesOfBuffers) {
  for (std::uint32_t i = 0; i < tile_ans::kNumBuffers; ++i) {
    const auto buffer = static_cast<tile_ans::Buffer>(i);
    EXPECT_EQ(tile_ans_buffer_type(tile_ans_buffer_dtype(buffer)), tile_ans::buffer_type(buffer));
  }
  EXPECT_EQ(tile_ans_buffer_dtype(tile_ans::Buffer::kPayload), Dtype::kU16);
  EXPECT_EQ(tile_ans_buffer_dtype(tile_ans::Buffer::kLaneModes), Dtype::kU8);
  EXPECT_EQ(tile_ans_buffer_type(Dtype::kI32), tile_ans::BufferType::kOther);
}

TEST(TileAnsHeader, CutAtEveryByte) {
  const std::string json = write_tile_ans_header({.dtype = Dtype::kF32, .shape = {3, 5}});
  for (std::size_t length = 0; length < json.size(); ++length)
    EXPECT_FALSE(parse_tile_ans_header(std::string_view(json).substr(0, length)));
}

}  // namespace
}  // namespace weightpress::model
