// Golden vectors: units and code tables made by running the official compressor (tests/golden/README.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace weightpress::testing {

inline std::filesystem::path golden_folder() {
  return WP_GOLDEN_FOLDER;
}

inline std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<std::uint16_t> read_bf16(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> bytes = read_bytes(path);
  std::vector<std::uint16_t> words(bytes.size() / 2);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<std::uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8);
  }
  return words;
}

/// Names of the unit vectors: folders below df11/.
inline std::vector<std::string> golden_units() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / "df11")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  return names;
}

}  // namespace weightpress::testing
