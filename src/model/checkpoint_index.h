// Reads a *.safetensors.index.json: which file of a sharded checkpoint holds which tensor.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace weightpress::model {

/// Pairs (tensor, file name), sorted by tensor. File names are plain names of .safetensors files, so they
/// stay inside the folder. Throws kCorruptFile (duplicate names included), and what File throws.
std::vector<std::pair<std::string, std::string>> read_weight_map(const std::filesystem::path& index_path);

}  // namespace weightpress::model
