// What the driver looks for in a module's text before it is parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weightpress::cuda_driver {

/// Major * 10 + minor of `.version`, after comments and blanks; nothing if the text does not begin with one.
std::optional<std::uint32_t> ptx_version(std::string_view text);

/// The newest PTX version that a driver takes (PTX ISA, "Release Notes"), in the same numbers.
std::uint32_t newest_ptx_version(std::uint32_t driver_version);

/// 75 for "sm_75"; 0 if it is nothing of the kind.
int target_number(std::string_view target);
/// Whether a target's code can be compiled for a compute capability: sm_90 for 9.0 and above, sm_90a for 9.0
/// only, sm_100f for 10.x.
bool target_fits(std::string_view target, std::uint32_t major, std::uint32_t minor);

/// An ELF cubin, or a fatbin with or without its wrapper; reads 4 bytes at most, none after a zero.
bool is_binary_image(const unsigned char* image);

}  // namespace weightpress::cuda_driver
