#include "model/file.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::model {
namespace {

// Linux moves at most 2^31 - 4096 bytes a call; other systems refuse more than 2^31 - 1.
constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 30;
constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());

[[noreturn]] void throw_system_error(const char* action, const std::filesystem::path& path, int error) {
  ErrorCode code = ErrorCode::kIo;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = ErrorCode::kNoSpace;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  if (error == EEXIST) code = ErrorCode::kOutputExists;
  std::string advice;
  if (code == ErrorCode::kNoSpace) advice = "; make room there, or write elsewhere";
  if (error == EMFILE) advice = "; raise the limit (ulimit -n)";
  throw Error(code, printable(path.native()) + ": cannot " + action + ": " +
                        std::generic_category().message(error) + advice);
}

template <class Call>
auto retry_interrupted(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

File File::open_readonly(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe is refused below instead of being waited for. Regular files do not heed it.
  const int descriptor =
      retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) throw_system_error("open", path, errno);
  File file(descriptor, path);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) throw_system_error("examine", path, errno);
  if (S_ISDIR(status.st_mode)) throw_system_error("read", path, EISDIR);
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorCode::kIo, printable(path.native()) + ": is not a regular file");
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int descriptor =
      retry_interrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (descriptor < 0) throw_system_error("create", path, errno);
  return File(descriptor, path);
}

File File::open_readwrite(const std::filesystem::path& path) {
  const int descriptor =
      retry_interrupted([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); });
  if (descriptor < 0) throw_system_error("open", path, errno);
  File file(descriptor, path);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) throw_system_error("examine", path, errno);
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorCode::kIo, printable(path.native()) + ": is not a regular file");
  return file;
}

File::File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {
  opened_version_ = version();
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      opened_version_(std::move(other.opened_version_)),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(opened_version_, other.opened_version_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::pair<std::int64_t, std::int64_t> File::version() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("examine", path_, errno);
  return {status.st_size, status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

void File::check_unchanged() const {
  if (version() == opened_version_) return;
  throw Error(ErrorCode::kSourceChanged,
              printable(path_.native()) +
                  ": was written to while it was read; run the command again once it is left alone");
}

std::uint64_t File::size_bytes() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("examine", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_at(void* data, std::uint64_t bytes, std::uint64_t offset) const {
  if (offset > kMaxOffset || bytes > kMaxOffset - offset) throw_system_error("read", path_, EOVERFLOW);
  auto* out = static_cast<char*>(data);
  while (bytes > 0) {
    const std::uint64_t wanted = std::min(bytes, kMaxTransferBytes);
    const ssize_t got =
        retry_interrupted([&] { return ::pread(descriptor_, out, wanted, static_cast<off_t>(offset)); });
    if (got < 0) throw_system_error("read", path_, errno);
    if (got == 0) {
      throw Error(ErrorDetails{
          .code = ErrorCode::kSourceChanged,
          .message = printable(path_.native()) + ": was cut short: the file ends at byte " +
                     std::to_string(size_bytes()) + ", but bytes up to " + std::to_string(offset + bytes) +
                     " were expected; leave the file alone while it is read",
          .offset = offset});
    }
    const auto num_read = static_cast<std::uint64_t>(got);
    out += num_read;
    offset += num_read;
    bytes -= num_read;
  }
}

void File::will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (offset > kMaxOffset || bytes > kMaxOffset - offset) return;
  ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void File::write_at(const void* data, std::uint64_t bytes, std::uint64_t offset) {
  if (offset > kMaxOffset || bytes > kMaxOffset - offset) throw_system_error("write", path_, EFBIG);
  const auto* in = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::uint64_t wanted = std::min(bytes, kMaxTransferBytes);
    const ssize_t put =
        retry_interrupted([&] { return ::pwrite(descriptor_, in, wanted, static_cast<off_t>(offset)); });
    if (put < 0) throw_system_error("write", path_, errno);
    if (put == 0) throw_system_error("write", path_, EIO);
    const auto num_written = static_cast<std::uint64_t>(put);
    in += num_written;
    offset += num_written;
    bytes -= num_written;
  }
}

void File::truncate(std::uint64_t bytes) {
  if (bytes > kMaxOffset) throw_system_error("cut", path_, EFBIG);
  if (retry_interrupted([&] { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)); }) != 0)
    throw_system_error("cut", path_, errno);
}

void File::sync() {
  if (retry_interrupted([&] { return ::fsync(descriptor_); }) != 0) throw_system_error("sync", path_, errno);
}

void File::close() {
  // Never repeated: after an interrupted close Linux has released the descriptor all the same.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
    throw_system_error("close", path_, errno);
}

std::string read_whole_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const File file = File::open_readonly(path);
  const std::uint64_t bytes = file.size_bytes();
  if (bytes > max_bytes) {
    throw Error(ErrorCode::kCorruptFile, printable(path.native()) + ": is " + std::to_string(bytes) +
                                             " bytes long, more than the " + std::to_string(max_bytes) +
                                             " that such a file may have");
  }
  std::string content(bytes, '\0');
  file.read_at(content.data(), bytes, 0);
  return content;
}

void write_whole_file(const std::filesystem::path& path, std::string_view content) {
  File file = File::create(path);
  file.write_at(content.data(), content.size(), 0);
  file.sync();
  file.close();
}

void sync_folder(const std::filesystem::path& path) {
  const int descriptor =
      retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY); });
  if (descriptor < 0) throw_system_error("open", path, errno);
  const int error = retry_interrupted([&] { return ::fsync(descriptor); }) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL && error != ENOTSUP) throw_system_error("sync", path, error);
}

}  // namespace weightpress::model
