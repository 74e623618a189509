// Preloaded into the program: trouble at a chosen call. WP_TROUBLE holds rules, separated by newlines:
//
//   FUNCTION|PATH|NTH[+][@OFFSET]|ACTION
//
// FUNCTION  read (read, pread and their kin), write, sync (fsync and fdatasync), rename, unlink (of files and
//           folders, however they are removed)
// PATH      counts the calls on files whose path holds this text; of rename, the old path
// NTH       1 for the first such call; with a plus that one and all that follow
// OFFSET    counts only the calls that reach beyond this byte of the file
// ACTION    kill and stop send the process SIGKILL and SIGSTOP before the call is made, killafter when it was
//           made, int and term send SIGINT and SIGTERM before; eio, enospc, erofs make the call fail; half
//           lets a write put down half of what it was given and then kills; eof makes a read find nothing
//
// With WP_TROUBLE_WHEN rules hold only once that path exists. WP_TROUBLE_COUNT names a file to which the
// calls counted by each rule are written at the end, one number a line.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

struct Rule {
  std::string function, path, action;
  std::uint64_t nth = 0, beyond = 0;
  bool and_later = false;
  std::atomic<std::uint64_t> calls = 0;
};

/// The text up to the separator, which is taken off with it.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

struct Rules {
  std::vector<Rule> rules;

  Rules() {
    const char* text = std::getenv("WP_TROUBLE");
    if (text == nullptr) return;
    const std::string_view all = text;
    std::vector<std::string_view> lines;
    for (std::string_view rest = all; !rest.empty();) lines.push_back(take(rest, '\n'));
    rules = std::vector<Rule>(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string_view rest = lines[i];
      Rule& rule = rules[i];
      rule.function = take(rest, '|');
      rule.path = take(rest, '|');
      const std::string nth(take(rest, '|'));
      rule.action = rest;
      char* end = nullptr;
      rule.nth = std::strtoull(nth.c_str(), &end, 10);
      if (*end == '+') rule.and_later = true, ++end;
      if (*end == '@') rule.beyond = std::strtoull(end + 1, nullptr, 10);
    }
  }

  ~Rules() { write_counts(); }

  void write_counts() const {
    const char* path = std::getenv("WP_TROUBLE_COUNT");
    if (path == nullptr) return;
    if (std::FILE* file = std::fopen(path, "w")) {
      for (const Rule& rule : rules)
        std::fprintf(file, "%llu\n", static_cast<unsigned long long>(rule.calls.load()));
      std::fclose(file);
    }
  }
};

Rules& all_rules() {
  static Rules rules;
  return rules;
}

/// Read before main(): a write of a library's own initialisation may come first all the same.
[[maybe_unused]] const Rules& kReadEarly = all_rules();

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string();
}

/// A name that is relative to a folder's descriptor, as a path.
std::string path_in(int folder, const char* name) {
  if (name[0] == '/') return name;
  if (folder != AT_FDCWD) return path_of(folder) + "/" + name;
  char here[4096];
  return ::getcwd(here, sizeof here) != nullptr ? std::string(here) + "/" + name : std::string(name);
}

/// The action of the rule that this call meets, or nothing.
std::string met(std::string_view function, const std::string& path, std::uint64_t end_offset) {
  Rules& all = all_rules();
  if (all.rules.empty()) return {};
  const char* when = std::getenv("WP_TROUBLE_WHEN");
  std::string action;
  for (Rule& rule : all.rules) {
    if (rule.function != function || path.find(rule.path) == std::string::npos || end_offset < rule.beyond)
      continue;
    if (when != nullptr && ::access(when, F_OK) != 0) continue;
    const std::uint64_t call = ++rule.calls;
    if (call == rule.nth || (rule.and_later && call > rule.nth)) action = rule.action;
  }
  return action;
}

/// What can be done before the call. Returns whether the call is to fail with errno as it is now.
bool act(const std::string& action) {
  if (action.empty()) return false;
  if (action == "kill") ::kill(::getpid(), SIGKILL);
  if (action == "stop") ::kill(::getpid(), SIGSTOP);
  if (action == "int") ::kill(::getpid(), SIGINT);
  if (action == "term") ::kill(::getpid(), SIGTERM);
  errno = action == "eio" ? EIO : action == "enospc" ? ENOSPC : action == "erofs" ? EROFS : 0;
  return errno != 0;
}

void act_after(const std::string& action) {
  const int error = errno;
  if (action == "killafter") ::kill(::getpid(), SIGKILL);
  errno = error;
}

template <class Call>
ssize_t reading(int descriptor, std::uint64_t end_offset, const Call& call) {
  const std::string action = met("read", path_of(descriptor), end_offset);
  if (act(action)) return -1;
  if (action == "eof") return 0;
  const ssize_t result = call();
  act_after(action);
  return result;
}

