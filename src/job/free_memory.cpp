// The files of version 1 and 2 are described in the kernel's Documentation/admin-guide, cgroup-v1/memory.rst
// and cgroup-v2.rst.
#include "job/free_memory.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include <sys/resource.h>

#include "job/system_file.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

// Version 1 has no word for "no limit": it tells the largest number of whole pages in 63 bits, which depends
// on the size of a page. A limit from here on binds nobody.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

// One version's names of the same things.
struct CgroupVersion {
  std::string_view controller;               // as /proc/self/cgroup has it
  std::span<const std::string_view> mounts;  // where its tree usually is; all are tried
  std::span<const std::string_view> limits;  // files
  std::string_view use;                      // file
  // Lines of memory.stat, all over the group and those below it:
  std::string_view inactive_file, active_file;
  std::string_view limit_of_ancestors;  // the least of all above, visible or not; empty: no such line
};

constexpr std::string_view kMountsV1[] = {"sys/fs/cgroup/memory", "sys/fs/cgroup"};
constexpr std::string_view kLimitsV1[] = {"memory.limit_in_bytes"};
constexpr CgroupVersion kVersion1 = {"memory",
                                     kMountsV1,
                                     kLimitsV1,
                                     "memory.usage_in_bytes",
                                     "total_inactive_file ",
                                     "total_active_file ",
                                     "hierarchical_memory_limit "};

// The second is where systemd's hybrid set-up has it.
constexpr std::string_view kMountsV2[] = {"sys/fs/cgroup", "sys/fs/cgroup/unified"};
constexpr std::string_view kLimitsV2[] = {"memory.max", "memory.high"};
constexpr CgroupVersion kVersion2 = {
    "", kMountsV2, kLimitsV2, "memory.current", "inactive_file ", "active_file ", ""};

class Least {
 public:
  void consider(std::uint64_t bytes, std::string source) {
    if (!found_ || bytes < found_->bytes) found_ = {bytes, std::move(source)};
  }
  const std::optional<FreeMemory>& found() const { return found_; }

 private:
  std::optional<FreeMemory> found_;
};

std::optional<std::uint64_t> number_of_line(std::string_view text, std::string_view key) {
  const auto rest = rest_of_line(text, key);
  return rest ? number_in(*rest) : std::nullopt;
}

void consider_meminfo(const fs::path& root, Least& least) {
  const SystemFile meminfo = read_system_file(root / "proc/meminfo");
  auto rest = rest_of_line(meminfo.text, "MemAvailable:");
  constexpr std::string_view kUnit = "kB";  // always, and it means KiB
  if (!rest || !rest->ends_with(kUnit)) return;
  rest->remove_suffix(kUnit.size());
  const auto kib = number_in(*rest);
  if (kib && *kib < kNoLimit / 1024) least.consider(*kib * 1024, "MemAvailable");
}

void consider_group(const fs::path& group, const CgroupVersion& version, Least& least) {
  const std::string stat = read_system_file(group / "memory.stat").text;
  // What cannot go: the use without page cache. Each figure was taken at another moment, so cache may exceed
  // use.
  std::uint64_t held = number_in(read_system_file(group / version.use).text).value_or(0);
  for (const std::string_view key : {version.inactive_file, version.active_file})
    held -= std::min(held, number_of_line(stat, key).value_or(0));
  const auto consider_limit = [&](std::optional<std::uint64_t> limit, std::string_view name) {
    if (limit && *limit < kNoLimit)
      least.consider(*limit - std::min(*limit, held), "cgroup " + std::string(trimmed(name)));
  };
  for (const std::string_view name : version.limits)
    consider_limit(number_in(read_system_file(group / name).text), name);
  if (!version.limit_of_ancestors.empty())
    consider_limit(number_of_line(stat, version.limit_of_ancestors), version.limit_of_ancestors);
}

// `name` is the group's path as /proc/self/cgroup has it. In a container that may be a path of the machine
// outside, or one with ".." in front: neither is below our mount, whose top then is the process's own group.
void consider_group_and_ancestors(const fs::path& root, std::string_view name, const CgroupVersion& version,
                                  Least& least) {
  fs::path own = fs::path(name).relative_path();
  if (std::find(own.begin(), own.end(), "..") != own.end()) own.clear();
  for (const std::string_view mount : version.mounts) {
    for (fs::path group = own; !group.empty(); group = group.parent_path())
      consider_group(root / mount / group, version, least);
    consider_group(root / mount, version, least);
  }
}

// The path of the line "number:controllers:path" in /proc/self/cgroup that is `version`'s; the top if none
// is.
std::string_view own_group(std::string_view text, const CgroupVersion& version) {
  const std::string wanted = "," + std::string(version.controller) + ",";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (controllers.find(wanted) != controllers.npos) return line.substr(second + 1);
  }
  return "/";
}

void consider_own_limits(Least& least) {
  struct Limit {
    int resource;
    const char* name;
  };
  for (const Limit& limit : {Limit{RLIMIT_AS, "RLIMIT_AS"}, Limit{RLIMIT_DATA, "RLIMIT_DATA"}}) {
    rlimit value = {};
    if (::getrlimit(limit.resource, &value) == 0 && value.rlim_cur != RLIM_INFINITY)
      least.consider(value.rlim_cur, limit.name);
  }
}

}  // namespace

FreeMemory find_free_memory(const fs::path& root) {
  Least least;
  consider_meminfo(root, least);
  const std::string groups = read_system_file(root / "proc/self/cgroup").text;
  for (const CgroupVersion* version : {&kVersion2, &kVersion1})
    consider_group_and_ancestors(root, own_group(groups, *version), *version, least);
  if (root == "/") consider_own_limits(least);
  return least.found().value_or(FreeMemory{kGuessedFreeBytes, "a guess"});
}

}  // namespace weightpress::job
