// What the tests of the official kernel share: a fixture that skips without it, and what must come of a unit.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "format/kernel_termination.h"
#include "official_kernel/decode_kernel.h"
#include "support/stored_units.h"

namespace weightpress::testing {

class DecodeKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!find_decode_ptx()) GTEST_SKIP() << kNoDecodePtx;
  }
  static DecodeKernel& kernel() { return *DecodeKernel::get(); }
};

/// The same for tests with a parameter.
template <class Parameter>
class DecodeKernelTestOf : public DecodeKernelTest, public ::testing::WithParamInterface<Parameter> {};

/// Less of everything where a sanitizer makes it slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSlowBuild = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kIsSlowBuild = true;
#else
inline constexpr bool kIsSlowBuild = false;
#endif
#else
inline constexpr bool kIsSlowBuild = false;
#endif

/// What stands at the end of a unit's stream, read off its buffers.
inline df11::StreamEnd stream_end_of(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  df11::StreamEnd end;
  end.total_bits = code_starts(unit, weights).back();
  end.last_code_length = unit.luts[unit.luts.size() - 256 + (weights.back() >> 7 & 0xFF)];
  const std::uint64_t first = end.total_bits / 64 * 8;
  for (std::uint64_t i = 0; i < 8 && first + i < unit.encoded_exponent.size(); ++i)
    end.window[i] = unit.encoded_exponent[first + i];
  return end;
}

/// Whether src/format says that the kernel ends on a sound unit.
inline bool kernel_should_end(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  std::vector<df11::LookupRow> rows(unit.luts.size() / 256);
  for (std::size_t i = 0; i < unit.luts.size(); ++i) rows[i / 256][i % 256] = unit.luts[i];
  return df11::official_kernel_ends(rows, stream_end_of(unit, weights));
}

inline ::testing::AssertionResult is_exact(const KernelRun& run, std::span<const std::uint16_t> weights) {
  if (!run.is_clean()) return ::testing::AssertionFailure() << run.trouble();
  const auto [ours, theirs] = std::ranges::mismatch(run.weights, weights);
  if (ours == run.weights.end() && theirs == weights.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "weight " << ours - run.weights.begin() << " of " << weights.size() << " is another";
}

/// What the kernel was made for: all weights exact, or endless where src/format says so.
inline ::testing::AssertionResult is_as_foretold(const KernelRun& run, const Df11Unit& unit,
                                                 std::span<const std::uint16_t> weights) {
  if (kernel_should_end(unit, weights)) return is_exact(run, weights);
  if (run.fault && run.fault->kind == ptxvm::FaultKind::kEndless) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "it must be endless, but is: " << run.trouble();
}

}  // namespace weightpress::testing
