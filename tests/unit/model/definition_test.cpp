#include "model/definition.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFull = R"({
  "$schema": "x", "description": "y", "provenance": "z",
  "name": "full", "layout": "comfyui", "family": "fam",
  "strip_prefixes": ["model.diffusion_model.", "net."],
  "pattern_dict": {"z\\.\\d+": ["b", "a.c"], "a": [], "m": ["q"]},
  "rules": {
    "format_version": "0.2.0", "threads_per_block": [512], "bytes_per_thread": 8,
    "drop": ["^accum_", "x$"], "rename": [["\\.scale$", ".weight"], ["a", "b"]], "keep_only_prefix": "model.",
    "tied_lm_head": true, "file": "f.safetensors", "keep_dtype": ["t.*"],
    "rename_evidence": "", "source_dtype": "", "also_used_by": [], "release_revision": "", "observed_release": {},
    "extended_model_key": "", "format_version_note": ""
  }
})";

ModelDefinition parse(const std::string& text) {
  return parse_definition(text, "d.json");
}

// The message for a definition with one thing changed.
std::string failure(const std::string& from, const std::string& to) {
  std::string text = kFull;
  const std::size_t position = text.find(from);
  EXPECT_NE(position, std::string::npos) << from;
  text.replace(position, from.size(), to);
  const ErrorDetails error = error_of([&] { parse(text); });
  EXPECT_EQ(error.code, ErrorCode::kBadDefinition);
  EXPECT_THAT(error.message, testing::StartsWith("d.json: "));
  return error.message;
}

TEST(Definition, EveryFieldIsLoadedInOrder) {
  const ModelDefinition definition = parse(kFull);
  EXPECT_EQ(definition.name, "full");
  EXPECT_EQ(definition.layout, "comfyui");
  EXPECT_EQ(definition.family, "fam");
  EXPECT_THAT(definition.strip_prefixes, ElementsAre("model.diffusion_model.", "net."));
  ASSERT_EQ(definition.pattern_dict.size(), 3u);
  EXPECT_EQ(definition.pattern_dict[0].pattern, "z\\.\\d+");
  EXPECT_THAT(definition.pattern_dict[0].attributes, ElementsAre("b", "a.c"));
  EXPECT_EQ(definition.pattern_dict[1].pattern, "a");
  EXPECT_TRUE(definition.pattern_dict[1].attributes.empty());
  EXPECT_EQ(definition.pattern_dict[2].pattern, "m");
  EXPECT_EQ(definition.format_version, "0.2.0");
  EXPECT_THAT(definition.drop, ElementsAre("^accum_", "x$"));
  ASSERT_EQ(definition.rename.size(), 2u);
  EXPECT_EQ(definition.rename[0].pattern, "\\.scale$");
  EXPECT_EQ(definition.rename[0].replacement, ".weight");
  EXPECT_EQ(definition.keep_only_prefix, "model.");
  EXPECT_TRUE(definition.tied_lm_head);
  EXPECT_EQ(definition.file, "f.safetensors");
  EXPECT_THAT(definition.keep_dtype, ElementsAre("t.*"));
}

TEST(Definition, RulesAreOptional) {
  const ModelDefinition definition = parse(R"({"name":"n","layout":"transformers","pattern_dict":{"a":[]}})");
  EXPECT_EQ(definition.format_version, "0.5.0");
  EXPECT_THAT(definition.threads_per_block, ElementsAre(512));
  EXPECT_EQ(definition.bytes_per_thread, 8u);
  EXPECT_FALSE(definition.tied_lm_head);
  EXPECT_TRUE(definition.drop.empty() && definition.rename.empty() && definition.strip_prefixes.empty());
}

