// Which vector instructions the hot loops use. Never a matter of bytes: each level makes the same.
#pragma once

#include <cstdint>

namespace weightpress::host {

enum class SimdLevel : std::uint8_t { kPortable, kAvx2 };

/// The highest level that this build has and this processor can run.
SimdLevel best_simd_level();

}  // namespace weightpress::host
