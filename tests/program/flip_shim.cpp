// Preloaded into the program: a disk that stores a wrong bit. Flips one bit of what the Nth write into a
// .safetensors file puts down; what is read back is what was stored. WP_FLIP_AT=N:K, the bit being K modulo
// the number of bits written. Writes how many such calls there were to the file WP_FLIP_COUNT.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace {

std::atomic<std::uint64_t> calls = 0;

bool is_model_file(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 && std::string(path, static_cast<std::size_t>(length)).ends_with(".safetensors");
}

struct Counter {
  ~Counter() {
    const char* path = std::getenv("WP_FLIP_COUNT");
    if (path == nullptr) return;
    if (std::FILE* file = std::fopen(path, "w")) {
      std::fprintf(file, "%llu", static_cast<unsigned long long>(calls.load()));
      std::fclose(file);
    }
  }
} counter;

}  // namespace

extern "C" ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  using Function = ssize_t (*)(int, const void*, size_t, off_t);
  static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "pwrite"));
  const char* at = std::getenv("WP_FLIP_AT");
  if (bytes == 0 || !is_model_file(descriptor)) return next(descriptor, data, bytes, offset);
  const std::uint64_t call = ++calls;
  if (at == nullptr) return next(descriptor, data, bytes, offset);
  char* rest = nullptr;
  const std::uint64_t wanted = std::strtoull(at, &rest, 10);
  if (call != wanted) return next(descriptor, data, bytes, offset);
  const std::uint64_t bit = std::strtoull(rest + 1, nullptr, 10) % (8 * bytes);
  std::vector<unsigned char> wrong(static_cast<const unsigned char*>(data),
                                   static_cast<const unsigned char*>(data) + bytes);
  wrong[bit / 8] = static_cast<unsigned char>(wrong[bit / 8] ^ (1u << bit % 8));
  return next(descriptor, wrong.data(), bytes, offset);
}
