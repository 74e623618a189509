// Finds the official decode kernel on this machine, and says whether it is the known file.
//
// It is not ours to ship. Who uses DF11 models has it: the package dfloat11 holds it as decode.ptx, and
// ComfyUI's DFloat11 nodes load it from there. A search looks at folders that Python environments and ComfyUI
// are known to use, a few levels deep and at a bounded number of places; what it finds counts only if it is
// the known file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weightpress::job {

struct KnownKernel {
  std::uint64_t size_bytes = 0;
  std::string_view sha256;
};

/// decode.ptx of dfloat11 0.5.0 (PTX 8.2 for sm_52).
inline constexpr KnownKernel kOfficialKernel{
    23'711, "cc9b78f6a14c9118abf46a733390f14ef66a9c2eb4db04ded9b74183a02665cf"};

inline constexpr const char* kKernelVariable = "WEIGHTPRESS_DECODE_PTX";

/// What a search depends on.
struct SearchPlaces {
  std::function<std::optional<std::string>(const char* name)> variable;  ///< of the environment
  std::filesystem::path root = "/";                                      ///< what system folders lie below
  std::filesystem::path working_folder;  ///< what relative paths begin in; empty: that of the process
};

SearchPlaces places_of_this_process();

struct KernelFile {
  std::filesystem::path path;
  std::string text;
  std::string sha256;  ///< 64 digits
  bool is_known = false;
  std::vector<std::string> notes;  ///< sentences: what was passed over, that it is another file
};

/// given: by the user, and then it may be any file. Else the one that WEIGHTPRESS_DECODE_PTX names, which
/// must be the known file. Else the first that a search finds. Throws Error: kNotFound, kIo, kUsage (not the
/// known file, too large to be a kernel).
KernelFile find_kernel(const std::optional<std::filesystem::path>& given, const SearchPlaces& places,
                       const KnownKernel& known = kOfficialKernel);

}  // namespace weightpress::job
