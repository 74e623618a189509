#include "model/source_record.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kRecord = R"({
 "weightpress": "0.3.0", "format": "df11", "layout": "comfyui",
 "definition": {"name": "def", "pattern_dict": {"z": [], "b\\.\\d+": ["q", "k"]}},
 "options": {"luts": "compat", "hashes": true, "later": [1, {"tensors": null}]},
 "source_files": [
  {"name": "1.safetensors", "metadata": {"z": "1", "a": "\u00e9\"\u0000", "format": "pt"}, "tensors": [
   {"name": "p.b.0.q.weight", "dtype": "BF16", "shape": [2, 0, 7], "unit": "b.0", "renamed": "b.0.q.weight"},
   {"name": "p.z", "dtype": "F32", "shape": [], "renamed": "z", "cast": "BF16"},
   {"name": "gone", "dtype": "F32", "shape": [3], "dropped": "by a rule"},
   {"name": "head", "dtype": "BF16", "shape": [], "tied_to": "p.z2"}]},
  {"name": "2.safetensors", "metadata": null, "tensors": [
   {"tied_to": "norm", "cast": "BF16", "shape": [2], "dtype": "F32", "name": "copy", "later": {"name": "x"}},
   {"name": "norm", "dtype": "BF16", "shape": [2]}, {"name": "p.z2", "dtype": "BF16", "shape": []}]}],
 "tied_units": [{"unit": "lm_head", "made_from": "norm"}],
 "kept_units": 7})";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kRecord);
  const std::size_t place = text.find(from);
  EXPECT_NE(place, text.npos) << from;
  return place == text.npos ? text : text.replace(place, from.size(), to);
}

std::string message_of(const std::string& text) {
  const auto record = parse_source_record(text, "dir/weightpress.json");
  if (record) return "accepted";
  EXPECT_EQ(record.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(record.error().message, HasSubstr("dir/weightpress.json: "));
  return record.error().message;
}

std::string rejection(std::string_view from, std::string_view to) {
  return message_of(with(from, to));
}

TEST(SourceRecord, WhatItTells) {
  const auto record = parse_source_record(std::string(kRecord), "weightpress.json");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->layout, "comfyui");
  EXPECT_TRUE(record->has_hashes);
  ASSERT_EQ(record->pattern_dict.size(), 2u);  // in the record's order, which decides between patterns
  EXPECT_EQ(record->pattern_dict[0].pattern, "z");
  EXPECT_THAT(record->pattern_dict[0].attributes, IsEmpty());
  EXPECT_THAT(record->pattern_dict[1].attributes, ElementsAre("q", "k"));
  ASSERT_EQ(record->tied_units.size(), 1u);
  EXPECT_EQ(record->tied_units[0].unit, "lm_head");
  EXPECT_EQ(record->tied_units[0].made_from, "norm");

  ASSERT_EQ(record->files.size(), 2u);
  EXPECT_EQ(record->files[0].name, "1.safetensors");
  EXPECT_EQ(record->files[0].metadata_json, "{\"z\":\"1\",\"a\":\"\u00e9\\\"\\u0000\",\"format\":\"pt\"}");
  EXPECT_EQ(record->files[1].metadata_json, "");
  const auto& first = record->files[0].tensors;
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[0].name, "p.b.0.q.weight");
  EXPECT_EQ(first[0].fate, TensorFate::kInUnit);
  EXPECT_EQ(first[0].unit, "b.0");
  EXPECT_EQ(first[0].stored_name, "b.0.q.weight");
  EXPECT_THAT(first[0].shape, ElementsAre(2, 0, 7));
  EXPECT_EQ(first[1].fate, TensorFate::kKept);
  EXPECT_EQ(first[1].dtype, Dtype::kF32);
  EXPECT_EQ(first[1].stored_dtype, Dtype::kBf16);
  EXPECT_THAT(first[1].shape, IsEmpty());
  EXPECT_EQ(first[2].fate, TensorFate::kDropped);
  EXPECT_EQ(first[2].drop_reason, "by a rule");
  EXPECT_EQ(first[3].fate, TensorFate::kTied);
  EXPECT_EQ(first[3].tied_to, "p.z2");
  const auto& second = record->files[1].tensors;
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0].name, "copy");  // whatever the order of keys
  EXPECT_EQ(second[0].stored_dtype, Dtype::kBf16);
  EXPECT_EQ(second[1].stored_name, "norm");
  EXPECT_EQ(second[1].stored_dtype, Dtype::kBf16);
}

