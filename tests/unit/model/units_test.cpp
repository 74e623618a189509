#include "model/units.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<ModelTensor> model(std::vector<std::string> names) {
  std::ranges::sort(names);
  std::vector<ModelTensor> tensors;
  for (std::string& name : names)
    tensors.push_back({.name = std::move(name), .dtype = Dtype::kBf16, .num_elements = 6});
  return tensors;
}

ModelDefinition definition(std::vector<UnitPattern> patterns) {
  ModelDefinition result;
  result.name = "def";
  result.layout = "transformers";
  result.pattern_dict = std::move(patterns);
  return result;
}

std::vector<std::string> names(const std::vector<ModelTensor>& tensors,
                               const std::vector<std::size_t>& indices) {
  std::vector<std::string> result;
  for (const std::size_t i : indices) result.push_back(tensors[i].name);
  return result;
}

ErrorDetails failure(const std::vector<ModelTensor>& tensors, const ModelDefinition& rules) {
  const auto assignment = assign_units(tensors, rules);
  if (assignment) return {ErrorCode::kIo, "accepted"};
  return assignment.error();
}

TEST(Units, ModulesBecomeUnitsInTheOrderOfTheDefinition) {
  const auto tensors =
      model({"lm_head.weight", "m.norm.weight", "m.l.10.q.weight", "m.l.10.k.weight", "m.l.2.q.weight",
             "m.l.2.k.weight", "m.l.2.k.bias", "m.l.2.norm.weight", "m.l.2.gate", "m.l.2x.q.weight"});
  const auto assignment =
      assign_units(tensors, definition({{"m\\.l\\.\\d+", {"q", "k"}}, {"lm_head", {}}, {"no", {}}}));
  ASSERT_TRUE(assignment) << assignment.error().message;
  ASSERT_EQ(assignment->units.size(), 3u);
  EXPECT_EQ(assignment->units[0].name, "m.l.2");
  EXPECT_THAT(names(tensors, assignment->units[0].tensors), ElementsAre("m.l.2.q.weight", "m.l.2.k.weight"));
  EXPECT_THAT(names(tensors, assignment->units[0].siblings),
              ElementsAre("m.l.2.gate", "m.l.2.k.bias", "m.l.2.norm.weight"));
  EXPECT_EQ(assignment->units[0].num_weights, 12u);
  EXPECT_EQ(assignment->units[1].name, "m.l.10");
  EXPECT_EQ(assignment->units[2].name, "lm_head");
  EXPECT_THAT(names(tensors, assignment->units[2].tensors), ElementsAre("lm_head.weight"));
  EXPECT_THAT(names(tensors, assignment->leftover), ElementsAre("m.l.2x.q.weight", "m.norm.weight"));
  EXPECT_THAT(assignment->unmatched_patterns, ElementsAre(2));
}

TEST(Units, LinearLayersAreUnitsWhateverThePatternLists) {
  const auto tensors = model({"proj.weight", "proj.bias", "proj.lora.weight"});
  const auto assignment = assign_units(tensors, definition({{"proj", {"q"}}}));
  ASSERT_TRUE(assignment);
  EXPECT_THAT(names(tensors, assignment->units[0].tensors), ElementsAre("proj.weight"));
  EXPECT_THAT(names(tensors, assignment->units[0].siblings), ElementsAre("proj.bias", "proj.lora.weight"));
  EXPECT_THAT(assignment->leftover, IsEmpty());
}

TEST(Units, AttributesGoBeforeAWeightOfTheModulesOwn) {
  // The official compressor takes a module's own weight only from linear layers and embeddings, which have no
  // sub-modules.
  const auto tensors = model({"proj.weight", "proj.q.weight"});
  const auto assignment = assign_units(tensors, definition({{"proj", {"q"}}}));
  ASSERT_TRUE(assignment);
  EXPECT_THAT(names(tensors, assignment->units[0].tensors), ElementsAre("proj.q.weight"));
  EXPECT_THAT(names(tensors, assignment->units[0].siblings), ElementsAre("proj.weight"));
}

TEST(Units, NamesAreOrderedNaturally) {
  const auto tensors =
      model({"b.10.weight", "b.9.weight", "b.9a.weight", "b.09.weight", "b.100.weight", "b.1.weight"});
  const auto assignment = assign_units(tensors, definition({{"b\\..*", {}}}));
  ASSERT_TRUE(assignment);
  std::vector<std::string> order;
  for (const Unit& unit : assignment->units) order.push_back(unit.name);
  EXPECT_THAT(order, ElementsAre("b.1", "b.09", "b.9", "b.9a", "b.10", "b.100"));
}

TEST(Units, AMissingWeightIsNamed) {
  const ErrorDetails error =
      failure(model({"l.0.q.weight", "l.0.k.bias"}), definition({{"l\\.\\d", {"q", "k"}}}));
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.unit, "l.0");
  EXPECT_EQ(error.tensor, "l.0.k.weight");
  EXPECT_THAT(error.message, AllOf(HasSubstr("'l.0.k.weight'"), HasSubstr("missing"), HasSubstr("'def'")));
  EXPECT_THAT(failure(model({"head.bias"}), definition({{"head", {}}})).message, HasSubstr("'head.weight'"));
}

