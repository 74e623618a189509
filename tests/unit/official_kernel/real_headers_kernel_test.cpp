// The official kernel on units of the shapes of real checkpoints, every dimension cut to at most 48: a few of
// each list of tensor sizes in a model (its repeated layers have the same).
#include <gtest/gtest.h>

#include "official_kernel/decode_kernel_test_support.h"
#include "support/real_headers.h"
#include "support/weights.h"

namespace weightpress {
namespace {

constexpr int kUnitsOfAShape = testing::kIsSlowBuild ? 1 : 4;

class RealHeaders : public testing::DecodeKernelTestOf<std::string> {};

TEST_P(RealHeaders, UnitsOfEveryShapeAreExact) {
  const auto units = testing::real_header_units(GetParam(), kUnitsOfAShape);
  for (const testing::RealHeaderUnit& unit : units) {
    const auto weights = testing::normal_weights(unit.num_weights, unit.seed);
    const Df11Unit stored = compress_df11_unit(weights, {.num_threads = 1});
    EXPECT_TRUE(is_exact(testing::DecodeKernelTest::kernel().run(stored), weights))
        << unit.name << ", seed " << unit.seed;
  }
  EXPECT_GE(units.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Header, RealHeaders, ::testing::ValuesIn(testing::real_header_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

TEST(RealHeaderNames, AreAllThere) {
  EXPECT_EQ(testing::real_header_names().size(), 37u);
}

}  // namespace
}  // namespace weightpress
