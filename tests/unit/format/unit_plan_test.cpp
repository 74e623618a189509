// The checks before a unit is encoded: each with its own error, and each rescue.
#include "format/unit_plan.h"

#include <gtest/gtest.h>

#include "support/golden.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

std::uint64_t densest_chunk_of(const std::vector<std::uint16_t>& weights, const Codebook& codebook) {
  std::uint64_t bit = 0, chunk = 0, count = 0, densest = 0;
  for (const std::uint16_t weight : weights) {
    if (bit / kChunkBits != chunk) {
      chunk = bit / kChunkBits;
      count = 0;
    }
    densest = std::max(densest, ++count);
    bit += codebook.lengths[exponent_of(weight)];
  }
  return densest;
}

Result<UnitPlan> plan(const std::vector<std::uint16_t>& weights, const CodingOptions& options = {}) {
  return plan_unit({"layers.0", testing::histogram_of(weights),
                    weights.empty() ? std::uint8_t{0} : exponent_of(weights.back())},
                   options, [&](const Codebook& codebook) { return densest_chunk_of(weights, codebook); });
}

void expect_refused(const Result<UnitPlan>& result, ErrorCode code, const std::string& words) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_NE(result.error().message.find("layers.0"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
}

TEST(UnitPlan, EmptyUnit) {
  expect_refused(plan({}), ErrorCode::kEmptyUnit, "no weights");
}

TEST(UnitPlan, ExponentsFrom240) {
  std::vector<std::uint16_t> weights = testing::normal_weights(1'000, 1);
  weights[500] = 239u << 7;
  EXPECT_TRUE(plan(weights).has_value());
  weights[500] = 240u << 7;
  expect_refused(plan(weights), ErrorCode::kExponentTooLarge, "exponent 240");
  weights[500] = 0x7F80;  // Inf
  expect_refused(plan(weights), ErrorCode::kExponentTooLarge, "Inf");
}

TEST(UnitPlan, SizeLimits) {
  const std::vector<std::uint16_t> weights = testing::normal_weights(10'000, 1);
  const std::uint64_t bytes = plan(weights)->layout.num_bytes;
  EXPECT_TRUE(plan(weights, {.limits = {.max_weights = 10'000, .max_stream_bytes = bytes}}).has_value());
  expect_refused(plan(weights, {.limits = {.max_weights = 9'999}}), ErrorCode::kUnitTooLarge,
                 "10000 weights");
  expect_refused(plan(weights, {.limits = {.max_stream_bytes = bytes - 1}}), ErrorCode::kStreamTooLong,
                 std::to_string(bytes) + " bytes");
}

TEST(UnitPlan, OfficialLimitsAreBelowTwoToThe31) {
  EXPECT_EQ(Df11Limits{}.max_weights, (std::uint64_t{1} << 31) - 4097);
  EXPECT_EQ(Df11Limits{}.max_stream_bytes, (std::uint64_t{1} << 31) - 4097);
  // Beyond, from the histogram alone.
  Histogram histogram{};
  histogram[120] = (std::uint64_t{1} << 31) - 4096;
  expect_refused(plan_unit({"layers.0", histogram, 120}, {}, nullptr), ErrorCode::kUnitTooLarge,
                 "2147479552");
}

TEST(UnitPlan, NormalWeightsNeedNoRescue) {
  const Result<UnitPlan> result = plan(testing::normal_weights(100'000, 1), {.strict_identity = true});
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->rescues.empty());
}

TEST(UnitPlan, PaddingThatNeverEndsGetsSafeTables) {
  const auto weights = testing::read_bf16(testing::golden_folder() / "df11" /
                                          "official_tables_hang_kernel_119" / "weights.bf16");
  const Result<UnitPlan> result = plan(weights);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->rescues, std::vector{RescueReason::kPaddingNeverEnds});
  EXPECT_EQ(result->tables, build_lookup_tables(result->codebook, TableFill::kSafe));
  expect_refused(plan(weights, {.strict_identity = true}), ErrorCode::kPaddingNeverEnds, "padding");
}

TEST(UnitPlan, DenseChunksGetACodebookWithoutOneBitCodes) {
  const std::vector<std::uint16_t> zeros(30'000, 0);
  const Result<UnitPlan> result = plan(zeros);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->rescues, std::vector{RescueReason::kChunkTooDense});
  EXPECT_EQ(result->codebook.shortest_length(), 2);
  expect_refused(plan(zeros, {.strict_identity = true}), ErrorCode::kChunkTooDense, "23550");
}

TEST(UnitPlan, DensityIsDecidedByTheChunkNotByTheMean) {
  // 23,550 zeros fit a chunk of their own; one more does not.
  EXPECT_TRUE(plan(std::vector<std::uint16_t>(23'550, 0))->rescues.empty());
  EXPECT_FALSE(plan(std::vector<std::uint16_t>(23'551, 0))->rescues.empty());
  // Half zeros, well mixed: a 1-bit code, but no dense chunk.
  EXPECT_TRUE(plan(testing::mostly_zero(200'000, 2, 8, 1))->rescues.empty());
}

TEST(UnitPlan, TooManyTablesGetASharedHeadCodebook) {
  std::vector<std::uint16_t> weights = testing::normal_weights(90'000, 1);
  const std::vector<std::uint16_t> outliers = testing::uniform_exponents(10'000, 20, 200, 2);
  weights.insert(weights.end(), outliers.begin(), outliers.end());
  const Result<UnitPlan> result = plan(weights);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->rescues, std::vector{RescueReason::kTooManyTables});
  EXPECT_LE(result->tables.num_tables(), kMaxTables);
  expect_refused(plan(weights, {.strict_identity = true}), ErrorCode::kTooManyTables, "lookup tables");
}

TEST(UnitPlan, DenseChunksAndTooManyTablesTogether) {
  std::vector<std::uint16_t> weights(400'000, 0);
  const std::vector<std::uint16_t> outliers = testing::uniform_exponents(20'000, 20, 200, 2);
  weights.insert(weights.end(), outliers.begin(), outliers.end());
  const Result<UnitPlan> result = plan(weights);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->rescues, (std::vector{RescueReason::kTooManyTables, RescueReason::kChunkTooDense}));
  EXPECT_LE(result->tables.num_tables(), kMaxTables);
  EXPECT_LE(densest_chunk_of(weights, result->codebook), kMaxChunkWeights);
}

TEST(UnitPlan, AmbiguousLimiterIsReportedOrRefused) {
  const Histogram histogram = testing::ambiguous_histogram();
  const auto no_dense_chunk = [](const Codebook&) { return std::uint64_t{0}; };
  const Result<UnitPlan> result = plan_unit({"layers.0", histogram, 132}, {}, no_dense_chunk);
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->ambiguous_limiter);
  expect_refused(plan_unit({"layers.0", histogram, 132}, {.strict_identity = true}, no_dense_chunk),
                 ErrorCode::kAmbiguousLimiter, "numpy");
}

}  // namespace
}  // namespace weightpress::df11
