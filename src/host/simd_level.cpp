#include "host/simd_level.h"

namespace weightpress::host {

SimdLevel best_simd_level() {
#if defined(__x86_64__)
  static const SimdLevel level = __builtin_cpu_supports("avx2") ? SimdLevel::kAvx2 : SimdLevel::kPortable;
  return level;
#else
  return SimdLevel::kPortable;
#endif
}

}  // namespace weightpress::host
