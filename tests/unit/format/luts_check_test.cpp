// Reading stored tables, and whether they hold the codes that their last row speaks of: against tables walked
// through in full.
#include "format/luts_check.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "format/lookup_tables.h"
#include "format/restricted_codebook.h"
#include "support/golden.h"
#include "support/plain_encoder.h"
#include "support/weights.h"

namespace weightpress::df11 {
namespace {

using Luts = std::vector<std::uint8_t>;

Luts luts_of(const LookupTables& tables) {
  return {tables.data(), tables.data() + tables.size_bytes()};
}

/// Tables of the golden vectors: official ones and safe ones.
std::map<std::string, Luts> golden_luts() {
  std::map<std::string, Luts> all;
  for (const std::string& unit : testing::golden_units()) {
    for (const char* file : {"luts.u8", "luts_safe.u8"}) {
      const auto path = testing::golden_folder() / "df11" / unit / file;
      if (std::filesystem::exists(path)) all[unit + "/" + file] = testing::read_bytes(path);
    }
  }
  return all;
}

struct CodeFound {
  std::uint32_t table, byte;  // of its last look-up, the first of the entries
  std::uint8_t exponent;
  bool operator==(const CodeFound&) const = default;
};

/// All codes that the tables hold, by walking through every entry of every table, level by level. A code of n
/// bits stands for 2^(8 - r) entries, r being its bits on its last level.
std::vector<CodeFound> walk(const Luts& luts) {
  const std::size_t tables = luts.size() / 256 - 1;
  std::vector<CodeFound> codes;
  std::set<std::uint32_t> level_tables = {0};
  for (std::uint32_t level = 0; level < 4; ++level) {
    std::set<std::uint32_t> next;
    for (const std::uint32_t table : level_tables) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const std::uint8_t value = luts[table * 256 + byte];
        if (value >= 240) {
          if (256u - value < tables) next.insert(256u - value);
          continue;
        }
        const std::uint32_t length = luts[tables * 256 + value];
        if (length > 32 || length <= 8 * level || length > 8 * level + 8) continue;
        const std::uint32_t entries = 1u << (8 * level + 8 - length);
        if (byte % entries != 0) continue;
        const auto first = luts.begin() + static_cast<std::ptrdiff_t>(table * 256 + byte);
        if (std::count(first, first + entries, value) == static_cast<std::ptrdiff_t>(entries))
          codes.push_back({table, byte, value});
      }
    }
    level_tables = next;
  }
  return codes;
}

std::optional<std::uint8_t> lost_by_walk(const Luts& luts) {
  std::set<std::uint8_t> found;
  for (const CodeFound& code : walk(luts)) found.insert(code.exponent);
  for (std::uint32_t exponent = 0; exponent < 240; ++exponent) {
    const std::uint8_t length = luts[luts.size() - 256 + exponent];
    if (length != 0 && length <= 32 && !found.contains(static_cast<std::uint8_t>(exponent)))
      return static_cast<std::uint8_t>(exponent);
  }
  return std::nullopt;
}

TEST(FindLostCode, OfficialAndSafeTablesLoseNothing) {
  const auto all = golden_luts();
  ASSERT_GT(all.size(), 30u);
  for (const auto& [name, luts] : all) EXPECT_FALSE(find_lost_code(LutsView(luts))) << name;
}

TEST(FindLostCode, OurTablesLoseNothing) {
  testing::Random random(81);
  int rescues = 0;
  for (int round = 0; round < 60; ++round) {
    Histogram histogram{};
    for (std::uint64_t i = 1 + random.below(120); i > 0; --i)
      histogram[random.below(240)] = 1 + random.below(std::uint64_t{1} << random.below(28));
    const Codebook official = build_official_codebook(histogram);
    for (const TableFill fill : {TableFill::kCompat, TableFill::kSafe}) {
      if (count_tables(official) > kMaxTables) continue;
      EXPECT_FALSE(find_lost_code(LutsView(luts_of(build_lookup_tables(official, fill))))) << round;
    }
    for (const std::uint32_t min_length : {1u, 2u}) {
      const Codebook rescue = build_restricted_codebook(histogram, min_length);
      EXPECT_FALSE(find_lost_code(LutsView(luts_of(build_lookup_tables(rescue, TableFill::kSafe))))) << round;
      ++rescues;
    }
  }
  EXPECT_EQ(rescues, 120);
}

