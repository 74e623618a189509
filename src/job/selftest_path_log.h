// What `weightpress selftest --compare` notes of a path, and how it words what differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <weightpress/error.h>
#include <weightpress/selftest.h>

namespace weightpress::job {

inline std::string text(std::uint64_t number) {
  return std::to_string(number);
}

class PathLog {
 public:
  explicit PathLog(const std::string& name) { outcome_.name = name; }

  /// Runs a unit, unless the path has failed or, if it is not the first, has had its share of problems. An
  /// Error is a problem, and the path is tried no more; the first path's goes through.
  template <class Run>
  void try_unit(std::string name, bool is_first, const Run& run) {
    if (has_failed_ || (!is_first && outcome_.problems.size() >= kMaxProblems)) return;
    unit_ = std::move(name);
    ++outcome_.num_units;
    try {
      run();
    } catch (const Error& error) {
      if (is_first) throw;
      add_problem(error.what());
      has_failed_ = true;
    }
  }
  void add_problem(const std::string& problem) { outcome_.problems.push_back(unit_ + ": " + problem); }
  const SelftestPath& outcome() const { return outcome_; }

 private:
  static constexpr std::size_t kMaxProblems = 5;

  SelftestPath outcome_;
  std::string unit_;  ///< that it is at, and how it is cut
  bool has_failed_ = false;
};

/// What an output holds before a stage writes it: a byte that stays is seen.
template <class T>
void fill_with_garbage(std::span<T> values) {
  for (std::byte& byte : std::as_writable_bytes(values)) byte = std::byte{0xA5};
}

/// Adds a clause to `found` if a buffer is not what it should be.
inline void add_difference(std::string& found, std::string_view name, std::span<const std::uint8_t> is,
                           std::span<const std::uint8_t> should_be) {
  std::uint64_t first = is.size(), num_different = 0;
  if (is.size() == should_be.size()) {
    for (std::uint64_t i = is.size(); i-- > 0;) {
      if (is[i] == should_be[i]) continue;
      first = i;
      ++num_different;
    }
    if (num_different == 0) return;
  }
  found += (found.empty() ? "" : "; ") + std::string(name);
  found += is.size() != should_be.size()
               ? " has " + text(is.size()) + " bytes instead of " + text(should_be.size())
               : " differs from byte " + text(first) + " on: " + text(num_different) + " of " +
                     text(is.size()) + " bytes";
}

}  // namespace weightpress::job
