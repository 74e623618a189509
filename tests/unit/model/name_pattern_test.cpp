// Every expectation is what Python's re.fullmatch answers.
#include "model/name_pattern.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::HasSubstr;

bool matches(std::string_view pattern, std::string_view name) {
  auto compiled = NamePattern::compile(pattern);
  return compiled.value().full_match(name);
}

TEST(NamePattern, TheWholeNameMustMatch) {
  EXPECT_TRUE(matches(R"(model\.layers\.\d+)", "model.layers.12"));
  EXPECT_FALSE(matches(R"(model\.layers\.\d+)", "model.layers.12.mlp"));
  EXPECT_FALSE(matches(R"(model\.layers\.\d+)", "x.model.layers.12"));
  EXPECT_FALSE(matches(R"(model\.layers\.\d+)", "model.layers."));
  EXPECT_FALSE(matches(R"(model\.layers\.\d+)", "model.layers.1\n"));
  EXPECT_FALSE(matches(R"(blocks\.\d+)", "llm_adapter.blocks.0"));
  EXPECT_TRUE(matches("model.layers.\\d+", "model-layers-1"));  // unescaped dots
  EXPECT_TRUE(matches(R"(layers\.\d++)", "layers.123"));        // possessive
  EXPECT_TRUE(matches("a|ab", "ab"));                           // the other alternative is tried
  EXPECT_FALSE(matches("a|ab", "abc"));
  EXPECT_TRUE(matches(R"(transformer_blocks\.([0-9]|[1-2][0-9]|3[0-6]))", "transformer_blocks.36"));
  EXPECT_FALSE(matches(R"(transformer_blocks\.([0-9]|[1-2][0-9]|3[0-6]))", "transformer_blocks.37"));
  EXPECT_TRUE(matches("(?P<n>a)(?P=n)", "aa"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
}

TEST(NamePattern, FollowsPythonInCorners) {
  EXPECT_FALSE(matches("a$", "a\n"));
  EXPECT_TRUE(matches("a$\n", "a\n"));
  EXPECT_FALSE(matches("a.", "a\n"));
  EXPECT_TRUE(matches("a.", "a\r"));
  EXPECT_TRUE(matches("\\d", "\xD9\xA3"));        // ARABIC-INDIC DIGIT THREE
  EXPECT_TRUE(matches("\\w", "\xC3\xA9"));        // é
  EXPECT_TRUE(matches(".", "\xF0\x9F\x98\x80"));  // one character
}

TEST(NamePattern, FaultsAreToldWithTheirPlace) {
  for (const char* pattern : {"(", "a[", "*a", "(*ACCEPT)", "a{2,1}", "\\", "\xFF"}) {
    const auto compiled = NamePattern::compile(pattern);
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_EQ(compiled.error().code, ErrorCode::kBadDefinition);
    EXPECT_THAT(compiled.error().message, HasSubstr("is not valid"));
  }
  EXPECT_THAT(NamePattern::compile("ab(").error().message, HasSubstr("'ab('"));
  EXPECT_THAT(NamePattern::compile("ab(").error().message, HasSubstr("at byte 3"));
}

TEST(NamePattern, AnEndlessMatchIsStopped) {
  const ErrorDetails error = error_of([] { matches("(a|aa)+[cd]", std::string(60, 'a')); });
  EXPECT_EQ(error.code, ErrorCode::kBadDefinition);
  EXPECT_THAT(error.message, HasSubstr("match limit"));
}

TEST(NamePattern, CanBeMoved) {
  auto a = NamePattern::compile("a");
  NamePattern moved = std::move(*a);
  auto b = NamePattern::compile("b");
  moved = std::move(*b);
  EXPECT_TRUE(moved.full_match("b"));
}

}  // namespace
}  // namespace weightpress::model
