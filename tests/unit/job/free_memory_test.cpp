#include "job/free_memory.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "job/system_file.h"
#include "support/fake_system.h"

namespace weightpress::job {
namespace {

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
constexpr const char* kNoLimitV1 = "9223372036854771712\n";
constexpr const char* kNoLimitOf64KPages = "9223372036854710272\n";

std::string number(std::uint64_t value) {
  return std::to_string(value) + "\n";
}

void put_available(const FakeSystem& system, std::uint64_t bytes) {
  system.put("proc/meminfo", "MemTotal:       24684096 kB\nMemFree:        12345678 kB\nMemAvailable:   " +
                                 std::to_string(bytes / 1024) + " kB\nBuffers:           10984 kB\n");
}

void put_group_v2(const FakeSystem& system, const std::string& folder, const std::string& max,
                  const std::string& high, std::uint64_t current, std::uint64_t inactive_file = 0,
                  std::uint64_t active_file = 0) {
  system.put(folder + "/memory.max", max);
  system.put(folder + "/memory.high", high);
  system.put(folder + "/memory.current", number(current));
  system.put(folder + "/memory.stat", "anon 1\nfile 2\ninactive_anon 3\nactive_anon 4\ninactive_file " +
                                          number(inactive_file) + "active_file " + number(active_file) +
                                          "slab 5\n");
}

void put_group_v1(const FakeSystem& system, const std::string& folder, const std::string& limit,
                  std::uint64_t use, std::uint64_t inactive_file = 0, std::uint64_t active_file = 0,
                  const std::string& limit_above = kNoLimitV1) {
  system.put(folder + "/memory.limit_in_bytes", limit);
  system.put(folder + "/memory.usage_in_bytes", number(use));
  system.put(folder + "/memory.stat",
             "cache 1\ninactive_file 111111111\nactive_file 222222222\n"
             "hierarchical_memory_limit " +
                 limit_above + "total_cache 1\ntotal_inactive_file " + number(inactive_file) +
                 "total_active_file " + number(active_file));
}

void expect_free(const FakeSystem& system, std::uint64_t bytes, const std::string& source) {
  const FreeMemory free = find_free_memory(system.root());
  EXPECT_EQ(free.bytes, bytes);
  EXPECT_EQ(free.source, source);
}

TEST(FreeMemory, AGuessWhereNothingIsKnown) {
  const FakeSystem system;
  expect_free(system, kGuessedFreeBytes, "a guess");
  EXPECT_EQ(kGuessedFreeBytes, 1024 * kMebi);
  for (const char* line : {"", "MemAvailable", "MemAvailable:", "MemAvailable: kB", "MemAvailable: 5",
                           "MemAvailable: -5 kB", "MemAvailable: 5 MB",
                           "MemAvailable: 18446744073709551615 kB", "MemFree: 5 kB", " MemAvailable: 5 kB"}) {
    system.put("proc/meminfo", std::string(line) + "\n");
    expect_free(system, kGuessedFreeBytes, "a guess");
  }
}

TEST(FreeMemory, WhatTheMachineHas) {
  const FakeSystem system;
  put_available(system, 700 * kMebi);
  expect_free(system, 700 * kMebi, "MemAvailable");
  put_available(system, 0);
  expect_free(system, 0, "MemAvailable");
}

TEST(FreeMemory, Version2OwnGroup) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "0::/batch/job\n");
  const std::string folder = "sys/fs/cgroup/batch/job";
  put_group_v2(system, folder, "max\n", "max\n", 800 * kMebi);
  expect_free(system, 9000 * kMebi, "MemAvailable");
  put_group_v2(system, folder, number(1000 * kMebi), "max\n", 800 * kMebi);
  expect_free(system, 200 * kMebi, "cgroup memory.max");
  put_group_v2(system, folder, number(1000 * kMebi), number(900 * kMebi), 800 * kMebi);
  expect_free(system, 100 * kMebi, "cgroup memory.high");
  // Page cache can go.
  put_group_v2(system, folder, number(1000 * kMebi), number(900 * kMebi), 800 * kMebi, 300 * kMebi,
               20 * kMebi);
  expect_free(system, 420 * kMebi, "cgroup memory.high");
  // The files have no order in time: more cache than use, more use than the limit.
  put_group_v2(system, folder, number(1000 * kMebi), "max\n", 800 * kMebi, 700 * kMebi, 700 * kMebi);
  expect_free(system, 1000 * kMebi, "cgroup memory.max");
  put_group_v2(system, folder, number(1000 * kMebi), "max\n", 1001 * kMebi);
  expect_free(system, 0, "cgroup memory.max");
  put_group_v2(system, folder, "0\n", "max\n", 0);
  expect_free(system, 0, "cgroup memory.max");
  put_group_v2(system, folder, number(20'000 * kMebi), number(19'000 * kMebi), 5 * kMebi);
  expect_free(system, 9000 * kMebi, "MemAvailable");
}

