// The units that `weightpress selftest` encodes: built-in ones of all kinds, and random ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weightpress/df11.h>

namespace weightpress::job {

struct SelftestUnit {
  std::string name;
  std::vector<std::uint16_t> weights;  ///< 1 or more, all of which DF11 can store
  LutFill luts = LutFill::kCompat;
  std::uint64_t seed = 0;  ///< of what is chosen at random for this unit
};

/// max_weights: of a unit; longer ones are cut. 1 or more.
std::vector<SelftestUnit> built_in_units(std::uint64_t max_weights);

/// The unit of that number: the same on every machine, whatever the other numbers. One exponent, two, normal
/// weights, flat and Fibonacci counts, pruned, outliers here and there or in one place; 1 to max_weights of
/// them, often at a border of windows, chunks, or what back ends take at once.
SelftestUnit random_unit(std::uint64_t seed, std::uint64_t number, std::uint64_t max_weights);

}  // namespace weightpress::job