TEST(SourceRecord, EmptyMetadataAreNotNone) {
  const auto record =
      parse_source_record(with(R"("metadata": null)", R"("metadata": {})"), "weightpress.json");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->files[1].metadata_json, "{}");
}

TEST(SourceRecord, WhatIsMissingOrOfAnotherKind) {
  EXPECT_THAT(rejection(R"("weightpress")", R"("other")"), HasSubstr("has no weightpress"));
  EXPECT_THAT(rejection(R"("df11")", R"("tile-ans")"), HasSubstr("about the format 'tile-ans'"));
  EXPECT_THAT(rejection(R"("comfyui")", "7"), HasSubstr("layout must be a string"));
  EXPECT_THAT(rejection(R"("hashes": true)", R"("hashes": "no")"), HasSubstr("hashes must be true or false"));
  EXPECT_THAT(rejection(R"("definition")", R"("def")"), HasSubstr("has no definition"));
  EXPECT_THAT(rejection(R"({"z": [], "b\\.\\d+": ["q", "k"]})", "{}"), HasSubstr("pattern_dict is missing"));
  EXPECT_THAT(rejection(R"(["q", "k"])", R"(["q", 1])"),
              HasSubstr("what is in pattern_dict must be a string"));
  EXPECT_THAT(rejection(R"(["q", "k"])", R"({"q": "k"})"),
              HasSubstr("what is in pattern_dict must be a list"));
  EXPECT_THAT(rejection(R"("tied_units")", R"("tied")"), HasSubstr("has no tied_units"));
  EXPECT_THAT(rejection(R"("made_from")", R"("from")"), HasSubstr("has no made_from"));
  EXPECT_THAT(rejection(R"("source_files")", R"("files")"), HasSubstr("has no source_files"));
  EXPECT_THAT(rejection(R"("tensors": [)", R"("other": [)"), HasSubstr("has no tensors"));
  EXPECT_THAT(rejection(R"("metadata": null)", R"("metadata": [])"), HasSubstr("metadata must be an object"));
  EXPECT_THAT(rejection(R"("z": "1")", R"("z": 1)"), HasSubstr("what is in metadata must be a string"));
  EXPECT_THAT(rejection(R"("name": "norm", )", ""), HasSubstr("a tensor has no name"));
  EXPECT_THAT(rejection(R"("shape": [3], )", ""), HasSubstr("tensor 'gone' has no shape"));
  EXPECT_THAT(rejection(R"("shape": [3])", R"("shape": [[3]])"),
              HasSubstr("what is in shape must be a number"));
  for (const char* dimension : {"-3", "3.0", "1e2", "18446744073709551616", "\"3\"", "true", "null"})
    EXPECT_THAT(rejection("[3]", "[" + std::string(dimension) + "]"), HasSubstr("shape must be a number"));
  EXPECT_THAT(rejection(R"("shape": [3])", R"("shape": null)"), HasSubstr("shape must be a list"));
  EXPECT_THAT(rejection(R"("dtype": "F32", "shape": [3])", R"("dtype": "F33", "shape": [3])"),
              HasSubstr("'F33'"));
  EXPECT_THAT(rejection(R"("cast": "BF16")", R"("cast": "bf16")"), HasSubstr("'bf16'"));
}

