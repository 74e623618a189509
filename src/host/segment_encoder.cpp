// The hot loop of encoding. A group of eight weights at a time (four where codes are long): look-ups in the
// pair table, merged to one code of at most 56 bits, appended by one unaligned 8-byte store. Everything else
// (pairs too long, groups too long, the ends of the segment) goes code by code, under the same bounds.
//
// State, all relative to the segment's first byte:
//   out        next byte to complete; the bits of the stream before it are stored
//   pending    the bits that follow, right-aligned; only the lowest num_pending (0..7 between appends) count
//   offset     of the next code from the start of the window opened last: 0 .. 64 + 31
//
// Gaps without branches: a code opens a window when its offset reaches 64. The offsets are held as bytes of
// one word; with 64 added, bit 7 of a byte says "reaches 64" and bits 6..0 are then the gap itself. A group
// in which an offset reaches 128 may open two windows and goes code by code.
#include "host/segment_encoder.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "format/bf16_fields.h"
#include "format/gap_packing.h"

namespace weightpress::host {
namespace {

using df11::kWindowBits;
using df11::kWindowsPerChunk;
using df11::kWindowsPerGapGroup;

constexpr std::uint32_t kMaxGroupBits = 56;
constexpr std::uint64_t kEachByte = 0x0101010101010101;
constexpr std::uint64_t kEachTopBit = 0x8080808080808080;
static_assert(kMaxGroupBits + 7 <= 63);  // pending never holds more
// Byte sums do not overflow: the bits of four pairs, and the largest offset with 64 added.
static_assert(4 * PairCodes::kMaxPairBits + (kWindowBits + df11::kMaxCodeBits - 1) + kWindowBits < 256);

// Above this mean code length groups of eight are too long too often. docs/benchmarking.md, "Tuned
// constants".
constexpr std::uint64_t kLongCodeBits = 6;

static_assert(std::endian::native == std::endian::little,
              "weights are read and bits are stored as 8-byte words");

/// Collects gaps of one segment, chunk by chunk, and packs them.
class GapWriter {
 public:
  GapWriter(std::uint64_t first_window, std::span<std::uint8_t> gaps, std::span<std::uint32_t> positions)
      : gaps_(gaps), positions_(positions) {
    num_pending_ = static_cast<std::uint32_t>(first_window % kWindowsPerGapGroup);
    const std::uint64_t base = first_window - num_pending_;
    const std::uint32_t in_chunk = static_cast<std::uint32_t>(base % kWindowsPerChunk);
    // The chunk's first window is the one after which num_pending_ reaches chunk_at_.
    chunk_at_ = (first_window % kWindowsPerChunk == 0 ? 0 : kWindowsPerChunk - in_chunk) + 1;
  }

  /// Where the gap of the next window goes. Whoever stored one there passes on with advance().
  std::uint8_t* slot() { return pending_ + num_pending_; }
  void advance_to(const std::uint8_t* slot) { num_pending_ = static_cast<std::uint32_t>(slot - pending_); }

  /// slot() right after the first window of a chunk was opened: call open_chunk() then.
  const std::uint8_t* chunk_slot() const { return pending_ + chunk_at_; }

  /// The window just opened is the first of a chunk and begins with `weight`. Packs the windows before it.
  /// False if there is no room left.
  bool open_chunk(std::uint64_t weight) {
    if (positions_.empty()) return false;
    positions_.front() = static_cast<std::uint32_t>(weight);  // below 2^31: Df11Limits
    positions_ = positions_.subspan(1);
    const std::uint8_t first = pending_[chunk_at_ - 1];
    if (!pack(chunk_at_ - 1)) return false;
    pending_[0] = first;
    num_pending_ = 1;
    chunk_at_ = kWindowsPerChunk + 1;
    return true;
  }

  /// Packs the rest; the unfinished group goes to the border. False unless exactly the segment's windows were
  /// opened.
  bool finish(df11::SlabBorder& border) {
    const std::uint32_t whole = num_pending_ / kWindowsPerGapGroup * kWindowsPerGapGroup;
    std::uint8_t rest[kWindowsPerGapGroup] = {};
    std::copy(pending_ + whole, pending_ + num_pending_, rest);
    if (!pack(whole)) return false;
    df11::pack_gap_group(rest, border.gap_group);
    return gaps_.empty() && positions_.empty();
  }

 private:
  bool pack(std::uint32_t num_windows) {
    const std::size_t bytes = std::size_t{num_windows} / kWindowsPerGapGroup * df11::kGapGroupBytes;
    if (bytes > gaps_.size()) return false;
    for (std::uint32_t i = 0; i < num_windows / kWindowsPerGapGroup; ++i) {
      df11::pack_gap_group(pending_ + i * kWindowsPerGapGroup, gaps_.data() + i * df11::kGapGroupBytes);
    }
    gaps_ = gaps_.subspan(bytes);
    return true;
  }

