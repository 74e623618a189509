#include "model/source_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/config_object.h"

namespace weightpress::model {
namespace {

constexpr const char* kTieKey = "tie_word_embeddings";
constexpr std::array<std::string_view, 3> kUntiedTypes = {"llama", "mistral", "phi3"};
constexpr std::array<std::string_view, 2> kUntiedFamilies = {"qwen2", "qwen3"};

std::optional<bool> find_tie(const nlohmann::json& object) {
  const auto found = object.find(kTieKey);
  if (found == object.end() || !found->is_boolean()) return std::nullopt;
  return found->get<bool>();
}

}  // namespace

bool SourceConfig::ties_word_embeddings() const {
  if (tie_word_embeddings) return *tie_word_embeddings;
  const auto found = strings.find("model_type");
  if (found == strings.end()) return true;
  const std::string& type = found->second;
  return !std::ranges::count(kUntiedTypes, type) &&
         std::ranges::none_of(kUntiedFamilies,
                              [&](std::string_view family) { return type.starts_with(family); });
}

Result<SourceConfig> parse_source_config(std::string text, const std::string& file_name) {
  auto root = parse_config_object(text, file_name);
  if (!root) return Unexpected(std::move(root.error()));
  SourceConfig config;
  for (const auto& [key, value] : root->items())
    if (value.is_string()) config.strings.emplace(key, value.get<std::string>());
  config.tie_word_embeddings = find_tie(*root);
  if (const auto inner = root->find("text_config"); !config.tie_word_embeddings && inner != root->end())
    config.tie_word_embeddings = inner->is_object() ? find_tie(*inner) : std::nullopt;
  config.text = std::move(text);
  return config;
}

}  // namespace weightpress::model
