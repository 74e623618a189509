#include "model/unit_names.h"

#include <gmock/gmock.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Of so many tensors of one weight.
StoredUnit unit(const std::string& name, std::uint64_t num_tensors) {
  StoredUnit unit;
  unit.name = name;
  unit.num_weights = num_tensors;
  for (std::uint64_t i = 1; i < num_tensors; ++i) unit.split_positions.push_back(i);
  return unit;
}

UnitNamer namer(std::vector<UnitPattern> patterns) {
  return std::move(UnitNamer::make(std::move(patterns)).value());
}

TEST(UnitNames, AttributesInTheirOrder) {
  const UnitNamer names = namer({{"layers\\.\\d+", {"b.q", "a"}}, {"head", {}}, {"one", {"q"}}});
  const auto layer = names.name(unit("layers.12", 2));
  ASSERT_TRUE(layer);
  EXPECT_THAT(layer->tensors, ElementsAre("layers.12.b.q.weight", "layers.12.a.weight"));
  EXPECT_EQ(layer->pattern, 0u);
  const auto head = names.name(unit("head", 1));
  ASSERT_TRUE(head);
  EXPECT_THAT(head->tensors, ElementsAre("head.weight"));
  EXPECT_EQ(head->pattern, 1u);
  EXPECT_THAT(names.name(unit("one", 1))->tensors, ElementsAre("one.q.weight"));
}

TEST(UnitNames, ThePatternMatchesTheWholeName) {
  const UnitNamer names = namer({{"layers\\.\\d+", {"a", "b"}}});
  for (const char* name : {"layers.1.x", "x.layers.1", "layers.", "layers1", ""})
    EXPECT_FALSE(names.name(unit(name, 2))) << name;
}

TEST(UnitNames, AModuleOfOneTensorIsItself) {
  const UnitNamer names = namer({{"layers\\.\\d+", {"a", "b"}}});
  EXPECT_THAT(names.name(unit("layers.1", 1))->tensors, ElementsAre("layers.1.weight"));
}

TEST(UnitNames, AnotherNumberOfTensorsHasNoNames) {
  const UnitNamer names = namer({{"x", {"z"}}, {"layers\\.\\d+", {"a", "b"}}, {"head", {}}});
  const auto layer = names.name(unit("layers.1", 3));
  ASSERT_TRUE(layer);
  EXPECT_THAT(layer->tensors, IsEmpty());
  EXPECT_EQ(layer->pattern, 1u);
  EXPECT_THAT(names.name(unit("head", 2))->tensors, IsEmpty());
}

TEST(UnitNames, TheFirstPatternThatFitsTheNumber) {
  const UnitNamer names = namer({{"l.*", {"a"}}, {"layers.*", {"b", "c"}}, {"layers", {"d", "e"}}});
  const auto two = names.name(unit("layers", 2));
  EXPECT_THAT(two->tensors, ElementsAre("layers.b.weight", "layers.c.weight"));
  EXPECT_EQ(two->pattern, 1u);
  EXPECT_THAT(names.name(unit("layers", 1))->tensors, ElementsAre("layers.a.weight"));
  const auto three = names.name(unit("layers", 3));
  EXPECT_THAT(three->tensors, IsEmpty());
  EXPECT_EQ(three->pattern, 0u);
}

TEST(UnitNames, BadPatterns) {
  const auto bad = UnitNamer::make({{"a", {}}, {"a(", {}}});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kBadDefinition);
  const UnitNamer slow = namer({{"(a|aa)+[cd]", {"a"}}});
  EXPECT_EQ(error_of([&] { slow.name(unit(std::string(60, 'a'), 1)); }).code, ErrorCode::kBadDefinition);
}

TEST(UnitNames, Numbered) {
  EXPECT_THAT(numbered_names(unit("u", 1)), ElementsAre("u.weight"));
  EXPECT_THAT(numbered_names(unit("a.b", 3)), ElementsAre("a.b.0.weight", "a.b.1.weight", "a.b.2.weight"));
}

}  // namespace
}  // namespace weightpress::model
