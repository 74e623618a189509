// What the plan of a unit follows from: enough to make it again without a look at the weights.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/histogram.h"
#include "format/unit_plan.h"

namespace weightpress::job {

struct UnitCounts {
  df11::Histogram histogram{};
  std::uint8_t last_exponent = 0;  ///< of the last weight
  /// What plan_unit() was told of the densest chunk, each time it asked.
  std::vector<std::uint64_t> densest_chunks;
};

/// The plan that these counts gave. Errors: those of df11::plan_unit().
inline Result<df11::UnitPlan> plan_again(std::string_view unit, const UnitCounts& counts,
                                         const df11::CodingOptions& coding) {
  auto next = counts.densest_chunks.begin();
  return df11::plan_unit({unit, counts.histogram, counts.last_exponent}, coding, [&](const df11::Codebook&) {
    return next == counts.densest_chunks.end() ? 0 : *next++;
  });
}

}  // namespace weightpress::job
