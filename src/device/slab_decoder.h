// Slabs of stored units on their way through a GPU: buffers in, wp_decode, weights and a verdict out. Each
// lane has a stream and device memory of its own, so copies in, kernels and copies out of neighbouring slabs
// run beside each other. No CUDA header is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "format/decode_stage.h"

namespace weightpress::device {

/// Sums over what a decoding reads and writes, so that any bit that flips in a GPU's memory shows. Those of
/// the buffers are by words of four bytes from the spans' begins on, the last one filled with zeros, modulo
/// 2^32.
struct DecodeSums {
  std::uint32_t sign_mantissa = 0;     ///< 0: there are neither source nor weights
  std::uint32_t encoded_exponent = 0;  ///< with four bytes of those after the last chunk
  std::uint32_t gaps = 0;              ///< with the first byte of the group after the last chunk
  std::uint32_t positions = 0;         ///< all of them
  /// As many times as there are chunks: of the rows that pointers can reach, and of the row of lengths, with
  /// 0 for those above kMaxCodeBits; not modulo.
  std::uint64_t luts = 0;
  std::uint32_t weights = 0;  ///< those written; 0: none were wanted
  std::uint64_t source = 0;   ///< sum_of_weights() (device/unit_pipeline.h); 0: there is none

  bool operator==(const DecodeSums&) const = default;
};

/// What a GPU made of some chunks of a slab.
struct DecodedPart {
  df11::DecodeArguments arguments;
  df11::DecodeStatus status;
  DecodeSums sums;  ///< if the status is ok
};

class SlabDecoder {
 public:
  virtual ~SlabDecoder() = default;

  /// Slabs that can be under way at once: 1 or more.
  virtual int num_lanes() const = 0;
  /// Enqueues a slab. What the arguments point to must stay until finish() or abandon(); where it comes from
  /// pinned(), nothing waits. lane: below num_lanes(), with nothing under way. A slab that does not fit into
  /// the GPU's memory, beside those under way, goes through it in parts. Throws Error, kOutOfMemory if not
  /// even a chunk fits; then nothing of it is under way.
  virtual void begin(int lane, const df11::DecodeArguments& arguments) = 0;
  /// Waits; the parts in order, one or more. What they say is the GPU's word: the caller compares the sums.
  /// Throws Error if the GPU fails or returns what its kernels cannot have written.
  virtual std::vector<DecodedPart> finish(int lane) = 0;
  /// Waits until nothing of the lane's slab is in use, if there is one.
  virtual void abandon(int lane) noexcept = 0;

  /// Memory of the host, aligned to 64, that copies reach by themselves; ordinary memory where the system
  /// gives no more of that. Must not outlive the object. Throws std::bad_alloc.
  virtual std::shared_ptr<void> pinned(std::uint64_t bytes) = 0;
};

}  // namespace weightpress::device
