#include "job/fault_locator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "format/decode_stage.h"
#include "format/luts_view.h"

namespace weightpress::job {
namespace {

using df11::kChunkBits;
using df11::kChunkBytes;
using df11::kWindowBits;
using df11::kWindowsPerChunk;

std::string hex_word(std::uint16_t word) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 12; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  return text;
}

/// The codes of one chunk, one after the other, whatever its gaps say.
struct Walk {
  enum class End : std::uint8_t {
    kChunkEnds,   ///< the next code starts in another chunk
    kWeightsEnd,  ///< as many as the unit has
    kNoCode,      ///< the look-up of the next code leads nowhere
    kStreamEnds   ///< the next code goes on beyond the last byte, or begins there
  };

  std::vector<std::uint8_t> exponents;
  std::vector<std::uint32_t> starts;  // bits of the chunk, one a code
  std::uint64_t bit = 0;              // of the chunk, where the codes end
  End end = End::kChunkEnds;

  std::uint64_t num_codes() const { return exponents.size(); }
  bool is_broken() const { return end == End::kNoCode || end == End::kStreamEnds; }
  /// Of the chunk.
  std::uint64_t window_of(std::uint64_t code) const {
    return (code < starts.size() ? starts[code] : bit) / kWindowBits;
  }
};

class FaultLocator {
 public:
  FaultLocator(const UnitSizes& sizes, const UnitBytes& bytes, std::span<const std::uint8_t> luts,
               std::uint64_t chunk, WeightSource* source)
      : sizes_(sizes), bytes_(bytes), luts_(luts), chunk_(chunk), source_(source) {}

  UnitFault locate() {
    first_weight_ = position(chunk_);
    if (chunk_ == 0 && first_weight_ != 0) return wrong_position(0, 0);
    if (first_weight_ > sizes_.num_weights) return wrong_position(chunk_, sizes_.num_weights);
    const std::uint8_t first_gap = gap(chunk_ * kWindowsPerChunk);
    if (chunk_ == 0 && first_gap != 0) return wrong_gap(0, 0);
    if (first_weight_ == sizes_.num_weights) return empty_chunk(first_gap);

    walk_ = walk(chunk_, first_gap, first_weight_);
    find_first_wrong_code();
    const std::optional<std::uint64_t> window = first_wrong_gap(walk_, chunk_);
    // With a source it is known up to where the codes are right: a gap before that is what is wrong.
    if (window && source_ != nullptr && *window <= wrong_window())
      return wrong_gap(*window, expected_gap(*window));
    if (wrong_code_ && (source_ != nullptr || !window || *window > wrong_window())) return wrong_code();
    if (window) return gap_or_stream(*window);
    if (walk_.end == Walk::End::kWeightsEnd && stream_end_is_wrong()) return wrong_end();
    return position_or_stream();
  }

 private:
  // ---- reading

  /// An output position; behind the last one stored, the number of weights.
  std::uint64_t position(std::uint64_t index) const {
    if (index >= sizes_.num_positions) return sizes_.num_weights;
    std::uint32_t value = 0;
    bytes_.read(UnitBuffer::kOutputPositions, index * sizeof value,
                {reinterpret_cast<std::uint8_t*>(&value), sizeof value});
    return value;
  }

  /// Of a window of the unit; behind the last one stored: 0.
  std::uint8_t gap(std::uint64_t window) const {
    if (window >= sizes_.num_chunks * kWindowsPerChunk) return 0;
    std::array<std::uint8_t, df11::kGapGroupBytes> group{};
    bytes_.read(UnitBuffer::kGaps, window / df11::kWindowsPerGapGroup * group.size(), group);
    std::uint64_t bits = 0;
    for (const std::uint8_t byte : group) bits = bits << 8 | byte;
    const std::uint64_t after = df11::kWindowsPerGapGroup - 1 - window % df11::kWindowsPerGapGroup;
    return bits >> (after * df11::kGapBits) & ((1u << df11::kGapBits) - 1);
  }

