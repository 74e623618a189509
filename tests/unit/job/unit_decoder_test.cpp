// Reading units back: against the slow decoder, in slabs of all sizes, on every length of the stream's end.
#include "job/unit_decoder.h"

#include <bit>
#include <cstring>

#include <gtest/gtest.h>

#include "format/bf16_fields.h"
#include "host/decode.h"
#include "job/unit_memory.h"
#include "support/golden.h"
#include "support/unit_reader.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

UnitSizes sizes_of(const Df11Unit& unit) {
  return {unit.sign_mantissa.size(), unit.encoded_exponent.size(), unit.gaps.size() / 320,
          unit.output_positions.size() / 4, unit.luts.size() / 256 - 1};
}

/// Decodes in slabs of so many chunks; the fault's message in place of weights if there is one.
std::vector<std::uint16_t> decode(const Df11Unit& unit, std::uint64_t slab_chunks, int threads) {
  host::HostDecodeStage stage(threads);
  DecodeBuffers buffers;
  const Df11UnitView view = view_of(unit);
  const MemoryUnit bytes(view);
  UnitDecoder decoder(sizes_of(unit), bytes, stage, buffers, slab_chunks);
  std::vector<std::uint16_t> weights;
  const auto fault = decoder.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
    EXPECT_EQ(first, weights.size());
    weights.insert(weights.end(), slab.begin(), slab.end());
  });
  if (fault) ADD_FAILURE() << fault->kind << ": " << fault->message;
  EXPECT_TRUE(fault || decoder.kernel_ends());
  return weights;
}

