#include "model/output_detection.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A folder of definitions (WEIGHTPRESS_ARCH_DIR), and a model whose units have so many tensors. Units have
/// names that no definition of the program fits.
class OutputDetection_ : public testing::Test {
 protected:
  OutputDetection_() { ::setenv("WEIGHTPRESS_ARCH_DIR", definitions_.path().c_str(), 1); }
  ~OutputDetection_() override { ::unsetenv("WEIGHTPRESS_ARCH_DIR"); }

  void define(const std::string& name, const std::string& patterns, const std::string& detection = "[]") {
    definitions_.write(name + ".json", "{\"name\": \"" + name +
                                           "\", \"layout\": \"comfyui\", \"detection\": " + detection +
                                           ", \"pattern_dict\": " + patterns + "}");
  }

  OutputDetection detect(const std::vector<std::pair<std::string, std::uint64_t>>& units,
                         const std::optional<SourceConfig>& config = {}) {
    Df11Model model;
    for (const auto& [name, num_tensors] : units) {
      StoredUnit& unit = model.units.emplace_back();
      unit.name = name;
      unit.num_weights = num_tensors;
      for (std::uint64_t i = 1; i < num_tensors; ++i) unit.split_positions.push_back(i);
    }
    const Checkpoint checkpoint =
        Checkpoint::open(kept_.write("kept.safetensors", safetensors_file({{"wp.kept", Dtype::kU8, {1}}})));
    model.kept = {0};
    return detect_output_definition(checkpoint, model, config);
  }

  static std::string name_of(const OutputDetection& detection) {
    return detection.definition ? detection.definition->name : "";
  }

  TempFolder definitions_, kept_;
};

TEST_F(OutputDetection_, PatternsMustNameAllUnitsAndAllBeUsed) {
  define("mine", R"({"wp\\.\\d+": ["a", "b"], "wp\\.head": []})");
  EXPECT_EQ(name_of(detect({{"wp.0", 2}, {"wp.1", 2}, {"wp.head", 1}})), "mine");
  EXPECT_EQ(name_of(detect({{"wp.0", 2}, {"wp.1", 2}})), "");                  // no head
  EXPECT_EQ(name_of(detect({{"wp.0", 2}, {"wp.head", 1}, {"wp.x", 1}})), "");  // one more
  EXPECT_EQ(name_of(detect({{"wp.0", 3}, {"wp.head", 1}})), "");               // other numbers
  EXPECT_THAT(detect({{"wp.x", 1}}).candidates, IsEmpty());
}

TEST_F(OutputDetection_, ARuleThatHoldsIsStronger) {
  define("plain", R"({"wp\\.\\d+": ["a", "b"]})");
  define("ruled", R"({"wp\\.\\d+": ["c", "d"]})", R"([{"all": ["wp.0.c.weight", "wp.kept"]}])");
  define("others", R"({"wp\\.\\d+": ["e", "f"]})",
         R"([{"all": ["wp.9.e.weight"]}, {"all": ["wp.0.e.weight"], "none": ["wp.kept"]}])");
  EXPECT_EQ(name_of(detect({{"wp.0", 2}})), "ruled");
}

TEST_F(OutputDetection_, ARuleThatAskedConfigJsonIsStrongest) {
  define("ruled", R"({"wp\\.\\d+": ["a", "b"]})", R"([{"all": ["wp.0.a.weight"]}])");
  define("asked", R"({"wp\\.\\d+": ["c", "d"]})",
         R"([{"all": ["wp.0.c.weight"], "config": {"model_type": "wp.*"}}])");
  SourceConfig config;
  config.strings = {{"model_type", "wp2"}};
  EXPECT_EQ(name_of(detect({{"wp.0", 2}}, config)), "asked");
  config.strings = {{"model_type", "other"}};
  EXPECT_EQ(name_of(detect({{"wp.0", 2}}, config)), "ruled");
  EXPECT_EQ(name_of(detect({{"wp.0", 2}})), "ruled");
}

TEST_F(OutputDetection_, SeveralThatDifferAreNone) {
  define("one", R"({"wp\\.\\d+": ["a", "b"]})");
  define("two", R"({"wp\\.\\d+": ["b", "a"]})");
  const OutputDetection found = detect({{"wp.0", 2}});
  EXPECT_FALSE(found.definition);
  EXPECT_THAT(found.candidates, ElementsAre("one", "two"));
}

TEST_F(OutputDetection_, SeveralThatAgreeAreOne) {
  define("one", R"({"wp\\.\\d+": ["a", "b"]})");
  define("two", R"({"wp\\.[0-9]": ["a", "b"]})");
  const OutputDetection found = detect({{"wp.0", 2}});
  EXPECT_EQ(name_of(found), "one");
  EXPECT_THAT(found.candidates, IsEmpty());
}

}  // namespace
}  // namespace weightpress::model
