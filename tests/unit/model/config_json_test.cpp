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

PlainConfig removed(const std::string& config) {
  auto plain = remove_dfloat11_config(config, "config.json");
  EXPECT_TRUE(plain) << config << ": " << (plain ? "" : plain.error().message);
  return plain ? *plain : PlainConfig{};
}

TEST(ConfigJson, RemovingUndoesSplicing) {
  // Ends of lines are combined with members: what stands on one line, and what has its brace on its own.
  const std::vector<std::string> member_lists = {R"("a": 1)",
                                                 R"("eps": 1e-05, "b": 1.0e5)",
                                                 R"("a}": "}{][\"\\", "b": {"c": [{"d": "}"}]})",
                                                 R"("a": {"dfloat11_config": 1})",
                                                 R"("dfloat11_config ": [NaN, -Infinity], "a" : [ ] )",
                                                 R"("": null)",
                                                 "\"\u00e9\": \"\\u00e9\""};
  for (const std::string& members : member_lists) {
    for (const std::string begin : {"{", " {", "{ ", "{\t"}) {
      for (const std::string end : {"}", " }", "}\n", "}\r\n "}) {
        EXPECT_EQ(removed(splice(begin + members + end)).text, begin + members + end);
        for (const std::string line_end : {"\n", "\r\n", "\n\n", " \n "}) {
          const std::string text = begin + line_end + members + line_end + end;
          EXPECT_EQ(removed(splice(text)).text, text);
        }
      }
    }
  }
  EXPECT_EQ(removed(splice("{}")).text, "{}");
  EXPECT_EQ(removed(splice("{\"a\":1\n}")).text, "{\"a\":1}");  // as the header says: it cannot be known
}

TEST(ConfigJson, WhatRemovingTells) {
  const PlainConfig plain = removed(splice(R"({"model_type": "bert", "a": 1})"));
  EXPECT_TRUE(plain.had_dfloat11_config);
  EXPECT_TRUE(plain.describes_model);
  ASSERT_EQ(plain.pattern_dict.size(), 2u);
  EXPECT_EQ(plain.pattern_dict[0].pattern, "lm_head");
  EXPECT_TRUE(plain.pattern_dict[0].attributes.empty());
  EXPECT_EQ(plain.pattern_dict[1].pattern, "model\\.layers\\.\\d+");
  EXPECT_EQ(plain.pattern_dict[1].attributes, (std::vector<std::string>{"self_attn.q_proj", "\xC3\xA9\x7F"}));

  const PlainConfig diffusers = removed(make_diffusers_config("flux", small_definition()));
  EXPECT_TRUE(diffusers.had_dfloat11_config);
  EXPECT_FALSE(diffusers.describes_model);
  EXPECT_FALSE(removed(make_diffusers_config(std::nullopt, small_definition())).describes_model);

  const std::string ordinary = "{\"model_type\": \"bert\"\n\n}\n";
  EXPECT_FALSE(removed(ordinary).had_dfloat11_config);
  EXPECT_EQ(removed(ordinary).text, ordinary);
}

TEST(ConfigJson, WhereverItStands) {
  const std::string ours = R"("dfloat11_config": {"pattern_dict": {"a": []}})";
  EXPECT_EQ(removed("{" + ours + ", \"z\": 1}").text, "{\"z\": 1}");
  EXPECT_EQ(removed("{\"a\": 1, " + ours + ", \"z\": 1}").text, "{\"a\": 1, \"z\": 1}");
  EXPECT_EQ(removed("{\"a\": 1, " + ours + "}").text, "{\"a\": 1}");
}

TEST(ConfigJson, WhatCannotBeRemoved) {
  const auto message = [](const std::string& config) {
    const auto plain = remove_dfloat11_config(config, "c.json");
    if (plain) return "accepted"s;
    EXPECT_EQ(plain.error().code, ErrorCode::kCorruptFile);
    return plain.error().message;
  };
  for (const char* text : {"", "{", "{\"a\":}", "{} {}"})
    EXPECT_EQ(message(text), "c.json: is not valid JSON") << text;
  EXPECT_EQ(message("[]"), "c.json: is not a JSON object");
  for (const char* value :
       {"1", "null", "[]", "{}", "\"\"", R"({"pattern_dict": []})", R"({"pattern_dict": 1})"})
    EXPECT_EQ(message("{\"dfloat11_config\": "s + value + "}"), "c.json: dfloat11_config has no pattern_dict")
        << value;
  for (const char* value : {"1", "null", "{}", "\"a\"", "[1]", "[[]]", "[\"a\", null]"})
    EXPECT_THAT(message(R"({"dfloat11_config": {"pattern_dict": {"p": )"s + value + "}}}"),
                HasSubstr("pattern 'p' must have a list of strings"))
        << value;
}

}  // namespace
}  // namespace weightpress::model
