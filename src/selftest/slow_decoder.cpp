// The slow decoder. Names in quotation marks are sections of docs/format.md, its only source.
//
// Surprising facts first:
// - A look-up ends in a table of level 0 to 3; a value of 240 or more in level 3 leads nowhere.
// - Only the last window and the last chunk can be without a start, since a code has at most 32 bits.
// - A chunk without a start has an output position only if the stream ends inside a byte.
#include "slow_decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace weightpress::selftest {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint64_t kWindowBits = 64;
constexpr std::uint64_t kChunkWindows = 512;
constexpr std::uint64_t kChunkBits = kChunkWindows * kWindowBits;
constexpr std::uint64_t kChunkBytes = kChunkBits / 8;
constexpr std::uint64_t kGapBits = 5;
constexpr std::uint64_t kChunkGapBytes = kChunkWindows * kGapBits / 8;
constexpr std::size_t kRowEntries = 256;
constexpr unsigned kFirstPointer = 240;  // smaller values are exponents
constexpr unsigned kMaxCodeBits = 32;
constexpr unsigned kMaxLevels = kMaxCodeBits / 8;
static_assert(kChunkBytes == 4096 && kChunkGapBytes == 320);

// "Limits of the official kernel and loader"
constexpr std::uint64_t kKernelMaxTables = 17;
constexpr std::uint64_t kKernelMaxChunkWeights = 23550;
constexpr std::uint64_t kKernelIndexLimit =
    (std::uint64_t{1} << 31) - 4096;  // weights and bytes are below it

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

/// The number in `num_bits` (at most 32) bits from bit `position` on; bit 0 is the top bit of byte 0. Bits
/// beyond the last byte read as 0.
std::uint32_t bits_at(Bytes stream, std::uint64_t position, std::uint64_t num_bits) {
  std::uint32_t value = 0;
  for (std::uint64_t i = position; i < position + num_bits; ++i) {
    const unsigned byte = i / 8 < stream.size() ? stream[i / 8] : 0u;
    value = value << 1 | (byte >> (7 - i % 8) & 1u);
  }
  return value;
}

std::uint64_t gap_of(Bytes gaps, std::uint64_t window) {
  return bits_at(gaps, window * kGapBits, kGapBits);
}

std::uint64_t position_at(Bytes output_positions, std::uint64_t index) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 4; ++i) value |= std::uint64_t{output_positions[4 * index + i]} << 8 * i;
  return value;
}

std::uint16_t join(unsigned exponent, unsigned sign_mantissa) {
  return static_cast<std::uint16_t>((sign_mantissa & 0x80) << 8 | exponent << 7 | (sign_mantissa & 0x7F));
}

struct Tables {
  Bytes luts;  // a multiple of 256 bytes, two rows or more

  std::uint64_t count() const { return luts.size() / kRowEntries - 1; }
  unsigned entry(std::uint64_t table, std::uint32_t index) const { return luts[table * kRowEntries + index]; }
  unsigned length(unsigned exponent) const { return luts[count() * kRowEntries + exponent]; }
};

/// What the look-up at one bit position gives. `failure` is empty if a code was found; it never advances
/// otherwise.
struct Lookup {
  unsigned exponent = 0;
  unsigned length = 0;  // of the code, in bits; 1 or more if found
  unsigned level = 0;   // number of pointers followed
  std::string_view failure = {};
};

Lookup look_up(const Tables& tables, Bytes stream, std::uint64_t position) {
  std::uint64_t table = 0;
  for (unsigned level = 0; level < kMaxLevels; ++level) {
    const unsigned value = tables.entry(table, bits_at(stream, position + 8 * level, 8));
    if (value < kFirstPointer) {
      const unsigned length = tables.length(value);
      return {value, length, level, length == 0 ? "the look-up gives an exponent of code length 0" : ""};
    }
    table = 256 - value;
    if (table >= tables.count()) return {0, 0, level, "the look-up leads to a table that does not exist"};
  }
  return {0, 0, kMaxLevels, "the look-up finds no exponent in four levels"};
}

/// Sizes that hold whatever the stream says, and the row of code lengths. Returns the problem, or nothing.
std::string check_shapes(const UnitBytes& unit) {
  if (unit.luts.size() % kRowEntries != 0 || unit.luts.size() < 2 * kRowEntries) {
    return "luts: " + text(unit.luts.size()) + " bytes are not two or more rows of 256";
  }
  const Tables tables{unit.luts};
  for (unsigned exponent = 0; exponent < kRowEntries; ++exponent) {
    const unsigned length = tables.length(exponent);
    if (length > kMaxCodeBits || (exponent >= kFirstPointer && length != 0)) {
      return "luts: exponent " + text(exponent) + " cannot have a code of " + text(length) + " bits";
    }
  }
  if (unit.sign_mantissa.empty()) return "sign_mantissa: the unit has no weights";
  if (unit.output_positions.size() % 4 != 0) {
    return "output_positions: " + text(unit.output_positions.size()) + " bytes are not a multiple of 4";
  }
  const std::uint64_t num_chunks = (unit.encoded_exponent.size() + kChunkBytes - 1) / kChunkBytes;
  if (unit.gaps.size() != num_chunks * kChunkGapBytes) {
    return "gaps: " + text(unit.gaps.size()) + " bytes instead of " + text(num_chunks * kChunkGapBytes) +
           " for " + text(num_chunks) + " chunks";
  }
  return {};
}

