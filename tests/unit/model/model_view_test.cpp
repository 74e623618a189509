// Key rules, ties and casts, on a small checkpoint.
#include "model/model_view.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ModelView : public ::testing::Test {
 protected:
  Checkpoint open(const std::vector<std::string>& names, Dtype dtype = Dtype::kBf16) {
    std::vector<TensorSpec> specs;
    for (const std::string& name : names) specs.push_back({name, dtype, {2}});
    return Checkpoint::open(folder_.write("model.safetensors", safetensors_file(specs)));
  }

  static std::vector<std::string> names(const model::ModelView& view) {
    std::vector<std::string> result;
    for (const ModelTensor& tensor : view.tensors) result.push_back(tensor.name);
    return result;
  }

  TempFolder folder_;
};

TEST_F(ModelView, RulesAreAppliedInTheirOrder) {
  const Checkpoint checkpoint = open({"m.net.a.scale", "m.b.scale.scale", "m.net.accum_x", "net.y", "vae.z"});
  ModelDefinition definition;
  definition.keep_only_prefix = "m.";
  definition.strip_prefixes = {"m.", "net."};
  definition.drop = {"^accum_"};
  definition.rename = {{"\\.scale$", ".weight"}, {"(.)\\.weight", "\\1.w"}};
  const auto view = apply_key_rules(checkpoint, definition);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_THAT(names(*view), ElementsAre("a.w", "b.scale.w"));
  ASSERT_EQ(view->dropped.size(), 3u);
  const auto source_name = [&](std::size_t i) {
    return checkpoint.tensors()[view->dropped[i].source_index].name;
  };
  EXPECT_EQ(source_name(0), "m.net.accum_x");
  EXPECT_THAT(view->dropped[0].reason, HasSubstr("'^accum_'"));
  EXPECT_EQ(source_name(1), "net.y");
  EXPECT_THAT(view->dropped[2].reason, HasSubstr("not below 'm.'"));
}

TEST_F(ModelView, PrefixThatNoTensorHasKeepsAll) {
  ModelDefinition definition;
  definition.keep_only_prefix = "model.diffusion_model.";
  const auto view = apply_key_rules(open({"a.weight", "b.weight"}), definition);
  ASSERT_TRUE(view);
  EXPECT_THAT(names(*view), ElementsAre("a.weight", "b.weight"));
}

TEST_F(ModelView, TwoTensorsOfOneNameAreNamed) {
  ModelDefinition definition;
  definition.strip_prefixes = {"net."};
  const auto view = apply_key_rules(open({"a.weight", "net.a.weight"}), definition);
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().code, ErrorCode::kNameConflict);
  EXPECT_THAT(view.error().message, AllOf(HasSubstr("'a.weight' (model.safetensors)"),
                                          HasSubstr("'net.a.weight' (model.safetensors)")));
}

TEST_F(ModelView, TiedHeadIsASecondUseOfTheEmbedding) {
  const Checkpoint checkpoint = open({"model.embed_tokens.weight", "model.norm.weight"});
  ModelDefinition definition;
  auto view = apply_key_rules(checkpoint, definition);
  ASSERT_TRUE(view);
  EXPECT_FALSE(add_tied_lm_head(definition, *view));
  definition.tied_lm_head = true;
  EXPECT_TRUE(add_tied_lm_head(definition, *view));
  EXPECT_THAT(names(*view), ElementsAre("lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"));
  EXPECT_EQ(view->tensors[0].source_index, view->tensors[1].source_index);
  EXPECT_TRUE(view->tensors[0].is_tied_copy);
  EXPECT_FALSE(add_tied_lm_head(definition, *view));  // it is there now
}

TEST_F(ModelView, CastSparesWhatKeepDtypeNames) {
  const Checkpoint checkpoint = open({"a.weight", "norm.weight", "norm.weight2"}, Dtype::kF32);
  ModelDefinition definition;
  definition.keep_dtype = {"norm\\.weight"};
  auto view = apply_key_rules(checkpoint, definition);
  ASSERT_TRUE(view);
  EXPECT_EQ(cast_floats_to_bf16(checkpoint, definition, *view), 2u);
  EXPECT_EQ(view->tensors[0].dtype, Dtype::kBf16);
  EXPECT_EQ(view->tensors[0].size_bytes(), 4u);
  EXPECT_EQ(view->tensors[1].dtype, Dtype::kF32);
  EXPECT_EQ(view->tensors[2].dtype, Dtype::kBf16);
}

TEST_F(ModelView, CastLeavesOtherTypesAlone) {
  for (const Dtype dtype : {Dtype::kF64, Dtype::kI64, Dtype::kBf16, Dtype::kF8E4m3, Dtype::kBool}) {
    const Checkpoint checkpoint = open({"a"}, dtype);
    auto view = apply_key_rules(checkpoint, {});
    ASSERT_TRUE(view);
    EXPECT_EQ(cast_floats_to_bf16(checkpoint, {}, *view), 0u);
  }
}

}  // namespace
}  // namespace weightpress::model
