// The options of the API as the format layer takes them.
#pragma once

#include <weightpress/df11.h>

#include "format/unit_plan.h"

namespace weightpress::job {

/// Throws kUsage: safe tables are not the official ones.
inline void check_identity_options(LutFill luts, bool strict_identity) {
  if (strict_identity && luts == LutFill::kSafe) {
    throw Error(ErrorCode::kUsage, "--strict-identity and --luts safe contradict each other: leave one out");
  }
}

inline df11::CodingOptions coding_options(LutFill luts, bool strict_identity) {
  df11::CodingOptions options;
  options.fill = luts == LutFill::kSafe ? df11::TableFill::kSafe : df11::TableFill::kCompat;
  options.strict_identity = strict_identity;
  return options;
}

}  // namespace weightpress::job