TEST(FreeMemory, EveryGroupAboveCounts) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "0::/a/b/c\n");
  const std::vector<std::string> folders = {"sys/fs/cgroup/a/b/c", "sys/fs/cgroup/a/b", "sys/fs/cgroup/a",
                                            "sys/fs/cgroup"};
  for (const std::string& tight : folders) {
    for (const std::string& folder : folders)
      put_group_v2(system, folder, number((folder == tight ? 600 : 900) * kMebi), "max\n", 100 * kMebi);
    SCOPED_TRACE(tight);
    expect_free(system, 500 * kMebi, "cgroup memory.max");
  }
  // A group beside ours and one below do not.
  for (const std::string& folder : folders) put_group_v2(system, folder, "max\n", "max\n", 100 * kMebi);
  put_group_v2(system, "sys/fs/cgroup/a/x", number(kMebi), "max\n", 0);
  put_group_v2(system, "sys/fs/cgroup/a/b/c/d", number(kMebi), "max\n", 0);
  expect_free(system, 9000 * kMebi, "MemAvailable");
}

TEST(FreeMemory, InAContainerTheTopOfTheMountIsOurs) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  put_group_v2(system, "sys/fs/cgroup", number(600 * kMebi), "max\n", 100 * kMebi);
  put_group_v2(system, "sys/fs/evil", number(kMebi), "max\n", 0);
  put_group_v2(system, "evil", number(kMebi), "max\n", 0);
  for (const char* path : {"/", "/../../evil", "/../evil", "/..", "/docker/0123abcd", "/gone (deleted)", "",
                           "//", "/with:colon/and space"}) {
    system.put("proc/self/cgroup", "0::" + std::string(path) + "\n");
    SCOPED_TRACE(path);
    expect_free(system, 500 * kMebi, "cgroup memory.max");
  }
  for (const char* text : {"", "\n", "0\n", "0:\n", "nonsense\n", ":::::\n"}) {
    system.put("proc/self/cgroup", text);
    expect_free(system, 500 * kMebi, "cgroup memory.max");
  }
  system.remove("proc/self/cgroup");
  expect_free(system, 500 * kMebi, "cgroup memory.max");
}

TEST(FreeMemory, APathWithColonsAndBlanks) {
  const FakeSystem system;
  system.put("proc/self/cgroup", "0::/with:colon/and blank\n");
  put_group_v2(system, "sys/fs/cgroup/with:colon/and blank", number(600 * kMebi), "max\n", 100 * kMebi);
  expect_free(system, 500 * kMebi, "cgroup memory.max");
}

TEST(FreeMemory, Version1) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "9:name=systemd:/memory\n8:pids,cpu:/x\n4:hugetlb,memory,cpuset:/a/b\n");
  const std::string own = "sys/fs/cgroup/memory/a/b", above = "sys/fs/cgroup/memory/a",
                    top = "sys/fs/cgroup/memory";
  for (const char* none : {kNoLimitV1, kNoLimitOf64KPages}) {
    for (const std::string& folder : {own, above, top})
      put_group_v1(system, folder, none, 500 * kMebi, 0, 0, none);
    expect_free(system, 9000 * kMebi, "MemAvailable");
    system.remove("proc/meminfo");
    expect_free(system, kGuessedFreeBytes, "a guess");
    put_available(system, 9000 * kMebi);
  }
  put_group_v1(system, own, number(1000 * kMebi), 800 * kMebi, 300 * kMebi, 20 * kMebi);
  expect_free(system, 520 * kMebi, "cgroup memory.limit_in_bytes");
  put_group_v1(system, above, number(1000 * kMebi), 900 * kMebi, 100 * kMebi, 20 * kMebi);
  expect_free(system, 220 * kMebi, "cgroup memory.limit_in_bytes");
  put_group_v1(system, top, number(1000 * kMebi), 2000 * kMebi, 100 * kMebi, 20 * kMebi);
  expect_free(system, 0, "cgroup memory.limit_in_bytes");
}

TEST(FreeMemory, Version1TellsOfLimitsThatAContainerDoesNotSee) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "4:memory:/docker/0123abcd\n");
  put_group_v1(system, "sys/fs/cgroup/memory", kNoLimitV1, 300 * kMebi, 50 * kMebi, 0, number(700 * kMebi));
  expect_free(system, 450 * kMebi, "cgroup hierarchical_memory_limit");
}

