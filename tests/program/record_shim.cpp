// Preloaded into the program: writes every operation that changes what lies below a folder to a log, in the
// order in which they took effect, for test_crash_replay.py. WP_RECORD_ROOT: the folder, without links in its
// path. WP_RECORD_LOG: the log, outside of it. WP_RECORD_DELAY_MS: how long each write waits (not at all).
//
// A record is a line of words; paths, names and values are hexadecimal, an inode is DEVICE:NUMBER:
//   create PATH INODE     mkdir PATH INODE     symlink PATH INODE TARGET     link INODE PATH
//   rename FROM TO FLAGS  remove PATH          setxattr INODE NAME VALUE     removexattr INODE NAME
//   write INODE OFFSET BYTES, and then that many bytes
//   truncate INODE BYTES  allocate INODE MODE OFFSET BYTES                   sync INODE    syncall
// Only calls that succeeded are recorded. What is not seen here (stdio, mappings, direct system calls) shows
// as a difference between the log and the disk, for which the test looks.
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace {

// Held over a call and its record: else the log could have two of them in the wrong order.
std::mutex mutex;

/// What is done for a record must not change the errno that the program sees.
class KeepErrno {
 public:
  KeepErrno() = default;
  ~KeepErrno() { errno = value_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int value_ = errno;
};

template <class Result, class... Arguments>
Result next(const char* name, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(::dlsym(RTLD_NEXT, name))(arguments...);
}

/// A log with a gap would prove nothing.
[[noreturn]] void give_up(const char* what) {
  ::perror(what);
  std::abort();
}

const std::string& root() {
  static const std::string path = [] {
    const char* value = std::getenv("WP_RECORD_ROOT");
    return std::string(value == nullptr ? "" : value);
  }();
  return path;
}

bool is_below_root(std::string_view path) {
  return !root().empty() && path.starts_with(root()) &&
         (path.size() == root().size() || path[root().size()] == '/');
}

void append(const std::string& record) {
  const KeepErrno keep;
  static const int log = [] {
    const char* path = std::getenv("WP_RECORD_LOG");
    if (path == nullptr) give_up("WP_RECORD_LOG is not set");
    return next<int>("open", path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode_t{0666});
  }();
  for (std::size_t done = 0; done < record.size();) {
    const auto put = next<ssize_t>("write", log, static_cast<const void*>(record.data() + done),
                                   size_t{record.size() - done});
    if (put <= 0) give_up("the log cannot be written");
    done += static_cast<std::size_t>(put);
  }
}

std::string hex(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    result += kDigits[byte / 16];
    result += kDigits[byte % 16];
  }
  return result.empty() ? "-" : result;
}

template <class... Words>
std::string line(std::string operation, const Words&... words) {
  ((operation += ' ' + words), ...);
  return operation + '\n';
}

std::string number(long long value) {
  return std::to_string(value);
}

std::string inode(const struct stat& status) {
  return std::to_string(status.st_dev) + ':' + std::to_string(status.st_ino);
}

/// The inode of a path that the call has just made.
std::string inode_at(const std::string& path) {
  const KeepErrno keep;
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) give_up("what was made cannot be examined");
  return inode(status);
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const ssize_t bytes =
      ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
  return bytes < 0 ? std::string() : std::string(path, static_cast<std::size_t>(bytes));
}

/// The path with every link in the folders above its last component followed; empty if there is no such
/// folder.
std::string resolve(int folder, std::string path) {
  const KeepErrno keep;
  if (root().empty() || path.empty()) return {};
  if (path[0] != '/')
    path = (folder == AT_FDCWD ? "." : "/proc/self/fd/" + std::to_string(folder)) + "/" + path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  char* const above = ::realpath(path.substr(0, slash + 1).c_str(), nullptr);
  if (above == nullptr) return {};
  std::string result = above;
  ::free(above);
  return (result == "/" ? "" : result) + path.substr(slash);
}

/// The inode of a file or folder below the root, empty for every other descriptor. No lock is taken for
/// those: a pipe may block, and a signal handler may write to one.
std::string watched(int descriptor) {
  const KeepErrno keep;
  struct stat status{};
  if (root().empty() || ::fstat(descriptor, &status) != 0) return {};
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return {};
  return is_below_root(path_of(descriptor)) ? inode(status) : std::string();
}

/// The same for a path, of which links are followed.
std::string watched(const char* path) {
  const KeepErrno keep;
  struct stat status{};
  char* const real = root().empty() ? nullptr : ::realpath(path, nullptr);
  if (real == nullptr) return {};
  const bool below = is_below_root(real) && ::stat(real, &status) == 0;
  ::free(real);
  return below ? inode(status) : std::string();
}

