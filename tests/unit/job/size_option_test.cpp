#include "job/size_option.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace weightpress::job {
namespace {

constexpr std::uint64_t kKibi = 1024, kMebi = 1024 * kKibi, kGibi = 1024 * kMebi, kTebi = 1024 * kGibi;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(SizeOption, ReadsUnitsInAnySpelling) {
  EXPECT_EQ(parse_size("1"), 1u);
  EXPECT_EQ(parse_size("300000000"), 300000000u);
  EXPECT_EQ(parse_size("007"), 7u);
  EXPECT_EQ(parse_size("18446744073709551615"), kMax);
  for (const char* text : {"3K", "3k", "3KB", "3kb", "3KiB", "3kib", "3KIB", "3 K", "3 kB", "3 KiB", "3kIb"})
    EXPECT_EQ(parse_size(text), 3 * kKibi) << text;
  EXPECT_EQ(parse_size("512M"), 512 * kMebi);
  EXPECT_EQ(parse_size("4g"), 4 * kGibi);
  EXPECT_EQ(parse_size("2 TiB"), 2 * kTebi);
  EXPECT_EQ(parse_size("16777215T"), 16777215 * kTebi);
}

TEST(SizeOption, FractionsAreExactAndWhatIsLessThanAByteIsDropped) {
  EXPECT_EQ(parse_size("1.5G"), kGibi + kGibi / 2);
  EXPECT_EQ(parse_size("0.5K"), 512u);
  EXPECT_EQ(parse_size("1.0M"), kMebi);
  EXPECT_EQ(parse_size("1.9"), 1u);
  EXPECT_EQ(parse_size("0.001K"), 1u);
  EXPECT_EQ(parse_size("0.1G"), 107374182u);
  EXPECT_EQ(parse_size("1.99999999999999999999999999999999999T"), 2 * kTebi - 1);
  EXPECT_EQ(parse_size("0." + std::string(12, '9') + "T"), kTebi - 2);  // less 1.0995 bytes
  EXPECT_EQ(parse_size("0." + std::string(100'000, '9') + "T"), kTebi - 1);
  // Each sixteenth and each byte of a KiB, whose fractions end.
  for (std::uint64_t bytes = 1; bytes < kKibi; ++bytes) {
    std::string fraction;
    for (std::uint64_t rest = bytes; rest != 0; rest = rest * 10 % kKibi)
      fraction += static_cast<char>('0' + rest * 10 / kKibi);
    EXPECT_EQ(parse_size("0." + fraction + "K"), bytes) << fraction;
  }
}

TEST(SizeOption, RefusesAllElse) {
  for (const char* text :
       {"",     " ",     "0",     "0.0",  "0K",  "0.0001K", "-1",  "+1",    "-1K",   "1e3",  "nan",
        "inf",  "5X",    "K",     "KiB",  ".5G", "5.",      "5.G", "1..5K", "1.5.5", "1,5G", "5B",
        "5iB",  "5Ki",   "5KBB",  "5KiK", "5 ",  "5  K",    " 5K", "5K ",   "5 K B", "5\tK", "5K\n",
        "0x10", "1_000", "1'000", "5P",   "5kk", "1. 5K",   "5KM", "1 .5K"})
    EXPECT_EQ(parse_size(text), std::nullopt) << '"' << text << '"';
  EXPECT_EQ(parse_size(std::string_view("5K\0", 3)), std::nullopt);
  EXPECT_EQ(parse_size(std::string_view("5\0", 2)), std::nullopt);
  for (unsigned byte = 128; byte < 256; ++byte)
    EXPECT_EQ(parse_size(std::string("5") + static_cast<char>(byte)), std::nullopt);
}

TEST(SizeOption, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_size("18446744073709551616"), std::nullopt);
  EXPECT_EQ(parse_size("99999999999999999999"), std::nullopt);
  EXPECT_EQ(parse_size(std::string(1000, '9')), std::nullopt);
  EXPECT_EQ(parse_size("16777216T"), std::nullopt);
  EXPECT_EQ(parse_size("17179869184G"), std::nullopt);
  EXPECT_EQ(parse_size("18014398509481984K"), std::nullopt);
  EXPECT_EQ(parse_size("18014398509481983.999K"), kMax - kKibi + 1 + 1022);
  EXPECT_EQ(parse_size(std::string(1000, '0') + "1T"), kTebi);
}

TEST(SizeOption, WritesWholeMebibytesRoundedUp) {
  EXPECT_EQ(format_size(134217728), "128M");
  EXPECT_EQ(format_size(134217729), "129M");
  EXPECT_EQ(format_size(0), "1M");
  EXPECT_EQ(format_size(1), "1M");
  EXPECT_EQ(format_size(kMebi), "1M");
  EXPECT_EQ(format_size(kGibi - kMebi), "1023M");
  EXPECT_EQ(format_size(kGibi - 1), "1G");
  EXPECT_EQ(format_size(kGibi + 1), "1025M");
  EXPECT_EQ(format_size(3 * kGibi / 2), "1536M");
  EXPECT_EQ(format_size(1023 * kGibi), "1023G");
  EXPECT_EQ(format_size(kTebi), "1T");
  EXPECT_EQ(format_size(2048 * kTebi), "2048T");
  EXPECT_EQ(format_size(kMax - kMebi + 1), "17592186044415M");
  EXPECT_EQ(format_size(kMax - kMebi + 2), "18446744073708503041");
  EXPECT_EQ(format_size(kMax), "18446744073709551615");
}

TEST(SizeOption, WhatIsWrittenReadsAsTheLeastWholeMebibytes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t bytes = random() >> (random() % 64);
    const auto read = parse_size(format_size(bytes));
    ASSERT_TRUE(read.has_value()) << bytes;
    ASSERT_GE(*read, bytes);
    ASSERT_LT(*read - bytes, bytes == 0 ? kMebi + 1 : kMebi);
    ASSERT_TRUE(bytes > kMax - kMebi + 1 || *read % kMebi == 0) << bytes;
  }
}

}  // namespace
}  // namespace weightpress::job
