// OUT is absent, old or complete; what is not ours is never removed.
#include "job/output.h"

#include <fstream>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <weightpress/error.h>

#include "job/journal.h"
#include "model/file.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public ::testing::Test {
 protected:
  OutputFolderTest() {
    std::string name = (fs::temp_directory_path() / "weightpress-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~OutputFolderTest() override { fs::remove_all(folder_); }

  fs::path out() const { return folder_ / "out"; }
  fs::path partial() const { return folder_ / "out.partial"; }

  static void put(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  static std::string get(const fs::path& path) { return model::read_whole_file(path, 1'000); }

  template <class Function>
  static void expect_refused(Function function, ErrorCode code, const std::string& words) {
    try {
      function();
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
};

TEST_F(OutputFolderTest, AppearsAtTheEndAndLeavesNothingElse) {
  {
    OutputFolder output(out(), false);
    put(output.file("a"), "new");
    EXPECT_FALSE(fs::exists(out()));
    output.finish();
  }
  EXPECT_EQ(get(out() / "a"), "new");
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_EQ(std::distance(fs::directory_iterator(out()), fs::directory_iterator()), 1);
}

TEST_F(OutputFolderTest, ExistingOutputIsKeptWithoutForceAndReplacedWithIt) {
  put(out() / "old", "old");
  expect_refused([&] { OutputFolder(out(), false); }, ErrorCode::kOutputExists, "--force");
  EXPECT_EQ(get(out() / "old"), "old");
  EXPECT_FALSE(fs::exists(partial()));

  OutputFolder output(out(), true);
  put(output.file("a"), "new");
  EXPECT_EQ(get(out() / "old"), "old");
  output.finish();
  EXPECT_EQ(get(out() / "a"), "new");
  EXPECT_FALSE(fs::exists(out() / "old"));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(OutputFolderTest, OutputThatAppearsMeanwhileIsNotReplaced) {
  OutputFolder output(out(), false);
  put(output.file("a"), "new");
  put(out() / "theirs", "theirs");
  expect_refused([&] { output.finish(); }, ErrorCode::kOutputExists, "appeared");
  EXPECT_EQ(get(out() / "theirs"), "theirs");
  EXPECT_EQ(get(partial() / "a"), "new");
}

TEST_F(OutputFolderTest, FileInTheWayIsKeptEvenWithForce) {
  put(out(), "a file");
  expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "not a folder");
  EXPECT_EQ(get(out()), "a file");
}

TEST_F(OutputFolderTest, RemainsOfABrokenRunAreLeftForTheNextOne) {
  {
    OutputFolder broken(out(), false);
    EXPECT_EQ(broken.partial().state(), PartialFolder::State::kFresh);
    Journal::create(broken.file(kJournalName), R"({"weightpress_journal":1})");
    put(broken.file("a"), "torn");
    EXPECT_FALSE(broken.removed_remains());
  }
  OutputFolder output(out(), false);
  EXPECT_EQ(output.partial().state(), PartialFolder::State::kJournal);
  EXPECT_EQ(get(output.file("a")), "torn");
  EXPECT_FALSE(output.removed_remains());
  output.partial().start_over();
  EXPECT_TRUE(output.removed_remains());
  EXPECT_FALSE(fs::exists(output.file("a")));
  EXPECT_FALSE(fs::exists(output.file(kJournalName)));
  output.finish();
  EXPECT_FALSE(fs::exists(out() / "a"));
}

TEST_F(OutputFolderTest, JournalGoesBeforeTheFolderGetsItsName) {
  OutputFolder output(out(), false);
  Journal::create(output.file(kJournalName), R"({"weightpress_journal":1})");
  put(output.file("a"), "whole");
  output.finish();
  EXPECT_EQ(get(out() / "a"), "whole");
  EXPECT_FALSE(fs::exists(out() / kJournalName));
}

TEST_F(OutputFolderTest, JournalWithoutALineIsNothingToGoOnWith) {
  for (const std::string& torn : {std::string(), std::string(100, '\0'), std::string("0123456789abc"),
                                  std::string("0123456789abcdef {\"weightpress_jo")}) {
    put(partial() / kJournalName, torn);
    put(partial() / "a", "torn");
    OutputFolder output(out(), false);
    EXPECT_EQ(output.partial().state(), PartialFolder::State::kFresh);
    EXPECT_FALSE(fs::exists(output.file("a")));
    EXPECT_FALSE(fs::exists(output.file(kJournalName)));
  }
}

TEST_F(OutputFolderTest, JournalOfSomebodyElseIsNotTouched) {
  for (const char* text : {"my diary", "my diary\n", "0123456789abcdef {\"weightpress_journal\":1}\n"}) {
    put(partial() / kJournalName, text);
    expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "in the way");
    EXPECT_EQ(get(partial() / kJournalName), text);
  }
}

TEST_F(OutputFolderTest, RunWithoutJournalLeavesOneOfAnotherAlone) {
  fs::create_directories(partial());
  Journal::create(partial() / kJournalName, R"({"weightpress_journal":1})");
  expect_refused([&] { OutputFolder(out(), true, {"a"}); }, ErrorCode::kOutputExists, "taken up again");
  EXPECT_TRUE(fs::exists(partial() / kJournalName));
}

TEST_F(OutputFolderTest, WhatDoesNotBelongToTheOutputIsRemoved) {
  put(folder_ / "elsewhere" / "a", "theirs");
  OutputFolder output(out(), false);
  put(output.file("mine"), "mine");
  put(output.file("stray"), "stray");
  put(output.file("folder") / "b", "stray");
  fs::create_symlink(folder_ / "elsewhere" / "a", output.file("link"));
  fs::create_hard_link(folder_ / "elsewhere" / "a", output.file("second_name"));
  output.partial().remove_others([](const std::string& name) { return name != "stray"; });
  EXPECT_EQ(std::distance(fs::directory_iterator(partial()), fs::directory_iterator()), 1);
  EXPECT_EQ(get(output.file("mine")), "mine");
  EXPECT_EQ(get(folder_ / "elsewhere" / "a"), "theirs");
}

TEST_F(OutputFolderTest, PartialFolderOfSomebodyElseIsNotTouched) {
  put(partial() / "thesis.txt", "years of work");
  expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "in the way");
  EXPECT_EQ(get(partial() / "thesis.txt"), "years of work");
}

TEST_F(OutputFolderTest, SecondRunIsKeptOut) {
  OutputFolder first(out(), false);
  expect_refused([&] { OutputFolder(out(), false); }, ErrorCode::kOutputExists, "another run");
}

TEST_F(OutputFolderTest, CompleteOutputOfARunThatWasStoppedAtTheRenameIsTakenUp) {
  put(partial() / "a", "complete");
  put(partial() / "weightpress.json", "{\n \"weightpress\": \"0.1.0\"}");
  OutputFolder output(out(), false);
  EXPECT_EQ(output.partial().state(), PartialFolder::State::kComplete);
  output.finish();
  EXPECT_EQ(get(out() / "a"), "complete");
}

TEST_F(OutputFolderTest, ModelOfSomebodyElseAtThatNameIsNotTouched) {
  put(partial() / "config.json", "{\"dfloat11_config\": {}}");
  put(partial() / "weightpress.json", "[\"weightpress\"]");
  expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "in the way");
  EXPECT_TRUE(fs::exists(partial() / "config.json"));
}

TEST_F(OutputFolderTest, OldOutputThatWasBeingDeletedIsTakenUp) {
  put(partial() / "weightpress.in-progress", "");
  put(partial() / "old", "half deleted");
  put(out() / "a", "the new one");
  OutputFolder output(out(), true);
  EXPECT_TRUE(output.removed_remains());
  EXPECT_FALSE(fs::exists(output.file("old")));
}

TEST_F(OutputFolderTest, FolderWithSubfoldersIsNotReplacedEvenWithForce) {
  put(out() / "documents" / "thesis.txt", "years of work");
  expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "subfolders");
  EXPECT_EQ(get(out() / "documents" / "thesis.txt"), "years of work");
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(OutputFolderTest, LinksInTheWayAreNotFollowed) {
  put(folder_ / "elsewhere" / "a", "theirs");
  fs::create_directory_symlink(folder_ / "elsewhere", out());
  expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "not a folder");
  fs::remove(out());
  fs::create_directory_symlink(folder_ / "elsewhere", partial());
  expect_refused([&] { OutputFolder(out(), true); }, ErrorCode::kOutputExists, "not a folder");
  EXPECT_EQ(get(folder_ / "elsewhere" / "a"), "theirs");
}

TEST_F(OutputFolderTest, PartialFolderThatWasTakenAwayIsNoticed) {
  OutputFolder output(out(), false);
  fs::rename(partial(), folder_ / "moved");
  put(partial() / "other", "of another run");
  expect_refused([&] { output.finish(); }, ErrorCode::kIo, "moved or removed");
  EXPECT_EQ(get(partial() / "other"), "of another run");
}

TEST_F(OutputFolderTest, OldOutputIsLockedUntilItIsGone) {
  put(out() / "old", "old");
  OutputFolder output(out(), true);
  put(output.file("a"), "new");
  EXPECT_EQ(output.finish(), "");
  EXPECT_EQ(get(out() / "a"), "new");
  // The lock went with the folder: the next run is not kept out.
  OutputFolder next(out(), true);
}

class OutputFileTest : public OutputFolderTest {
 protected:
  fs::path out() const { return folder_ / "x.safetensors"; }
  fs::path partial() const { return folder_ / "x.safetensors.partial"; }

  /// A finished run with a record and a config.json of this content.
  std::string write(bool force, const std::string& config) {
    OutputFile output(
        out(),
        {{.name = "x.weightpress.json", .is_record = true}, {.name = "config.json", .content = config}},
        force, PartialFolder::Journaled::kYes);
    put(output.file("x.safetensors"), "tensors");
    put(output.file("x.weightpress.json"), "record");
    put(output.file("config.json"), config);
    EXPECT_NE(get_if_there(out()), "tensors");
    return output.finish();
  }
  static std::string get_if_there(const fs::path& path) { return fs::exists(path) ? get(path) : ""; }
};

TEST_F(OutputFileTest, AppearsBesideItsSideFiles) {
  EXPECT_EQ(write(false, "config"), "");
  EXPECT_EQ(get(out()), "tensors");
  EXPECT_EQ(get(folder_ / "x.weightpress.json"), "record");
  EXPECT_EQ(get(folder_ / "config.json"), "config");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3);
}

TEST_F(OutputFileTest, ExistingFileIsReplacedWithForceOnly) {
  put(out(), "old");
  expect_refused([&] { write(false, "config"); }, ErrorCode::kOutputExists, "--force");
  EXPECT_EQ(get(out()), "old");
  EXPECT_FALSE(fs::exists(folder_ / "config.json"));
  EXPECT_EQ(write(true, "config"), "");
  EXPECT_EQ(get(out()), "tensors");
}

TEST_F(OutputFileTest, ConfigOfAnotherModelIsInTheWay) {
  put(folder_ / "config.json", "of another model");
  expect_refused([&] { write(false, "config"); }, ErrorCode::kOutputExists, "config.json");
  EXPECT_EQ(get(folder_ / "config.json"), "of another model");
  EXPECT_FALSE(fs::exists(partial()));
  expect_refused([&] { write(true, "config"); }, ErrorCode::kOutputExists, "config.json");
  put(folder_ / "config.json", "{\"dfloat11_config\": 1}");
  expect_refused([&] { write(false, "config"); }, ErrorCode::kOutputExists, "config.json");
  put(folder_ / "config.json", "config");  // what a run leaves that was stopped between the renames
  EXPECT_EQ(write(false, "config"), "");
}

TEST_F(OutputFileTest, RecordsAreReplacedAndOtherFilesOfTheirNameAreNot) {
  put(folder_ / "x.weightpress.json", "my notes");
  expect_refused([&] { write(false, "config"); }, ErrorCode::kOutputExists, "weightpress.json");
  EXPECT_EQ(get(folder_ / "x.weightpress.json"), "my notes");
  put(folder_ / "x.weightpress.json", "{\n \"weightpress\": \"0.1.0\"}");
  EXPECT_EQ(write(false, "config"), "");
}

TEST_F(OutputFileTest, FolderInTheWayIsKeptEvenWithForce) {
  put(out() / "thesis.txt", "years of work");
  expect_refused([&] { write(true, "config"); }, ErrorCode::kOutputExists, "not a file");
  EXPECT_EQ(get(out() / "thesis.txt"), "years of work");
}

TEST_F(OutputFileTest, FileThatAppearsMeanwhileIsNotReplaced) {
  OutputFile output(out(), {}, false, PartialFolder::Journaled::kYes);
  put(output.file("x.safetensors"), "tensors");
  put(out(), "theirs");
  expect_refused([&] { output.finish(); }, ErrorCode::kOutputExists, "appeared");
  EXPECT_EQ(get(out()), "theirs");
  EXPECT_EQ(get(partial() / "x.safetensors"), "tensors");
}

TEST_F(OutputFolderTest, FolderWithoutARecordIsReplacedOnlyIfAllInItIsOurs) {
  const std::vector<std::string> own = {"a.safetensors", "config.json"};
  put(out() / "a.safetensors", "old");
  expect_refused([&] { OutputFolder(out(), false, own); }, ErrorCode::kOutputExists, "--force");
  put(out() / "tokenizer.json", "theirs");
  expect_refused([&] { OutputFolder(out(), true, own); }, ErrorCode::kOutputExists, "'tokenizer.json'");
  EXPECT_EQ(get(out() / "a.safetensors"), "old");
  fs::remove(out() / "tokenizer.json");
  put(out() / kMarkerName, "");  // a run was stopped just after the rename

  OutputFolder output(out(), true, own);
  put(output.file("a.safetensors"), "new");
  EXPECT_EQ(output.finish(), "");
  EXPECT_EQ(get(out() / "a.safetensors"), "new");
  EXPECT_FALSE(fs::exists(out() / kMarkerName));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(OutputFolderTest, FolderWithoutARecordIsKnownToBeOursUntilItHasItsName) {
  {
    OutputFolder output(out(), false, {"a"});
    put(output.file("a"), "new");
    put(out() / "theirs", "theirs");
    expect_refused([&] { output.finish(); }, ErrorCode::kOutputExists, "appeared");
  }
  EXPECT_TRUE(fs::exists(partial() / kMarkerName));
  fs::remove_all(out());
  OutputFolder output(out(), false, {"a"});
  EXPECT_TRUE(output.removed_remains());
}

TEST_F(OutputFolderTest, PathsAreResolvedAsTheKernelDoes) {
  fs::create_directories(folder_ / "far" / "sub");
  fs::create_directory_symlink(folder_ / "far" / "sub", folder_ / "link");
  const fs::path folder = fs::canonical(folder_);
  EXPECT_EQ(resolve_output(folder_ / "link" / ".." / "out"), folder / "far" / "out");  // not folder_/out
  EXPECT_EQ(resolve_output(folder_ / "link" / "out"), folder / "far" / "sub" / "out");
  EXPECT_EQ(resolve_output(out().string() + "/"), folder / "out");
  EXPECT_EQ(resolve_output("out"), fs::current_path() / "out");
}

TEST_F(OutputFolderTest, MissingParentAndNamelessOutputsAreRefused) {
  expect_refused([&] { resolve_output(folder_ / "no" / "out"); }, ErrorCode::kNotFound, "cannot be made");
  put(folder_ / "file", "");
  expect_refused([&] { resolve_output(folder_ / "file" / "out"); }, ErrorCode::kNotFound, "cannot be made");
  for (const char* nameless : {"/", ".", "..", "a/..", "./", ""}) {
    expect_refused([&] { resolve_output(nameless); }, ErrorCode::kUsage, "name a folder");
  }
}

}  // namespace
}  // namespace weightpress::job