/// Runs the call, and records the line that make_record() gives if it returned 0.
template <class Call, class MakeRecord>
int recorded(bool relevant, Call call, MakeRecord make_record) {
  if (!relevant) return call();
  const std::lock_guard lock(mutex);
  const int result = call();
  if (result == 0) append(make_record());
  return result;
}

template <class Call>
int open_recorded(int folder, const char* path, int flags, Call call) {
  const bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  if (!unnamed && (flags & (O_CREAT | O_TRUNC)) == 0) return call();
  if (!is_below_root(resolve(folder, path))) return call();
  const std::lock_guard lock(mutex);
  struct stat status{};
  bool existed = false;
  {
    const KeepErrno keep;
    existed = ::fstatat(folder, path, &status, 0) == 0;
  }
  const int descriptor = call();
  const std::string made = descriptor < 0 ? "" : watched(descriptor);
  if (made.empty()) return descriptor;
  if (unnamed) {
    append(line("create", hex(""), made));
  } else if (!existed) {
    append(line("create", hex(path_of(descriptor)), made));
  } else if ((flags & O_TRUNC) != 0) {
    append(line("truncate", made, number(0)));
  }
  return descriptor;
}

/// Records bytes that are in the file now, which ends the call that put them there.
void append_write(int descriptor, const std::string& file, off_t offset, std::string_view bytes) {
  append(line("write", file, number(offset), std::to_string(bytes.size())).append(bytes));
  const KeepErrno keep;
  if ((::fcntl(descriptor, F_GETFL) & O_DSYNC) != 0) append(line("sync", file));
}

/// offset: nullptr if the call writes at the file's position.
/// WP_RECORD_DELAY_MS: so long each write waits, for runs that are to last a while.
void slow_down() {
  static const long milliseconds = [] {
    const char* value = std::getenv("WP_RECORD_DELAY_MS");
    return value == nullptr ? 0L : std::strtol(value, nullptr, 10);
  }();
  if (milliseconds > 0) ::usleep(static_cast<useconds_t>(milliseconds * 1000));
}

template <class Call>
ssize_t write_recorded(int descriptor, const off_t* offset, const iovec* parts, int num_parts, Call call) {
  slow_down();
  const std::string file = watched(descriptor);
  if (file.empty()) return call();
  const std::lock_guard lock(mutex);
  const ssize_t written = call();
  if (written <= 0) return written;
  const KeepErrno keep;
  off_t begin = offset == nullptr ? ::lseek(descriptor, 0, SEEK_CUR) - written : *offset;
  if ((::fcntl(descriptor, F_GETFL) & O_APPEND) != 0) {  // Linux appends whatever the offset says
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) give_up("a file cannot be examined");
    begin = status.st_size - written;
  }
  std::string bytes;
  for (int i = 0; i < num_parts && bytes.size() < static_cast<std::size_t>(written); ++i) {
    const std::size_t missing = static_cast<std::size_t>(written) - bytes.size();
    bytes.append(static_cast<const char*>(parts[i].iov_base), std::min(missing, parts[i].iov_len));
  }
  append_write(descriptor, file, begin, bytes);
  return written;
}

