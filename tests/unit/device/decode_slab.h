// Slabs of stored units for the decode stages of the CPU and of a GPU, which must give the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <weightpress/error.h>

#include "device/driver/gpu.h"
#include "device/gpu_stages.h"
#include "format/decode_stage.h"
#include "host/decode.h"
#include "support/stored_units.h"

namespace weightpress::device {

/// A unit as a decode stage needs it: any bytes that keep the contract of format/decode_stage.h.
struct DecodeInput {
  std::vector<std::uint8_t> luts, encoded_exponent, gaps, sign_mantissa;
  std::vector<std::uint32_t> positions;  ///< [num_chunks() + 1]
  std::vector<std::uint16_t> source;     ///< to be compared with: [weights]
  /// Of the unit before these, and nowhere to be seen.
  std::uint64_t chunks_before = 0;
  std::uint32_t weights_before = 0;

  std::uint64_t num_chunks() const {
    return (encoded_exponent.size() + df11::kChunkBytes - 1) / df11::kChunkBytes;
  }
  std::uint64_t num_weights() const { return sign_mantissa.size(); }
};

/// source: the unit's weights, or others.
inline DecodeInput decode_input(const Df11Unit& unit, std::span<const std::uint16_t> source) {
  DecodeInput input;
  input.luts = unit.luts;
  input.encoded_exponent = unit.encoded_exponent;
  input.gaps = unit.gaps;
  input.sign_mantissa = unit.sign_mantissa;
  input.source.assign(source.begin(), source.end());
  for (std::uint64_t i = 0; i < unit.output_positions.size() / 4; ++i)
    input.positions.push_back(testing::position_of(unit, i));
  // The entry that short ones lack.
  input.positions.resize(input.num_chunks() + 1, static_cast<std::uint32_t>(unit.sign_mantissa.size()));
  return input;
}

inline bool keeps_contract(const DecodeInput& input) {
  const std::vector<std::uint32_t>& positions = input.positions;
  if (input.luts.size() < 512 || input.luts.size() % 256 != 0 || input.encoded_exponent.empty()) return false;
  if (input.num_weights() == 0 || positions.size() != input.num_chunks() + 1) return false;
  if (input.gaps.size() != input.num_chunks() * df11::kGapBytesPerChunk) return false;
  for (std::size_t i = 0; i + 1 < positions.size(); ++i)
    if (positions[i] > positions[i + 1] || positions[i + 1] - positions[i] > df11::kChunkBits) return false;
  return positions.back() == input.num_weights() && input.source.size() == input.num_weights();
}

/// What a decoding is for.
enum class Wanted : std::uint8_t { kLengths, kComparison, kWeights, kBoth };
inline constexpr Wanted kAllWanted[] = {Wanted::kLengths, Wanted::kComparison, Wanted::kWeights,
                                        Wanted::kBoth};

/// The arguments of a run of chunks, each span in memory of exactly its size. What is written beside the
/// weights, is_intact() notices.
class DecodeSlab {
 public:
  DecodeSlab(const DecodeInput& unit, std::uint64_t first, std::uint64_t end, Wanted wanted)
      : luts_(unit.luts) {
    const bool is_last = end == unit.num_chunks();
    positions_ = cut(unit.positions, first, end + 1);
    encoded_exponent_ = cut(unit.encoded_exponent, first * df11::kChunkBytes,
                            end * df11::kChunkBytes + df11::kDecodeLookaheadBytes);
    gaps_ = cut(unit.gaps, first * df11::kGapBytesPerChunk,
                end * df11::kGapBytesPerChunk + (is_last ? 0 : df11::kGapGroupBytes));
    arguments_.luts = luts_;
    for (std::uint32_t& position : positions_) position += unit.weights_before;
    arguments_.num_weights = unit.weights_before + unit.num_weights();
    arguments_.stream_bytes = unit.chunks_before * df11::kChunkBytes + unit.encoded_exponent.size();
    arguments_.first_chunk = unit.chunks_before + first;
    arguments_.positions = positions_;
    arguments_.encoded_exponent = encoded_exponent_;
    arguments_.gaps = gaps_;
    memory_.assign(2 * kGuard, kUntouched);
    if (wanted == Wanted::kLengths) return;

    sign_mantissa_ = cut(unit.sign_mantissa, unit.positions[first], unit.positions[end]);
    arguments_.sign_mantissa = sign_mantissa_;
    if (wanted != Wanted::kWeights) {
      source_ = cut(unit.source, unit.positions[first], unit.positions[end]);
      arguments_.source = source_;
    }
    if (wanted != Wanted::kComparison) {
      memory_.assign(2 * kGuard + sign_mantissa_.size(), kUntouched);
      arguments_.weights = std::span(memory_).subspan(kGuard, sign_mantissa_.size());
    }
  }
  DecodeSlab(const DecodeSlab&) = delete;
  DecodeSlab& operator=(const DecodeSlab&) = delete;

