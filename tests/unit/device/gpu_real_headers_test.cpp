// Every unit of every header of tests/real_headers, its dimensions cut: the GPU's bytes are the CPU's.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "host/host_stages.h"
#include "support/compress_with.h"
#include "support/real_headers.h"
#include "support/unit_reader.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kMaxDimension = 24;
constexpr int kAllUnits = 1'000'000;

class GpuRealHeaders : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuRealHeaders, EveryScaledUnitEqualsTheCpus) {
  if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  EmulatedGpu emulated;
  host::HostStages host(1);
  const std::vector<testing::RealHeaderUnit> units =
      testing::real_header_units(GetParam(), kAllUnits, kMaxDimension);
  EXPECT_FALSE(units.empty());
  std::uint64_t num_weights = 0;
  for (const testing::RealHeaderUnit& unit : units) {
    SCOPED_TRACE(unit.name + ", seed " + std::to_string(unit.seed));
    const auto weights = testing::normal_weights(unit.num_weights, unit.seed);
    // Mostly as the program does it, now and then in parts.
    const std::uint64_t segment_weights = unit.seed % 4 == 0 ? unit.num_weights / 9 + 1 : kGpuSegmentWeights;
    ASSERT_TRUE(testing::same_bytes(
        testing::compress_with(emulated.stages(), weights, segment_weights, 4 * segment_weights),
        testing::compress_with(host, weights)));
    num_weights += unit.num_weights;
  }
  std::printf("%zu units of %llu weights\n", units.size(), static_cast<unsigned long long>(num_weights));
}

INSTANTIATE_TEST_SUITE_P(Header, GpuRealHeaders, ::testing::ValuesIn(testing::real_header_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

TEST(GpuRealHeaderNames, AreAllThere) {
  EXPECT_EQ(testing::real_header_names().size(), 37u);
}

}  // namespace
}  // namespace weightpress::device
