// Keeps the shared headers of src/format usable in kernels: bit fields, gap packing and the rule that decides
// which windows and chunks a code opens must compile as device code, without a line of their own there.
#include "format/bf16_fields.h"
#include "format/df11_constants.h"
#include "format/gap_packing.h"
#include "format/open_windows.h"

namespace weightpress::df11 {

/// One thread a weight: both halves, and the word put together again.
extern "C" __global__ void split_and_join(const std::uint16_t* weights, std::uint8_t* exponents,
                                          std::uint8_t* sign_mantissa, std::uint16_t* joined,
                                          std::uint64_t num_weights) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= num_weights) return;
  exponents[i] = exponent_of(weights[i]);
  sign_mantissa[i] = sign_mantissa_of(weights[i]);
  joined[i] = join_bf16(exponents[i], sign_mantissa[i]);
}

/// One thread a group of eight gaps, and the first open window and chunk of each segment.
extern "C" __global__ void pack_gaps(const std::uint8_t* gaps, std::uint8_t* packed,
                                     const std::uint64_t* first_bits,
                                     const std::uint32_t* previous_code_lengths, std::uint64_t* open_windows,
                                     std::uint64_t* open_chunks, std::uint64_t num_groups) {
  const std::uint64_t group = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (group >= num_groups) return;
  pack_gap_group(gaps + group * kWindowsPerGapGroup, packed + group * kGapGroupBytes);
  open_windows[group] = first_open_window(first_bits[group], previous_code_lengths[group]);
  open_chunks[group] = first_open_chunk(open_windows[group]);
}

}  // namespace weightpress::df11
