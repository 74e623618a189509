#include "model/file.h"

#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "model_test_support.h"

namespace weightpress::model {
namespace {

using testing::HasSubstr;

TEST(File, ReadsWhatWasWrittenAtAnyPosition) {
  const TempFolder folder;
  File file = File::create(folder / "a");
  file.write_at("world", 5, 6);
  file.write_at("hello ", 6, 0);
  file.sync();
  char text[5] = {};
  file.read_at(text, 5, 3);
  EXPECT_EQ(std::string(text, 5), "lo wo");
  EXPECT_EQ(file.size_bytes(), 11u);
  File moved = std::move(file);
  EXPECT_EQ(moved.path(), folder / "a");
  moved.close();
  EXPECT_EQ(read_whole_file(folder / "a", 11), "hello world");
}

TEST(File, WritingAfterOpeningIsNoticed) {
  const TempFolder folder;
  write_whole_file(folder / "a", "before");
  const File file = File::open_readonly(folder / "a");
  EXPECT_NO_THROW(file.check_unchanged());
  std::filesystem::last_write_time(folder / "a",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  const ErrorDetails changed = error_of([&] { file.check_unchanged(); });
  EXPECT_EQ(changed.code, ErrorCode::kSourceChanged);
  EXPECT_THAT(changed.message, HasSubstr((folder / "a").string()));
}

TEST(File, MissingFilesAndFoldersAreToldWithTheirPath) {
  const TempFolder folder;
  const ErrorDetails missing = error_of([&] { File::open_readonly(folder / "none"); });
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.message, HasSubstr((folder / "none").string()));
  EXPECT_THAT(missing.message, HasSubstr("No such file or directory"));
  EXPECT_EQ(error_of([&] { File::create(folder / "no/file"); }).code, ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { sync_folder(folder / "none"); }).code, ErrorCode::kNotFound);
  EXPECT_NO_THROW(sync_folder(folder.path()));
}

TEST(File, OnlyRegularFilesAreRead) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { File::open_readonly(folder.path()); }).message, HasSubstr("directory"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { File::open_readonly(folder / "pipe"); }).message,
              HasSubstr("not a regular file"));
}

TEST(File, AnExistingFileIsNeverOverwritten) {
  const TempFolder folder;
  write_whole_file(folder / "a", "old");
  EXPECT_EQ(error_of([&] { write_whole_file(folder / "a", "new"); }).code, ErrorCode::kOutputExists);
  EXPECT_EQ(read_whole_file(folder / "a", 100), "old");
}

TEST(File, AShortFileIsSaidToBeCutShort) {
  const TempFolder folder;
  const File file = File::open_readonly(folder.write("a", "12345"));
  char buffer[10];
  const ErrorDetails error = error_of([&] { file.read_at(buffer, 4, 3); });
  EXPECT_EQ(error.code, ErrorCode::kSourceChanged);
  EXPECT_THAT(error.message, HasSubstr("cut short"));
  EXPECT_THAT(error.message, HasSubstr("ends at byte 5"));
  EXPECT_THAT(error.message, HasSubstr("up to 7"));
  EXPECT_EQ(error_of([&] { file.read_at(buffer, 1, ~std::uint64_t{0}); }).code, ErrorCode::kIo);
}

TEST(File, ALimitOnTheContentIsHeld) {
  const TempFolder folder;
  folder.write("a", "12345");
  EXPECT_EQ(read_whole_file(folder / "a", 5), "12345");
  EXPECT_THAT(error_of([&] { read_whole_file(folder / "a", 4); }).message, HasSubstr("5 bytes"));
}

TEST(File, AFullDiskIsNoSpace) {
  const TempFolder folder;
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string content(3 << 20, 'x');
  const ErrorDetails error = error_of([&] { write_whole_file(folder / "a", content); });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(error.code, ErrorCode::kNoSpace);
  EXPECT_THAT(error.message, HasSubstr((folder / "a").string()));
}

}  // namespace
}  // namespace weightpress::model