TEST(FreeMemory, Version1InTheFolderOfVersion2) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "4:memory:/a\n");
  put_group_v1(system, "sys/fs/cgroup/a", number(1000 * kMebi), 800 * kMebi);
  expect_free(system, 200 * kMebi, "cgroup memory.limit_in_bytes");
}

TEST(FreeMemory, BothVersionsAtOnce) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "4:memory:/one\n1:name=systemd:/two\n0::/two\n");
  put_group_v1(system, "sys/fs/cgroup/memory/one", number(1000 * kMebi), 800 * kMebi);
  put_group_v2(system, "sys/fs/cgroup/unified/two", number(1000 * kMebi), "max\n", 700 * kMebi);
  put_group_v2(system, "sys/fs/cgroup/unified/one", number(kMebi), "max\n", 0);
  put_group_v1(system, "sys/fs/cgroup/memory/two", number(kMebi), 0);
  expect_free(system, 200 * kMebi, "cgroup memory.limit_in_bytes");
  put_group_v2(system, "sys/fs/cgroup/unified/two", number(1000 * kMebi), "max\n", 900 * kMebi);
  expect_free(system, 100 * kMebi, "cgroup memory.max");
}

TEST(FreeMemory, WhatIsAbsentOrMalformedIsPassedOver) {
  const FakeSystem system;
  put_available(system, 9000 * kMebi);
  system.put("proc/self/cgroup", "0::/job\n");
  const std::string folder = "sys/fs/cgroup/job/";
  for (const char* text : {"", "\n", "maximum\n", "-1\n", "12x\n", "18446744073709551616\n", "1 2\n"}) {
    put_group_v2(system, "sys/fs/cgroup/job", text, number(1000 * kMebi), 800 * kMebi);
    expect_free(system, 200 * kMebi, "cgroup memory.high");
    // A use that is not told: the limit stands, whole.
    system.put(folder + "memory.current", text);
    expect_free(system, 1000 * kMebi, "cgroup memory.high");
  }
  system.remove(folder + "memory.max");
  system.remove(folder + "memory.current");
  system.remove(folder + "memory.stat");
  expect_free(system, 1000 * kMebi, "cgroup memory.high");
  system.put(folder + "memory.current", number(800 * kMebi));
  expect_free(system, 200 * kMebi, "cgroup memory.high");
  system.put(folder + "memory.stat", "inactive_file\nactive_file many\n");
  expect_free(system, 200 * kMebi, "cgroup memory.high");
  system.put(folder + "memory.stat",
             "inactive_file 18446744073709551615\nactive_file 18446744073709551615\n");
  expect_free(system, 1000 * kMebi, "cgroup memory.high");
  // A folder in place of a file.
  system.remove(folder + "memory.high");
  system.put(folder + "memory.high/file", "");
  expect_free(system, 9000 * kMebi, "MemAvailable");
}

TEST(FreeMemory, OfThisMachine) {
  const FreeMemory free = find_free_memory();
  EXPECT_GT(free.bytes, 0u);
  EXPECT_LT(free.bytes, std::uint64_t{1} << 50);
  EXPECT_NE(free.source, "");
}

// Lowers a limit of this process for as long as it lives.
class LoweredLimit {
 public:
  LoweredLimit(int resource, std::uint64_t bytes) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    rlimit lowered = before_;
    lowered.rlim_cur = std::min<rlim_t>(bytes, before_.rlim_cur);
    ::setrlimit(resource_, &lowered);
  }
  ~LoweredLimit() { ::setrlimit(resource_, &before_); }
  LoweredLimit(const LoweredLimit&) = delete;
  LoweredLimit& operator=(const LoweredLimit&) = delete;

 private:
  int resource_;
  rlimit before_ = {};
};

TEST(FreeMemory, LimitsOfTheProcessCountForTheRealRootOnly) {
  const std::uint64_t bytes = find_free_memory().bytes / 2;
  const std::string status = read_system_file("/proc/self/status").text;
  const auto mapped = rest_of_line(status, "VmSize:");
  if (!mapped || std::stoull(std::string(*mapped)) > bytes / 2 / 1024)
    GTEST_SKIP() << "the process has more address space than the limit would let it (a sanitizer)";
  const FakeSystem system;
  put_available(system, 9'000'000 * kMebi);
  const std::pair<int, const char*> limits[] = {{RLIMIT_AS, "RLIMIT_AS"}, {RLIMIT_DATA, "RLIMIT_DATA"}};
  for (const auto& [resource, name] : limits) {
    const LoweredLimit lowered(resource, bytes);
    const FreeMemory free = find_free_memory();
    EXPECT_EQ(free.bytes, bytes);
    EXPECT_EQ(free.source, name);
    expect_free(system, 9'000'000 * kMebi, "MemAvailable");
  }
}

}  // namespace
}  // namespace weightpress::job