/// The codes met so far, by exponent; length 0 stands for none.
class CodesMet {
 public:
  /// Returns the problem, or nothing.
  std::string meet(const Lookup& found, std::uint32_t code) {
    Code& known = codes_[found.exponent];
    if (known.length == 0) {
      if ((found.length - 1) / 8 != found.level) {
        return "the code of exponent " + text(found.exponent) + " has " + text(found.length) +
               " bits but is looked up in " + text(found.level + 1) + " table(s)";
      }
      known = {found.length, code};
    }
    if (known.bits == code) return {};
    return "exponent " + text(found.exponent) + " has a second code";
  }

  std::string check_prefix_code() const {
    for (std::size_t a = 0; a < codes_.size(); ++a) {
      for (std::size_t b = 0; b < codes_.size(); ++b) {
        if (a == b || codes_[a].length == 0 || codes_[a].length > codes_[b].length) continue;
        if (codes_[b].bits >> (codes_[b].length - codes_[a].length) == codes_[a].bits) {
          return "luts: the code of exponent " + text(a) + " begins that of exponent " + text(b);
        }
      }
    }
    return {};
  }

 private:
  struct Code {
    unsigned length = 0;
    std::uint32_t bits = 0;
  };
  std::array<Code, kFirstPointer> codes_ = {};
};

/// Where codes start, as the decoding found it.
struct Starts {
  std::vector<std::uint8_t> gaps;        // [512 * num_chunks]: as they must be stored
  std::vector<std::uint64_t> positions;  // as they must be stored
};

/// "Bitstream": fills `weights` and `starts`. Returns the problem, or nothing.
std::string decode_stream(const UnitBytes& unit, std::vector<std::uint16_t>& weights, Starts& starts) {
  const Tables tables{unit.luts};
  const Bytes stream = unit.encoded_exponent;
  const std::uint64_t stream_bits = std::uint64_t{stream.size()} * 8;
  const std::uint64_t num_weights = unit.sign_mantissa.size();
  const std::uint64_t num_chunks = (stream_bits + kChunkBits - 1) / kChunkBits;
  CodesMet codes;

  starts.gaps.assign(num_chunks * kChunkWindows, 0);
  std::uint64_t windows_started = 0;  // windows before this one have had their first start, or have none
  std::uint64_t position = 0;
  for (std::uint64_t weight = 0; weight < num_weights; ++weight) {
    const auto here = [&](std::string_view what) {
      return "encoded_exponent: weight " + text(weight) + " at bit " + text(position) + ": " +
             std::string(what);
    };
    if (position >= stream_bits) return here("the stream has ended");
    const Lookup found = look_up(tables, stream, position);
    if (!found.failure.empty()) return here(found.failure);
    if (position + found.length > stream_bits) return here("the code goes on beyond the last byte");
    if (std::string problem = codes.meet(found, bits_at(stream, position, found.length)); !problem.empty()) {
      return here(problem);
    }
    if (position / kWindowBits >= windows_started) {
      starts.gaps[position / kWindowBits] = static_cast<std::uint8_t>(position % kWindowBits);
      windows_started = position / kWindowBits + 1;
    }
    if (position / kChunkBits == starts.positions.size()) starts.positions.push_back(weight);
    weights.push_back(join(found.exponent, unit.sign_mantissa[weight]));
    position += found.length;
  }
  if ((position + 7) / 8 != stream.size()) {
    return "encoded_exponent: the last code ends at bit " + text(position) + " but there are " +
           text(stream.size()) + " bytes";
  }
  // The exception of "Gaps" and that of "Output positions".
  const bool ends_inside_byte = position % 8 != 0;
  if (ends_inside_byte && position / kWindowBits >= windows_started) {
    starts.gaps[position / kWindowBits] = static_cast<std::uint8_t>(position % kWindowBits);
  }
  if (ends_inside_byte && position / kChunkBits >= starts.positions.size()) {
    starts.positions.push_back(num_weights);
  }
  starts.positions.push_back(num_weights);
  return codes.check_prefix_code();
}

std::string check_starts(const UnitBytes& unit, const Starts& starts) {
  for (std::uint64_t window = 0; window < starts.gaps.size(); ++window) {
    const std::uint64_t stored = gap_of(unit.gaps, window);
    if (stored != starts.gaps[window]) {
      return "gaps: window " + text(window) + " has gap " + text(stored) + " instead of " +
             text(starts.gaps[window]);
    }
  }
  const std::uint64_t num_positions = unit.output_positions.size() / 4;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(num_positions, starts.positions.size()); ++i) {
    const std::uint64_t stored = position_at(unit.output_positions, i);
    if (stored != starts.positions[i]) {
      return "output_positions: entry " + text(i) + " is " + text(stored) + " instead of " +
             text(starts.positions[i]);
    }
  }
  if (num_positions != starts.positions.size()) {
    return "output_positions: " + text(num_positions) + " entries instead of " +
           text(starts.positions.size());
  }
  return {};
}

