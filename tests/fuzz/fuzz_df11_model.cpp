// Arbitrary bytes as a safetensors file: verify at the level structure tells what it finds, or refuses it.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include <weightpress/verify.h>

using namespace weightpress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path path = [] {
    const std::filesystem::path shared = "/dev/shm";
    const auto folder = std::filesystem::exists(shared) ? shared : std::filesystem::temp_directory_path();
    return folder / ("weightpress_fuzz_" + std::to_string(::getpid()) + ".safetensors");
  }();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  VerifyOptions options;
  options.path = path;
  options.num_threads = 1;
  try {
    const VerifyReport report = verify(options);
    if (report.num_units == 0) std::abort();
    for (const VerifyFailure& failure : report.failures)
      if (failure.kind.empty() || failure.message.empty()) std::abort();
  } catch (const Error& error) {
    const bool is_expected = error.code() == ErrorCode::kCorruptFile || error.code() == ErrorCode::kUsage ||
                             error.code() == ErrorCode::kNameConflict || error.code() == ErrorCode::kNotFound;
    if (!is_expected) {
      std::fprintf(stderr, "%s\n", error.what());
      std::abort();
    }
  }
  std::filesystem::remove(path);
  return 0;
}
