#include "model/source_shapes.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string message_of(const std::string& text) {
  const auto shapes = parse_source_shapes(text, "dir/s.json");
  if (shapes) return "accepted";
  EXPECT_EQ(shapes.error().code, ErrorCode::kCorruptFile);
  EXPECT_THAT(shapes.error().message, HasSubstr("dir/s.json: "));
  return shapes.error().message;
}

TEST(SourceShapes, BothForms) {
  const auto shapes = parse_source_shapes(
      R"({"__metadata__": {"format": "pt"}, "list": [2, 3], "object": {"dtype": "BF16", "shape": [5, 0]},
          "scalar": [], "\u00e9": [18446744073709551615], "shape": {"shape": []}})",
      "s.json");
  ASSERT_TRUE(shapes) << shapes.error().message;
  EXPECT_THAT(*shapes, ElementsAre(Pair("list", ElementsAre(2, 3)), Pair("object", ElementsAre(5, 0)),
                                   Pair("scalar", IsEmpty()), Pair("shape", IsEmpty()),
                                   Pair("\u00e9", ElementsAre(18446744073709551615u))));
  EXPECT_THAT(*parse_source_shapes("{}", "s.json"), IsEmpty());
}

TEST(SourceShapes, WhatIsNoShape) {
  for (const char* value : {"3", "\"3\"", "null", "true", "{}", "{\"dtype\": \"BF16\"}", "{\"shape\": 3}",
                            "{\"shape\": {\"shape\": [3]}}"})
    EXPECT_THAT(message_of("{\"a\": [1], \"b\": " + std::string(value) + "}"),
                HasSubstr("tensor 'b' must have a list"))
        << value;
  for (const char* dimension : {"-1", "1.0", "1e3", "\"1\"", "null", "[1]", "18446744073709551616"})
    EXPECT_THAT(message_of("{\"b\": [2, " + std::string(dimension) + "]}"),
                HasSubstr("tensor 'b': a dimension"))
        << dimension;
  EXPECT_THAT(message_of(R"({"b": [4294967296, 4294967296]})"),
              HasSubstr("'b' has a shape that no tensor can have"));
  std::string ones = "{\"b\": [1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  EXPECT_EQ(message_of(ones + "]}"), "accepted");
  EXPECT_THAT(message_of(ones + ",1]}"), HasSubstr("no tensor can have"));
}

TEST(SourceShapes, TextsThatAreNone) {
  for (const char* text : {"", "{", "{\"a\": [1]", "{\"a\": [1],}", "\xFF", "{\"\xFF\": [1]}"})
    EXPECT_THAT(message_of(text), HasSubstr("not valid JSON")) << text;
  for (const char* text : {"[]", "7", "null", "\"a\""})
    EXPECT_THAT(message_of(text), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(message_of(std::string("{}\0", 3)), HasSubstr("NUL"));
  EXPECT_THAT(message_of("{\"a\": " + std::string(100'000, '[')), HasSubstr("nested too deeply"));
}

TEST(SourceShapes, OfFilesOfEveryKind) {
  const TempFolder folder;
  const std::vector<TensorSpec> specs = {{"net.a", Dtype::kU8, {2, 3}}, {"b", Dtype::kF32, {}}};
  const auto file = folder.write("m.safetensors", safetensors_file(specs));
  const auto expected = ElementsAre(Pair("b", IsEmpty()), Pair("net.a", ElementsAre(2, 3)));
  EXPECT_THAT(read_source_shapes(file, nullptr), expected);
  EXPECT_THAT(read_source_shapes(folder.path(), nullptr), expected);
  const auto index = folder.write("model.safetensors.index.json",
                                  R"({"weight_map": {"net.a": "m.safetensors", "b": "m.safetensors"}})");
  EXPECT_THAT(read_source_shapes(index, nullptr), expected);  // .json, and yet no list of shapes
  const auto list = folder.write("shapes.json", R"({"x": [7]})");
  EXPECT_THAT(read_source_shapes(list, nullptr), ElementsAre(Pair("x", ElementsAre(7))));
  EXPECT_EQ(error_of([&] { read_source_shapes(folder / "none.json", nullptr); }).code, ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { read_source_shapes(folder / "none", nullptr); }).code, ErrorCode::kNotFound);
}

TEST(SourceShapes, NamesOfTheDefinitionAndTheirOwn) {
  const TempFolder folder;
  const auto file = folder.write("m.safetensors",
                                 safetensors_file({{"net.a", Dtype::kU8, {2, 3}}, {"b", Dtype::kU8, {4}}}));
  ModelDefinition definition;
  definition.strip_prefixes = {"net."};
  EXPECT_THAT(
      read_source_shapes(file, &definition),
      ElementsAre(Pair("a", ElementsAre(2, 3)), Pair("b", ElementsAre(4)), Pair("net.a", ElementsAre(2, 3))));
  // The rules would make two names one: they are not the model's, and its own names are left.
  const auto twins =
      folder.write("t.safetensors", safetensors_file({{"net.a", Dtype::kU8, {2}}, {"a", Dtype::kU8, {4}}}));
  EXPECT_THAT(read_source_shapes(twins, &definition),
              ElementsAre(Pair("a", ElementsAre(4)), Pair("net.a", ElementsAre(2))));
}

}  // namespace
}  // namespace weightpress::model
