// The decode stage: its table against look-ups of single codes, slabs cut everywhere, faults by chunk, and
// that it writes where it may only.
#include "host/decode.h"

#include <cstring>

#include <gtest/gtest.h>

#include "format/luts_view.h"
#include "support/plain_encoder.h"
#include "support/stored_units.h"
#include "support/weights.h"

namespace weightpress::host {
namespace {

using testing::PlainCode;

// ---- the table

TEST(DecodeEntry, HoldsFiveCodesOfAnyExponentAndTheLongestCode) {
  DecodeEntry entry;
  EXPECT_EQ(entry.num_codes(), 0u);
  EXPECT_EQ(entry.num_bits(), 0u);
  EXPECT_EQ(entry.starts(), 0u);
  std::uint32_t bits = 0, starts = 0;
  for (std::uint32_t i = 0; i < DecodeEntry::kMaxCodes; ++i) {
    const std::uint32_t length = i < 4 ? i % 2 + 1 : kDecodeTableBits - bits;
    entry = entry.with(0xFF, length);
    starts |= 1u << bits;
    bits += length;
    EXPECT_EQ(entry.num_codes(), i + 1);
    EXPECT_EQ(entry.num_bits(), bits);
    EXPECT_EQ(entry.starts(), starts);
  }
  EXPECT_EQ(entry.packed() & 0xFF'FFFF'FFFF, 0xFF'FFFF'FFFFu);

  const DecodeEntry longest = DecodeEntry().with(239, 32);
  EXPECT_EQ(longest.num_codes(), 1u);
  EXPECT_EQ(longest.num_bits(), 32u);
  EXPECT_EQ(longest.starts(), 1u);
  EXPECT_EQ(longest.packed() & 0xFF, 239u);
  // Beyond every window, and beyond every gap of the next.
  EXPECT_EQ(DecodeEntry::none().num_codes(), 0u);
  EXPECT_GE(DecodeEntry::none().num_bits(), 64u + 32);
}

/// The code at bit `start` of a window of 64 bits, by the tables.
df11::DecodedCode plain_look_up(const std::vector<std::uint8_t>& luts, std::uint64_t window,
                                std::uint32_t start) {
  const std::size_t tables = luts.size() / 256 - 1;
  std::size_t table = 0;
  for (std::uint32_t level = 0; level < 4; ++level) {
    const std::uint8_t value = luts[table * 256 + (window << (start + 8 * level) >> 56)];
    if (value < 240) {
      const std::uint8_t length = luts[tables * 256 + value];
      return {value, length > 32 ? std::uint8_t{0} : length};
    }
    table = 256u - value;
    if (table >= tables) break;
  }
  return {};
}

std::vector<std::uint8_t> hostile_luts(testing::Random& random) {
  const std::size_t tables = 1 + random.below(18);
  std::vector<std::uint8_t> luts((tables + 1) * 256);
  // Runs of equal entries, or the table would hold nothing.
  const std::uint64_t longest_run = 1 + random.below(64);
  for (std::size_t i = 0; i < tables * 256;) {
    const bool is_pointer = random.below(6) == 0;
    const std::uint64_t value = is_pointer             ? 240 + random.below(16)
                                : random.below(4) == 0 ? random.below(240)
                                                       : 100;
    for (std::uint64_t run = 1 + random.below(longest_run); run > 0 && i < tables * 256; --run)
      luts[i++] = static_cast<std::uint8_t>(value);
  }
  for (std::size_t e = 0; e < 256; ++e) {
    const std::uint64_t kind = random.below(10);
    luts[tables * 256 + e] = static_cast<std::uint8_t>(kind == 0   ? random.next()
                                                       : kind == 1 ? random.below(33)
                                                                   : 1 + random.below(9));
  }
  return luts;
}

/// Every entry's codes are those that single look-ups give, whatever follows the entry's bits: the next eight
/// of them in all ways, those behind as zeros, ones and at random.
void expect_sound_entries(const std::vector<std::uint8_t>& luts, const DecodeTable& table,
                          testing::Random& random) {
  for (std::uint64_t index = 0; index < 1u << kDecodeTableBits; ++index) {
    const DecodeEntry entry = table.entries()[index];
    for (std::uint64_t next = 0; next < 256; ++next) {
      for (const std::uint64_t rest : {std::uint64_t{0}, ~std::uint64_t{0}, random.next()}) {
        const std::uint64_t window = index << 52 | next << 44 | rest >> 20;
        std::uint32_t bit = 0;
        for (std::uint32_t i = 0; i < entry.num_codes(); ++i) {
          const df11::DecodedCode code = plain_look_up(luts, window, bit);
          ASSERT_EQ(entry.packed() >> (8 * i) & 0xFF, code.exponent) << index << ' ' << i;
          ASSERT_NE(code.length, 0) << index << ' ' << i;
          ASSERT_TRUE(entry.starts() >> bit & 1) << index << ' ' << i;
          bit += code.length;
        }
        ASSERT_EQ(bit, entry.num_bits()) << index;
        ASSERT_EQ(static_cast<std::uint32_t>(std::popcount(entry.starts())), entry.num_codes()) << index;
      }
    }
    ASSERT_LE(entry.num_bits(), kDecodeTableBits);
  }
}

TEST(DecodeTable, EntriesOfHostileTablesAreWhatSingleLookUpsGive) {
  testing::Random random(61);
  DecodeTable table;
  std::uint64_t codes = 0;
  for (int round = 0; round < 24; ++round) {
    const std::vector<std::uint8_t> luts = hostile_luts(random);
    table.build(luts);
    expect_sound_entries(luts, table, random);
    for (std::uint64_t index = 0; index < 1u << kDecodeTableBits; ++index)
      codes += table.entries()[index].num_codes();
  }
  EXPECT_GT(codes, 24u << kDecodeTableBits);  // more than one code an entry: they say something
}

/// As fast as it can be: an entry holds every code that ends within its bits, up to five.
TEST(DecodeTable, EntriesOfCodesAreFull) {
  testing::Random random(62);
  DecodeTable table;
  for (int round = 0; round < 40; ++round) {
    const PlainCode code = testing::random_code(random, 120, random.below(200), round % 2 == 0 ? 0 : 5);
    table.build(testing::plain_luts(code, testing::PlainFill::kZero));
    for (std::uint64_t index = 0; index < 1u << kDecodeTableBits; ++index) {
      const DecodeEntry entry = table.entries()[index];
      std::uint32_t bit = 0, codes = 0;
      for (bool found = true; found && codes < DecodeEntry::kMaxCodes;) {
        found = false;
        for (const std::uint8_t e : code.exponents()) {
          const std::uint32_t end = bit + code.lengths[e];
          if (end > kDecodeTableBits) continue;
          if ((index >> (kDecodeTableBits - end) & ((1u << code.lengths[e]) - 1)) != code.bits[e]) continue;
          ASSERT_LT(codes, entry.num_codes()) << index;
          ASSERT_EQ(entry.packed() >> (8 * codes) & 0xFF, e) << index;
          bit = end;
          ++codes;
          found = true;
          break;
        }
      }
      // What no code begins may be the fill's.
      if (entry.num_codes() > codes) {
        ASSERT_EQ(entry.packed() >> (8 * codes) & 0xFF, 0u) << index;
      }
    }
  }
}

TEST(DecodeTable, IsMadeAnewForOtherTables) {
  testing::Random random(63);
  const std::vector<std::uint8_t> a = hostile_luts(random), b = hostile_luts(random);
  DecodeTable turns, of_a, of_b;
  of_a.build(a);
  of_b.build(b);
  for (const bool first : {true, false, false, true}) {
    turns.build(first ? a : b);
    const DecodeTable& expected = first ? of_a : of_b;
    EXPECT_EQ(std::memcmp(turns.entries(), expected.entries(), sizeof(DecodeEntry) << kDecodeTableBits), 0);
    EXPECT_TRUE(std::ranges::equal(turns.luts(), first ? a : b));
  }
}

// ---- the stage

/// The arguments of some chunks of a unit, each span in memory of exactly its size: what is read beside it,
/// AddressSanitizer notices; what is written beside the weights, is_intact() does.
class Slab {
 public:
  Slab(const Df11Unit& unit, std::uint64_t first, std::uint64_t end) : luts_(unit.luts) {
    const std::uint64_t chunks = unit.gaps.size() / 320;
    const bool is_last = end == chunks;
    for (std::uint64_t i = first; i <= end; ++i) {
      positions_.push_back(i < unit.output_positions.size() / 4
                               ? testing::position_of(unit, i)
                               : static_cast<std::uint32_t>(unit.sign_mantissa.size()));
    }
    const auto cut = [](const std::vector<std::uint8_t>& bytes, std::uint64_t begin, std::uint64_t stop) {
      return std::vector<std::uint8_t>(
          bytes.begin() + static_cast<std::ptrdiff_t>(begin),
          bytes.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(stop, bytes.size())));
    };
    stream_ = cut(unit.encoded_exponent, 4096 * first, 4096 * end + 8);
    gaps_ = cut(unit.gaps, 320 * first, 320 * end + (is_last ? 0 : 5));
    sign_mantissa_ = cut(unit.sign_mantissa, positions_.front(), positions_.back());
    memory_.assign(sign_mantissa_.size() + 2 * kGuard, kUntouched);
    arguments_.luts = luts_;
    arguments_.num_weights = unit.sign_mantissa.size();
    arguments_.stream_bytes = unit.encoded_exponent.size();
    arguments_.first_chunk = first;
    arguments_.positions = positions_;
    arguments_.encoded_exponent = stream_;
    arguments_.gaps = gaps_;
    arguments_.sign_mantissa = sign_mantissa_;
    arguments_.weights = std::span(memory_).subspan(kGuard, sign_mantissa_.size());
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  df11::DecodeArguments& arguments() { return arguments_; }
  std::span<const std::uint16_t> weights() const { return arguments_.weights; }
  bool is_intact() const {
    const auto untouched = [](std::uint16_t word) { return word == kUntouched; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, untouched) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), untouched);
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 256;
  static constexpr std::uint16_t kUntouched = 0xA5C3;

