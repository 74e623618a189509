// PTX modules that tests write by hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weightpress::ptxvm::testing {

inline std::string ptx_module(std::string_view functions) {
  return ".version 8.2\n.target sm_75\n.address_size 64\n" + std::string(functions);
}

/// The numbers of the lines that hold a mark, from 1.
inline std::vector<std::uint32_t> lines_with(std::string_view text, std::string_view mark) {
  std::vector<std::uint32_t> lines;
  std::uint32_t line = 1;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (text.substr(0, end).find(mark) != std::string_view::npos) lines.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line;
  }
  return lines;
}

/// One line, from 1.
inline std::string_view line_of(std::string_view text, std::uint32_t line) {
  for (; line > 1 && !text.empty(); --line) {
    const std::size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace weightpress::ptxvm::testing
