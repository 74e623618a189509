// What the official kernel does with any bytes, as a plain program: thread after thread, with every read and
// write checked. The referee for damaged units, of which docs/format.md does not speak; shares no code with
// the interpreter or with src/format.
//
// "Bits" below are as the kernel holds them: 64 in a word, those of the next window's first half put in once
// 32 are used. It adds up code lengths modulo 256.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <weightpress/df11.h>

#include "ptxvm/launch.h"

namespace weightpress::testing {

struct ModelledBlock {
  std::optional<ptxvm::FaultKind> fault;  ///< of the first thread that has one, before the first barrier
  std::uint32_t first_weight = 0;
  std::vector<std::uint16_t> weights;  ///< that it copies out; without a fault
};

class KernelModel {
 public:
  /// chunk_weights: that shared memory is for. pad: what is read behind output_positions.
  KernelModel(const Df11Unit& unit, std::uint64_t chunk_weights, std::uint8_t pad, std::uint64_t max_branches)
      : unit_(unit), chunk_weights_(chunk_weights), pad_(pad), max_branches_(max_branches) {}

  ModelledBlock run(std::uint64_t block) {
    ModelledBlock result;
    const std::uint32_t num_weights = static_cast<std::uint32_t>(unit_.sign_mantissa.size());
    const std::uint32_t begin = position(block), end = position(block + 1);

    std::vector<std::vector<std::uint8_t>> found(512);
    for (std::uint64_t thread = 0; thread < 512; ++thread)
      if ((result.fault = decode(512 * block + thread, found[thread]))) return result;

    std::vector<std::optional<std::uint16_t>> shared(chunk_weights_);
    std::uint32_t weight = begin;
    for (const std::vector<std::uint8_t>& exponents : found) {
      const auto window_end = std::min(weight + static_cast<std::uint32_t>(exponents.size()), num_weights);
      for (std::uint32_t i = 0; weight + i < window_end; ++i) {
        const std::uint32_t place = weight + i - begin;
        if (place >= shared.size()) return fails(result, ptxvm::FaultKind::kOutOfBounds);
        shared[place] = join(exponents[i], unit_.sign_mantissa[weight + i]);
      }
      weight += static_cast<std::uint32_t>(exponents.size());
    }

    const std::uint32_t count = std::min(end - begin, num_weights - begin);
    for (std::uint32_t thread = 0; thread < std::min(count, 512u); ++thread) {
      for (std::uint64_t i = thread; i < count; i += 512) {
        if (i >= shared.size()) return fails(result, ptxvm::FaultKind::kOutOfBounds);
        if (!shared[i]) return fails(result, ptxvm::FaultKind::kUninitialised);
        if (begin + i >= num_weights) return fails(result, ptxvm::FaultKind::kOutOfBounds);
      }
    }
    result.first_weight = begin;
    for (std::uint32_t i = 0; i < count; ++i) result.weights.push_back(*shared[i]);
    return result;
  }

 private:
  static ModelledBlock& fails(ModelledBlock& result, ptxvm::FaultKind kind) {
    result.fault = kind;
    return result;
  }

  static std::uint16_t join(unsigned exponent, unsigned sign_mantissa) {
    return static_cast<std::uint16_t>((sign_mantissa & 0x80) << 8 | exponent << 7 | (sign_mantissa & 0x7F));
  }

  std::uint32_t position(std::uint64_t index) const {
    std::uint32_t value = 0;
    for (std::uint64_t i = 4 * index + 4; i-- > 4 * index;)
      value = value << 8 | (i < unit_.output_positions.size() ? unit_.output_positions[i] : pad_);
    return value;
  }

  std::uint64_t stream_bits(std::uint64_t first_byte, std::uint64_t count) const {
    std::uint64_t bits = 0;
    for (std::uint64_t i = first_byte; i < first_byte + count; ++i)
      bits = bits << 8 | (i < unit_.encoded_exponent.size() ? unit_.encoded_exponent[i] : 0u);
    return bits;
  }

  unsigned gap(std::uint64_t window) const {
    unsigned value = 0;
    for (std::uint64_t bit = 5 * window; bit < 5 * window + 5; ++bit)
      value = value << 1 | (unit_.gaps[bit / 8] >> (7 - bit % 8) & 1);
    return value;
  }

  /// Shifts as PTX does: all bits are gone at 64.
  static std::uint64_t shifted(std::uint64_t bits, unsigned amount) {
    return amount < 64 ? bits << amount : 0;
  }

  /// The exponent at the front of `bits` and the length that the last row gives it; false: a read behind
  /// luts.
  bool look_up(std::uint64_t bits, unsigned& exponent, unsigned& length) const {
    std::uint64_t table = 0;
    for (unsigned level = 0; level < 4; ++level) {
      const std::uint64_t place = table * 256 + (bits >> (56 - 8 * level) & 0xFF);
      if (place >= unit_.luts.size()) return false;
      exponent = unit_.luts[place];
      if (exponent < 240) break;
      table = 256 - exponent;
    }
    length = unit_.luts[unit_.luts.size() - 256 + exponent];
    return true;
  }

  /// All that a thread finds in its window.
  std::optional<ptxvm::FaultKind> decode(std::uint64_t window, std::vector<std::uint8_t>& exponents) const {
    unsigned used = gap(window);
    std::uint64_t bits = shifted(stream_bits(8 * window, 8), used), branches = 0;
    for (const bool first_half : {true, false}) {
      if (!first_half) {
        bits |= shifted(stream_bits(8 * window + 8, 4), used - 32);
        used -= 32;
        if (used >= 32) break;
      }
      while (true) {
        unsigned exponent = 0, length = 0;
        if (!look_up(bits, exponent, length)) return ptxvm::FaultKind::kOutOfBounds;
        exponents.push_back(static_cast<std::uint8_t>(exponent));
        bits = shifted(bits, length);
        used = (used + length) & 0xFF;
        if (used >= 32) break;
        if (++branches > max_branches_) return ptxvm::FaultKind::kEndless;
      }
    }
    return std::nullopt;
  }

  const Df11Unit& unit_;
  const std::uint64_t chunk_weights_;
  const std::uint8_t pad_;
  const std::uint64_t max_branches_;
};

}  // namespace weightpress::testing
