// A folder that stands for "/": a test puts the files of /proc and /sys there that it wants to be found.
#pragma once

#include <filesystem>
#include <string_view>

#include "model/model_test_support.h"

namespace weightpress::job {

class FakeSystem {
 public:
  // Writes or replaces a file, with the folders above it.
  void put(std::string_view name, std::string_view content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    folder_.write(name, content);
  }
  void remove(std::string_view name) const { std::filesystem::remove_all(folder_ / name); }

  const std::filesystem::path& root() const { return folder_.path(); }
  std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }

 private:
  model::TempFolder folder_;
};

}  // namespace weightpress::job
