// The journal of a run: whatever a power cut, a full disk or a stranger leaves of it, what is read back is a
// beginning of what was written.
#include "job/journal.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "job/block_hash.h"
#include "job/process_memory.h"
#include "model/model_test_support.h"
#include "support/measurable.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

using Lines = std::vector<std::string>;

const Lines kLines = {R"({"weightpress_journal":1,"version":"1.2.3"})", R"({"planned":"model.layers.0"})",
                      R"({"written":"model.layers.0","xxh3":"00ff"})", R"({"copied":"norm.weight"})"};

/// By the words of the header file, not by the code.
std::string text_of(const Lines& lines, std::uint64_t checksum = 0) {
  std::string text;
  for (const std::string& json : lines) {
    checksum = xxh3(json, checksum);
    text += hex16(checksum) + ' ' + json + '\n';
  }
  return text;
}

std::string content(const fs::path& path) {
  return model::read_whole_file(path, std::uint64_t{1} << 27);
}

Lines first(const Lines& lines, std::size_t count) {
  return {lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(count)};
}

struct JournalTest : ::testing::Test {
  fs::path put(std::string_view text) const { return folder.write("journal", text); }

  /// What open() gives of `path`.
  static Lines read(const fs::path& path) {
    Lines lines;
    const Journal journal = Journal::open(path, [&](std::string_view json) {
      lines.emplace_back(json);
      return true;
    });
    EXPECT_EQ(journal.has_records(), lines.size() > 1);
    return lines;
  }

  /// The journal is usable and holds `lines` and nothing else, also after one more was appended.
  static void expect_goes_on(const fs::path& path, Lines lines) {
    ASSERT_EQ(examine_journal(path), JournalState::kUsable);
    EXPECT_EQ(read_fingerprint(path), lines[0]);
    {
      Lines found;
      Journal journal = Journal::open(path, [&](std::string_view json) {
        found.emplace_back(json);
        return true;
      });
      ASSERT_EQ(found, lines);
      ASSERT_EQ(content(path), text_of(lines));
      lines.emplace_back(R"({"written":"after"})");
      journal.append(lines.back());
      EXPECT_TRUE(journal.has_records());
    }
    ASSERT_EQ(content(path), text_of(lines));
    ASSERT_EQ(read(path), lines);
  }

  model::TempFolder folder;
  const fs::path path = folder / "journal";
};

TEST_F(JournalTest, IsTheTextThatTheHeaderFileDescribes) {
  {
    Journal journal = Journal::create(path, kLines[0]);
    EXPECT_EQ(content(path), text_of(first(kLines, 1)));
    EXPECT_EQ(examine_journal(path), JournalState::kUsable);
    EXPECT_FALSE(journal.has_records());
    for (std::size_t i = 1; i < kLines.size(); ++i) {
      journal.append(kLines[i]);
      EXPECT_TRUE(journal.has_records());
      EXPECT_EQ(content(path), text_of(first(kLines, i + 1)));  // nothing waits in a buffer
    }
    journal.sync();
  }
  EXPECT_EQ(read(path), kLines);
  EXPECT_EQ(content(path), text_of(kLines));
  EXPECT_EQ(read_fingerprint(path), kLines[0]);
}

TEST_F(JournalTest, OneThatIsThereIsNotReplaced) {
  put("mine");
  EXPECT_EQ(model::error_of([&] { Journal::create(path, kLines[0]); }).code, ErrorCode::kOutputExists);
  EXPECT_EQ(content(path), "mine");
  EXPECT_EQ(model::error_of([&] { Journal::create(folder / "none/journal", kLines[0]); }).code,
            ErrorCode::kNotFound);
  EXPECT_EQ(model::error_of([&] { read(folder / "none"); }).code, ErrorCode::kNotFound);
}