/// For copies inside the kernel, the bytes of which only the file can tell.
template <class Call>
ssize_t copy_recorded(int descriptor, const off64_t* offset, Call call) {
  const std::string file = watched(descriptor);
  if (file.empty()) return call();
  const std::lock_guard lock(mutex);
  const off64_t before = offset == nullptr ? 0 : *offset;
  const ssize_t copied = call();
  if (copied <= 0) return copied;
  const KeepErrno keep;
  const off64_t begin = offset == nullptr ? ::lseek(descriptor, 0, SEEK_CUR) - copied : before;
  std::string bytes(static_cast<std::size_t>(copied), '\0');
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const int readable = next<int>("open", path.c_str(), O_RDONLY | O_CLOEXEC, mode_t{0});
  if (readable < 0 || ::pread(readable, bytes.data(), bytes.size(), begin) != copied)
    give_up("a copy cannot be read back");
  ::close(readable);
  append_write(descriptor, file, begin, bytes);
  return copied;
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

template <class Call>
int rename_recorded(int from_folder, const char* from, int to_folder, const char* to, unsigned flags,
                    Call call) {
  const std::string before = resolve(from_folder, from);
  const std::string after = resolve(to_folder, to);
  return recorded(is_below_root(before) || is_below_root(after), call,
                  [&] { return line("rename", hex(before), hex(after), number(flags)); });
}

template <class Call>
int remove_recorded(int folder, const char* path, Call call) {
  const std::string name = resolve(folder, path);
  return recorded(is_below_root(name), call, [&] { return line("remove", hex(name)); });
}

template <class Call>
int mkdir_recorded(int folder, const char* path, Call call) {
  const std::string name = resolve(folder, path);
  return recorded(is_below_root(name), call, [&] { return line("mkdir", hex(name), inode_at(name)); });
}

template <class Call>
int symlink_recorded(const char* target, int folder, const char* path, Call call) {
  const std::string name = resolve(folder, path);
  return recorded(is_below_root(name), call,
                  [&] { return line("symlink", hex(name), inode_at(name), hex(target)); });
}

template <class Call>
int link_recorded(int folder, const char* path, Call call) {
  const std::string name = resolve(folder, path);
  return recorded(is_below_root(name), call, [&] { return line("link", inode_at(name), hex(name)); });
}

template <class Call>
int sync_recorded(int descriptor, Call call) {
  const std::string file = watched(descriptor);
  return recorded(!file.empty(), call, [&] { return line("sync", file); });
}

template <class Call>
int truncate_recorded(const std::string& file, off_t bytes, Call call) {
  return recorded(!file.empty(), call, [&] { return line("truncate", file, number(bytes)); });
}

template <class Call>
int allocate_recorded(int descriptor, int mode, off_t offset, off_t bytes, Call call) {
  const std::string file = watched(descriptor);
  return recorded(!file.empty(), call,
                  [&] { return line("allocate", file, number(mode), number(offset), number(bytes)); });
}

template <class Call>
int setxattr_recorded(const std::string& file, const char* name, const void* value, size_t bytes, Call call) {
  return recorded(!file.empty(), call, [&] {
    return line("setxattr", file, hex(name), hex({static_cast<const char*>(value), bytes}));
  });
}

template <class Call>
int removexattr_recorded(const std::string& file, const char* name, Call call) {
  return recorded(!file.empty(), call, [&] { return line("removexattr", file, hex(name)); });
}

}  // namespace

extern "C" {

// On the 64-bit systems for which the program is made, the functions with 64 in their names are the same.

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_recorded(AT_FDCWD, path, flags, [&] { return next<int>("open", path, flags, mode); });
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_recorded(AT_FDCWD, path, flags, [&] { return next<int>("open64", path, flags, mode); });
}

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_recorded(folder, path, flags, [&] { return next<int>("openat", folder, path, flags, mode); });
}

int openat64(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return open_recorded(folder, path, flags, [&] { return next<int>("openat64", folder, path, flags, mode); });
}

int creat(const char* path, mode_t mode) {
  return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int creat64(const char* path, mode_t mode) {
  return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  const iovec part{const_cast<void*>(data), bytes};
  return write_recorded(descriptor, nullptr, &part, 1,
                        [&] { return next<ssize_t>("write", descriptor, data, bytes); });
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  const iovec part{const_cast<void*>(data), bytes};
  return write_recorded(descriptor, &offset, &part, 1,
                        [&] { return next<ssize_t>("pwrite", descriptor, data, bytes, offset); });
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  return pwrite(descriptor, data, bytes, offset);
}

ssize_t writev(int descriptor, const iovec* parts, int num_parts) {
  return write_recorded(descriptor, nullptr, parts, num_parts,
                        [&] { return next<ssize_t>("writev", descriptor, parts, num_parts); });
}

ssize_t pwritev(int descriptor, const iovec* parts, int num_parts, off_t offset) {
  return write_recorded(descriptor, &offset, parts, num_parts,
                        [&] { return next<ssize_t>("pwritev", descriptor, parts, num_parts, offset); });
}

ssize_t pwritev64(int descriptor, const iovec* parts, int num_parts, off64_t offset) {
  return pwritev(descriptor, parts, num_parts, offset);
}

ssize_t pwritev2(int descriptor, const iovec* parts, int num_parts, off_t offset, int flags) {
  return write_recorded(descriptor, offset == -1 ? nullptr : &offset, parts, num_parts, [&] {
    return next<ssize_t>("pwritev2", descriptor, parts, num_parts, offset, flags);
  });
}

ssize_t pwritev64v2(int descriptor, const iovec* parts, int num_parts, off64_t offset, int flags) {
  return pwritev2(descriptor, parts, num_parts, offset, flags);
}

ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t bytes,
                        unsigned flags) {
  return copy_recorded(to, to_offset, [&] {
    return next<ssize_t>("copy_file_range", from, from_offset, to, to_offset, bytes, flags);
  });
}

ssize_t sendfile(int to, int from, off_t* offset, size_t bytes) {
  return copy_recorded(to, nullptr, [&] { return next<ssize_t>("sendfile", to, from, offset, bytes); });
}

