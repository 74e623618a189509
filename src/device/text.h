// Text of other programs, for messages.
#pragma once

#include <string>
#include <string_view>

namespace weightpress::device {

/// On one line, without control characters.
inline std::string printable_text(std::string_view text) {
  std::string printable(text);
  for (char& c : printable)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  while (!printable.empty() && printable.back() == ' ') printable.pop_back();
  return printable;
}

}  // namespace weightpress::device