  std::vector<std::uint8_t> luts_, stream_, gaps_, sign_mantissa_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint16_t> memory_;
  df11::DecodeArguments arguments_;
};

void expect_decodes(HostDecodeStage& stage, const Df11Unit& unit, std::span<const std::uint16_t> weights,
                    std::uint64_t first, std::uint64_t end) {
  Slab slab(unit, first, end);
  const df11::DecodeStatus status = stage.decode(slab.arguments()).wait();
  ASSERT_TRUE(status.ok) << first << " to " << end << ": chunk " << status.chunk;
  ASSERT_TRUE(std::ranges::equal(slab.weights(),
                                 weights.subspan(slab.arguments().positions.front(), slab.weights().size())));
  ASSERT_TRUE(slab.is_intact());
}

TEST(HostDecodeStage, EveryRunOfChunks) {
  for (const auto& weights : {testing::normal_weights(75'000, 71), testing::mostly_zero(200'000, 40, 10, 72),
                              testing::uniform_exponents(30'000, 0, 230, 73)}) {
    const Df11Unit unit = compress_df11_unit(weights);
    const std::uint64_t chunks = unit.gaps.size() / 320;
    ASSERT_GE(chunks, 5u);
    HostDecodeStage stage(2);
    for (std::uint64_t first = 0; first < chunks; ++first)
      for (std::uint64_t end = first + 1; end <= chunks; ++end)
        expect_decodes(stage, unit, weights, first, end);
  }
}

/// 1 to 8 bytes in the last chunk: the slab before it has less than eight bytes to look ahead. Last codes
/// that start before the border, at it and behind it.
TEST(HostDecodeStage, AStreamThatEndsRightBehindAChunk) {
  testing::Random random(74);
  const PlainCode code = testing::code_of_all_lengths();
  HostDecodeStage stage(1);
  for (std::uint64_t bits = 2 * 32'768 - 33; bits <= 2 * 32'768 + 72; ++bits) {
    for (const unsigned last : {1u, 4u, 16u, 32u}) {
      const auto weights = testing::weights_of_bits(bits, last, true, random);
      for (const auto ending : {testing::PlainPositions::kShort, testing::PlainPositions::kLong}) {
        const Df11Unit unit = testing::encode_plainly(code, weights, testing::PlainFill::kRepeat, ending);
        const std::uint64_t chunks = unit.gaps.size() / 320;
        for (std::uint64_t chunk = 0; chunk < chunks; ++chunk)
          expect_decodes(stage, unit, weights, chunk, chunk + 1);
        expect_decodes(stage, unit, weights, 0, chunks);
      }
    }
  }
}

/// Any number of windows, so that some are left over where several are decoded at once.
TEST(HostDecodeStage, EveryNumberOfWindows) {
  testing::Random random(75);
  const PlainCode code = testing::code_of_all_lengths();
  HostDecodeStage stage(1);
  for (std::uint64_t windows = 1; windows <= 40; ++windows) {
    for (const std::uint64_t bits : {64 * windows - 63, 64 * windows - 20, 64 * windows}) {
      const auto weights = testing::weights_of_bits(bits, 1, false, random);
      expect_decodes(stage, testing::encode_plainly(code, weights), weights, 0, 1);
    }
  }
  for (const std::uint64_t windows : {509u, 510u, 511u, 512u}) {
    const auto weights = testing::weights_of_bits(64 * windows, 1, true, random);
    expect_decodes(stage, testing::encode_plainly(code, weights), weights, 0, 1);
  }
}

/// A code may end exactly where a window or a chunk does, and a window may hold 64 codes.
TEST(HostDecodeStage, CodesThatEndWithTheirWindow) {
  PlainCode code;
  code.add(50, 1, 0);
  code.add(51, 2, 0b10);
  code.add(52, 32, 0xFFFF'0000);
  code.add(53, 16, 0xC000);
  HostDecodeStage stage(1);
  const auto repeated = [](std::vector<std::uint16_t> pattern, std::size_t count) {
    std::vector<std::uint16_t> weights;
    while (weights.size() < count)
      weights.push_back(static_cast<std::uint16_t>(pattern[weights.size() % pattern.size()] << 7));
    return weights;
  };
  for (const auto& pattern : std::vector<std::vector<std::uint16_t>>{
           {50}, {51}, {52}, {53}, {52, 53, 53}, {50, 50, 51, 53, 53, 52}}) {
    for (const std::size_t count : {64u, 2'048u, 32'768u, 40'000u}) {
      const auto weights = repeated(pattern, count);
      const Df11Unit unit = testing::encode_plainly(code, weights);
      expect_decodes(stage, unit, weights, 0, unit.gaps.size() / 320);
    }
  }
}

/// 40 chunks.
class ManyChunks : public ::testing::Test {
 protected:
  std::vector<std::uint16_t> weights_ = testing::normal_weights(490'000, 76);
  Df11Unit unit_ = compress_df11_unit(weights_);
  std::uint64_t chunks_ = unit_.gaps.size() / 320;
};

TEST_F(ManyChunks, TheFirstChunkAtFaultWhateverTheThreads) {
  testing::Random random(77);
  for (const int threads : {1, 2, 7}) {
    HostDecodeStage stage(threads);
    for (int round = 0; round < 25; ++round) {
      Df11Unit unit = unit_;
      std::uint64_t first = chunks_;
      for (std::uint64_t faults = 1 + random.below(5); faults > 0; --faults) {
        const std::uint64_t window = 512 * random.below(chunks_) + 1 + random.below(500);
        if (window >= unit.encoded_exponent.size() / 8) continue;
        testing::set_gap(unit, window, testing::gap_of(unit_, window) ^ 5);
        first = std::min(first, window / 512);
      }
      Slab slab(unit, 0, chunks_);
      const df11::DecodeStatus status = stage.decode(slab.arguments()).wait();
      ASSERT_EQ(status.ok, first == chunks_);
      if (!status.ok) {
        ASSERT_EQ(status.chunk, first);
      }
      ASSERT_TRUE(slab.is_intact());
      // What comes before the fault is right.
      const std::size_t before = testing::position_of(unit, first);
      ASSERT_TRUE(std::ranges::equal(slab.weights().first(before), std::span(weights_).first(before)));
    }
  }
}

TEST_F(ManyChunks, AFaultIsCountedFromTheUnitsFirstChunk) {
  HostDecodeStage stage(2);
  Df11Unit unit = unit_;
  testing::set_gap(unit, 512 * 12 + 3, testing::gap_of(unit, 512 * 12 + 3) ^ 1);
  Slab slab(unit, 10, 20);
  const df11::DecodeStatus status = stage.decode(slab.arguments()).wait();
  EXPECT_FALSE(status.ok);
  EXPECT_EQ(status.chunk, 12u);
}

TEST_F(ManyChunks, WeightsAndSourceAtOnce) {
  HostDecodeStage stage(2);
  std::vector<std::uint16_t> source = weights_;
  for (const bool with_weights : {true, false}) {
    for (const bool with_source : {true, false}) {
      for (const std::uint64_t changed : {std::uint64_t{0}, std::uint64_t{123'456}, std::uint64_t{489'999}}) {
        for (const bool is_changed : {true, false}) {
          source[changed] = static_cast<std::uint16_t>(weights_[changed] ^ (is_changed ? 0x80 : 0));
          Slab slab(unit_, 0, chunks_);
          if (!with_weights) slab.arguments().weights = {};
          if (with_source) slab.arguments().source = source;
          const df11::DecodeStatus status = stage.decode(slab.arguments()).wait();
          ASSERT_EQ(status.ok, !(with_source && is_changed));
          if (!status.ok) {
            std::uint64_t chunk = 0;
            while (testing::position_of(unit_, chunk + 1) <= changed) ++chunk;
            ASSERT_EQ(status.chunk, chunk);
          } else if (with_weights) {
            ASSERT_TRUE(std::ranges::equal(slab.weights(), weights_));
          }
          ASSERT_TRUE(slab.is_intact());
          source[changed] = weights_[changed];
        }
      }
    }
  }
}

TEST_F(ManyChunks, LengthsOnlyNeedNoSignMantissa) {
  HostDecodeStage stage(2);
  Slab slab(unit_, 0, chunks_);
  slab.arguments().sign_mantissa = {};
  slab.arguments().weights = {};
  EXPECT_TRUE(stage.decode(slab.arguments()).wait().ok);
  // A gap between two slabs is the business of the first of them.
  Df11Unit unit = unit_;
  testing::set_gap(unit, 512 * 5, testing::gap_of(unit, 512 * 5) ^ 1);
  Slab before(unit, 3, 5);
  before.arguments().sign_mantissa = {};
  before.arguments().weights = {};
  const df11::DecodeStatus status = stage.decode(before.arguments()).wait();
  EXPECT_FALSE(status.ok);
  EXPECT_EQ(status.chunk, 4u);
}

/// All weights are in chunk 0, and behind them come bits that are no code: as many as a look-up without a
/// code seems to take. It is chunk 0 that is at fault.
TEST(HostDecodeStage, BitsThatAreNoCodeAreNotTheEndOfOne) {
  PlainCode code;
  code.add(100, 8, 0);
  HostDecodeStage stage(1);
  for (std::size_t weights = 4'088; weights <= 4'096; ++weights) {
    for (std::size_t bytes = 4'097; bytes <= 4'096 + 80; ++bytes) {
      Df11Unit unit = testing::encode_plainly(code, std::vector<std::uint16_t>(weights, 100 << 7),
                                              testing::PlainFill::kZero);
      unit.encoded_exponent.resize(bytes, 0xFF);
      unit.gaps.assign(640, 0);
      unit.output_positions.resize(12);
      for (const std::uint64_t entry : {1u, 2u})
        testing::set_position(unit, entry, static_cast<std::uint32_t>(weights));
      for (const std::uint64_t end : {1u, 2u}) {
        Slab slab(unit, 0, end);
        const df11::DecodeStatus status = stage.decode(slab.arguments()).wait();
        ASSERT_FALSE(status.ok) << weights << " weights, " << bytes << " bytes";
        ASSERT_EQ(status.chunk, 0u) << weights << " weights, " << bytes << " bytes";
      }
    }
  }
}

/// Bytes of all kinds: it ends, writes nowhere else, and is the same for any number of threads.
TEST(HostDecodeStage, GarbageEndsAndStaysInside) {
  testing::Random random(78);
  HostDecodeStage one(1), three(3);
  for (int round = 0; round < 300; ++round) {
    Df11Unit unit;
    unit.luts = hostile_luts(random);
    unit.encoded_exponent.resize(1 + random.below(3 * 4096));
    for (std::uint8_t& byte : unit.encoded_exponent) byte = static_cast<std::uint8_t>(random.next());
    const std::uint64_t chunks = (unit.encoded_exponent.size() + 4095) / 4096;
    unit.gaps.resize(chunks * 320);
    if (round % 2 == 0)
      for (std::uint8_t& byte : unit.gaps) byte = static_cast<std::uint8_t>(random.next());
    std::uint64_t weights = 0;
    unit.output_positions.resize(4 * (chunks + 1));
    for (std::uint64_t i = 0; i <= chunks; ++i) {
      testing::set_position(unit, i, static_cast<std::uint32_t>(weights));
      if (i < chunks) weights += random.below(32'769);
    }
    if (weights == 0) continue;
    unit.sign_mantissa.resize(weights);
    Slab a(unit, 0, chunks), b(unit, 0, chunks);
    const df11::DecodeStatus first = one.decode(a.arguments()).wait(),
                             second = three.decode(b.arguments()).wait();
    ASSERT_EQ(first.ok, second.ok);
    ASSERT_EQ(first.chunk, second.chunk);
    ASSERT_EQ(first.kernel_ends, second.kernel_ends);
    ASSERT_TRUE(a.is_intact() && b.is_intact());
  }
}

}  // namespace
}  // namespace weightpress::host