TEST(UnitDecoder, AllKindsOfWeightsInSlabsOfAllSizes) {
  const std::vector<std::vector<std::uint16_t>> data = {
      testing::normal_weights(200'001, 1),
      testing::uniform_exponents(100'001, 10, 200, 2),
      testing::uniform_exponents(50'000, 100, 2, 3),
      testing::mostly_zero(150'000, 20, 30, 4),
      testing::weights_of_histogram(testing::fibonacci_histogram(24, 90), 5),  // codes up to 24 bits
      std::vector<std::uint16_t>(100'000, 0x3C00),
  };
  for (const auto& weights : data) {
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_TRUE(testing::reads_back_as(unit, weights));
    for (const std::uint64_t slab_chunks : {1u, 2u, 3u, 256u})
      for (const int threads : {1, 3}) ASSERT_EQ(decode(unit, slab_chunks, threads), weights) << slab_chunks;
    EXPECT_EQ(decompress_df11_unit(view_of(unit), 2), weights);
  }
}

TEST(UnitDecoder, EveryLengthOfTheStreamAndEveryBorder) {
  const std::vector<std::uint16_t> all = testing::normal_weights(40'000, 7);
  const auto check = [&](std::size_t count) {
    const std::vector<std::uint16_t> weights(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_TRUE(testing::reads_back_as(unit, weights)) << count;
    ASSERT_EQ(decode(unit, 1, 1), weights) << count;
  };
  for (std::size_t count = 1; count <= 1000; ++count) check(count);
  for (std::size_t count = 12'000; count <= 12'800; ++count) check(count);  // around 32,768 bits
  for (std::size_t count = 24'400; count <= 24'900; ++count) check(count);
}

/// Weights whose codes take exactly this many bits, with exponents of codes of 1, 2, 3, ... bits; the last
/// one's code has `last_bits`.
std::vector<std::uint16_t> weights_of_bits(std::uint64_t num_bits, std::uint32_t last_bits,
                                           std::uint64_t seed) {
  // Counts of 2^k give codes of these lengths: exponent 120 has one bit, 119 two, and so on.
  testing::Random random(seed);
  std::vector<std::uint16_t> weights;
  std::uint64_t bits = last_bits;
  const auto add = [&](std::uint32_t code_bits) {
    weights.push_back(testing::with_exponent(random, 121 - code_bits));
    bits += code_bits;
  };
  while (bits + 3 <= num_bits) add(1 + static_cast<std::uint32_t>(random.below(3)));
  while (bits < num_bits) add(1);
  weights.push_back(testing::with_exponent(random, 121 - last_bits));
  return weights;
}

/// A unit with the code 0, 10, 110, 1110, ... made by hand: no encoder of ours takes part.
Df11Unit unary_unit(const std::vector<std::uint16_t>& weights) {
  Df11Unit unit;
  unit.luts.assign(512, 0);
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const auto ones = static_cast<std::uint32_t>(std::countl_one(static_cast<std::uint8_t>(byte)));
    unit.luts[byte] = static_cast<std::uint8_t>(120 - std::min(ones, 7u));
  }
  for (std::uint32_t bits = 1; bits <= 8; ++bits)
    unit.luts[256 + 121 - bits] = static_cast<std::uint8_t>(bits);
  std::vector<bool> stream;
  std::vector<std::uint8_t> gaps;
  std::vector<std::uint32_t> positions;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (stream.size() / 64 >= gaps.size()) {
      gaps.resize(stream.size() / 64 + 1, 0);
      gaps.back() = static_cast<std::uint8_t>(stream.size() % 64);
    }
    if (stream.size() / 32'768 >= positions.size()) positions.push_back(static_cast<std::uint32_t>(i));
    const std::uint32_t bits = 121u - df11::exponent_of(weights[i]);
    for (std::uint32_t bit = 1; bit < bits; ++bit) stream.push_back(true);
    stream.push_back(false);
    unit.sign_mantissa.push_back(df11::sign_mantissa_of(weights[i]));
  }
  if (stream.size() % 8 != 0 && stream.size() / 64 >= gaps.size()) {
    gaps.resize(stream.size() / 64 + 1, 0);
    gaps.back() = static_cast<std::uint8_t>(stream.size() % 64);
  }
  const auto num_weights = static_cast<std::uint32_t>(weights.size());
  if (stream.size() % 8 != 0 && stream.size() / 32'768 >= positions.size()) positions.push_back(num_weights);
  positions.push_back(num_weights);
  unit.encoded_exponent.assign((stream.size() + 7) / 8, 0);
  for (std::size_t i = 0; i < stream.size(); ++i)
    if (stream[i]) unit.encoded_exponent[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
  const std::size_t num_chunks = (unit.encoded_exponent.size() + 4095) / 4096;
  unit.gaps.assign(320 * num_chunks, 0);
  for (std::size_t w = 0; w < gaps.size(); ++w)
    for (std::size_t i = 0; i < 5; ++i)
      if (gaps[w] >> (4 - i) & 1)
        unit.gaps[(5 * w + i) / 8] |= static_cast<std::uint8_t>(0x80 >> (5 * w + i) % 8);
  for (const std::uint32_t position : positions)
    for (int shift = 0; shift < 32; shift += 8)
      unit.output_positions.push_back(static_cast<std::uint8_t>(position >> shift));
  return unit;
}

TEST(UnitDecoder, EveryNumberOfBitsAndTheBordersWithCodesOfAllLengthsAtTheEnd) {
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t bits = 8; bits <= 2'500; ++bits) lengths.push_back(bits);
  for (const std::uint64_t border : {32'768u, 65'536u})
    for (std::uint64_t bits = border - 40; bits <= border + 40; ++bits) lengths.push_back(bits);
  for (const std::uint64_t bits : lengths) {
    for (const std::uint32_t last : {1u, 2u, 7u, 8u}) {
      const std::vector<std::uint16_t> weights = weights_of_bits(bits, last, bits);
      const Df11Unit unit = unary_unit(weights);
      const selftest::SlowDecoding slow = selftest::slow_decode(testing::bytes_of(unit));
      ASSERT_TRUE(slow.ok) << bits << " bits: " << slow.problem;
      ASSERT_EQ(slow.weights, weights);
      ASSERT_EQ(decode(unit, 1 + bits % 2, 1), weights) << bits << " bits, the last " << last;
    }
  }
}

TEST(UnitDecoder, FiveHundredRandomUnitsAgainstTheSlowDecoder) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    testing::Random random(seed);
    const std::size_t count = 1 + random.below(seed % 10 == 0 ? 60'000 : 6'000);
    std::vector<std::uint16_t> weights;
    switch (seed % 5) {
      case 0:
        weights = testing::normal_weights(count, seed);
        break;
      case 1:
        weights = testing::uniform_exponents(count, static_cast<std::uint32_t>(random.below(40)),
                                             1 + static_cast<std::uint32_t>(random.below(200)), seed);
        break;
      case 2:
        weights = testing::mostly_zero(count, 1 + random.below(30),
                                       1 + static_cast<std::uint32_t>(random.below(60)), seed);
        break;
      case 3:
        weights = testing::weights_of_histogram(
            testing::fibonacci_histogram(2 + static_cast<std::uint32_t>(random.below(19)), 50), seed);
        break;
      default:
        weights.assign(count, static_cast<std::uint16_t>(random.below(0x7800)));
    }
    const Df11Unit unit = compress_df11_unit(weights);
    const selftest::SlowDecoding slow = selftest::slow_decode(testing::bytes_of(unit));
    ASSERT_TRUE(slow.ok) << "seed " << seed << ": " << slow.problem;
    ASSERT_EQ(decode(unit, 1 + seed % 4, 1 + static_cast<int>(seed % 3)), slow.weights) << "seed " << seed;
    ASSERT_EQ(slow.weights, weights) << "seed " << seed;
  }
}

TEST(UnitDecoder, GoldenUnits) {
  for (const std::string& name : testing::golden_units()) {
    const auto folder = testing::golden_folder() / "df11" / name;
    const auto read = [&](const char* file) { return testing::read_bytes(folder / file); };
    const bool hangs = name.starts_with("official_tables_hang_kernel");
    Df11Unit unit;
    unit.luts = read(std::filesystem::exists(folder / "luts.u8") ? "luts.u8" : "luts_safe.u8");
    unit.encoded_exponent = read("encoded_exponent.u8");
    unit.sign_mantissa = read("sign_mantissa.u8");
    unit.output_positions = read("output_positions.u32");
    unit.gaps = read("gaps.u8");
    EXPECT_EQ(decompress_df11_unit(view_of(unit)), testing::read_bf16(folder / "weights.bf16")) << name;

    const auto kernel_ends = [&] {
      host::HostDecodeStage stage(1);
      DecodeBuffers buffers;
      const Df11UnitView view = view_of(unit);
      const MemoryUnit bytes(view);
      UnitDecoder decoder(sizes_of(unit), bytes, stage, buffers);
      EXPECT_FALSE(decoder.check_lengths()) << name;
      return decoder.kernel_ends();
    };
    EXPECT_EQ(kernel_ends(), !hangs) << name;
    unit.luts = read("luts_safe.u8");
    EXPECT_TRUE(kernel_ends()) << name;
  }
}

TEST(UnitDecoder, AChangedWeightIsNamed) {
  const std::vector<std::uint16_t> weights = testing::normal_weights(120'000, 3);
  const Df11Unit unit = compress_df11_unit(weights);
  host::HostDecodeStage stage(2);
  DecodeBuffers buffers;
  const Df11UnitView view = view_of(unit);
  const MemoryUnit bytes(view);
  testing::Random random(9);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint16_t> source = weights;
    const std::size_t place = random.below(source.size());
    source[place] = static_cast<std::uint16_t>(source[place] ^ (1u << random.below(16)));
    MemorySource memory(source);
    const auto fault =
        UnitDecoder(sizes_of(unit), bytes, stage, buffers, 1 + random.below(9)).compare(memory);
    ASSERT_TRUE(fault) << place;
    EXPECT_EQ(fault->kind, "weight") << fault->message;
    EXPECT_EQ(fault->weight, place) << fault->message;
    EXPECT_EQ(fault->window / 512, fault->chunk);
  }
}

TEST(UnitDecoder, BothFormsOfOutputPositionsAreRead) {
  // Ends on a byte border, with the last code crossing into a chunk of its own.
  const std::vector<std::uint16_t> weights = weights_of_bits(32'768 + 8, 8, 1);
  std::vector<std::uint16_t> crossing(weights.begin(), weights.end() - 1);
  while (true) {
    std::uint64_t bits = 0;
    for (const std::uint16_t weight : crossing) bits += 121u - df11::exponent_of(weight);
    if (bits + 7 == 32'768 + 1) break;
    if (bits + 7 > 32'768 + 1)
      crossing.pop_back();
    else
      crossing.push_back(0x3C00);  // one bit
  }
  crossing.push_back(static_cast<std::uint16_t>(114u << 7));  // seven bits: 32,762 to 32,769
  while (true) {
    Df11Unit unit = unary_unit(crossing);
    if (unit.gaps.size() == 640 && unit.output_positions.size() == 12) {
      // Inside a byte: the chunk behind has an entry, and the one at the end may lack.
      EXPECT_EQ(decode(unit, 1, 1), crossing);
      unit.output_positions.resize(8);
      EXPECT_EQ(decode(unit, 1, 1), crossing);
      unit.output_positions.resize(4);
      EXPECT_THROW(decompress_df11_unit(view_of(unit)), Error);
      break;
    }
    FAIL() << unit.gaps.size() << " " << unit.output_positions.size();
  }
}

TEST(UnitDecoder, WhatDoesNotFitIsCorrupt) {
  const Df11Unit sound = compress_df11_unit(testing::normal_weights(20'000, 3));
  const auto refused = [](const Df11Unit& unit) {
    try {
      decompress_df11_unit(view_of(unit), 1);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kCorruptFile;
    }
  };
  EXPECT_FALSE(refused(sound));
  std::vector<std::uint8_t> Df11Unit::* const buffers[] = {&Df11Unit::luts, &Df11Unit::encoded_exponent,
                                                           &Df11Unit::sign_mantissa,
                                                           &Df11Unit::output_positions, &Df11Unit::gaps};
  for (const auto buffer : buffers) {
    for (const int change : {-100'000, -4'096, -5, -4, -1, 1, 4, 5, 320, 4'096}) {
      Df11Unit unit = sound;
      std::vector<std::uint8_t>& bytes = unit.*buffer;
      bytes.resize(static_cast<std::size_t>(
          std::max<std::int64_t>(0, static_cast<std::int64_t>(bytes.size()) + change)));
      EXPECT_TRUE(refused(unit)) << change;
    }
  }
}

}  // namespace
}  // namespace weightpress::job