  std::span<std::uint8_t> gaps_;
  std::span<std::uint32_t> positions_;
  std::uint32_t num_pending_ = 0;
  std::uint32_t chunk_at_ = 0;
  std::uint8_t pending_[kWindowsPerChunk + 2] = {};
};

/// The codes of four weights, merged.
struct FourWeights {
  std::uint64_t lengths;  // one a byte, the first weight's lowest
  std::uint64_t code;     // right-aligned; at most two pairs' bits
  std::uint32_t bits;
  std::uint64_t escape;  // PairCodes::kEscape if one of the pairs has it: the rest then means nothing
};

FourWeights look_up(const std::uint16_t* weights, const PairCodes::Entry* pairs) {
  constexpr std::uint64_t kCodeMask = (std::uint64_t{1} << PairCodes::kMaxPairBits) - 1;
  constexpr std::uint64_t kExponents = 0x00FF00FF00FF00FF;
  std::uint64_t words;
  std::memcpy(&words, weights, sizeof words);
  words = (words >> 7) & kExponents;
  words |= words >> 8;  // bits 15..0 and 47..32: indices of the two pairs
  const PairCodes::Entry a = pairs[words & 0xFFFF];
  const PairCodes::Entry b = pairs[(words >> 32) & 0xFFFF];
  const std::uint32_t b_bits = static_cast<std::uint32_t>(b >> PairCodes::kLengthShift) & 0xFF;
  const std::uint32_t a_bits = static_cast<std::uint32_t>(a >> PairCodes::kLengthShift) & 0xFF;
  return {(a & 0xFFFF) | (b & 0xFFFF) << 16,
          ((a >> PairCodes::kCodeShift) & kCodeMask) << b_bits | ((b >> PairCodes::kCodeShift) & kCodeMask),
          a_bits + b_bits, a | b};
}

class SegmentEncoder {
 public:
  SegmentEncoder(std::uint64_t num_weights, std::uint64_t first_weight, const SegmentPlace& place,
                 const SegmentPlace& next, const df11::Codebook& codebook, const PairCodes::Entry* pairs,
                 const SegmentOutput& output)
      : codebook_(codebook),
        pairs_(pairs),
        long_codes_(next.first_bit - place.first_bit > kLongCodeBits * num_weights),
        first_weight_(first_weight),
        begin_(output.encoded_exponent.data()),
        out_(begin_),
        end_(begin_ + output.encoded_exponent.size()),
        end_bit_(next.first_bit - place.first_bit / 8 * 8),
        num_pending_(static_cast<std::uint32_t>(place.first_bit % 8)),
        // From the window before the first one to open. Unsigned arithmetic may wrap in between, not in the
        // result.
        offset_(
            static_cast<std::uint32_t>(place.first_bit - place.first_window() * kWindowBits + kWindowBits)),
        gaps_(place.first_window(), output.gaps, output.positions) {}

  /// Encodes weights [first, last) of the segment.
  bool encode(const std::uint16_t* weights, std::uint64_t first, std::uint64_t last) {
    std::uint64_t i = first;
    if (pairs_ != nullptr) {
      const std::uint64_t group = long_codes_ ? 4 : 8;
      while (i + group <= last) {
        i = long_codes_ ? encode_groups<4>(weights, i, last) : encode_groups<8>(weights, i, last);
        if (failed_) return false;
        for (const std::uint64_t stop = std::min(i + group, last); i < stop; ++i) {
          if (!encode_one(weights[i], i)) return false;
        }
      }
    }
    for (; i < last; ++i) {
      if (!encode_one(weights[i], i)) return false;
    }
    return true;
  }

  bool finish(df11::SlabBorder& border) {
    if (bit() != end_bit_ || out_ != end_) return false;
    border.byte =
        num_pending_ == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(pending_ << (8 - num_pending_));
    return gaps_.finish(border);
  }

 private:
  std::uint64_t bit() const { return static_cast<std::uint64_t>(out_ - begin_) * 8 + num_pending_; }

