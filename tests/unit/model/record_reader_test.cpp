#include "model/record_reader.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kRecord = R"({
 "weightpress": "0.3.0", "format": "df11", "layout": "comfyui",
 "definition": {"name": "def", "format_version": "0.5.0", "pattern_dict": {"a": [], "b\\.\\d+": ["q"]}},
 "options": {"luts": "compat", "later": [1, {"x": null}]},
 "source_files": [
  {"name": "1.safetensors", "metadata": {"format": "pt"}, "tensors": [
   {"name": "p.b.0.q.weight", "dtype": "BF16", "shape": [2], "unit": "b.0", "renamed": "b.0.q.weight"},
   {"name": "p.z", "dtype": "F32", "shape": [], "renamed": "z", "cast": "BF16"},
   {"name": "gone", "dtype": "F32", "shape": [], "dropped": "by a rule"},
   {"name": "lm_head.weight", "dtype": "BF16", "shape": [], "tied_to": "a.weight"}]},
  {"name": "2.safetensors", "metadata": null, "tensors": [
   {"name": "a.weight", "dtype": "BF16", "shape": [2], "unit": "a"},
   {"name": "b.0.r.weight", "dtype": "BF16", "shape": [2], "unit": "b.0"},
   {"name": "norm", "dtype": "BF16", "shape": [2]}]}],
 "tied_units": [{"unit": "lm_head", "made_from": "a.weight"}],
 "kept_units": [{"unit": "b.1", "reason": "Inf"}],
 "own_coding": [{"unit": "a", "reasons": ["one", "two"]}],
 "verification": "none"})";

TEST(OutputRecord, WhatItTells) {
  const auto record = parse_output_record(std::string(kRecord), "weightpress.json");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->weightpress, "0.3.0");
  EXPECT_EQ(record->definition, "def");
  EXPECT_EQ(record->format_version, "0.5.0");
  EXPECT_EQ(record->num_patterns, 2u);
  EXPECT_EQ(record->layout, "comfyui");
  ASSERT_EQ(record->kept_units.size(), 1u);
  EXPECT_EQ(record->kept_units[0].unit, "b.1");
  EXPECT_EQ(record->kept_units[0].reason, "Inf");
  ASSERT_EQ(record->own_coding.size(), 1u);
  EXPECT_EQ(record->own_coding[0].unit, "a");
  EXPECT_THAT(record->own_coding[0].reasons, ElementsAre("one", "two"));
  EXPECT_THAT(record->units, ElementsAre("a", "b.0", "lm_head"));
  EXPECT_THAT(record->tensors, ElementsAre("norm", "z"));
}

/// The message for the record with `from` replaced.
std::string rejection(std::string_view from, std::string_view to) {
  std::string text(kRecord);
  text.replace(text.find(from), from.size(), to);
  const auto record = parse_output_record(text, "dir/weightpress.json");
  if (record) return "accepted";
  EXPECT_EQ(record.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(record.error().message, HasSubstr("dir/weightpress.json: "));
  return record.error().message;
}

TEST(OutputRecord, WhatIsWrongIsNamed) {
  EXPECT_THAT(rejection(R"("weightpress")", R"("other")"), HasSubstr("has no weightpress"));
  EXPECT_THAT(rejection(R"("df11")", R"("tile-ans")"), HasSubstr("about the format 'tile-ans'"));
  EXPECT_THAT(rejection(R"("comfyui")", "7"), HasSubstr("layout must be a string"));
  EXPECT_THAT(rejection(R"({"name": "def",)", R"({)"), HasSubstr("has no name"));
  EXPECT_THAT(rejection(R"([{"unit": "b.1", "reason": "Inf"}])", "{}"),
              HasSubstr("kept_units must be a list"));
  EXPECT_THAT(rejection(R"([{"unit": "b.1", "reason": "Inf"}])", "[1]"), HasSubstr("has no unit"));
  EXPECT_THAT(rejection(R"(["one", "two"])", "[[]]"), HasSubstr("reasons must be a string"));
  EXPECT_THAT(rejection(R"("own_coding")", R"("own")"), HasSubstr("has no own_coding"));
  EXPECT_THAT(rejection(R"("source_files")", R"("files")"), HasSubstr("has no source_files"));
  EXPECT_THAT(rejection(R"("name": "norm")", R"("name": {})"), HasSubstr("name must be a string"));
  EXPECT_THAT(rejection(R"("verification": "none"})", ""), HasSubstr("not valid JSON"));
  EXPECT_EQ(rejection(R"("verification": "none"})", "\"more\": 1}"), "accepted");
}

TEST(OutputRecord, TextsThatAreNone) {
  const auto message = [](const std::string& text) {
    const auto record = parse_output_record(text, "r");
    return record ? "accepted" : record.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("null"), HasSubstr("not a JSON object"));
  EXPECT_THAT(message("\xFF"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(std::string("{}\0", 3)), HasSubstr("NUL"));
  EXPECT_THAT(message("{\"a\":" + std::string(100'000, '[')), HasSubstr("nested too deeply"));
}

TEST(OutputRecord, Dfloat11Config) {
  const auto config = parse_dfloat11_config(
      R"({"x": 1, "dfloat11_config": {"version": "0.3.1", "pattern_dict": {"a": []}}})", "c");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->version, "0.3.1");
  EXPECT_EQ(config->num_patterns, 1u);
  const auto code = [](const char* text) {
    const auto parsed = parse_dfloat11_config(text, "c");
    return parsed ? ErrorCode::kIo : parsed.error().code;
  };
  EXPECT_EQ(code(R"({"model_type": "bert"})"), ErrorCode::kNotFound);
  EXPECT_EQ(code(R"({"dfloat11_config": []})"), ErrorCode::kCorruptFile);
  EXPECT_EQ(code(R"({"dfloat11_config": {"version": "1"}})"), ErrorCode::kCorruptFile);
  EXPECT_EQ(code("{"), ErrorCode::kCorruptFile);
}

}  // namespace
}  // namespace weightpress::model
