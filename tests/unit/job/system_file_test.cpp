#include "job/system_file.h"

#include <cerrno>
#include <string>

#include <gtest/gtest.h>

#include "support/fake_system.h"

namespace weightpress::job {
namespace {

TEST(SystemFile, AnAbsentFileAndAFolderAreErrorsWithoutText) {
  const FakeSystem system;
  EXPECT_EQ(read_system_file(system / "none").error, ENOENT);
  const SystemFile folder = read_system_file(system.root());
  EXPECT_EQ(folder.error, EISDIR);
  EXPECT_EQ(folder.text, "");
}

TEST(SystemFile, ReadsWholeFilesAndTheFirstMebibyteOfLongOnes) {
  const FakeSystem system;
  for (const std::size_t bytes : {0u, 1u, 16383u, 16384u, 16385u, 1u << 20}) {
    system.put("file", std::string(bytes, 'x'));
    const SystemFile file = read_system_file(system / "file");
    EXPECT_EQ(file.error, 0);
    EXPECT_EQ(file.text.size(), bytes);
  }
  system.put("file", std::string((1 << 20) + 5, 'x'));
  EXPECT_EQ(read_system_file(system / "file").text.size(), 1u << 20);
}

TEST(SystemFile, ReadsProc) {
  const SystemFile status = read_system_file("/proc/self/status");
  if (status.error == ENOENT) GTEST_SKIP() << "no /proc here";
  EXPECT_TRUE(rest_of_line(status.text, "Name:").has_value());
}

TEST(SystemFile, Numbers) {
  EXPECT_EQ(number_in("0"), 0u);
  EXPECT_EQ(number_in(" \t42\n"), 42u);
  EXPECT_EQ(number_in("18446744073709551615\n"), 18446744073709551615u);
  for (const char* text : {"", "\n", "max\n", "-1", "+1", "1 2", "1k", "0x10", "1.5", "18446744073709551616"})
    EXPECT_EQ(number_in(text), std::nullopt) << text;
}

TEST(SystemFile, RestOfLine) {
  constexpr std::string_view kText = "ab 1\n\nabc\t2 \r\n c 3\nab 4\nend";
  EXPECT_EQ(rest_of_line(kText, "ab "), "1");
  EXPECT_EQ(rest_of_line(kText, "abc"), "2");
  EXPECT_EQ(rest_of_line(kText, "end"), "");
  EXPECT_EQ(rest_of_line(kText, "c"), std::nullopt);
  EXPECT_EQ(rest_of_line("", "c"), std::nullopt);
}

}  // namespace
}  // namespace weightpress::job