TEST(SourceRecord, NamesOfFilesStayInTheirFolder) {
  for (const char* name :
       {"../x.safetensors", "/x.safetensors", "a/b.safetensors", "x.safetensors/", "", "x", ".",
        "x.safetensors\\u0000", "\\u0000.safetensors", "config.json", "x.SAFETENSORS"})
    EXPECT_THAT(rejection("2.safetensors", name), HasSubstr("not the plain name")) << name;
  EXPECT_THAT(rejection("2.safetensors", std::string(244, 'x') + ".safetensors"),
              HasSubstr("not the plain name"));
  EXPECT_EQ(rejection("2.safetensors", std::string(243, 'x') + ".safetensors"), "accepted");
  EXPECT_EQ(rejection("2.safetensors", "..safetensors"), "accepted");
  EXPECT_THAT(rejection("2.safetensors", "1.safetensors"),
              HasSubstr("lists the source file '1.safetensors' twice"));
}

TEST(SourceRecord, NamesAreUnique) {
  EXPECT_THAT(rejection(R"("name": "norm")", R"("name": "gone")"), HasSubstr("tensor 'gone' twice"));
  EXPECT_THAT(rejection(R"("name": "norm")", R"("name": "norm", "renamed": "z")"),
              HasSubstr("would both be 'z' in the output"));
}

TEST(SourceRecord, SizesFit) {
  EXPECT_THAT(rejection(R"("shape": [3])", R"("shape": [4294967296, 4294967296])"), HasSubstr("overflows"));
  EXPECT_THAT(rejection(R"("shape": [3])", R"("shape": [4611686018427387904])"), HasSubstr("overflows"));
  EXPECT_THAT(rejection(R"("dtype": "F32", "shape": [3])", R"("dtype": "F4", "shape": [3])"),
              HasSubstr("whole number of bytes"));
  std::string ones = "[1";
  for (int i = 1; i < 64; ++i) ones += ", 1";
  EXPECT_EQ(rejection("[3]", ones + "]"), "accepted");
  EXPECT_THAT(rejection("[3]", ones + ", 1]"), HasSubstr("more than 64 dimensions"));
}

TEST(SourceRecord, TiesEndAtSomethingStored) {
  for (const char* other : {"gone", "head", "copy", "nothing", "z"})
    EXPECT_THAT(rejection(R"("tied_to": "p.z2")", R"("tied_to": ")" + std::string(other) + '"'),
                HasSubstr("not a tensor that the output holds"))
        << other;
  EXPECT_THAT(rejection(R"("tied_to": "p.z2")", R"("tied_to": "norm")"), HasSubstr("another shape or type"));
  EXPECT_THAT(rejection(R"("cast": "BF16", "shape": [2])", R"("shape": [2])"),
              HasSubstr("another shape or type"));
  for (const char* source : {"gone", "head", "z"})
    EXPECT_THAT(rejection(R"("made_from": "norm")", R"("made_from": ")" + std::string(source) + '"'),
                HasSubstr("said to be made from"))
        << source;
}

TEST(SourceRecord, OneFateEach) {
  for (const char* more : {R"("unit": "b.0")", R"("tied_to": "norm")"})
    EXPECT_THAT(rejection(R"("dropped": "by a rule")", std::string(more) + R"(, "dropped": "by a rule")"),
                HasSubstr("tensor 'gone' is said to be two of"));
}

TEST(SourceRecord, TextsThatAreNone) {
  for (const char* text : {"", "{", "[]", "7", "null", "\"x\"", "\xFF", "{\"weightpress\": \"\xFF\"}"})
    EXPECT_NE(message_of(text), "accepted") << text;
  EXPECT_THAT(message_of(std::string(kRecord) + '\0'), HasSubstr("NUL"));
  EXPECT_THAT(message_of(std::string(kRecord) + "}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of("{\"a\":" + std::string(100'000, '[')), HasSubstr("nested too deeply"));
  for (std::size_t size = 0; size < kRecord.size(); ++size)
    EXPECT_NE(message_of(std::string(kRecord.substr(0, size))), "accepted") << size;
}

}  // namespace
}  // namespace weightpress::model
