// The official kernel on units of the shapes of real checkpoints, every dimension cut to at most 48: a few of
// each list of tensor sizes in a model (its repeated layers have the same).
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/model_test_support.h"
#include "model/model_view.h"
#include "model/units.h"
#include "official_kernel/decode_kernel_test_support.h"
#include "support/weights.h"

namespace weightpress {
namespace {

constexpr std::uint64_t kMaxDimension = 48;
constexpr int kUnitsOfAShape = testing::kIsSlowBuild ? 1 : 4;

// Headers without a definition of their own (tests/real_headers/README.md).
const std::map<std::string, std::string> kDefinitionOf = {
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

std::vector<std::string> header_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(WP_REAL_HEADERS_FOLDER))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

/// A file of these tensors, cut, without a byte of data: only its header is read.
void write_checkpoint(const std::filesystem::path& path, const std::string& header_name) {
  const auto folder = std::filesystem::path(WP_REAL_HEADERS_FOLDER);
  std::ifstream file(folder / (header_name + ".json"));
  std::vector<model::TensorSpec> specs;
  const nlohmann::json header = nlohmann::json::parse(file);
  for (const auto& [name, entry] : header.at("tensors").items()) {
    model::TensorSpec& spec = specs.emplace_back();
    spec.name = name;
    spec.dtype = model::parse_dtype(entry.at(0).get<std::string>()).value();
    for (const auto& size : entry.at(1))
      spec.shape.push_back(std::min(size.get<std::uint64_t>(), kMaxDimension));
  }
  const auto layout = model::plan_safetensors_layout(specs, {});
  std::ofstream(path, std::ios::binary) << layout.value().header;
  std::filesystem::resize_file(path, layout.value().file_bytes);
}

class RealHeaders : public testing::DecodeKernelTestOf<std::string> {};

TEST_P(RealHeaders, UnitsOfEveryShapeAreExact) {
  const model::TempFolder folder;
  write_checkpoint(folder / "model.safetensors", GetParam());
  const auto checkpoint = model::Checkpoint::open(folder / "model.safetensors");
  const auto own = kDefinitionOf.find(GetParam());
  const model::ModelDefinition definition =
      model::load_architecture(own == kDefinitionOf.end() ? GetParam() : own->second);
  const model::ModelView view = std::move(model::apply_key_rules(checkpoint, definition).value());
  const model::UnitAssignment assignment = std::move(model::assign_units(view.tensors, definition).value());

  std::map<std::vector<std::uint64_t>, int> shapes;
  for (const model::Unit& unit : assignment.units) {
    std::vector<std::uint64_t> sizes;
    for (const std::size_t tensor : unit.tensors) sizes.push_back(view.tensors[tensor].num_elements);
    if (++shapes[sizes] > kUnitsOfAShape) continue;
    std::uint64_t seed = 0;
    for (const char c : GetParam() + unit.name) seed = 31 * seed + static_cast<unsigned char>(c);
    const auto weights = testing::normal_weights(unit.num_weights, seed);
    const Df11Unit stored = compress_df11_unit(weights, {.num_threads = 1});
    EXPECT_TRUE(is_exact(testing::DecodeKernelTest::kernel().run(stored), weights))
        << unit.name << ", seed " << seed;
  }
  EXPECT_GE(shapes.size(), 1u);
  std::printf("%zu units, %zu of different shapes\n", assignment.units.size(), shapes.size());
}

INSTANTIATE_TEST_SUITE_P(Header, RealHeaders, ::testing::ValuesIn(header_names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

TEST(RealHeaderNames, AreAllThere) {
  EXPECT_EQ(header_names().size(), 37u);
}

}  // namespace
}  // namespace weightpress
