// Reads and writes *.safetensors.index.json: which file of a sharded checkpoint holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace weightpress::model {

/// Pairs (tensor, file name), sorted by tensor. File names are plain names of .safetensors files, so they
/// stay inside the folder. Throws kCorruptFile (duplicate names included), and what File throws.
std::vector<std::pair<std::string, std::string>> read_weight_map(const std::filesystem::path& index_path);

/// The text of an index as Python's json.dump(indent=2, sort_keys=True) writes it. `weight_map`: as
/// read_weight_map() gives it.
std::string make_weight_map(const std::vector<std::pair<std::string, std::string>>& weight_map,
                            std::uint64_t total_bytes);

}  // namespace weightpress::model
