#include "model/config_json.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

ModelDefinition small_definition() {
  ModelDefinition definition;
  definition.pattern_dict = {{"lm_head", {}},
                             {"model\\.layers\\.\\d+", {"self_attn.q_proj", "\xC3\xA9\x7F"}}};
  return definition;
}

// Printed by Python: json.dumps({"dfloat11_config": {...}}, indent=2), without the outer braces.
constexpr const char* kMember = R"(
  "dfloat11_config": {
    "version": "0.5.0",
    "threads_per_block": [
      512
    ],
    "bytes_per_thread": 8,
    "pattern_dict": {
      "lm_head": [],
      "model\\.layers\\.\\d+": [
        "self_attn.q_proj",
        "\u00e9\u007f"
      ]
    }
  })";

std::string splice(std::string_view source) {
  auto result = splice_dfloat11_config(std::string(source), small_definition(), "config.json");
  return result ? *result : result.error().message;
}

TEST(ConfigJson, ANewObjectIsPythons) {
  EXPECT_EQ(*splice_dfloat11_config(std::nullopt, small_definition(), "config.json"), "{"s + kMember + "\n}");
  EXPECT_EQ(splice(""), "config.json: is not valid JSON");  // an empty file is not the absence of one
}

TEST(ConfigJson, TheSourceKeepsItsBytes) {
  EXPECT_EQ(splice("{\n  \"eps\": 1e-05,\n  \"b\": 1.0e5\n}\n"),
            "{\n  \"eps\": 1e-05,\n  \"b\": 1.0e5,"s + kMember + "\n}\n");
  EXPECT_EQ(splice("{\"a\":1}"), "{\"a\":1,"s + kMember + "\n}");
  EXPECT_EQ(splice(" {\r\n\t\"a\" : [ ] \r\n} "), " {\r\n\t\"a\" : [ ],"s + kMember + " \r\n} ");
  EXPECT_EQ(splice("{}"), "{"s + kMember + "\n}");
  EXPECT_EQ(splice("{\n}"), "{"s + kMember + "\n}");
}

TEST(ConfigJson, StringsAndNestedObjectsDoNotFoolIt) {
  for (const std::string members :
       {R"("a}": "}{][\"\\", "b": {"c": [{"d": "}"}]})", R"("a": {"dfloat11_config": 1})",
        R"("a": "dfloat11_config")", R"("a": ["dfloat11_config", {"dfloat11_config": {}}])", R"("a": "\\")",
        R"("": null, "x": -0.5e+3)", R"("a": [])", R"("a": {}, "b": true)", R"("dfloat11_config ": 1)"}) {
    EXPECT_EQ(splice("{" + members + "\n}"), "{" + members + "," + kMember + "\n}");
  }
}

TEST(ConfigJson, AnExistingValueIsReplacedByALastMember) {
  for (const char* old :
       {"1", "null", "\"}\"", "[1, {\"a\": 2}]", "{\"version\": \"0.1\", \"x\": {}}", "-1.5e3"}) {
    EXPECT_EQ(splice("{\"dfloat11_config\": "s + old + ", \"z\": 1}"), "{\"z\": 1,"s + kMember + "\n}");
    EXPECT_EQ(splice("{\"a\": 1, \"dfloat11_config\" :"s + old + "}"), "{\"a\": 1,"s + kMember + "\n}");
    EXPECT_EQ(splice("{\"a\": 1, \"dfloat11_config\" :"s + old + ", \"z\": 1}"),
              "{\"a\": 1, \"z\": 1,"s + kMember + "\n}");
    EXPECT_EQ(splice("{ \"dfloat11_config\" :"s + old + " }"), "{"s + kMember + "\n }");
  }
  EXPECT_EQ(splice(R"({"dfloat11\u005fconfig":1})"), "{"s + kMember + "\n}");
  EXPECT_EQ(splice(R"({"dfloat11_config":1,"dfloat11_config":2,"a":2,"dfloat11_config":3})"),
            "{\"a\":2,"s + kMember + "\n}");
  for (const char* source : {"{\"a\": 1}", "{}", "{ }", "{\n}", "{\n  \"a\": 1\n}\n",
                             "{\"dfloat11_config\":1,\"dfloat11_config\":2}"}) {
    const std::string once = splice(source);
    EXPECT_EQ(splice(once), once) << source;
  }
}

TEST(ConfigJson, NumbersThatPythonAddsToJsonAreKept) {
  const std::string source = "{\"limit\": [0.0, Infinity, -Infinity, NaN], \"s\": \"NaN\"";
  EXPECT_EQ(splice(source + "\n}"), source + "," + kMember + "\n}");
  EXPECT_EQ(splice("{\"a\": NaN}"), "{\"a\": NaN,"s + kMember + "\n}");
}

TEST(ConfigJson, WhatIsNoConfigIsRefused) {
  for (const char* text :
       {"{", "{\"a\":}", "{\"a\":1,}", "{} {}", "{\"a\":\"", "{\"a\":\"\\", " ", "{\"a\":\"\xFF\"}",
        "{\"a\":nan}", "{NaN:1}", "{\"a\":1NaN2x}", "{\"a\":1NaN}", "{\"a\":-NaN}"})
    EXPECT_EQ(splice(text), "config.json: is not valid JSON") << text;
  for (const char* text : {"[]", "1", " \"{}\"", "null", "NaN"})
    EXPECT_EQ(splice(text), "config.json: is not a JSON object") << text;
  EXPECT_THAT(splice("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
  EXPECT_THAT(splice("{}\0"s), HasSubstr("NUL"));
  const std::string whole = R"({"a": [1, "b\"}", {"c": null}], "d": {}})";
  for (std::size_t size = 1; size < whole.size(); ++size)
    EXPECT_EQ(splice(whole.substr(0, size)), "config.json: is not valid JSON") << size;
  const std::string deep = "{\"a\":" + std::string(90'000, '[') + std::string(90'000, ']') + "}";
  EXPECT_THAT(splice(deep), HasSubstr("nested too deeply"));
  const std::string allowed = "{\"a\":" + std::string(200, '[') + "\"[\"" + std::string(200, ']') + "}";
  EXPECT_THAT(splice(allowed), HasSubstr("dfloat11_config"));
}

}  // namespace
}  // namespace weightpress::model