  Walk walk(std::uint64_t chunk, std::uint64_t first_bit, std::uint64_t first_weight) const {
    const std::uint64_t begin = chunk * kChunkBytes;
    const std::uint64_t have =
        std::min(kChunkBytes + df11::kDecodeLookaheadBytes, sizes_.stream_bytes - begin);
    std::vector<std::uint8_t> stream(kChunkBytes + 2 * df11::kDecodeLookaheadBytes, 0);
    bytes_.read(UnitBuffer::kEncodedExponent, begin, std::span(stream).first(have));
    const auto bits_at = [&](std::uint64_t bit) {
      std::uint64_t value = 0;
      for (std::uint64_t i = 0; i < 5; ++i) value = value << 8 | stream[bit / 8 + i];
      return static_cast<std::uint32_t>(value >> (8 - bit % 8));
    };
    Walk walk;
    walk.bit = first_bit;
    while (walk.bit < kChunkBits) {
      if (first_weight + walk.num_codes() == sizes_.num_weights) {
        walk.end = Walk::End::kWeightsEnd;
        return walk;
      }
      const df11::DecodedCode code =
          walk.bit < 8 * have ? luts_.look_up(bits_at(walk.bit)) : df11::DecodedCode{};
      if (walk.bit >= 8 * have || walk.bit + code.length > 8 * have || code.length == 0) {
        const bool is_in_stream = walk.bit < 8 * have && code.length == 0;
        walk.end = is_in_stream ? Walk::End::kNoCode : Walk::End::kStreamEnds;
        return walk;
      }
      walk.starts.push_back(static_cast<std::uint32_t>(walk.bit));
      walk.exponents.push_back(code.exponent);
      walk.bit += code.length;
    }
    if (first_weight + walk.num_codes() == sizes_.num_weights) walk.end = Walk::End::kWeightsEnd;
    return walk;
  }

  // ---- what is wrong

  /// Sets wrong_code_: of the walk, the first that the source contradicts or that could not be looked up.
  void find_first_wrong_code() {
    if (walk_.is_broken()) wrong_code_ = walk_.num_codes();
    if (source_ == nullptr) return;
    // Wrong codes may lead to more weights than there are, or can be read yet.
    const WeightRange known = source_->readable();
    if (first_weight_ < known.first || first_weight_ >= known.end) return;
    const std::uint64_t count = std::min(walk_.num_codes(), known.end - first_weight_);
    std::vector<std::uint8_t> sign_mantissa(count);
    bytes_.read(UnitBuffer::kSignMantissa, first_weight_, sign_mantissa);
    std::vector<std::uint16_t> expected(count);
    source_->read(first_weight_, expected);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto decoded = static_cast<std::uint16_t>((sign_mantissa[i] & 0x80) << 8 |
                                                      walk_.exponents[i] << 7 | (sign_mantissa[i] & 0x7F));
      if (decoded == expected[i]) continue;
      wrong_code_ = i;
      decoded_ = decoded;
      expected_ = expected[i];
      is_other_weight_ = true;
      return;
    }
  }

  /// Of the chunk; behind its last if no code is wrong.
  std::uint64_t wrong_window() const {
    return wrong_code_ ? walk_.window_of(*wrong_code_) : kWindowsPerChunk;
  }

  /// What the codes say, by window of the chunk, kWindowsPerChunk being the first of the next chunk. Nothing:
  /// the walk does not reach it.
  static std::vector<std::optional<std::uint64_t>> expected_gaps(const Walk& walk) {
    std::vector<std::optional<std::uint64_t>> gaps(kWindowsPerChunk + 1);
    for (const std::uint32_t start : walk.starts)
      if (auto& window = gaps[start / kWindowBits]; !window) window = start % kWindowBits;
    const bool weights_end = walk.end == Walk::End::kWeightsEnd;
    // The next code starts there; where there is none, see docs/format.md, "Gaps".
    if (auto& window = gaps[std::min<std::uint64_t>(walk.bit / kWindowBits, kWindowsPerChunk)]; !window)
      window = weights_end && walk.bit % 8 == 0 ? 0 : walk.bit % kWindowBits;
    if (weights_end)
      for (auto& window : gaps)
        if (!window) window = 0;
    return gaps;
  }

  std::uint64_t expected_gap(std::uint64_t window) const { return *expected_gaps(walk_)[window]; }

  std::optional<std::uint64_t> first_wrong_gap(const Walk& walk, std::uint64_t chunk) const {
    const auto gaps = expected_gaps(walk);
    const bool is_last_chunk = chunk + 1 == sizes_.num_chunks;
    for (std::uint64_t window = 0; window < kWindowsPerChunk + (is_last_chunk ? 0 : 1); ++window)
      if (gaps[window] && *gaps[window] != gap(chunk * kWindowsPerChunk + window)) return window;
    return std::nullopt;
  }

  bool stream_end_is_wrong() const {
    return (chunk_ * kChunkBits + walk_.bit + 7) / 8 != sizes_.stream_bytes;
  }