TEST(Definition, ErrorsNameFileAndKey) {
  EXPECT_THAT(failure("\"family\"", "\"famly\""), HasSubstr("famly is not a key"));
  EXPECT_THAT(failure("\"drop\"", "\"dorp\""), HasSubstr("rules.dorp is not a key"));
  EXPECT_THAT(failure("\"name\": \"full\",", ""), HasSubstr("name is missing"));
  EXPECT_THAT(failure("\"full\"", "\"\""), HasSubstr("name must not be empty"));
  EXPECT_THAT(failure("\"full\"", "1"), HasSubstr("name must be a string"));
  EXPECT_THAT(failure("\"layout\": \"comfyui\",", ""), HasSubstr("layout is missing"));
  EXPECT_THAT(failure("\"comfyui\"", "\"comfy\""), HasSubstr("layout is 'comfy'"));
  EXPECT_THAT(failure("\"fam\"", "[]"), HasSubstr("family must be a string"));
  EXPECT_THAT(failure("\"net.\"", "1"), HasSubstr("strip_prefixes"));
  EXPECT_THAT(failure("\"net.\"", "\"\""), HasSubstr("strip_prefixes must not hold an empty"));
  EXPECT_THAT(failure("\"pattern_dict\"", "\"description\""), HasSubstr("description is a duplicate key"));
  EXPECT_THAT(failure("\"a\": []", "\"m\": []"), HasSubstr("m is a duplicate key"));
  EXPECT_THAT(failure("\"a\": []", "\"a\": {}"), HasSubstr("pattern_dict: 'a' must be a list"));
  EXPECT_THAT(failure("[\"b\", \"a.c\"]", "[\"b\", \"b\"]"), HasSubstr("names an attribute twice"));
  EXPECT_THAT(failure("\"a\": []", "\"a(\": []"), HasSubstr("pattern 'a(' is not valid"));
  EXPECT_THAT(failure("\"x$\"", "\"x(\""), HasSubstr("rules.drop: pattern 'x('"));
  EXPECT_THAT(failure("[\"a\", \"b\"]", "[\"a(\", \"b\"]"), HasSubstr("rules.rename: pattern 'a('"));
  EXPECT_THAT(failure("[\"a\", \"b\"]", "[\"a\"]"), HasSubstr("rules.rename must be a list of pairs"));
  EXPECT_THAT(failure("[\"a\", \"b\"]", "\"a\""), HasSubstr("rules.rename must be a list of pairs"));
  EXPECT_THAT(failure("\"0.2.0\"", "0.2"), HasSubstr("rules.format_version must be a string"));
  EXPECT_THAT(failure("[512]", "[256]"), HasSubstr("rules.threads_per_block must be [512]"));
  EXPECT_THAT(failure("\"bytes_per_thread\": 8", "\"bytes_per_thread\": 16"), HasSubstr("must be 8"));
  EXPECT_THAT(failure("true", "1"), HasSubstr("rules.tied_lm_head must be true or false"));
  EXPECT_THAT(failure("\"model.\"", "1"), HasSubstr("rules.keep_only_prefix"));
  EXPECT_THAT(failure("\"f.safetensors\"", "\"../f.safetensors\""), HasSubstr("rules.file"));
  EXPECT_THAT(failure("[\"t.*\"]", "\"t.*\""), HasSubstr("rules.keep_dtype"));
}

TEST(Definition, TextThatIsNoDefinition) {
  const auto message = [](const std::string& text) { return error_of([&] { parse(text); }).message; };
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(message(std::string("{}\0", 3)), HasSubstr("NUL"));
  EXPECT_THAT(message(std::string(100'000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(message(R"({"name":"n","layout":"comfyui"})"), HasSubstr("pattern_dict is missing"));
  EXPECT_THAT(message(R"({"name":"n","layout":"comfyui","pattern_dict":{}})"),
              HasSubstr("pattern_dict must be"));
  EXPECT_THAT(message(R"({"name":"n","layout":"comfyui","pattern_dict":{"a":[]},"rules":[]})"),
              HasSubstr("rules must be an object"));
  const std::string whole = kFull;
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(parse(whole.substr(0, size)), Error) << size;
}

TEST(Definition, IsLoadedFromAFile) {
  const TempFolder folder;
  EXPECT_EQ(load_definition(folder.write("d.json", kFull)).name, "full");
  EXPECT_THAT(error_of([&] { load_definition(folder.write("e.json", "{}")); }).message,
              HasSubstr((folder / "e.json").string()));
  EXPECT_EQ(error_of([&] { load_definition(folder / "none.json"); }).code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace weightpress::model