/// put_down(n) makes the call with the first n bytes; nothing: all.
template <class Call>
ssize_t writing(int descriptor, std::uint64_t end_offset, std::size_t bytes, const Call& put_down) {
  const std::string action = met("write", path_of(descriptor), end_offset);
  if (act(action)) return -1;
  if (action == "half") {
    put_down(bytes / 2);
    ::kill(::getpid(), SIGKILL);
  }
  const ssize_t result = put_down(bytes);
  act_after(action);
  return result;
}

std::uint64_t position_of(int descriptor) {
  const int error = errno;
  off_t at = -1;
  if ((::fcntl(descriptor, F_GETFL) & O_APPEND) != 0) {
    struct stat status{};
    if (::fstat(descriptor, &status) == 0) at = status.st_size;
  } else {
    at = ::lseek(descriptor, 0, SEEK_CUR);
  }
  errno = error;
  return at < 0 ? 0 : static_cast<std::uint64_t>(at);
}

/// Only where a rule asks for it: the descriptor may be any.
std::uint64_t end_of(int descriptor, std::size_t bytes) {
  return all_rules().rules.empty() ? bytes : position_of(descriptor) + bytes;
}

std::size_t bytes_of(const struct iovec* pieces, int count) {
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

template <class Call>
int changing(std::string_view function, const std::string& path, const Call& call) {
  const std::string action = met(function, path, UINT64_MAX);
  if (act(action)) return -1;
  const int result = call();
  act_after(action);
  return result;
}

}  // namespace

extern "C" {

ssize_t read(int descriptor, void* data, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  return reading(descriptor, end_of(descriptor, bytes), [&] { return real(descriptor, data, bytes); });
}

ssize_t pread(int descriptor, void* data, size_t bytes, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return reading(descriptor, static_cast<std::uint64_t>(offset) + bytes,
                 [&] { return real(descriptor, data, bytes, offset); });
}

ssize_t preadv(int descriptor, const struct iovec* pieces, int count, off_t offset) {
  static const auto real = next<ssize_t (*)(int, const struct iovec*, int, off_t)>("preadv");
  return reading(descriptor, static_cast<std::uint64_t>(offset) + bytes_of(pieces, count),
                 [&] { return real(descriptor, pieces, count, offset); });
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  return writing(descriptor, end_of(descriptor, bytes), bytes,
                 [&](size_t part) { return real(descriptor, data, part); });
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return writing(descriptor, static_cast<std::uint64_t>(offset) + bytes, bytes,
                 [&](size_t part) { return real(descriptor, data, part, offset); });
}

ssize_t writev(int descriptor, const struct iovec* pieces, int count) {
  static const auto real = next<ssize_t (*)(int, const struct iovec*, int)>("writev");
  const size_t bytes = bytes_of(pieces, count);
  return writing(descriptor, end_of(descriptor, bytes), bytes,
                 [&](size_t part) { return real(descriptor, pieces, part == bytes ? count : count / 2); });
}

ssize_t pwritev(int descriptor, const struct iovec* pieces, int count, off_t offset) {
  static const auto real = next<ssize_t (*)(int, const struct iovec*, int, off_t)>("pwritev");
  const size_t bytes = bytes_of(pieces, count);
  return writing(descriptor, static_cast<std::uint64_t>(offset) + bytes, bytes, [&](size_t part) {
    return real(descriptor, pieces, part == bytes ? count : count / 2, offset);
  });
}

int fsync(int descriptor) {
  static const auto real = next<int (*)(int)>("fsync");
  return changing("sync", path_of(descriptor), [&] { return real(descriptor); });
}

int fdatasync(int descriptor) {
  static const auto real = next<int (*)(int)>("fdatasync");
  return changing("sync", path_of(descriptor), [&] { return real(descriptor); });
}

int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return changing("rename", path_in(AT_FDCWD, from), [&] { return real(from, to); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  static const auto real = next<int (*)(int, const char*, int, const char*)>("renameat");
  return changing("rename", path_in(from_folder, from),
                  [&] { return real(from_folder, from, to_folder, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  static const auto real = next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return changing("rename", path_in(from_folder, from),
                  [&] { return real(from_folder, from, to_folder, to, flags); });
}

int unlink(const char* path) {
  static const auto real = next<int (*)(const char*)>("unlink");
  return changing("unlink", path_in(AT_FDCWD, path), [&] { return real(path); });
}

int remove(const char* path) {
  static const auto real = next<int (*)(const char*)>("remove");
  return changing("unlink", path_in(AT_FDCWD, path), [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  static const auto real = next<int (*)(int, const char*, int)>("unlinkat");
  return changing("unlink", path_in(folder, path), [&] { return real(folder, path, flags); });
}

void _exit(int code) {
  static const auto real = next<void (*)(int)>("_exit");
  all_rules().write_counts();
  real(code);
  __builtin_unreachable();
}

// The names that 64-bit offsets give the same calls.
ssize_t pread64(int descriptor, void* data, size_t bytes, off64_t offset) {
  return pread(descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  return pwrite(descriptor, data, bytes, offset);
}

}  // extern "C"
