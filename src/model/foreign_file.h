// Tells files that are not what their name says: pointers, error pages, archives, other formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "format/result.h"

namespace weightpress::model {

/// How much of a file's beginning is worth looking at.
inline constexpr std::size_t kForeignHeadBytes = 512;

/// What a file with this beginning is instead of a safetensors or JSON file, and what to do: kNotFound (the
/// file itself was never there) or kCorruptFile (it was spoilt), naming `file_name`. Nothing if it is not
/// known to be something else.
std::optional<Unexpected> recognise_foreign_file(std::string_view head, const std::string& file_name);

/// The same for what should be a safetensors file, where JSON and other text are foreign too.
std::optional<Unexpected> recognise_foreign_tensor_file(std::string_view head, const std::string& file_name);

}  // namespace weightpress::model