  /// The codes of `walk` lead into the next chunk; where they do, the codes there agree with its other gaps.
  bool next_chunk_agrees() const {
    if (chunk_ + 1 >= sizes_.num_chunks || walk_.bit < kChunkBits) return false;
    const std::uint64_t first = walk_.bit - kChunkBits;
    const Walk next = walk(chunk_ + 1, first, first_weight_ + walk_.num_codes());
    if (next.is_broken()) return false;
    const auto wrong = first_wrong_gap(next, chunk_ + 1);
    if (!wrong || *wrong != 0) return !wrong;
    const auto gaps = expected_gaps(next);
    for (std::uint64_t window = 1; window < kWindowsPerChunk; ++window)
      if (gaps[window] && *gaps[window] != gap((chunk_ + 1) * kWindowsPerChunk + window)) return false;
    return true;
  }

  /// Without a source: if all else agrees with the codes, the gap is wrong, otherwise the codes before it
  /// are.
  UnitFault gap_or_stream(std::uint64_t window) const {
    const bool codes_agree = source_ != nullptr || (!walk_.is_broken() && holds_what_positions_say() &&
                                                    (window < kWindowsPerChunk || next_chunk_agrees()));
    if (codes_agree) return wrong_gap(window, expected_gap(window));
    const std::uint64_t before = window == 0 ? 0 : window - 1;
    UnitFault fault = at("stream", before);
    fault.message = "encoded_exponent: the codes of " + name_of(before) + " end at bit " +
                    std::to_string(expected_gap(window)) + " of the next window, but its gap is " +
                    std::to_string(gap(chunk_ * kWindowsPerChunk + window));
    for (std::uint64_t code = 0; code < walk_.num_codes(); ++code) {
      if (walk_.window_of(code) != before) continue;
      fault.weight = first_weight_ + code;
      break;
    }
    return fault;
  }

  bool holds_what_positions_say() const { return first_weight_ + walk_.num_codes() == position(chunk_ + 1); }

  /// All codes and gaps are right, so far as is known, but not their number.
  UnitFault position_or_stream() const {
    const std::uint64_t end = first_weight_ + walk_.num_codes();
    if (chunk_ + 1 == sizes_.num_chunks) {
      // Of short output_positions the last one stored is the number of weights.
      const std::uint64_t last = sizes_.num_positions - 1;
      if (position(last) != sizes_.num_weights) return wrong_position(last, sizes_.num_weights);
      return count_differs(end);
    }
    const std::uint64_t stored = position(chunk_ + 1);
    const bool stored_is_impossible = stored > sizes_.num_weights || stored < first_weight_;
    // Where all weights end with this chunk's codes, they end with the stream.
    const bool codes_agree = walk_.end == Walk::End::kWeightsEnd ||
                             (next_chunk_fits(end) && (stored_is_impossible || !next_chunk_fits(stored)));
    if (source_ != nullptr || codes_agree) return wrong_position(chunk_ + 1, end);
    return count_differs(end);
  }

  /// Whether the next chunk, from its first gap on, holds what positions (or the stream's end) say if
  /// `first_weight` is its first.
  bool next_chunk_fits(std::uint64_t first_weight) const {
    const std::uint64_t chunk = chunk_ + 1;
    const Walk next = walk(chunk, gap(chunk * kWindowsPerChunk), first_weight);
    if (chunk + 1 < sizes_.num_chunks && first_weight + next.num_codes() != position(chunk + 1)) return false;
    // The walk ends with the unit's last weight, whatever is its first: where that leads is what counts.
    if (next.end == Walk::End::kWeightsEnd)
      return (chunk * kChunkBits + next.bit + 7) / 8 == sizes_.stream_bytes;
    return chunk + 1 < sizes_.num_chunks;
  }

  // A last chunk of no weight, but with bytes that belong to the last code of the chunk before.
  UnitFault empty_chunk(std::uint8_t first_gap) const {
    const std::uint64_t bytes = sizes_.stream_bytes - chunk_ * kChunkBytes;
    if (bytes > df11::kMaxCodeBits / 8 || chunk_ + 1 != sizes_.num_chunks) {
      UnitFault fault = at("stream", 0);
      fault.message = "encoded_exponent: goes on in chunk " + std::to_string(chunk_) +
                      ", but all weights are in the chunks before it";
      return fault;
    }
    for (std::uint64_t window = 1; window < kWindowsPerChunk; ++window)
      if (gap(chunk_ * kWindowsPerChunk + window) != 0) return wrong_gap(window, 0);
    const std::uint64_t last = sizes_.num_positions - 1;
    if (position(last) != sizes_.num_weights) return wrong_position(last, sizes_.num_weights);
    return wrong_gap(0, first_gap == 0 ? 8 * bytes : 0);
  }

