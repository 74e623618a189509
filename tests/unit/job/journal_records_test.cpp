// What is recorded of units comes back as it was, whatever the names; what is no record is refused.
#include "job/journal_records.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "format/unit_plan.h"

namespace weightpress::job {
namespace {

using nlohmann::json;

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

const std::vector<std::string> kOddNames = {"model.layers.0",
                                            "",
                                            " ",
                                            "\"",
                                            "\\",
                                            "a\"b\\\"c",
                                            "line\nbreak\r\n",
                                            std::string("nul\0in it", 9),
                                            "tab\t\x01\x1f\x7f",
                                            "größe/名前/🙂",
                                            "\u2028\u2029\u202e",
                                            "{\"planned\":\"x\"}",
                                            "</script>",
                                            std::string(5'000, 'n')};

PlannedRecord planned_record() {
  PlannedRecord record;
  record.counts.histogram = {{0, 1}, {120, 123'456}, {255, kHuge}};
  record.counts.last_exponent = 120;
  record.counts.densest_chunks = {23'550, kHuge, 0};
  record.cast = {5, kHuge, 0};
  record.source_hash = 0x00ab'cdef'0123'4567;
  return record;
}

const WrittenRecord kWritten = {"model_layers_0.safetensors", kHuge, kHuge - 1, 17, 0x0fed, true};
const CopiedRecord kCopied = {"model.safetensors", kHuge, {1, 2, kHuge}};

void expect_same(const PlannedRecord* found, const PlannedRecord& record) {
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->counts.histogram, record.counts.histogram);
  EXPECT_EQ(found->counts.last_exponent, record.counts.last_exponent);
  EXPECT_EQ(found->counts.densest_chunks, record.counts.densest_chunks);
  EXPECT_EQ(found->cast, record.cast);
  EXPECT_EQ(found->source_hash, record.source_hash);
}

void expect_same(const WrittenRecord* found, const WrittenRecord& record) {
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->file, record.file);
  EXPECT_EQ(found->offset_bytes, record.offset_bytes);
  EXPECT_EQ(found->size_bytes, record.size_bytes);
  EXPECT_EQ(found->num_tables, record.num_tables);
  EXPECT_EQ(found->output_hash, record.output_hash);
  EXPECT_EQ(found->verified, record.verified);
}

void expect_same(const CopiedRecord* found, const CopiedRecord& record) {
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->file, record.file);
  EXPECT_EQ(found->output_hash, record.output_hash);
  EXPECT_EQ(found->cast, record.cast);
}

/// What a journal asks of a line: no line breaks, and nothing else that a terminal or an editor may stumble
/// over.
void expect_one_line(const std::string& line) {
  EXPECT_TRUE(std::ranges::none_of(line, [](char c) { return c >= 0 && c < ' '; })) << line;
  EXPECT_TRUE(line.starts_with('{') && line.ends_with('}')) << line;
}

TEST(JournalRecords, ComeBackUnderAnyName) {
  PastRun past;
  for (const std::string& name : kOddNames) {
    WrittenRecord written = kWritten;
    written.file = name;
    CopiedRecord copied = kCopied;
    copied.file = name;
    for (const std::string& line : {planned_line(name, planned_record()), kept_line(name, "of " + name),
                                    written_line(name, written), copied_line(name, copied)}) {
      expect_one_line(line);
      EXPECT_TRUE(past.add(line)) << line;
    }
  }
  for (const std::string& name : kOddNames) {
    SCOPED_TRACE(name);
    WrittenRecord written = kWritten;
    written.file = name;
    CopiedRecord copied = kCopied;
    copied.file = name;
    expect_same(past.planned(name), planned_record());
    ASSERT_NE(past.kept(name), nullptr);
    EXPECT_EQ(*past.kept(name), "of " + name);
    expect_same(past.written(name), written);
    expect_same(past.copied(name, name), copied);
  }
}

TEST(JournalRecords, KindsAndNamesAreKeptApart) {
  PastRun past;
  EXPECT_TRUE(past.add(planned_line("p", planned_record())));
  EXPECT_TRUE(past.add(kept_line("k", "why")));
  EXPECT_TRUE(past.add(written_line("w", kWritten)));
  EXPECT_TRUE(past.add(copied_line("c", kCopied)));
  for (const char* name : {"p", "k", "w", "c", "", "q"}) {
    const std::string_view n = name;
    EXPECT_EQ(past.planned(name) != nullptr, n == "p");
    EXPECT_EQ(past.kept(name) != nullptr, n == "k");
    EXPECT_EQ(past.written(name) != nullptr, n == "w");
    EXPECT_EQ(past.copied(kCopied.file, name) != nullptr, n == "c");
    EXPECT_EQ(past.copied(name, kCopied.file), nullptr);
    EXPECT_EQ(past.copied("other.safetensors", name), nullptr);
  }
}

TEST(JournalRecords, TheLastOneOfANameCounts) {
  PastRun past;
  PlannedRecord planned = planned_record();
  EXPECT_TRUE(past.add(planned_line("unit", planned)));
  planned.counts.histogram = {{3, 1}};
  planned.counts.densest_chunks.clear();
  planned.source_hash = 0;
  EXPECT_TRUE(past.add(planned_line("unit", planned)));
  expect_same(past.planned("unit"), planned);

  EXPECT_TRUE(past.add(kept_line("unit", "before")) && past.add(kept_line("unit", "after")));
  EXPECT_EQ(*past.kept("unit"), "after");

  WrittenRecord written = kWritten;
  EXPECT_TRUE(past.add(written_line("unit", written)));
  written = {"elsewhere", 1, 2, 3, 4, false};
  EXPECT_TRUE(past.add(written_line("unit", written)));
  expect_same(past.written("unit"), written);

  CopiedRecord copied = kCopied;
  EXPECT_TRUE(past.add(copied_line("tensor", copied)));
  copied.output_hash = 7;
  copied.cast = {};
  EXPECT_TRUE(past.add(copied_line("tensor", copied)));
  expect_same(past.copied(kCopied.file, "tensor"), copied);
}

TEST(JournalRecords, FullHistogram) {
  PlannedRecord record;
  for (std::size_t symbol = 0; symbol < df11::kNumSymbols; ++symbol)
    record.counts.histogram.emplace_back(static_cast<std::uint8_t>(symbol), kHuge - symbol);
  record.counts.last_exponent = 255;
  record.counts.densest_chunks.assign(1'000, kHuge);
  const std::string line = planned_line("unit", record);
  expect_one_line(line);
  EXPECT_LT(planned_line("unit", planned_record()).size(), 400u);  // counts of 0 take no room
  PastRun past;
  ASSERT_TRUE(past.add(line));
  expect_same(past.planned("unit"), record);
}

struct MalformedRecords : ::testing::Test {
  /// None of the sound records, and none at all, may be there or change.
  void expect_refused(const std::string& line) {
    EXPECT_FALSE(past.add(line)) << line;
    expect_same(past.planned("unit"), planned_record());
    EXPECT_EQ(*past.kept("unit"), "reason");
    expect_same(past.written("unit"), kWritten);
    expect_same(past.copied(kCopied.file, "tensor"), kCopied);
    EXPECT_EQ(past.planned(""), nullptr);
    EXPECT_EQ(past.written(""), nullptr);
  }

  const std::vector<std::string> sound = {planned_line("unit", planned_record()), kept_line("unit", "reason"),
                                          written_line("unit", kWritten), copied_line("tensor", kCopied)};
  PastRun past = [this] {
    PastRun run;
    for (const std::string& line : sound) EXPECT_TRUE(run.add(line)) << line;
    return run;
  }();
};

TEST_F(MalformedRecords, OtherJsonAndNoJson) {
  for (const char* line :
       {"", " ", "{", "}", "{}", "[]", "[1]", "null", "1", "\"planned\"", "{\"planned\":", "{\"x\":1}",
        "{\"weightpress_journal\":1}", "[\"planned\"]", "{\"planned\":\"\xff\"}", "{\"kept\":\"a\"}",
        "{\"kept\":null,\"reason\":\"x\"}", "{\"planned\":{}}", "{\"kept\":\"\",\"reason\":\"r\"} x"}) {
    expect_refused(line);
  }
  expect_refused(std::string(300'000, '['));
  expect_refused(std::string(300'000, '[') + std::string(300'000, ']'));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"planned\":";
  expect_refused(deep + "1" + std::string(100'000, '}'));
}

TEST_F(MalformedRecords, EveryTruncation) {
  for (const std::string& line : sound)
    for (std::size_t length = 0; length < line.size(); ++length) expect_refused(line.substr(0, length));
}

/// A value for each place of the tree: that of any other type, and numbers that do not fit.
void for_each_change(const json& value, const std::function<void(const json&, const std::string&)>& visit,
                     const std::string& where = "") {
  for (const char* text :
       {"null",      "true",        "1",          "-1",        "1.5",      "1e30",   "18446744073709551616",
        "\"\"",      "\"x\"",       "[]",         "[1]",       "[[]]",     "[null]", "[[1]]",
        "[[1,2,3]]", "[[\"1\",2]]", "[[1,null]]", "[[256,1]]", "[[-1,1]]", "{}",     "{\"0\":1}"}) {
    const json other = json::parse(text);
    const bool fits =
        other.type() == value.type() || (value.is_number_unsigned() && other.is_number_unsigned());
    if (fits && !value.is_array()) continue;
    visit(other, where + " = " + text);
  }
  if (value.is_structured()) {
    for (const auto& [key, member] : value.items()) {
      for_each_change(
          member,
          [&](const json& changed, const std::string& what) {
            json whole = value;
            if (value.is_array()) {
              whole[std::stoul(key)] = changed;
            } else {
              whole[key] = changed;
            }
            visit(whole, what);
          },
          where + "/" + key);
    }
  }
}

TEST_F(MalformedRecords, WrongTypesOfEveryMember) {
  std::size_t changes = 0;
  for (const std::string& line : sound) {
    const json whole = json::parse(line);
    for (const auto& [key, member] : whole.items()) {
      json without = whole;
      without.erase(key);
      expect_refused(without.dump());
    }
    for_each_change(whole, [&](const json& changed, const std::string& what) {
      // Empty lists are sound: of a unit that is never asked for, and of one that was not asked about. What
      // stands behind the members of a pair is not looked at.
      if (what == "/histogram = []" || what == "/histogram = [[1,2,3]]" || what == "/densest_chunks = []" ||
          what == "/densest_chunks = [1]")
        return;
      SCOPED_TRACE(what);
      ++changes;
      expect_refused(changed.dump());
    });
  }
  EXPECT_GT(changes, 400u);
}

TEST_F(MalformedRecords, HashesAreHexadecimal) {
  for (const char* hash : {"", "0x12", "-1", "+1", " 1", "1 ", "g", "10000000000000000", "12 34"}) {
    for (std::size_t i : {0u, 2u, 3u}) {
      json line = json::parse(sound[i]);
      (line.contains("xxh3") ? line["xxh3"] : line["source_xxh3"]) = hash;
      expect_refused(line.dump());
    }
  }
}

TEST_F(MalformedRecords, SymbolsAndExponentsAreBytes) {
  json line = json::parse(sound[0]);
  for (const std::uint64_t number : {std::uint64_t{256}, std::uint64_t{300}, std::uint64_t{1} << 32, kHuge}) {
    json wrong = line;
    wrong["histogram"][0][0] = number;
    expect_refused(wrong.dump());
    wrong = line;
    wrong["last_exponent"] = number;
    expect_refused(wrong.dump());
  }
  line["histogram"][0][0] = 255;
  line["planned"] = "other";
  EXPECT_TRUE(past.add(line.dump()));
}

}  // namespace
}  // namespace weightpress::job
