// Sixteen consecutive weights in a thread's registers, loaded by a warp 16 bytes a lane, and what encoding
// makes of them.
//
// Two loads of a warp give each lane eight weights of a row's first half and eight of its second.
// Neighbouring lanes swap one of theirs, so that even lanes hold runs of the first half and odd lanes of the
// second: all loads are whole sectors, and nothing goes through shared memory.
#pragma once

#include <cstdint>

#include "format/bf16_fields.h"
#include "kernels/df11_policy.h"

namespace weightpress::device {

template <class Kernel>
struct WeightRun {
  static constexpr std::uint32_t kWeights = Kernel::kRunWeights;
  static constexpr std::uint32_t kPairs = kWeights / 2;
  static_assert(kWeights == 2 * sizeof(uint4) / sizeof(std::uint16_t));

  std::uint32_t pairs[kPairs];  ///< the earlier weight in the low half
  std::uint32_t num_weights;    ///< valid ones, from the first on; the others are 0

  /// The place of this lane's run among those of its warp.
  static __device__ std::uint32_t rank() {
    const std::uint32_t lane = threadIdx.x % kLanes;
    return (lane % 2) * (kLanes / 2) + lane / 2;
  }

  /// i: known when this is compiled; otherwise the run would have to be in memory.
  __device__ std::uint16_t weight(std::uint32_t i) const {
    return static_cast<std::uint16_t>(pairs[i / 2] >> (16 * (i % 2)));
  }

  /// Loads a warp's row. count: of the weights that there are from `row` on; the same in all lanes.
  __device__ void load(const std::uint16_t* row, std::uint64_t count) {
    if (count >= Kernel::kRowWeights && reinterpret_cast<std::uintptr_t>(row) % sizeof(uint4) == 0) {
      load_whole(reinterpret_cast<const uint4*>(row));
    } else {
      load_some(row, count);
    }
  }

 private:
  __device__ void load_whole(const uint4* row) {
    const std::uint32_t lane = threadIdx.x % kLanes;
    const bool is_odd = lane % 2 != 0;
    const uint4 first = __ldg(row + lane), second = __ldg(row + kLanes + lane);
    const uint4 kept = is_odd ? second : first, given = is_odd ? first : second;
    const uint4 taken = {__shfl_xor_sync(kAllLanes, given.x, 1), __shfl_xor_sync(kAllLanes, given.y, 1),
                         __shfl_xor_sync(kAllLanes, given.z, 1), __shfl_xor_sync(kAllLanes, given.w, 1)};
    const uint4 low = is_odd ? taken : kept, high = is_odd ? kept : taken;
    pairs[0] = low.x, pairs[1] = low.y, pairs[2] = low.z, pairs[3] = low.w;
    pairs[4] = high.x, pairs[5] = high.y, pairs[6] = high.z, pairs[7] = high.w;
    num_weights = kWeights;
  }

  __device__ void load_some(const std::uint16_t* row, std::uint64_t count) {
    const std::uint32_t first = rank() * kWeights;
    num_weights = count <= first              ? 0
                  : count - first >= kWeights ? kWeights
                                              : static_cast<std::uint32_t>(count - first);
#pragma unroll
    for (std::uint32_t pair = 0; pair < kPairs; ++pair) {
      const std::uint32_t low = 2 * pair < num_weights ? row[first + 2 * pair] : 0;
      const std::uint32_t high = 2 * pair + 1 < num_weights ? row[first + 2 * pair + 1] : 0;
      pairs[pair] = high << 16 | low;
    }
  }
};

/// Signs and mantissas of four weights, one a byte.
inline __device__ std::uint32_t sign_mantissa_of_four(std::uint32_t first_pair, std::uint32_t second_pair) {
  const std::uint32_t low_bytes = __byte_perm(first_pair, second_pair, 0x6420);
  const std::uint32_t high_bytes = __byte_perm(first_pair, second_pair, 0x7531);
  return (low_bytes & 0x7F7F'7F7Fu) | (high_bytes & 0x8080'8080u);
}

/// The codes of a run, merged, and a mark where each of them starts. Valid unless the run is slow: its codes
/// are taken one by one, from memory, then.
struct RunCodes {
  std::uint32_t num_bits;
  std::uint64_t codes;   ///< right-aligned
  std::uint64_t starts;  ///< right-aligned: a bit for the first bit of each code
  bool is_slow;
};

/// weights: of the run, in memory. fast: EncodeTables::fast in shared memory; lengths: EncodeTables::lengths.
template <class Kernel>
__device__ RunCodes encode_run(const WeightRun<Kernel>& run, const std::uint16_t* weights,
                               const std::uint32_t* fast, const std::uint8_t* lengths) {
  constexpr std::uint32_t kGroup = 4;  // weights whose codes are merged in 32 bits
  constexpr std::uint32_t kLengthMask = (1u << EncodeTables::kLengthBits) - 1;
  static_assert(kGroup * EncodeTables::kSlow <= kLengthMask, "lengths add up without a carry into the code");
  static_assert(EncodeTables::kSlow > 64);
  constexpr std::uint32_t kFirstBit = 0x8000'0000u;

  std::uint32_t code_high = 0, code_low = 0, start_high = 0, start_low = 0, num_bits = 0;
  bool is_slow = run.num_weights != run.kWeights;
#pragma unroll
  for (std::uint32_t group = 0; group < run.kWeights / kGroup; ++group) {
    // A look-up shifts in its code from the top of its entry, by the entry's lowest five bits.
    std::uint32_t codes = 0, starts = 0, lengths_sum = 0;
#pragma unroll
    for (std::uint32_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      const std::uint32_t entry = fast[(run.pairs[i / 2] >> (7 + 16 * (i % 2))) & 0xFF];
      codes = __funnelshift_l(entry, codes, entry);
      starts = __funnelshift_l(kFirstBit, starts, entry);
      lengths_sum += entry;
    }
    const std::uint32_t bits = lengths_sum & kLengthMask;
    is_slow = is_slow || bits > 32;
    code_high = __funnelshift_lc(code_low, code_high, bits);
    code_low = __funnelshift_lc(0, code_low, bits) | codes;
    start_high = __funnelshift_lc(start_low, start_high, bits);
    start_low = __funnelshift_lc(0, start_low, bits) | starts;
    num_bits += bits;
  }
  is_slow = is_slow || num_bits > 64;
  if (is_slow) {
    num_bits = 0;
    for (std::uint32_t i = 0; i < run.num_weights; ++i) num_bits += lengths[df11::exponent_of(weights[i])];
  }
  return {num_bits, std::uint64_t{code_high} << 32 | code_low, std::uint64_t{start_high} << 32 | start_low,
          is_slow};
}

}  // namespace weightpress::device
