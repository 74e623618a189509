// The small text files by which Linux tells about itself: /proc, /sys.
//
// They claim to be empty and may fail at any read, so model::File is not for them; and one that is absent or
// holds something else is no trouble: a reader then knows less, and goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace weightpress::job {

struct SystemFile {
  std::string text;  // the first MiB at most; empty after an error
  int error = 0;     // errno of what failed
};

SystemFile read_system_file(const std::filesystem::path& path);

/// `text` without white space at either end.
std::string_view trimmed(std::string_view text);

/// `text` as a decimal number, white space around it allowed; nothing if it is anything else or too large.
std::optional<std::uint64_t> number_in(std::string_view text);

/// What follows `key` in the first line that begins with it, trimmed: a view of `text`.
std::optional<std::string_view> rest_of_line(std::string_view text, std::string_view key);

}  // namespace weightpress::job
