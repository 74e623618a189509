// The hot loop of decoding.
//
// A window is decoded by look-ups of kDecodeTableBits bits that give up to five codes each, until the bits
// that its codes take pass its end. The last look-up may give codes that start beyond it: the entry's bits of
// starts tell how many, and where the first of them starts, which is where the next window's gap must be. So
// a window of 64 bits takes 6 look-ups of normal weights and no step of single codes.
//
// A look-up depends on the one before (its bits say how far to go), about ten cycles. kLanes windows are
// therefore decoded side by side, each to a line of its own, and the lines are joined afterwards.
#include "host/chunk_decoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "format/luts_view.h"

namespace weightpress::host {
namespace {

using df11::kWindowBits;
using df11::kWindowsPerChunk;

// docs/benchmarking.md, "Tuned constants".
constexpr std::uint32_t kLanes = 4;

std::uint64_t load_big_endian(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
  return value;
}

// A window holds at most 64 codes, and each look-up stores 8 bytes, whatever it gives.
constexpr std::uint32_t kLineBytes = kWindowBits + DecodeEntry::kMaxCodes + 8;

/// A window on its way to its line. Bits count from its begin. All members stay in registers: nothing may
/// take the address of a lane, since the stores to lines could otherwise change it.
struct Lane {
  std::uint64_t high = 0;      // the window
  std::uint64_t low = 0;       // the one after it, shifted right by one
  std::uint64_t last = 0;      // entry
  std::uint32_t bit = 0;       // where the next code starts; done if it is in the next window
  std::uint32_t last_bit = 0;  // where `last` starts
  std::uint8_t* out = nullptr;

  void begin(const std::uint8_t* window, std::uint32_t gap, std::uint8_t* line) {
    high = load_big_endian(window);
    low = load_big_endian(window + df11::kWindowBytes) >> 1;
    bit = gap;
    out = line;
  }

  bool is_done() const { return bit >= kWindowBits; }

  /// Precondition: not done. Afterwards `bit` is greater.
  void step(const DecodeEntry* entries, const df11::LutsView& luts) {
    const std::uint64_t ahead = high << bit | low >> (kWindowBits - 1 - bit);
    DecodeEntry entry = entries[ahead >> (kWindowBits - kDecodeTableBits)];
    if (entry.num_codes() == 0) [[unlikely]]
      entry = long_code(ahead, luts);
    last = entry.packed();
    last_bit = bit;
    std::memcpy(out, &last, sizeof last);
    out += entry.num_codes();
    bit += entry.num_bits();
  }

  /// A code that the table does not hold. None: an entry without codes that takes more than a window.
  static DecodeEntry long_code(std::uint64_t ahead, const df11::LutsView& luts) {
    const df11::DecodedCode code = luts.look_up(static_cast<std::uint32_t>(ahead >> 32));
    return code.length == 0 ? DecodeEntry::none() : DecodeEntry().with(code.exponent, code.length);
  }

  /// Takes back the codes that start in the next window. Returns where the first code after the window
  /// starts.
  std::uint32_t finish() {
    const DecodeEntry entry = DecodeEntry::from_packed(last);
    const std::uint32_t to_end = std::min(kWindowBits - last_bit, kDecodeTableBits);
    const std::uint32_t beyond = entry.starts() >> to_end;
    if (beyond == 0) return bit;
    out -= std::popcount(beyond);
    return kWindowBits + static_cast<std::uint32_t>(std::countr_zero(beyond));
  }
};

/// Codes one by one where the weights end.
class LastWindow {
 public:
  LastWindow(const df11::LutsView& luts, const std::uint8_t* window) : luts_(luts), window_(window) {}

  df11::DecodedCode at(std::uint32_t bit) const {
    const std::uint64_t high = load_big_endian(window_), low = load_big_endian(window_ + df11::kWindowBytes);
    const std::uint64_t ahead = high << bit | (low >> 1) >> (kWindowBits - 1 - bit);
    return luts_.look_up(static_cast<std::uint32_t>(ahead >> 32));
  }

  /// Whether the official kernel, which goes on until the window's end, comes to it.
  bool kernel_ends(std::uint32_t gap) const {
    for (std::uint32_t bit = gap; bit < kWindowBits;) {
      const df11::DecodedCode code = at(bit);
      if (code.length == 0) return false;
      bit += code.length;
    }
    return true;
  }

