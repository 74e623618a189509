// Help for the tests of src/model: a folder that goes away, small safetensors files, and errors as values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <weightpress/error.h>

#include "model/safetensors_layout.h"

namespace weightpress::model {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weightpress-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  std::filesystem::path write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// `json` with its length in front: the start of a file.
inline std::string with_length(std::string_view json) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return file + std::string(json);
}

/// A whole file whose data bytes count 0, 1, 2, ...
inline std::string safetensors_file(const std::vector<TensorSpec>& specs) {
  auto layout = plan_safetensors_layout(specs, {});
  std::string file = layout.value().header;
  for (std::uint64_t i = 0; file.size() < layout.value().file_bytes; ++i) file += static_cast<char>(i);
  return file;
}

/// The Error that `call` throws; a test failure and an empty one if it throws none.
template <class Call>
ErrorDetails error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.details();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace weightpress::model