  const df11::DecodeArguments& arguments() const { return arguments_; }
  /// Those of the chunks before `chunk` of the unit.
  std::span<const std::uint16_t> weights_before(std::uint64_t chunk) const {
    if (arguments_.weights.empty()) return {};
    return arguments_.weights.first(positions_[chunk - arguments_.first_chunk] - positions_.front());
  }
  bool is_intact() const {
    const auto is_untouched = [](std::uint16_t word) { return word == kUntouched; };
    return std::ranges::all_of(std::span(memory_).first(kGuard), is_untouched) &&
           std::ranges::all_of(std::span(memory_).last(kGuard), is_untouched);
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::uint16_t kUntouched = 0xA5C3;

  template <class T>
  static std::vector<T> cut(const std::vector<T>& values, std::uint64_t begin, std::uint64_t end) {
    const auto at = [&](std::uint64_t i) {
      return values.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(i, values.size()));
    };
    return std::vector<T>(at(begin), at(end));
  }

  std::vector<std::uint8_t> luts_, encoded_exponent_, gaps_, sign_mantissa_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint16_t> source_, memory_;
  df11::DecodeArguments arguments_;
};

inline std::string text_of(const df11::DecodeStatus& status) {
  if (!status.ok) return "chunk " + std::to_string(status.chunk) + " is at fault";
  return status.kernel_ends ? "ok" : "ok, but the official kernel does not end";
}

/// The stages side by side.
class BothDecodeStages {
 public:
  /// kNew: a stage of its own for each slab. Its device memory is then no larger than this one needs, so that
  /// an access outside a buffer, or to what nobody wrote, is a fault and does not find another slab's bytes.
  enum class Memory : std::uint8_t { kNew, kKept };

  BothDecodeStages(const Gpu& gpu, const GpuKernels& kernels, Memory memory = Memory::kNew)
      : gpu_(gpu), kernels_(kernels), memory_(memory) {}

  /// The same status, the same weights before the first fault, nothing written elsewhere.
  ::testing::AssertionResult agree(const DecodeInput& unit, std::uint64_t first, std::uint64_t end,
                                   Wanted wanted) {
    if (!keeps_contract(unit)) return ::testing::AssertionFailure() << "the test breaks the contract";
    const DecodeSlab here(unit, first, end, wanted), there(unit, first, end, wanted);
    status_ = host_.decode(here.arguments()).wait();
    df11::DecodeStatus found;
    try {
      if (memory_ == Memory::kNew || stages_ == nullptr)
        stages_ = std::make_unique<GpuStages>(gpu_, kernels_);
      found = stages_->decode(there.arguments()).wait();
    } catch (const Error& error) {  // of CUDA, or nonsense for a status
      return ::testing::AssertionFailure() << place(first, end, wanted) << error.what();
    }
    if (found.ok != status_.ok || found.chunk != status_.chunk || found.kernel_ends != status_.kernel_ends) {
      return ::testing::AssertionFailure()
             << place(first, end, wanted) << "the CPU says: " << text_of(status_)
             << "; the GPU: " << text_of(found);
    }
    const std::uint64_t well = status_.ok ? unit.chunks_before + end : status_.chunk;
    const std::span<const std::uint16_t> expected = here.weights_before(well),
                                         weights = there.weights_before(well);
    const auto [ours, theirs] = std::ranges::mismatch(weights, expected);
    if (ours != weights.end()) {
      return ::testing::AssertionFailure()
             << place(first, end, wanted) << "weight " << ours - weights.begin() << " of " << weights.size()
             << " is " << *ours << ", not " << *theirs;
    }
    if (!there.is_intact()) {
      return ::testing::AssertionFailure()
             << place(first, end, wanted) << "something beside the weights is written";
    }
    weights_.assign(weights.begin(), weights.end());
    return ::testing::AssertionSuccess();
  }

  /// What the CPU said last.
  const df11::DecodeStatus& status() const { return status_; }
  /// What the GPU gave last: the weights before the first fault, none if they were not wanted.
  const std::vector<std::uint16_t>& weights() const { return weights_; }

 private:
  static std::string place(std::uint64_t first, std::uint64_t end, Wanted wanted) {
    static constexpr const char* kNames[] = {"lengths", "comparison", "weights", "comparison and weights"};
    return "chunks " + std::to_string(first) + " to " + std::to_string(end) + ", " +
           kNames[static_cast<std::size_t>(wanted)] + ": ";
  }

  const Gpu& gpu_;
  const GpuKernels& kernels_;
  Memory memory_;
  host::HostDecodeStage host_{1};
  std::unique_ptr<GpuStages> stages_;
  df11::DecodeStatus status_;
  std::vector<std::uint16_t> weights_;
};

}  // namespace weightpress::device