TEST_F(JournalTest, EveryTruncationKeepsTheWholeLines) {
  const std::string whole = text_of(kLines);
  const std::size_t first_line = text_of(first(kLines, 1)).size();
  // As the process died, and as a disk may leave it that knows the length but not yet the bytes.
  for (const bool zeros : {false, true}) {
    for (std::size_t length = 0; length <= whole.size(); ++length) {
      SCOPED_TRACE(std::to_string(length) + (zeros ? " bytes, then zeros" : " bytes"));
      const std::string kept = whole.substr(0, length);
      const auto num_lines = static_cast<std::size_t>(std::ranges::count(kept, '\n'));
      put(zeros ? kept + std::string(whole.size() - length, '\0') : kept);
      if (num_lines == 0) {
        // A file system drops bytes by the block: zeros inside of the first line's begin are not its doing.
        if (!zeros || length == 0 || length > first_line - 10) {
          EXPECT_EQ(examine_journal(path), JournalState::kBlank);
        }
        continue;
      }
      expect_goes_on(path, first(kLines, num_lines));
    }
  }
}

TEST_F(JournalTest, EveryFlippedBitEndsItBeforeItsLine) {
  const std::string whole = text_of(kLines);
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      SCOPED_TRACE("bit " + std::to_string(bit) + " of byte " + std::to_string(byte));
      std::string wrong = whole;
      wrong[byte] = static_cast<char>(wrong[byte] ^ 1 << bit);
      put(wrong);
      const auto line =
          static_cast<std::size_t>(std::count(whole.begin(), whole.begin() + static_cast<long>(byte), '\n'));
      if (line == 0) {
        EXPECT_EQ(examine_journal(path), JournalState::kForeign);
        EXPECT_EQ(content(path), wrong);
      } else {
        expect_goes_on(path, first(kLines, line));
      }
    }
  }
}

TEST_F(JournalTest, LinesOutOfPlaceEndIt) {
  Lines text;  // each with its checksum
  std::string so_far;
  for (std::size_t i = 1; i <= kLines.size(); ++i) {
    const std::string now = text_of(first(kLines, i));
    text.push_back(now.substr(so_far.size()));
    so_far = now;
  }
  const auto expect_kept = [&](const Lines& changed, std::size_t num_lines) {
    std::string joined;
    for (const std::string& line : changed) joined += line;
    put(joined);
    expect_goes_on(path, first(kLines, num_lines));
  };
  for (std::size_t i = 1; i < text.size(); ++i) {
    SCOPED_TRACE(i);
    Lines changed = text;
    changed.erase(changed.begin() + static_cast<long>(i));
    expect_kept(changed, i);
    changed = text;
    changed.insert(changed.begin() + static_cast<long>(i), text[i]);  // twice
    expect_kept(changed, i + 1);
    changed = text;
    changed.insert(changed.begin() + static_cast<long>(i), "\n");
    expect_kept(changed, i);
    if (i + 1 == text.size()) break;
    changed = text;
    std::swap(changed[i], changed[i + 1]);
    expect_kept(changed, i);
  }
  // Lines of another journal: the same object, but another one went before.
  Lines other = kLines;
  other[1] = R"({"planned":"model.layers.1"})";
  const std::string other_text = text_of(other);
  put(text[0] + text[1] + other_text.substr(text_of(first(other, 2)).size()));
  expect_goes_on(path, first(kLines, 2));
  // Behind another fingerprint.
  put(text_of({R"({"weightpress_journal":1,"version":"1.2.4"})"}) + text[1] + text[2]);
  expect_goes_on(path, {R"({"weightpress_journal":1,"version":"1.2.4"})"});
  // A whole journal behind a whole journal.
  put(text_of(kLines) + text_of(kLines));
  expect_goes_on(path, kLines);
}

TEST_F(JournalTest, ALineThatIsNotAcceptedEndsIt) {
  for (std::size_t refused = 0; refused <= kLines.size(); ++refused) {
    put(text_of(kLines));
    std::size_t calls = 0;
    {
      Journal journal = Journal::open(path, [&](std::string_view json) {
        EXPECT_EQ(json, kLines[calls]);
        return calls++ != refused;
      });
      EXPECT_EQ(journal.has_records(), refused > 1);
    }
    EXPECT_EQ(calls, std::min(refused + 1, kLines.size()));
    EXPECT_EQ(content(path), text_of(first(kLines, refused)));
    EXPECT_EQ(examine_journal(path), refused == 0 ? JournalState::kBlank : JournalState::kUsable);
    if (refused > 0) expect_goes_on(path, first(kLines, refused));
  }
}

