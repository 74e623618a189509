// What the plan of a unit follows from: enough to make it again without a look at the weights.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "format/histogram.h"
#include "format/unit_plan.h"

namespace weightpress::job {

struct UnitCounts {
  /// Exponents that occur, in order, and how often: much less than a whole histogram, and there is one a
  /// unit.
  std::vector<std::pair<std::uint8_t, std::uint64_t>> histogram;
  std::uint8_t last_exponent = 0;  ///< of the last weight
  /// What plan_unit() was told of the densest chunk, each time it asked.
  std::vector<std::uint64_t> densest_chunks;
};

inline std::vector<std::pair<std::uint8_t, std::uint64_t>> sparse(const df11::Histogram& histogram) {
  std::vector<std::pair<std::uint8_t, std::uint64_t>> counts;
  for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol)
    if (histogram[symbol] != 0) counts.emplace_back(static_cast<std::uint8_t>(symbol), histogram[symbol]);
  return counts;
}

/// The plan that these counts gave. Errors: those of df11::plan_unit(), and kUnitTooLarge if they cannot be
/// those of num_weights weights.
inline Result<df11::UnitPlan> plan_again(std::string_view unit, std::uint64_t num_weights,
                                         const UnitCounts& counts, const df11::CodingOptions& coding) {
  df11::Histogram histogram{};
  for (const auto& [symbol, count] : counts.histogram) {
    if (count > num_weights) return Unexpected(ErrorCode::kUnitTooLarge, "a count is too large");
    histogram[symbol] = count;
  }
  if (df11::total_count(histogram) != num_weights || histogram[counts.last_exponent] == 0)
    return Unexpected(ErrorCode::kUnitTooLarge, "counts of another unit");
  auto next = counts.densest_chunks.begin();
  bool lacks_answer = false;
  Result<df11::UnitPlan> plan = df11::plan_unit({unit, histogram, counts.last_exponent}, coding,
                                                [&](const df11::Codebook&) -> std::uint64_t {
                                                  if (next != counts.densest_chunks.end()) return *next++;
                                                  lacks_answer = true;
                                                  return 0;
                                                });
  if (lacks_answer) return Unexpected(ErrorCode::kUnitTooLarge, "counts that are not whole");
  return plan;
}

}  // namespace weightpress::job