  /// Encodes whole groups from weight i on and returns the first weight that it left: fewer than a group are
  /// left, or the group is too long, or fewer than eight bytes of output are.
  template <std::uint32_t kGroup>
  std::uint64_t encode_groups(const std::uint16_t* weights, std::uint64_t i, std::uint64_t last) {
    static_assert(kGroup == 4 || kGroup == 8);
    const PairCodes::Entry* const pairs = pairs_;
    const std::uint8_t* const end = end_;
    std::uint8_t* out = out_;
    std::uint64_t pending = pending_;
    std::uint32_t num_pending = num_pending_;
    std::uint32_t offset = offset_;
    std::uint8_t* slot = gaps_.slot();
    const std::uint8_t* chunk_slot = gaps_.chunk_slot();

    for (; i + kGroup <= last && end - out >= 8; i += kGroup) {
      const FourWeights first = look_up(weights + i, pairs);
      FourWeights second{};
      if constexpr (kGroup == 8) second = look_up(weights + i + 4, pairs);

      const std::uint64_t lengths = first.lengths | second.lengths << 32;
      const std::uint64_t ends = lengths * kEachByte;  // byte j: bits of codes 0..j
      const std::uint32_t group_bits = static_cast<std::uint32_t>(ends >> 56);
      const std::uint64_t offsets = (ends << 8) + (offset + kWindowBits) * kEachByte;
      const std::uint32_t last_offset = static_cast<std::uint32_t>(offsets >> (8 * kGroup - 8)) & 0xFF;
      if (((first.escape | second.escape) & PairCodes::kEscape) != 0 || group_bits > kMaxGroupBits ||
          last_offset >= 3 * kWindowBits) [[unlikely]] {
        break;
      }

      // Gap of the window that one of the codes may open.
      const std::uint64_t reached = offsets & (kEachTopBit >> (64 - 8 * kGroup));
      const std::uint32_t opened = reached != 0;
      const std::uint32_t opener = static_cast<std::uint32_t>(std::countr_zero(reached)) & 56;  // 8 * code
      *slot = static_cast<std::uint8_t>((offsets >> opener) & 0x7F);
      slot += opened;
      offset += group_bits - opened * kWindowBits;
      if (slot == chunk_slot) [[unlikely]] {
        gaps_.advance_to(slot);
        if (!gaps_.open_chunk(first_weight_ + i + opener / 8)) {
          failed_ = true;
          return i;
        }
        slot = gaps_.slot();
        chunk_slot = gaps_.chunk_slot();
      }

      pending = pending << group_bits | first.code << second.bits | second.code;
      num_pending += group_bits;  // 1 .. 63
      const std::uint64_t stored = __builtin_bswap64(pending << (64 - num_pending));
      std::memcpy(out, &stored, sizeof stored);
      out += num_pending / 8;
      num_pending %= 8;
    }

    out_ = out;
    pending_ = pending;
    num_pending_ = num_pending;
    offset_ = offset;
    gaps_.advance_to(slot);
    return i;
  }

  bool encode_one(std::uint16_t weight, std::uint64_t i) {
    const std::uint8_t exponent = df11::exponent_of(weight);
    const std::uint32_t length = codebook_.lengths[exponent];
    if (length == 0 || bit() + length > end_bit_) return false;
    const std::uint32_t opened = offset_ >= kWindowBits;
    std::uint8_t* const slot = gaps_.slot();
    *slot = static_cast<std::uint8_t>(offset_ - kWindowBits);
    gaps_.advance_to(slot + opened);
    offset_ += length - opened * kWindowBits;
    if (slot + opened == gaps_.chunk_slot() && !gaps_.open_chunk(first_weight_ + i)) return false;
    pending_ = pending_ << length | codebook_.codes[exponent];
    num_pending_ += length;  // at most 7 + 32
    while (num_pending_ >= 8) {
      num_pending_ -= 8;
      *out_++ = static_cast<std::uint8_t>(pending_ >> num_pending_);
    }
    return true;
  }

  const df11::Codebook& codebook_;
  const PairCodes::Entry* pairs_;
  bool long_codes_;
  std::uint64_t first_weight_;
  std::uint8_t* begin_;
  std::uint8_t* out_;
  std::uint8_t* end_;
  std::uint64_t end_bit_;
  std::uint64_t pending_ = 0;  // the bits before the segment's first are 0: SlabJoiner adds them
  std::uint32_t num_pending_;
  std::uint32_t offset_;
  bool failed_ = false;
  GapWriter gaps_;
};

}  // namespace

bool encode_segment(std::span<const std::uint16_t> weights, std::uint64_t first_weight,
                    const SegmentPlace& place, const SegmentPlace& next, const df11::Codebook& codebook,
                    const PairCodes::Entry* pairs, const SegmentOutput& output, df11::SlabBorder& border) {
  // Split and encode block by block, so that the weights come from memory once. 8 KiB of weights stay in any
  // L1.
  constexpr std::uint64_t kBlock = 4096;
  SegmentEncoder encoder(weights.size(), first_weight, place, next, codebook, pairs, output);
  for (std::uint64_t first = 0; first < weights.size(); first += kBlock) {
    const std::uint64_t last = std::min<std::uint64_t>(first + kBlock, weights.size());
    const std::uint16_t* const in = weights.data();
    std::uint8_t* const halves = output.sign_mantissa.data();
    for (std::uint64_t i = first; i < last; ++i) halves[i] = df11::sign_mantissa_of(in[i]);
    if (!encoder.encode(in, first, last)) return false;
  }
  return encoder.finish(border);
}

}  // namespace weightpress::host
