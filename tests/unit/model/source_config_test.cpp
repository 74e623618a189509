#include "model/source_config.h"

#include <gmock/gmock.h>

namespace weightpress::model {
namespace {

bool is_tied(const std::string& text) {
  const auto config = parse_source_config(text, "config.json");
  EXPECT_TRUE(config) << text;
  return config && config->ties_word_embeddings();
}

TEST(SourceConfig, TheKeyDecidesWhereItIs) {
  EXPECT_TRUE(is_tied(R"({"model_type": "llama", "tie_word_embeddings": true})"));
  EXPECT_FALSE(is_tied(R"({"model_type": "gemma", "tie_word_embeddings": false})"));
  EXPECT_TRUE(is_tied(R"({"model_type": "llama", "text_config": {"tie_word_embeddings": true}})"));
  EXPECT_FALSE(is_tied(R"({"tie_word_embeddings": false, "text_config": {"tie_word_embeddings": true}})"));
  EXPECT_FALSE(is_tied(R"({"model_type": "llama", "other": {"tie_word_embeddings": true}})"));
}

TEST(SourceConfig, DefaultsAreThoseOfTransformers) {
  for (const char* untied :
       {"llama", "mistral", "phi3", "qwen2", "qwen2_moe", "qwen2_5_vl", "qwen3", "qwen3_moe"})
    EXPECT_FALSE(is_tied(R"({"model_type": ")" + std::string(untied) + "\"}")) << untied;
  for (const char* tied : {"gemma3", "bert", "phi", "qwen", "llama4", "mistral3"})
    EXPECT_TRUE(is_tied(R"({"model_type": ")" + std::string(tied) + "\"}")) << tied;
  EXPECT_TRUE(is_tied("{}"));
  EXPECT_TRUE(is_tied(R"({"model_type": 7, "text_config": [1]})"));
}

TEST(SourceConfig, PythonsNumbersAreTaken) {
  const auto config =
      parse_source_config(R"({"a": NaN, "b": [-Infinity], "c": "NaN", "model_type": "x"})", "c");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->strings.at("c"), "NaN");
  EXPECT_EQ(config->strings.at("model_type"), "x");
}

TEST(SourceConfig, OtherTextsAreNamed) {
  const auto failure = [](const std::string& text) {
    const auto config = parse_source_config(text, "dir/config.json");
    return config ? ErrorDetails{} : config.error();
  };
  for (const char* text : {"", "{", "[1]", "{} x", "\xEF\xBB\xBF{}", "\xFF\xFE{\0}"}) {
    EXPECT_EQ(failure(text).code, ErrorCode::kCorruptFile) << text;
    EXPECT_THAT(failure(text).message, testing::StartsWith("dir/config.json: "));
  }
  EXPECT_THAT(failure("version https://git-lfs.github.com/spec/v1\n").message,
              testing::HasSubstr("git lfs pull"));
}

}  // namespace
}  // namespace weightpress::model