ssize_t sendfile64(int to, int from, off64_t* offset, size_t bytes) {
  return sendfile(to, from, offset, bytes);
}

int ftruncate(int descriptor, off_t bytes) {
  return truncate_recorded(watched(descriptor), bytes,
                           [&] { return next<int>("ftruncate", descriptor, bytes); });
}

int ftruncate64(int descriptor, off64_t bytes) {
  return ftruncate(descriptor, bytes);
}

int truncate(const char* path, off_t bytes) {
  return truncate_recorded(watched(path), bytes, [&] { return next<int>("truncate", path, bytes); });
}

int truncate64(const char* path, off64_t bytes) {
  return truncate(path, bytes);
}

int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  return allocate_recorded(descriptor, mode, offset, bytes,
                           [&] { return next<int>("fallocate", descriptor, mode, offset, bytes); });
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t bytes) {
  return fallocate(descriptor, mode, offset, bytes);
}

int posix_fallocate(int descriptor, off_t offset, off_t bytes) {
  return allocate_recorded(descriptor, 0, offset, bytes,
                           [&] { return next<int>("posix_fallocate", descriptor, offset, bytes); });
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t bytes) {
  return posix_fallocate(descriptor, offset, bytes);
}

// sync_file_range() is left out: it promises nothing about a file that was extended.

int fsync(int descriptor) {
  return sync_recorded(descriptor, [&] { return next<int>("fsync", descriptor); });
}

int fdatasync(int descriptor) {
  return sync_recorded(descriptor, [&] { return next<int>("fdatasync", descriptor); });
}

int syncfs(int descriptor) {
  return recorded(
      !watched(descriptor).empty(), [&] { return next<int>("syncfs", descriptor); },
      [] { return line("syncall"); });
}

void sync() {
  const auto call = [] {
    next<void>("sync");
    return 0;
  };
  recorded(!root().empty(), call, [] { return line("syncall"); });
}

int rename(const char* from, const char* to) {
  return rename_recorded(AT_FDCWD, from, AT_FDCWD, to, 0, [&] { return next<int>("rename", from, to); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return rename_recorded(from_folder, from, to_folder, to, 0,
                         [&] { return next<int>("renameat", from_folder, from, to_folder, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return rename_recorded(from_folder, from, to_folder, to, flags,
                         [&] { return next<int>("renameat2", from_folder, from, to_folder, to, flags); });
}

int link(const char* from, const char* to) {
  return link_recorded(AT_FDCWD, to, [&] { return next<int>("link", from, to); });
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  return link_recorded(to_folder, to,
                       [&] { return next<int>("linkat", from_folder, from, to_folder, to, flags); });
}

int symlink(const char* target, const char* path) {
  return symlink_recorded(target, AT_FDCWD, path, [&] { return next<int>("symlink", target, path); });
}

int symlinkat(const char* target, int folder, const char* path) {
  return symlink_recorded(target, folder, path, [&] { return next<int>("symlinkat", target, folder, path); });
}

int unlink(const char* path) {
  return remove_recorded(AT_FDCWD, path, [&] { return next<int>("unlink", path); });
}

int unlinkat(int folder, const char* path, int flags) {
  return remove_recorded(folder, path, [&] { return next<int>("unlinkat", folder, path, flags); });
}

int remove(const char* path) {
  return remove_recorded(AT_FDCWD, path, [&] { return next<int>("remove", path); });
}

int rmdir(const char* path) {
  return remove_recorded(AT_FDCWD, path, [&] { return next<int>("rmdir", path); });
}

int mkdir(const char* path, mode_t mode) {
  return mkdir_recorded(AT_FDCWD, path, [&] { return next<int>("mkdir", path, mode); });
}

int mkdirat(int folder, const char* path, mode_t mode) {
  return mkdir_recorded(folder, path, [&] { return next<int>("mkdirat", folder, path, mode); });
}

int setxattr(const char* path, const char* name, const void* value, size_t bytes, int flags) {
  return setxattr_recorded(watched(path), name, value, bytes,
                           [&] { return next<int>("setxattr", path, name, value, bytes, flags); });
}

int fsetxattr(int descriptor, const char* name, const void* value, size_t bytes, int flags) {
  return setxattr_recorded(watched(descriptor), name, value, bytes,
                           [&] { return next<int>("fsetxattr", descriptor, name, value, bytes, flags); });
}

int removexattr(const char* path, const char* name) {
  return removexattr_recorded(watched(path), name, [&] { return next<int>("removexattr", path, name); });
}

int fremovexattr(int descriptor, const char* name) {
  return removexattr_recorded(watched(descriptor), name,
                              [&] { return next<int>("fremovexattr", descriptor, name); });
}

}  // extern "C"
