// What `inspect --json` prints; docs/cli.md names the keys.
#pragma once

#include <string>

#include <weightpress/inspect.h>

namespace weightpress::cli {

/// One JSON object on one line, in plain ASCII, with a line break. `path`: as the user gave it.
std::string inspect_json(const InspectReport& report, const std::string& path);

}  // namespace weightpress::cli
