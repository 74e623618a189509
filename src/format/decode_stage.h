// The stage that reads DF11 back, as src/host runs it and src/device enqueues it: on slabs of whole chunks.
//
// A window starts at its gap and must end where the next one's gap says; a chunk begins at its output
// position and must hold as many weights as the next one's position says. So chunks are decoded apart, and
// the checks of all of them together prove what one walk along the stream would. Shares nothing with the
// encoder but the numbers of df11_constants.h. All bytes are a stranger's: whatever they are, decoding ends
// and stays inside the spans.
//
// The stage finds the first chunk at fault. What is wrong in it, and where, is told by job/fault_locator.h,
// the same for every back end.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "format/df11_constants.h"

namespace weightpress::df11 {

/// Bytes of the bitstream that a slab needs beyond its last chunk: a code that starts in its last window may
/// go on there.
inline constexpr std::uint64_t kDecodeLookaheadBytes = kWindowBytes;
static_assert(kDecodeLookaheadBytes * 8 >= kMaxCodeBits);

struct DecodeStatus {
  bool ok = true;
  std::uint64_t chunk = 0;  ///< not ok: the first chunk at fault, counted from the unit's first
  /// False: the official kernel would not end on what follows the last weight (docs/format.md, "Padding").
  /// Told by the slab that holds the unit's last chunk, if it is ok.
  bool kernel_ends = true;
};

struct DecodeArguments {
  std::span<const std::uint8_t> luts;  ///< [256 * (num_tables + 1)], two rows at least
  std::uint64_t num_weights = 0;       ///< of the unit, 1 or more
  std::uint64_t stream_bytes = 0;      ///< of the unit, 1 or more

  std::uint64_t first_chunk = 0;
  /// [num_chunks of the slab + 1]: first weight of each chunk and of the next one. Ascending, no more than
  /// num_weights, and at most kChunkBits apart; with the unit's last chunk the last one is num_weights.
  std::span<const std::uint32_t> positions;
  /// From the first chunk to kDecodeLookaheadBytes beyond the last one, or to the end of the stream.
  std::span<const std::uint8_t> encoded_exponent;
  /// [320 * num_chunks], and the group of the next chunk's first window (5 bytes) unless the unit ends here.
  std::span<const std::uint8_t> gaps;

  /// [positions.back() - positions.front()], as the two below. Empty: only lengths, gaps and counts are
  /// checked.
  std::span<const std::uint8_t> sign_mantissa;
  std::span<const std::uint16_t> source;  ///< to be compared with; empty: not
  std::span<std::uint16_t> weights;       ///< out; empty: not wanted. Unspecified from the chunk at fault on
};

/// An enqueued decoding. On the host it is done when the call returns.
class DecodeCompletion {
 public:
  explicit DecodeCompletion(const DecodeStatus& status) : status_(status) {}
  explicit DecodeCompletion(std::function<DecodeStatus()> wait) : wait_(std::move(wait)) {}
  /// Once. Throws what a device that fails makes of it.
  DecodeStatus wait() const { return wait_ ? wait_() : status_; }

 private:
  DecodeStatus status_;
  std::function<DecodeStatus()> wait_;
};

/// What src/host and src/device offer. An object serves one caller at a time. What arguments point to must
/// live until the completion was waited for, or abandon().
class Df11DecodeStage {
 public:
  virtual ~Df11DecodeStage() = default;
  virtual DecodeCompletion decode(const DecodeArguments& arguments) = 0;

  /// How many slabs may be under way: before a call, fewer completions than that are still to be waited for.
  /// They are waited for in any order. It may become less with any call or completion, and then holds for
  /// the calls to come.
  virtual int most_under_way() const { return 1; }
  /// Waits until nothing that was given is used any more. Completions from before are not to be waited for.
  virtual void abandon() noexcept {}
};

}  // namespace weightpress::df11
