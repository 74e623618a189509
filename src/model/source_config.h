// What a model's config.json says that changes what is written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "format/result.h"

namespace weightpress::model {

/// Longest config.json that is read. Real ones have a few KB, with long lists of labels up to 1 MB.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{4} << 20;

struct SourceConfig {
  std::string text;                                         ///< as it stands in the file
  std::map<std::string, std::string, std::less<>> strings;  ///< top-level keys whose value is a string
  std::optional<bool> tie_word_embeddings;                  ///< at the top level or under text_config

  /// Whether `lm_head` and the embedding share their weights. Where the key is absent, the default of
  /// transformers' configuration classes decides: false for llama, mistral, qwen2*, qwen3* and phi3, else
  /// true.
  bool ties_word_embeddings() const;
};

/// Errors: kCorruptFile, naming `file_name`, if the text is not a JSON object. NaN and Infinity, which Python
/// writes, are taken.
Result<SourceConfig> parse_source_config(std::string text, const std::string& file_name);

}  // namespace weightpress::model
