// Every expectation is what Python's re.fullmatch answers.
#include "model/name_pattern.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::HasSubstr;

bool matches(std::string_view pattern, std::string_view name) {
  auto compiled = NamePattern::compile(pattern);
  return compiled.value().matches(name);
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
  EXPECT_TRUE(moved.matches("b"));
}

// Expected values: Python's re.sub(pattern, replacement, name, count=1).
TEST(NamePattern, ReplacesTheFirstMatch) {
  const auto replace = [](const char* pattern, const char* name, const char* replacement) {
    const auto compiled = NamePattern::compile(pattern, NamePattern::Match::kFirst);
    EXPECT_TRUE(compiled) << pattern;
    EXPECT_EQ(compiled->check_replacement(replacement), "");
    return compiled->replace(name, replacement);
  };
  EXPECT_EQ(replace("\\.scale$", "a.scale.scale", ".weight"), "a.scale.weight");
  EXPECT_EQ(replace("l", "hello", "L"), "heLlo");
  EXPECT_EQ(replace("(a)(b)?", "xay", "[\\2\\1\\\\]"), "x[a\\]y");
  EXPECT_EQ(replace("^", "abc", "x."), "x.abc");
  EXPECT_EQ(replace("b$", "abc", "x"), std::nullopt);
}

TEST(NamePattern, ReplacementsAreChecked) {
  const auto pattern = NamePattern::compile("(a)", NamePattern::Match::kFirst);
  ASSERT_TRUE(pattern);
  EXPECT_EQ(pattern->check_replacement("\\1 $1 \\\\"), "");
  for (const char* bad : {"\\2", "\\n", "\\", "\\0", "\\g<1>"})
    EXPECT_NE(pattern->check_replacement(bad), "") << bad;
}

TEST(NamePattern, SearchFindsAnywhere) {
  const auto pattern = NamePattern::compile("\\._extra_state$", NamePattern::Match::kFirst);
  ASSERT_TRUE(pattern);
  EXPECT_TRUE(pattern->matches("blocks.0._extra_state"));
  EXPECT_FALSE(pattern->matches("blocks.0._extra_state.x"));
}

TEST(NamePattern, EscapesOfPython) {
  const auto pattern = NamePattern::compile("gr\\u00f6\\xdfe");
  ASSERT_TRUE(pattern);
  EXPECT_TRUE(
      pattern->matches("gr\xC3\xB6\xC3\x9F"
                       "e"));
}

}  // namespace
}  // namespace weightpress::model
