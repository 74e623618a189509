// OUT is absent, old or complete; what is not ours is never removed.
#include "job/output_folder.h"

#include <fstream>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <weightpress/error.h>

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

TEST_F(OutputFolderTest, RemainsOfABrokenRunAreRemoved) {
  {
    OutputFolder broken(out(), false);
    put(broken.file("a"), "torn");
    EXPECT_FALSE(broken.removed_remains());
  }
  EXPECT_TRUE(fs::exists(partial() / "a"));
  OutputFolder output(out(), false);
  EXPECT_TRUE(output.removed_remains());
  EXPECT_FALSE(fs::exists(output.file("a")));
  output.finish();
  EXPECT_FALSE(fs::exists(out() / "a"));
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

TEST_F(OutputFolderTest, MissingParentAndNamelessOutputsAreRefused) {
  expect_refused([&] { OutputFolder(folder_ / "no" / "out", false); }, ErrorCode::kNotFound,
                 "is not a folder");
  expect_refused([&] { OutputFolder("/", false); }, ErrorCode::kUsage, "name a folder");
}

TEST_F(OutputFolderTest, SlashAtTheEndMakesNoDifference) {
  OutputFolder output(out().string() + "/", false);
  output.finish();
  EXPECT_TRUE(fs::is_directory(out()));
}

}  // namespace
}  // namespace weightpress::job