TEST(Units, OtherDtypesAreFound) {
  auto tensors = model({"l.0.q.weight", "l.0.k.weight", "l.0.norm.weight"});
  tensors[1].dtype = Dtype::kF32;  // a sibling may be anything
  const auto assignment = assign_units(tensors, definition({{"l\\.\\d", {"q", "k"}}}));
  ASSERT_TRUE(assignment);
  EXPECT_EQ(find_not_bf16(assignment->units[0], tensors), std::nullopt);
  tensors[2].dtype = Dtype::kF16;
  EXPECT_EQ(find_not_bf16(assignment->units[0], tensors), 2u);
}

TEST(Units, KeptUnitsBecomeLeftover) {
  const auto tensors = model({"a.weight", "l.0.q.weight", "l.0.q.bias", "l.1.q.weight", "l.2.q.weight"});
  auto assignment = assign_units(tensors, definition({{"l\\.\\d", {"q"}}}));
  ASSERT_TRUE(assignment);
  keep_units({0, 2}, *assignment);
  ASSERT_EQ(assignment->units.size(), 1u);
  EXPECT_EQ(assignment->units[0].name, "l.1");
  EXPECT_THAT(names(tensors, assignment->leftover),
              ElementsAre("a.weight", "l.0.q.bias", "l.0.q.weight", "l.2.q.weight"));
}

TEST(Units, OverlapsAreRefused) {
  const auto tensors = model({"l.0.q.weight", "l.0.q.x.weight"});
  EXPECT_THAT(failure(tensors, definition({{"l\\.0", {"q"}}, {"l\\..", {"q"}}})).message,
              AllOf(HasSubstr("'l.0'"), HasSubstr("two patterns"), HasSubstr("'l\\..'")));
  EXPECT_THAT(failure(tensors, definition({{"l\\.0", {"q"}}, {"l\\.0\\.q", {}}})).message,
              AllOf(HasSubstr("'l.0.q'"), HasSubstr("inside the unit 'l.0'")));
  EXPECT_THAT(failure(tensors, definition({{"l\\.0", {"q", "q"}}})).message, HasSubstr("named twice"));
}

TEST(Units, NoUnitAtAllIsAnErrorWithAHint) {
  const auto rules = definition({{"model\\.layers\\.\\d+", {"q"}}});
  const ErrorDetails compiled = failure(model({"_orig_mod.model.layers.0.q.weight"}), rules);
  EXPECT_EQ(compiled.code, ErrorCode::kBadDefinition);
  EXPECT_THAT(compiled.message,
              AllOf(HasSubstr("no module"), HasSubstr("'def'"), HasSubstr("begin with '_orig_mod.'")));
  EXPECT_THAT(
      failure(model({"other.0.q.weight"}), rules).message,
      AllOf(HasSubstr("no module"), HasSubstr("'other.0.q.weight'"), HasSubstr("choose the definition")));
  EXPECT_THAT(failure({}, rules).message, HasSubstr("no tensor at all"));
}

TEST(Units, FileNamesStayApartAndInsideTheFolder) {
  const auto any = definition({{".*", {}}});
  EXPECT_EQ(unit_file_name("model.layers.0"), "model_layers_0.safetensors");
  EXPECT_EQ(unit_file_name("..").find('.'), 2u);
  EXPECT_THAT(failure(model({"a_b.weight"}), any).message, "accepted");

  const ErrorDetails same = failure(model({"a_b.weight", "a.b.weight"}), definition({{"a.b", {}}}));
  EXPECT_EQ(same.code, ErrorCode::kNameConflict);
  EXPECT_THAT(same.message, AllOf(HasSubstr("'a.b'"), HasSubstr("'a_b'"), HasSubstr("a_b.safetensors")));
  for (const char* name : {"a/b.weight", "/etc/x.weight", "a\\b.weight", "a\nb.weight"}) {
    const ErrorDetails error = failure(model({name}), definition({{"(?s).*", {}}}));
    EXPECT_EQ(error.code, ErrorCode::kNameConflict) << name;
    EXPECT_THAT(error.message, HasSubstr("not safe"));
  }
  EXPECT_THAT(failure(model({std::string(1, '\0') + ".weight"}), definition({{"(?s).*", {}}})).message,
              HasSubstr("not safe"));
  EXPECT_THAT(failure(model({std::string(244, 'a') + ".weight"}), any).message, HasSubstr("255 bytes"));
  EXPECT_THAT(failure(model({std::string(243, 'a') + ".weight"}), any).message, "accepted");

  auto rules = definition({{"model|diffusion_pytorch_model", {}}});
  EXPECT_EQ(failure(model({"model.weight"}), rules).code, ErrorCode::kNameConflict);
  EXPECT_EQ(leftover_file_name(rules), "model.safetensors");
  rules.layout = "diffusers";
  EXPECT_EQ(leftover_file_name(rules), "diffusion_pytorch_model.safetensors");
  EXPECT_EQ(failure(model({"diffusion_pytorch_model.weight"}), rules).code, ErrorCode::kNameConflict);
  EXPECT_EQ(failure(model({"model.weight"}), rules).message, "accepted");
  rules.layout = "comfyui";  // one file: unit names are not file names
  EXPECT_EQ(failure(model({"model.weight"}), rules).message, "accepted");
  rules.file = "f.safetensors";
  EXPECT_EQ(leftover_file_name(rules), "f.safetensors");
}

TEST(Units, BadPatternsAreErrorsNotExceptions) {
  EXPECT_EQ(failure(model({"a.weight"}), definition({{"(", {}}})).code, ErrorCode::kBadDefinition);
  EXPECT_THAT(failure(model({std::string(60, 'a') + ".weight"}), definition({{"(a|aa)+[cd]", {}}})).message,
              HasSubstr("match limit"));
}

}  // namespace
}  // namespace weightpress::model
