#include <gtest/gtest.h>

#include <weightpress/selftest.h>

namespace weightpress {
namespace {

TEST(Selftest, AllCasesPass) {
  const std::vector<SelftestCase> cases = run_selftest(2);
  EXPECT_GE(cases.size(), 16u);
  for (const SelftestCase& test : cases) EXPECT_TRUE(test.passed) << test.name << ": " << test.problem;
}

}  // namespace
}  // namespace weightpress
