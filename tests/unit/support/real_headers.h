// Units of the shapes of real checkpoints (tests/real_headers), every dimension cut: all, or a few of each
// list of tensor sizes in a model, since its repeated layers have the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/model_test_support.h"
#include "model/model_view.h"
#include "model/units.h"

namespace weightpress::testing {

inline constexpr std::uint64_t kMaxRealHeaderDimension = 48;

/// Headers without a definition of their own (tests/real_headers/README.md).
inline std::string definition_of_real_header(const std::string& name) {
  static const std::map<std::string, std::string> kOthers = {
      {"chroma-base-diffusers-mingyi", "chroma-diffusers"},
      {"derived-flux-dev-diffusers", "flux-dev-diffusers"},
      {"extended-ACEStep15", "acestep15-comfyui"},
      {"extended-Anima", "anima-comfyui"},
      {"extended-Chroma", "chroma-comfyui"},
      {"extended-ErnieImage", "ernie-image-comfyui"},
      {"extended-Flux", "flux-comfyui"},
      {"extended-Flux2", "flux2-comfyui"},
      {"extended-FluxSchnell", "flux-schnell-comfyui"},
      {"extended-ZImage", "zimage-comfyui"}};
  const auto other = kOthers.find(name);
  return other == kOthers.end() ? name : other->second;
}

inline std::vector<std::string> real_header_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(WP_REAL_HEADERS_FOLDER))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

/// A file of these tensors, cut, without a byte of data: only its header is read.
inline void write_real_header_checkpoint(const std::filesystem::path& path, const std::string& header_name,
                                         std::uint64_t max_dimension) {
  std::ifstream file(std::filesystem::path(WP_REAL_HEADERS_FOLDER) / (header_name + ".json"));
  std::vector<model::TensorSpec> specs;
  const nlohmann::json header = nlohmann::json::parse(file);
  for (const auto& [name, entry] : header.at("tensors").items()) {
    model::TensorSpec& spec = specs.emplace_back();
    spec.name = name;
    spec.dtype = model::parse_dtype(entry.at(0).get<std::string>()).value();
    for (const auto& size : entry.at(1))
      spec.shape.push_back(std::min(size.get<std::uint64_t>(), max_dimension));
  }
  const auto layout = model::plan_safetensors_layout(specs, {});
  std::ofstream(path, std::ios::binary) << layout.value().header;
  std::filesystem::resize_file(path, layout.value().file_bytes);
}

struct RealHeaderUnit {
  std::string name;
  std::uint64_t num_weights = 0;
  std::uint64_t seed = 0;  ///< for its weights
};

/// units_of_a_shape: at most.
inline std::vector<RealHeaderUnit> real_header_units(const std::string& header_name, int units_of_a_shape,
                                                     std::uint64_t max_dimension = kMaxRealHeaderDimension) {
  const model::TempFolder folder;
  write_real_header_checkpoint(folder / "model.safetensors", header_name, max_dimension);
  const auto checkpoint = model::Checkpoint::open(folder / "model.safetensors");
  const model::ModelDefinition definition = model::load_architecture(definition_of_real_header(header_name));
  const model::ModelView view = std::move(model::apply_key_rules(checkpoint, definition).value());
  const model::UnitAssignment assignment = std::move(model::assign_units(view.tensors, definition).value());

  std::vector<RealHeaderUnit> units;
  std::map<std::vector<std::uint64_t>, int> shapes;
  for (const model::Unit& unit : assignment.units) {
    std::vector<std::uint64_t> sizes;
    for (const std::size_t tensor : unit.tensors) sizes.push_back(view.tensors[tensor].num_elements);
    if (++shapes[sizes] > units_of_a_shape) continue;
    std::uint64_t seed = 0;
    for (const char c : header_name + unit.name) seed = 31 * seed + static_cast<unsigned char>(c);
    units.push_back({unit.name, unit.num_weights, seed});
  }
  return units;
}

}  // namespace weightpress::testing
