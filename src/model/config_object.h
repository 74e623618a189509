// config.json as a tree, for the few keys that are looked at; config_json.h keeps the text.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "format/result.h"

namespace weightpress::model {

/// Errors: kCorruptFile, naming `file_name`, if the text is not a JSON object. NaN and Infinity, which Python
/// writes, become numbers.
Result<nlohmann::json> parse_config_object(std::string_view text, const std::string& file_name);

}  // namespace weightpress::model
