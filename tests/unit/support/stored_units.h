// Stored units in the hands of tests: with the slow decoder as referee, and through job::UnitDecoder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "host/decode.h"
#include "job/unit_decoder.h"
#include "job/unit_memory.h"
#include "support/golden.h"
#include "support/unit_reader.h"

namespace weightpress::testing {

inline job::UnitSizes sizes_of(const Df11Unit& unit) {
  return {unit.sign_mantissa.size(), unit.encoded_exponent.size(), unit.gaps.size() / 320,
          unit.output_positions.size() / 4, unit.luts.size() / 256 - 1};
}

/// A unit with all that decodes it.
class UnitInMemory {
 public:
  explicit UnitInMemory(const Df11Unit& unit, std::uint64_t slab_chunks = 256, int threads = 1)
      : view_(job::view_of(unit)),
        bytes_(view_),
        stage_(threads),
        decoder_(sizes_of(unit), bytes_, stage_, buffers_, slab_chunks) {}

  job::UnitDecoder& decoder() { return decoder_; }

  /// The weights, if there is no fault.
  std::optional<job::UnitFault> decode(std::vector<std::uint16_t>& weights) {
    weights.clear();
    return decoder_.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
      EXPECT_EQ(first, weights.size());
      weights.insert(weights.end(), slab.begin(), slab.end());
    });
  }

 private:
  Df11UnitView view_;
  job::MemoryUnit bytes_;
  host::HostDecodeStage stage_;
  job::DecodeBuffers buffers_;
  job::UnitDecoder decoder_;
};

/// Decodes to `weights`, and what is said of the official kernel is what the slow decoder's way through the
/// windows finds.
inline ::testing::AssertionResult decodes_as_the_referee(const Df11Unit& unit,
                                                         std::span<const std::uint16_t> weights,
                                                         std::uint64_t slab_chunks = 256, int threads = 1) {
  const selftest::SlowDecoding windows = selftest::window_decode(bytes_of(unit));
  const selftest::SlowDecoding slow = windows.ok ? windows : selftest::slow_decode(bytes_of(unit));
  if (!slow.ok) return ::testing::AssertionFailure() << "the slow decoder: " << slow.problem;
  if (!std::ranges::equal(slow.weights, weights))
    return ::testing::AssertionFailure() << "the slow decoder finds other weights";
  UnitInMemory memory(unit, slab_chunks, threads);
  std::vector<std::uint16_t> decoded;
  if (const auto fault = memory.decode(decoded)) return ::testing::AssertionFailure() << fault->message;
  if (!std::ranges::equal(decoded, weights)) return ::testing::AssertionFailure() << "other weights";
  const bool never_ends = windows.problem.find("never ends") != std::string::npos;
  const bool is_known = windows.ok || never_ends;  // otherwise a limit of the kernel comes first
  if (is_known && memory.decoder().kernel_ends() != windows.ok)
    return ::testing::AssertionFailure() << "kernel_ends, but: " << windows.problem;
  return ::testing::AssertionSuccess();
}

/// Of tests/golden/df11; luts.u8 where there is one.
inline Df11Unit golden_unit(const std::string& name, const char* luts = nullptr) {
  const auto folder = golden_folder() / "df11" / name;
  Df11Unit unit;
  const bool has_official = std::filesystem::exists(folder / "luts.u8");
  unit.luts = read_bytes(folder / (luts != nullptr ? luts : has_official ? "luts.u8" : "luts_safe.u8"));
  unit.encoded_exponent = read_bytes(folder / "encoded_exponent.u8");
  unit.sign_mantissa = read_bytes(folder / "sign_mantissa.u8");
  unit.output_positions = read_bytes(folder / "output_positions.u32");
  unit.gaps = read_bytes(folder / "gaps.u8");
  return unit;
}

inline std::vector<std::uint16_t> golden_weights(const std::string& name) {
  return read_bf16(golden_folder() / "df11" / name / "weights.bf16");
}

inline std::uint32_t position_of(const Df11Unit& unit, std::uint64_t index) {
  std::uint32_t value = 0;
  for (unsigned i = 4; i-- > 0;) value = value << 8 | unit.output_positions[4 * index + i];
  return value;
}

inline void set_position(Df11Unit& unit, std::uint64_t index, std::uint32_t value) {
  for (unsigned i = 0; i < 4; ++i)
    unit.output_positions[4 * index + i] = static_cast<std::uint8_t>(value >> 8 * i);
}

inline unsigned gap_of(const Df11Unit& unit, std::uint64_t window) {
  unsigned value = 0;
  for (std::uint64_t bit = 5 * window; bit < 5 * window + 5; ++bit)
    value = value << 1 | (unit.gaps[bit / 8] >> (7 - bit % 8) & 1);
  return value;
}

inline void set_gap(Df11Unit& unit, std::uint64_t window, unsigned value) {
  for (unsigned i = 0; i < 5; ++i) {
    const std::uint64_t bit = 5 * window + i;
    const unsigned mask = 0x80u >> bit % 8;
    const bool is_set = value >> (4 - i) & 1;
    unit.gaps[bit / 8] =
        static_cast<std::uint8_t>(is_set ? unit.gaps[bit / 8] | mask : unit.gaps[bit / 8] & ~mask);
  }
}

inline void flip_bit(std::vector<std::uint8_t>& bytes, std::uint64_t bit) {
  bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ 0x80 >> bit % 8);
}

/// Where the code of each weight starts, in bits, by a walk over the code lengths; the end of the last one
/// too.
inline std::vector<std::uint64_t> code_starts(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  std::vector<std::uint64_t> starts = {0};
  for (const std::uint16_t weight : weights)
    starts.push_back(starts.back() + unit.luts[unit.luts.size() - 256 + (weight >> 7 & 0xFF)]);
  return starts;
}

}  // namespace weightpress::testing