TEST(FindLostCode, TablesOfOtherMakersLoseNothing) {
  testing::Random random(82);
  for (int round = 0; round < 300; ++round) {
    const auto code = testing::random_code(random, 220, random.below(240), random.below(2) * 5);
    for (const auto fill :
         {testing::PlainFill::kZero, testing::PlainFill::kRepeat, testing::PlainFill::kPointers}) {
      const Luts luts = testing::plain_luts(code, fill);
      EXPECT_FALSE(find_lost_code(LutsView(luts))) << round;
    }
  }
}

TEST(LutsView, LooksUpEveryCodeWhateverFollows) {
  testing::Random random(83);
  for (int round = 0; round < 200; ++round) {
    const auto code = testing::random_code(random, 220, random.below(240), random.below(2) * 5);
    const Luts luts = testing::plain_luts(code, testing::PlainFill::kZero);
    const LutsView view(luts);
    EXPECT_EQ(view.num_tables(), luts.size() / 256 - 1);
    for (const std::uint8_t e : code.exponents()) {
      const std::uint32_t free = 32u - code.lengths[e];
      const std::uint64_t ones = (std::uint64_t{1} << free) - 1;
      for (const std::uint64_t rest : {std::uint64_t{0}, ones, random.next() & ones}) {
        const auto bits = static_cast<std::uint32_t>(std::uint64_t{code.bits[e]} << free | rest);
        const DecodedCode found = view.look_up(bits);
        ASSERT_EQ(found.exponent, e);
        ASSERT_EQ(found.length, code.lengths[e]);
      }
    }
  }
}