 private:
  const df11::LutsView& luts_;
  const std::uint8_t* window_;
};

/// Whether a window in which no code starts has the gap that it must have, and the stream its length. `bit`:
/// where the last code ends, if there was one (see DecodeEntry::none()); `bytes`: of the stream in that
/// window.
bool is_empty_end(std::uint64_t bit, std::uint64_t bytes, std::uint8_t gap) {
  return bit < df11::kMaxCodeBits && (bit + 7) / 8 == bytes && gap == (bit % 8 == 0 ? 0 : bit);
}

/// The weights of the unit's last window with a byte of the stream: so many are left for it. `bit`: where the
/// codes before it end.
bool decode_last_window(const LastWindow& window, std::uint64_t num_weights, std::uint64_t bit,
                        std::uint64_t bytes, std::uint8_t gap, std::uint8_t* exponents) {
  if (num_weights == 0) return is_empty_end(bit, bytes, gap);
  if (bit != gap) return false;
  for (; num_weights > 0; --num_weights) {
    if (bit >= 8 * bytes) return false;
    const df11::DecodedCode code = window.at(static_cast<std::uint32_t>(bit));
    if (code.length == 0) return false;
    *exponents++ = code.exponent;
    bit += code.length;
  }
  return (bit + 7) / 8 == bytes;
}

/// The unit's last window with a byte of the stream, and the empty ones behind it.
ChunkResult decode_end(const df11::LutsView& luts, const ChunkInput& chunk, std::uint32_t index,
                       std::uint64_t num_weights, std::uint32_t bit, std::uint8_t* exponents) {
  const LastWindow window(luts, chunk.bytes + std::uint64_t{index} * df11::kWindowBytes);
  const std::uint64_t bytes = chunk.last_bytes - std::uint64_t{index} * df11::kWindowBytes;
  const std::uint8_t gap = chunk.gaps[index];
  // Where no code starts in a whole chunk, the chunk before knows where the last one ends; a gap of 0 says
  // that it is on a byte border.
  const bool is_crossed = index == 0 && num_weights == 0;
  const bool ok = is_crossed ? is_empty_end(gap == 0 ? 8 * bytes : gap, bytes, gap)
                             : decode_last_window(window, num_weights, bit, bytes, gap, exponents);
  if (!ok) return {};
  for (std::uint32_t empty = index + 1; empty < kWindowsPerChunk; ++empty)
    if (chunk.gaps[empty] != 0) return {};

  bool kernel_ends = window.kernel_ends(gap);
  if (index + 1 < kWindowsPerChunk) {
    constexpr std::uint8_t kZeros[ChunkInput::kPaddingBytes] = {};
    kernel_ends = kernel_ends && LastWindow(luts, kZeros).kernel_ends(0);
  }
  return {.ok = true, .kernel_ends = kernel_ends};
}

}  // namespace

ChunkResult decode_chunk(const DecodeTable& table, const ChunkInput& chunk, std::uint8_t* exponents) {
  const DecodeEntry* const entries = table.entries();
  const df11::LutsView luts(table.luts());
  // Every code that starts before the last window with a byte of the stream is a weight's.
  const bool is_last = chunk.last_bytes != 0;
  const std::uint32_t full_windows =
      is_last ? static_cast<std::uint32_t>((chunk.last_bytes - 1) / df11::kWindowBytes) : kWindowsPerChunk;

  alignas(64) std::uint8_t lines[kLanes][kLineBytes];
  std::uint8_t* out = exponents;
  std::uint32_t end = kWindowBits + chunk.gaps[0];  // of the window before, in its own bits
  const auto finish = [&](Lane& lane, std::uint32_t index, const std::uint8_t* line) {
    while (!lane.is_done()) lane.step(entries, luts);
    const bool is_linked = end - kWindowBits == chunk.gaps[index];
    end = lane.finish();
    std::memcpy(out, line, kWindowBits);
    out += lane.out - line;
    return is_linked;
  };
  std::uint32_t window = 0;
  const std::uint8_t* bytes = chunk.bytes;
  for (; window + kLanes <= full_windows; window += kLanes, bytes += kLanes * df11::kWindowBytes) {
    Lane lanes[kLanes];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kLanes; ++i)
      lanes[i].begin(bytes + std::uint64_t{i} * df11::kWindowBytes, chunk.gaps[window + i], lines[i]);
    for (bool all_busy = true; all_busy;) {
#pragma GCC unroll 8
      for (Lane& lane : lanes) lane.step(entries, luts);
#pragma GCC unroll 8
      for (const Lane& lane : lanes) all_busy = all_busy && !lane.is_done();
    }
    bool is_linked = true;
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kLanes; ++i)
      is_linked = finish(lanes[i], window + i, lines[i]) && is_linked;
    if (!is_linked) [[unlikely]]
      return {};
  }
  for (; window < full_windows; ++window, bytes += df11::kWindowBytes) {
    Lane lane;
    lane.begin(bytes, chunk.gaps[window], lines[0]);
    if (!finish(lane, window, lines[0])) return {};
  }
  const std::uint64_t num_codes = static_cast<std::uint64_t>(out - exponents);
  if (!is_last) {
    const std::uint8_t next_gap = chunk.gaps[kWindowsPerChunk];
    const bool is_linked = chunk.crossing_bytes != 0
                               ? is_empty_end(end - kWindowBits, chunk.crossing_bytes, next_gap)
                               : end - kWindowBits == next_gap;
    return {.ok = is_linked && num_codes == chunk.num_weights};
  }
  if (num_codes > chunk.num_weights) return {};
  return decode_end(luts, chunk, full_windows, chunk.num_weights - num_codes, end - kWindowBits, out);
}

}  // namespace weightpress::host
