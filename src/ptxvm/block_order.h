// The order in which a launch's blocks begin.
#pragma once

#include <cstdint>
#include <numeric>

#include "ptxvm/micro_ops.h"

namespace weightpress::ptxvm {

/// place to number, each number once; seed 0: ascending. count is 1 to 2^63.
class BlockOrder {
 public:
  BlockOrder(std::uint64_t count, std::uint64_t seed) : count_(count) {
    if (seed == 0 || count < 2) return;
    const std::uint64_t mixed = seed * 0x9E3779B97F4A7C15 ^ seed >> 29;
    factor_ = mixed % count;
    while (std::gcd(factor_, count) != 1) factor_ = (factor_ + 1) % count;  // 1 would do
    first_ = (mixed >> 17) % count;
  }

  std::uint64_t at(std::uint64_t place) const {
    return static_cast<std::uint64_t>((static_cast<UInt128>(factor_) * place + first_) % count_);
  }

 private:
  std::uint64_t count_, factor_ = 1, first_ = 0;
};

}  // namespace weightpress::ptxvm