TEST(LutsView, LookUpsThatLeadNowhereHaveNoLength) {
  Luts luts(3 * 256, 0);
  const auto look_up = [&](std::uint32_t bits) { return LutsView(luts).look_up(bits); };
  EXPECT_EQ(look_up(0).length, 0);  // exponent 0 has no code
  luts[2 * 256 + 7] = 3;
  luts[0] = 7;
  EXPECT_EQ(look_up(0).length, 3);
  EXPECT_EQ(look_up(0).exponent, 7);
  luts[2 * 256 + 7] = 33;  // no code has so many bits
  EXPECT_EQ(look_up(0).length, 0);
  luts[1] = 254;  // table 2 of 2, which is the row of code lengths
  EXPECT_EQ(look_up(0x0100'0000).length, 0);
  luts[1] = 240;  // table 16
  EXPECT_EQ(look_up(0x0100'0000).length, 0);
  luts[1] = 255;
  luts[256] = 255;  // table 1 leads to itself
  EXPECT_EQ(look_up(0x0100'0000).length, 0);
  luts[256 + 9] = 7;
  luts[2 * 256 + 7] = 32;
  EXPECT_EQ(look_up(0x0100'0009).length, 32);  // the fourth table
  EXPECT_EQ(look_up(0x0100'0000).length, 0);
}

/// Each entry that says an exponent, changed: a code is lost, or the fill has given the exponent a second
/// place of the same size (EOF's, or the rest of a table of few codes), which cannot be told from the first.
TEST(FindLostCode, EveryChangedEntryOfACodeIsNoticedUnlessTheExponentHasTwoPlaces) {
  testing::Random random(84);
  int noticed = 0;
  for (const auto& [name, luts] : golden_luts()) {
    const std::vector<CodeFound> codes = walk(luts);
    std::map<std::uint8_t, int> places;
    for (const CodeFound& code : codes) ++places[code.exponent];
    for (const CodeFound& code : codes) {
      const std::uint32_t length = luts[luts.size() - 256 + code.exponent];
      for (std::uint32_t i = 0; i < 1u << (7 - (length - 1) % 8); ++i) {
        Luts changed = luts;
        std::uint8_t& entry = changed[code.table * 256 + code.byte + i];
        entry = static_cast<std::uint8_t>(entry ^ (1u << random.below(8)));
        const auto lost = find_lost_code(LutsView(changed));
        ASSERT_EQ(lost, lost_by_walk(changed)) << name;
        noticed += lost.has_value();
        ASSERT_TRUE(lost || places[code.exponent] > 1)
            << name << " table " << code.table << " entry " << code.byte + i;
      }
    }
  }
  EXPECT_GT(noticed, 10'000);
}

/// Without fill there is no second place: every changed byte that a code needs is noticed.
TEST(FindLostCode, EveryChangedByteIsNoticedWhereNothingIsFilled) {
  testing::Random random(86);
  for (int round = 0; round < 12; ++round) {
    const auto code = testing::random_code(random, 100, random.below(240), random.below(2) * 5);
    const std::vector<std::uint8_t> exponents = code.exponents();
    if (code.lengths[0] != 0) continue;  // its value is that of what is not filled
    const Luts luts = testing::plain_luts(code, testing::PlainFill::kZero);
    for (std::size_t place = 0; place < luts.size() - 256; ++place) {
      if (luts[place] == 0) continue;
      for (const std::uint8_t value : {std::uint8_t{0}, exponents[random.below(exponents.size())],
                                       static_cast<std::uint8_t>(random.next())}) {
        if (value == luts[place]) continue;
        Luts changed = luts;
        changed[place] = value;
        // A pointer may be wrong and reach its table from elsewhere as well.
        ASSERT_EQ(find_lost_code(LutsView(changed)), lost_by_walk(changed)) << round;
        ASSERT_TRUE(find_lost_code(LutsView(changed))) << round << ' ' << place;
      }
    }
  }
}

TEST(FindLostCode, EveryChangedPointerAndLengthAgainstTheWalk) {
  for (const auto& [name, luts] : golden_luts()) {
    const std::size_t tables = luts.size() / 256 - 1;
    for (std::size_t place = 0; place < luts.size(); ++place) {
      const bool is_length = place >= tables * 256;
      if (!is_length && luts[place] < 240) continue;
      if (is_length && luts[place] == 0) continue;
      for (const std::uint8_t value :
           {std::uint8_t{0}, std::uint8_t{33}, std::uint8_t{240}, std::uint8_t{255},
            static_cast<std::uint8_t>(luts[place] + 1), static_cast<std::uint8_t>(luts[place] - 1)}) {
        Luts changed = luts;
        changed[place] = value;
        ASSERT_EQ(find_lost_code(LutsView(changed)), lost_by_walk(changed)) << name << ' ' << place;
      }
    }
  }
}

TEST(FindLostCode, DamagedTablesAgainstTheWalk) {
  testing::Random random(85);
  int whole = 0;
  for (int round = 0; round < 3'000; ++round) {
    const auto code = testing::random_code(random, 30, random.below(240), random.below(2) * 5);
    Luts luts = testing::plain_luts(code, static_cast<testing::PlainFill>(random.below(3)));
    for (std::uint64_t changes = random.below(12); changes > 0; --changes)
      luts[random.below(luts.size())] =
          static_cast<std::uint8_t>(random.below(2) == 0 ? random.next() : random.below(33));
    ASSERT_EQ(find_lost_code(LutsView(luts)), lost_by_walk(luts)) << round;
    whole += !find_lost_code(LutsView(luts));
  }
  EXPECT_GT(whole, 300);
  EXPECT_LT(whole, 2'700);
}

}  // namespace
}  // namespace weightpress::df11
