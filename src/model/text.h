// How names are spelled: for people in messages, and in JSON as the two official writers do.
//
// Names come from files of strangers. They may hold line breaks and terminal escapes, so a message never
// holds one raw; and whole files are compared byte for byte, so each writer's way of escaping matters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weightpress::model {

/// `text` fit for a terminal: control and direction-changing characters and bytes that are not UTF-8 as \xNN.
std::string escaped_for_terminal(std::string_view text);

/// The same, cut after about 1000 bytes: a name in a message.
std::string printable(std::string_view text);

/// printable(text) in single quotes.
std::string in_quotes(std::string_view text);

/// "[2, 3]".
std::string shape_text(std::span<const std::uint64_t> shape);

/// `text` with each byte that is not UTF-8 replaced by U+FFFD.
std::string replaced_non_utf8(std::string_view text);

/// Appends `text`, which must be UTF-8, as a JSON string in the manner of serde_json (the safetensors
/// package).
void append_json_utf8(std::string& out, std::string_view text);

/// The same in the manner of Python's json.dumps: everything outside printable ASCII as \uXXXX.
void append_json_ascii(std::string& out, std::string_view text);

}  // namespace weightpress::model
