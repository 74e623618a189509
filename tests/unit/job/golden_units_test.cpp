// Every golden unit: all buffers that the official compressor made, through the public call and in slabs of
// all sizes.
#include <gtest/gtest.h>

#include <weightpress/df11.h>

#include "support/golden.h"

namespace weightpress {
namespace {

class GoldenUnit : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return testing::golden_folder() / "df11" / GetParam(); }
  std::vector<std::uint8_t> golden(const char* file) const { return testing::read_bytes(folder() / file); }
  bool has(const char* file) const { return std::filesystem::exists(folder() / file); }
  /// The two units whose official tables would hang the official kernel.
  bool hangs() const { return GetParam().starts_with("official_tables_hang_kernel"); }
};

TEST_P(GoldenUnit, AllBuffersEqualTheOfficialOnes) {
  const Df11Unit unit = compress_df11_unit(testing::read_bf16(folder() / "weights.bf16"));
  EXPECT_EQ(unit.encoded_exponent, golden("encoded_exponent.u8"));
  EXPECT_EQ(unit.sign_mantissa, golden("sign_mantissa.u8"));
  EXPECT_EQ(unit.gaps, golden("gaps.u8"));
  EXPECT_EQ(unit.output_positions, golden("output_positions.u32"));
  // Where the official table builder fails there are only the safe tables to compare with, and they are the
  // same.
  EXPECT_EQ(unit.luts, golden(hangs() || !has("luts.u8") ? "luts_safe.u8" : "luts.u8"));
  EXPECT_EQ(unit.rescues.size(), hangs() ? 1u : 0u);
}

TEST_P(GoldenUnit, SafeTablesEqualTheSlowModels) {
  const Df11Unit unit =
      compress_df11_unit(testing::read_bf16(folder() / "weights.bf16"), {.luts = LutFill::kSafe});
  EXPECT_EQ(unit.luts, golden("luts_safe.u8"));
  EXPECT_EQ(unit.encoded_exponent, golden("encoded_exponent.u8"));
  EXPECT_TRUE(unit.rescues.empty());
}

TEST_P(GoldenUnit, StrictIdentityRefusesExactlyTheHangingOnes) {
  const std::vector<std::uint16_t> weights = testing::read_bf16(folder() / "weights.bf16");
  if (!hangs()) {
    EXPECT_EQ(compress_df11_unit(weights, {.strict_identity = true}).gaps, golden("gaps.u8"));
    return;
  }
  try {
    compress_df11_unit(weights, {.strict_identity = true});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPaddingNeverEnds);
  }
}

INSTANTIATE_TEST_SUITE_P(Official, GoldenUnit, ::testing::ValuesIn(testing::golden_units()),
                         [](const auto& test) { return test.param; });

TEST(Df11UnitOptions, SafeTablesAndStrictIdentityContradict) {
  try {
    compress_df11_unit(std::vector<std::uint16_t>(10), {.luts = LutFill::kSafe, .strict_identity = true});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
  }
}

TEST(GoldenUnits, AreAllThere) {
  EXPECT_EQ(testing::golden_units().size(), 19u);
}

}  // namespace
}  // namespace weightpress
