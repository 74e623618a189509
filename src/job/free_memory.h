// How much memory a run may take: what the default of --ram is a share of.
//
// A machine's free memory is not what a process may have: a container or a batch system sets a limit on its
// cgroup or on one of those above it, and a process that goes over that limit is killed, or slowed to a
// crawl, not refused. So each limit that can be seen is asked, and the least room counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace weightpress::job {

struct FreeMemory {
  std::uint64_t bytes;
  std::string source;  // what decided: "MemAvailable", "cgroup memory.max", "RLIMIT_AS", ...
};

/// What is returned, with the source "a guess", where nothing at all is known.
inline constexpr std::uint64_t kGuessedFreeBytes = std::uint64_t{1} << 30;

/// The least of
/// - MemAvailable of /proc/meminfo;
/// - for the process's cgroup and each one above it, limit - (use - page cache): memory.max and memory.high
///   of version 2, memory.limit_in_bytes and hierarchical_memory_limit of version 1. Page cache (active and
///   inactive files) goes when a program wants the memory. Where a limit is told and the use is not, the
///   whole limit counts;
/// - RLIMIT_AS and RLIMIT_DATA, whole, if `root` is "/".
/// 0 if a limit is reached already. Files that are absent or malformed are passed over.
///
/// `root` stands for "/" in every path. A figure of this moment: other processes take and give back.
FreeMemory find_free_memory(const std::filesystem::path& root = "/");

}  // namespace weightpress::job
