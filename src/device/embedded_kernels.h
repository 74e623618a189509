// The kernels in this program, as nvcc made them when it was built: of every module a cubin an architecture,
// and PTX text, which a driver compiles for GPUs that no cubin is for. cmake/DeviceModules.cmake makes them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weightpress::device {

/// One file that a driver can load. A 0 byte follows `bytes`, so that PTX text ends as drivers want it.
struct EmbeddedImage {
  int arch = 0;                         ///< 10 * major + minor of the GPUs that the cubin is for; 0: PTX text
  std::string_view module;              ///< kernels/<module>.cu
  std::span<const std::uint8_t> bytes;  ///< aligned to 64

  bool is_ptx() const { return arch == 0; }
};

/// All of them; none where the program was built without nvcc.
std::span<const EmbeddedImage> embedded_images();

/// Why there are none: "left out of this build: there is no nvcc". Empty if there are some.
std::string_view why_no_kernels();

}  // namespace weightpress::device