std::string check_limits(const UnitBytes& unit) {
  const Tables tables{unit.luts};
  if (tables.count() > kKernelMaxTables) {
    return "luts: " + text(tables.count()) + " tables, more than " + text(kKernelMaxTables);
  }
  if (unit.sign_mantissa.size() >= kKernelIndexLimit) return "sign_mantissa: too many weights for the kernel";
  if (unit.encoded_exponent.size() >= kKernelIndexLimit) {
    return "encoded_exponent: too many bytes for the kernel";
  }
  for (std::uint64_t i = 0; i + 1 < unit.output_positions.size() / 4; ++i) {
    const std::uint64_t chunk_weights =
        position_at(unit.output_positions, i + 1) - position_at(unit.output_positions, i);
    if (chunk_weights > kKernelMaxChunkWeights) {
      return "output_positions: chunk " + text(i) + " has " + text(chunk_weights) + " weights, more than " +
             text(kKernelMaxChunkWeights);
    }
  }
  return {};
}

/// "Padding": all windows of one chunk, as the kernel's threads decode them. `exponents` is what they find,
/// in order.
std::string decode_chunk(const UnitBytes& unit, std::uint64_t chunk, std::vector<std::uint8_t>& exponents) {
  const Tables tables{unit.luts};
  for (std::uint64_t window = chunk * kChunkWindows; window < (chunk + 1) * kChunkWindows; ++window) {
    std::uint64_t used_bits = gap_of(unit.gaps, window);
    while (used_bits < kWindowBits) {
      const Lookup found = look_up(tables, unit.encoded_exponent, window * kWindowBits + used_bits);
      if (!found.failure.empty()) {
        return "window " + text(window) + " (chunk " + text(chunk) + ") never ends: at its bit " +
               text(used_bits) + " " + std::string(found.failure);
      }
      exponents.push_back(static_cast<std::uint8_t>(found.exponent));
      used_bits += found.length;
    }
  }
  return {};
}

/// Compares what the windows give with `expected`, chunk by chunk. Returns the problem, or nothing.
std::string check_windows(const UnitBytes& unit, const std::vector<std::uint16_t>& expected) {
  const std::uint64_t num_positions = unit.output_positions.size() / 4;
  const std::uint64_t num_chunks = unit.gaps.size() / kChunkGapBytes;
  std::uint64_t next = 0;  // first weight that no chunk has given
  std::vector<std::uint8_t> exponents;
  for (std::uint64_t chunk = 0; chunk < num_chunks; ++chunk) {
    exponents.clear();
    if (std::string problem = decode_chunk(unit, chunk, exponents); !problem.empty()) return problem;

    // A last chunk without a start may have the final entry as its own and no entry behind it. All windows of
    // a chunk write one after another from `begin`; what comes at `end` or later is thrown away.
    const std::uint64_t begin = position_at(unit.output_positions, chunk);
    const std::uint64_t end =
        chunk + 1 < num_positions ? position_at(unit.output_positions, chunk + 1) : begin;
    if (begin != next || end < begin || end > expected.size()) {
      return "output_positions: chunk " + text(chunk) + " cannot hold weights " + text(begin) + " to " +
             text(end);
    }
    if (exponents.size() < end - begin) {
      return "chunk " + text(chunk) + ": its windows give " + text(exponents.size()) +
             " weights instead of " + text(end - begin);
    }
    if (chunk + 1 < num_chunks && exponents.size() > end - begin) {
      return "chunk " + text(chunk) + ": its windows give " + text(exponents.size()) +
             " weights, more than " + text(end - begin);
    }
    for (std::uint64_t weight = begin; weight < end; ++weight) {
      if (join(exponents[weight - begin], unit.sign_mantissa[weight]) != expected[weight]) {
        return "chunk " + text(chunk) + ": its windows give another weight " + text(weight);
      }
    }
    next = end;
  }
  if (next != expected.size()) return "the windows give " + text(next) + " weights only";
  return {};
}

}  // namespace

SlowDecoding slow_decode(const UnitBytes& unit) {
  SlowDecoding result;
  Starts starts;
  result.problem = check_shapes(unit);
  if (result.problem.empty()) result.problem = decode_stream(unit, result.weights, starts);
  if (result.problem.empty()) result.problem = check_starts(unit, starts);
  result.ok = result.problem.empty();
  return result;
}

SlowDecoding window_decode(const UnitBytes& unit) {
  SlowDecoding result = slow_decode(unit);
  if (!result.ok) return result;
  result.problem = check_limits(unit);
  if (result.problem.empty()) result.problem = check_windows(unit, result.weights);
  result.ok = result.problem.empty();
  return result;
}

}  // namespace weightpress::selftest
