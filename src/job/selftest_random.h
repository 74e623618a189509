// Random numbers of `weightpress selftest`: the same everywhere, unlike the standard's distributions.
#pragma once

#include <cstdint>

namespace weightpress::job {

inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

class SelftestRandom {
 public:
  explicit SelftestRandom(std::uint64_t seed) : seed_(mix(seed)) {}

  std::uint64_t next() { return mix(seed_ + 0x9E3779B97F4A7C15 * ++count_); }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

/// Numbers that follow from a unit's seed, each with a purpose of its own.
inline std::uint64_t chosen(std::uint64_t seed, std::uint64_t purpose, std::uint64_t bound) {
  std::uint64_t value = (seed + 0x9E3779B97F4A7C15 * (purpose + 1)) * 0xD6E8FEB86659FD93;
  value = (value ^ value >> 32) * 0xD6E8FEB86659FD93;
  return (value ^ value >> 32) % bound;
}

}  // namespace weightpress::job
