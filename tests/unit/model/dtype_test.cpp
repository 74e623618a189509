#include "model/dtype.h"

#include <string>

#include <gtest/gtest.h>

namespace weightpress::model {
namespace {

TEST(Dtype, NamesStandInTheRankOrderOfTheFormat) {
  std::string names;
  for (unsigned i = 0; i < kNumDtypes; ++i) names += std::string(dtype_name(static_cast<Dtype>(i))) + " ";
  EXPECT_EQ(names,
            "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 "
            "I32 U32 "
            "F32 C64 F64 I64 U64 ");
}

TEST(Dtype, ParsingInvertsNamesAndTakesNothingElse) {
  for (unsigned i = 0; i < kNumDtypes; ++i)
    EXPECT_EQ(parse_dtype(dtype_name(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  for (const char* wrong : {"", "bf16", "BF16 ", "F128", "bfloat16"})
    EXPECT_EQ(parse_dtype(wrong), std::nullopt);
}

TEST(Dtype, BitsAreThoseInTheName) {
  EXPECT_EQ(dtype_bits(Dtype::kBool), 8u);
  for (unsigned i = 1; i < kNumDtypes; ++i) {
    const std::string_view name = dtype_name(static_cast<Dtype>(i));
    unsigned bits = 0;
    for (const char c : name.substr(name.find_first_of("0123456789"))) {
      if (c < '0' || c > '9') break;
      bits = 10 * bits + static_cast<unsigned>(c - '0');
    }
    EXPECT_EQ(dtype_bits(static_cast<Dtype>(i)), bits) << name;
  }
}

}  // namespace
}  // namespace weightpress::model