TEST_F(JournalTest, WhatOnLineThrowsArrivesAndNothingIsLost) {
  put(text_of(kLines));
  EXPECT_THROW(Journal::open(path, [](std::string_view) -> bool { throw std::runtime_error("stop"); }),
               std::runtime_error);
  EXPECT_EQ(content(path), text_of(kLines));
}

TEST_F(JournalTest, OddTails) {
  const std::string whole = text_of(kLines);
  for (const std::string& tail :
       {std::string("\n"), std::string("x"), std::string("\n\n\n"), std::string(100'000, '\0'),
        std::string(100'000, '\n'), std::string(16, '0') + " {}\n", std::string(15, '0') + "\n",
        std::string(16, '0') + "\n", std::string(17, ' ') + "\n", std::string("\xff\xfe\n")}) {
    put(whole + tail);
    expect_goes_on(path, kLines);
  }
}

TEST_F(JournalTest, LinesOfAllLengthsAroundThePiecesThatAreRead) {
  constexpr std::size_t kPiece = 64 << 10;
  for (const std::size_t base : {kPiece, 2 * kPiece, 3 * kPiece}) {
    for (std::size_t length = base - 40; length <= base + 40; ++length) {
      const Lines lines = {kLines[0], "{\"a\":\"" + std::string(length, 'x') + "\"}", kLines[1],
                           "{\"b\":\"" + std::string(kPiece - 30, 'y') + "\"}", kLines[2]};
      put(text_of(lines));
      ASSERT_EQ(read(path), lines) << length;
      put(text_of(lines).substr(0, text_of(lines).size() - 1));
      ASSERT_EQ(read(path), first(lines, 4)) << length;
    }
  }
  testing::Random random(1);
  Lines many = {kLines[0]};
  for (int i = 0; i < 3'000; ++i) many.push_back("{" + std::string(random.below(300), 'z') + "}");
  for (int i = 0; i < 30; ++i) many.push_back("{" + std::string(random.below(200'000), 'z') + "}");
  put(text_of(many));
  EXPECT_EQ(read(path), many);
}

TEST_F(JournalTest, StatesOfWhatMayLieThere) {
  const std::string line = text_of(first(kLines, 1));
  EXPECT_EQ(examine_journal(path), JournalState::kAbsent);
  EXPECT_EQ(examine_journal(folder / "none/journal"), JournalState::kAbsent);
  const auto state = [&](std::string_view text) { return examine_journal(put(text)); };
  EXPECT_EQ(state(""), JournalState::kBlank);
  EXPECT_EQ(state(std::string(5, '\0')), JournalState::kBlank);
  EXPECT_EQ(state(std::string(300'000, '\0')), JournalState::kBlank);
  EXPECT_EQ(state(line), JournalState::kUsable);
  EXPECT_EQ(state(line + "rest"), JournalState::kUsable);

  for (const char* text : {"\n", "x", "notes", "0123\n", "{}", "{}\n", "0123456789abcdef\n",
                           "0123456789ABCDEF", "0123456789abcdeg", "0123456789abcde`", "0123456789abcdefg",
                           "0123456789abcdef {\"weightpress_journey\"", " ", "0 "}) {
    EXPECT_EQ(state(text), JournalState::kForeign) << text;
    EXPECT_EQ(content(path), text);
  }
  // A torn line of another version, maybe.
  EXPECT_EQ(state("0123456789abcdef {\"weightpress_journal\": 2"), JournalState::kBlank);
  EXPECT_EQ(state(std::string(10, '\0') + "\n"), JournalState::kForeign);
  EXPECT_EQ(state(std::string(10, '\0') + "x"), JournalState::kForeign);
  EXPECT_EQ(state('\n' + line), JournalState::kForeign);
  EXPECT_EQ(state("\xef\xbb\xbf" + line), JournalState::kForeign);
  // A right checksum is not enough.
  EXPECT_EQ(state(text_of({"{}"})), JournalState::kForeign);
  EXPECT_EQ(state(text_of({R"({"other":1,"weightpress_journal":1})"})), JournalState::kForeign);
  EXPECT_EQ(state(text_of(first(kLines, 1), 1)), JournalState::kForeign);  // another line went before
}

TEST_F(JournalTest, WhatIsNoPlainFileIsForeign) {
  fs::create_directory(path);
  EXPECT_EQ(examine_journal(path), JournalState::kForeign);
  fs::remove(path);

  const fs::path real = folder.write("real", text_of(kLines));
  fs::create_symlink(real, path);
  EXPECT_EQ(examine_journal(path), JournalState::kForeign);
  EXPECT_EQ(model::error_of([&] { read(path); }).code, ErrorCode::kIo);
  fs::remove(real);
  EXPECT_EQ(examine_journal(path), JournalState::kForeign);
  fs::remove(path);

  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(examine_journal(path), JournalState::kForeign);  // and does not wait for a writer
  EXPECT_EQ(model::error_of([&] { read_fingerprint(path); }).code, ErrorCode::kIo);
}

TEST_F(JournalTest, LinesAboveSixteenMebibytesAreNotRead) {
  const std::string most((std::size_t{16} << 20) - 100, 'x');
  const Lines lines = {kLines[0], "{\"a\":\"" + most + "\"}", kLines[1]};
  put(text_of(lines));
  EXPECT_EQ(read(path), lines);
  const std::string more(std::size_t{17} << 20, 'x');
  put(text_of({kLines[0], kLines[1], "{\"a\":\"" + more + "\"}", kLines[2]}));
  expect_goes_on(path, first(kLines, 2));
  // A first line of that length is none of ours that was finished.
  put(text_of({more}));
  EXPECT_EQ(examine_journal(path), JournalState::kForeign);
  put(more);
  EXPECT_EQ(examine_journal(path), JournalState::kForeign);
  EXPECT_EQ(read_fingerprint(path), "");
}

/// What the call adds to the highest resident memory of the process.
template <class Call>
std::uint64_t peak_growth(Call call) {
  const std::uint64_t before = std::max(peak_memory_bytes(), resident_memory_bytes());
  call();
  return peak_memory_bytes() - std::min(before, peak_memory_bytes());
}

TEST_F(JournalTest, MemoryIsBoundedWhateverLiesThere) {
  if (const char* reason = why_memory_is_not_measured()) GTEST_SKIP() << reason;
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  {
    model::File file = model::File::create(path);
    const std::string text = text_of(first(kLines, 2));
    file.write_at(text.data(), text.size(), 0);
    const std::string piece(kMiB, 'x');
    for (std::uint64_t i = 0; i < 64; ++i) file.write_at(piece.data(), piece.size(), text.size() + i * kMiB);
  }
  EXPECT_LT(peak_growth([&] { EXPECT_EQ(examine_journal(path), JournalState::kUsable); }), 8 * kMiB);
  EXPECT_LT(peak_growth([&] { EXPECT_EQ(read(path), first(kLines, 2)); }), 50 * kMiB);
  EXPECT_EQ(fs::file_size(path), text_of(first(kLines, 2)).size());
  fs::remove(path);
  {
    model::File::create(path).truncate(1024 * kMiB);
  }  // zeros: sparse
  EXPECT_LT(peak_growth([&] { EXPECT_EQ(examine_journal(path), JournalState::kBlank); }), 50 * kMiB);
}

TEST_F(JournalTest, MayBeSyncedByAnotherThread) {
  Lines lines = {kLines[0]};
  {
    Journal journal = Journal::create(path, lines[0]);
    const std::jthread other([&] {
      for (int i = 0; i < 20; ++i) journal.sync();
    });
    for (int i = 0; i < 500; ++i) {
      lines.push_back("{\"kept\":\"" + std::to_string(i) + "\"}");
      journal.append(lines.back());
    }
  }
  EXPECT_EQ(read(path), lines);
}

TEST_F(JournalTest, MovesAndGoesOn) {
  Lines lines = {kLines[0], kLines[1]};
  Journal journal = Journal::create(path, lines[0]);
  journal.append(lines[1]);
  Journal moved = std::move(journal);
  lines.push_back(kLines[2]);
  moved.append(lines.back());
  EXPECT_EQ(read(path), lines);
}

}  // namespace
}  // namespace weightpress::job