  // ---- words

  UnitFault at(const char* kind, std::uint64_t window) const {
    UnitFault fault;
    fault.kind = kind;
    fault.window = chunk_ * kWindowsPerChunk + window;
    fault.chunk = fault.window / kWindowsPerChunk;
    return fault;
  }

  std::string name_of(std::uint64_t window) const {
    const std::uint64_t index = chunk_ * kWindowsPerChunk + window;
    return "window " + std::to_string(index) + " (chunk " + std::to_string(index / kWindowsPerChunk) + ")";
  }

  UnitFault wrong_gap(std::uint64_t window, std::uint64_t expected) const {
    UnitFault fault = at("gap", window);
    fault.message = "gaps: " + name_of(window) + " has gap " +
                    std::to_string(gap(chunk_ * kWindowsPerChunk + window)) + ", but must have " +
                    std::to_string(expected);
    return fault;
  }

  UnitFault wrong_position(std::uint64_t index, std::uint64_t expected) const {
    UnitFault fault;
    fault.kind = "position";
    fault.chunk = std::min(index, sizes_.num_chunks - 1);
    fault.message = "output_positions: entry " + std::to_string(index) + " is " +
                    std::to_string(position(index)) + ", but must be " + std::to_string(expected);
    return fault;
  }

  UnitFault count_differs(std::uint64_t end) const {
    UnitFault fault;
    fault.kind = "stream";
    fault.chunk = chunk_;
    fault.message = "encoded_exponent: chunk " + std::to_string(chunk_) + " holds " +
                    std::to_string(end - first_weight_) + " codes, but output_positions say " +
                    std::to_string(static_cast<std::int64_t>(position(chunk_ + 1)) -
                                   static_cast<std::int64_t>(first_weight_));
    return fault;
  }

  UnitFault wrong_end() const {
    // The last code may end in the chunk behind.
    const std::uint64_t last_window = sizes_.num_chunks * kWindowsPerChunk - 1 - chunk_ * kWindowsPerChunk;
    const std::uint64_t window = std::min(walk_.bit / kWindowBits, last_window);
    UnitFault fault = at("stream", window);
    fault.weight = sizes_.num_weights - 1;
    const std::uint64_t bytes = (chunk_ * kChunkBits + walk_.bit + 7) / 8;
    fault.message = "encoded_exponent: the last weight's code ends in byte " + std::to_string(bytes - 1) +
                    ", " + name_of(window) + ", but there are " + std::to_string(sizes_.stream_bytes) +
                    " bytes";
    return fault;
  }

  UnitFault wrong_code() const {
    const std::uint64_t window = std::min<std::uint64_t>(wrong_window(), kWindowsPerChunk - 1);
    UnitFault fault = at(is_other_weight_ ? "weight" : "stream", window);
    fault.weight = first_weight_ + *wrong_code_;
    const std::string weight = "weight " + std::to_string(fault.weight) + ", " + name_of(window) + ", ";
    if (is_other_weight_) {
      const bool is_exponent = ((decoded_ ^ expected_) >> 7 & 0xFF) != 0;
      fault.message = std::string(is_exponent ? "encoded_exponent" : "sign_mantissa") + ": " + weight +
                      "is " + hex_word(decoded_) + ", but the source has " + hex_word(expected_);
    } else if (walk_.end == Walk::End::kNoCode) {
      fault.message = "encoded_exponent: " + weight + "has bits that are no code";
    } else {
      fault.message = "encoded_exponent: " + weight + "has a code that goes on beyond the last byte";
    }
    return fault;
  }

  const UnitSizes& sizes_;
  const UnitBytes& bytes_;
  const df11::LutsView luts_;
  const std::uint64_t chunk_;
  WeightSource* const source_;

  std::uint64_t first_weight_ = 0;
  Walk walk_;
  std::optional<std::uint64_t> wrong_code_;
  bool is_other_weight_ = false;
  std::uint16_t decoded_ = 0, expected_ = 0;
};

}  // namespace

UnitFault locate_fault(const UnitSizes& sizes, const UnitBytes& bytes, std::span<const std::uint8_t> luts,
                       std::uint64_t chunk, WeightSource* source) {
  return FaultLocator(sizes, bytes, luts, chunk, source).locate();
}

}  // namespace weightpress::job
