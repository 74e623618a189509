// How the bytes of a fuzz input become the buffers of a unit, and back: seeds are written in the same form.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <weightpress/df11.h>

namespace weightpress::fuzz {

/// How the first byte of an input says that the rest is meant.
enum DecodeInput : std::uint8_t {
  kRawSizes = 1,        ///< each buffer with a size of its own, which need not fit the others
  kRepairedEnds = 2,    ///< gaps, positions and the stream's end are made to fit what the tables give
  kShortPositions = 4,  ///< num_chunks entries of output_positions instead of num_chunks + 1
};

/// Reads numbers and runs of bytes; behind the end: zeros.
class InputReader {
 public:
  explicit InputReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint64_t number(unsigned num_bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < num_bytes; ++i) value |= std::uint64_t{next()} << 8 * i;
    return value;
  }
  std::vector<std::uint8_t> run(std::uint64_t count) {
    std::vector<std::uint8_t> bytes(count, 0);
    const std::uint64_t have = std::min<std::uint64_t>(count, bytes_.size());
    std::copy_n(bytes_.begin(), have, bytes.begin());
    bytes_ = bytes_.subspan(have);
    return bytes;
  }

 private:
  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  std::span<const std::uint8_t> bytes_;
};

/// Of most weights and bytes that an input may ask for: enough for a few chunks of the shortest codes.
inline constexpr std::uint64_t kMostWeights = 100'000, kMostStreamBytes = 20'000;

/// Mode, tables - 1, slab - 1 (one byte each), weights - 1 (four), stream bytes - 1 (two); then luts, stream,
/// gaps, positions and sign_mantissa.
struct DecodeSeed {
  std::uint8_t mode = 0;
  std::uint64_t slab_chunks = 1;
  Df11Unit unit;
};

inline DecodeSeed read_sized_unit(std::span<const std::uint8_t> input) {
  InputReader reader(input);
  DecodeSeed seed;
  seed.mode = static_cast<std::uint8_t>(reader.number(1));
  const std::uint64_t rows = 2 + reader.number(1) % 18;
  seed.slab_chunks = 1 + reader.number(1);
  const std::uint64_t num_weights = 1 + reader.number(4) % kMostWeights;
  const std::uint64_t stream_bytes = 1 + std::min(reader.number(2) % kMostStreamBytes, 4 * num_weights - 1);
  const std::uint64_t num_chunks = (stream_bytes + 4095) / 4096;
  const bool is_short = (seed.mode & kShortPositions) != 0 && num_chunks > 1;
  seed.unit.luts = reader.run(256 * rows);
  seed.unit.encoded_exponent = reader.run(stream_bytes);
  seed.unit.gaps = reader.run(320 * num_chunks);
  seed.unit.output_positions = reader.run(4 * (num_chunks + (is_short ? 0 : 1)));
  seed.unit.sign_mantissa = reader.run(num_weights);
  return seed;
}

/// The input that gives this unit, whose sizes must fit.
inline std::vector<std::uint8_t> write_sized_unit(const DecodeSeed& seed) {
  const Df11Unit& unit = seed.unit;
  std::vector<std::uint8_t> input = {seed.mode, static_cast<std::uint8_t>(unit.luts.size() / 256 - 2),
                                     static_cast<std::uint8_t>(seed.slab_chunks - 1)};
  const auto number = [&](std::uint64_t value, unsigned num_bytes) {
    for (unsigned i = 0; i < num_bytes; ++i) input.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  };
  number(unit.sign_mantissa.size() - 1, 4);
  number(unit.encoded_exponent.size() - 1, 2);
  for (const auto* buffer :
       {&unit.luts, &unit.encoded_exponent, &unit.gaps, &unit.output_positions, &unit.sign_mantissa})
    input.insert(input.end(), buffer->begin(), buffer->end());
  return input;
}

}  // namespace weightpress::fuzz
