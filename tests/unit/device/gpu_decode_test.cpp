// The decode stage of a GPU on sound units of all kinds, on the emulated driver with all checks: the weights
// that were encoded, and of the official kernel what the slow decoder finds.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/decode_slab.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "job/unit_memory.h"
#include "official_kernel/random_units.h"
#include "support/plain_encoder.h"
#include "support/real_headers.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

using testing::PlainCode;
using testing::PlainFill;
using testing::PlainPositions;
using testing::Random;

constexpr unsigned kLengths[] = {1, 2, 4, 7, 11, 16, 25, 32};  // of code_of_all_lengths()

/// Output positions as docs/format.md wants them: the slow decoder does not read what other makers could
/// have.
Df11Unit with_official_positions(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  Df11Unit official = unit;
  const bool is_short = unit.output_positions.size() / 4 == unit.gaps.size() / 320;
  if (is_short && testing::code_starts(unit, weights).back() % 8 != 0) {
    official.output_positions.resize(unit.output_positions.size() + 4);
    testing::set_position(official, unit.output_positions.size() / 4,
                          static_cast<std::uint32_t>(weights.size()));
  }
  return official;
}

/// Whether the official kernel ends on a unit that holds these weights, if the slow decoder can tell: it
/// stops at the first of the kernel's limits.
std::optional<bool> kernel_should_end(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  const Df11Unit official = with_official_positions(unit, weights);
  const selftest::SlowDecoding windows = selftest::window_decode(testing::bytes_of(official));
  const bool never_ends = windows.problem.find("never ends") != std::string::npos;
  const selftest::SlowDecoding slow =
      windows.ok ? windows : selftest::slow_decode(testing::bytes_of(official));
  EXPECT_TRUE(slow.ok) << "the slow decoder: " << slow.problem;
  EXPECT_TRUE(std::ranges::equal(slow.weights, weights)) << "the slow decoder finds other weights";
  return windows.ok || never_ends ? std::optional(windows.ok) : std::nullopt;
}

/// A unit through job::UnitDecoder.
class UnitOnStage {
 public:
  UnitOnStage(const Df11Unit& unit, df11::Df11DecodeStage& stage, std::uint64_t slab_chunks)
      : bytes_(job::view_of(unit)), decoder_(testing::sizes_of(unit), bytes_, stage, buffers_, slab_chunks) {}

  job::UnitDecoder& decoder() { return decoder_; }
  std::optional<job::UnitFault> decode(std::vector<std::uint16_t>& weights) {
    return decoder_.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
      EXPECT_EQ(first, weights.size());
      weights.insert(weights.end(), slab.begin(), slab.end());
    });
  }

 private:
  job::MemoryUnit bytes_;
  job::DecodeBuffers buffers_;
  job::UnitDecoder decoder_;
};

class GpuDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
    start({});
  }

  /// The driver anew.
  void start(EmulatedGpu::Variables variables,
             BothDecodeStages::Memory memory = BothDecodeStages::Memory::kNew) {
    both_.reset();
    emulated_.reset();
    variables.set_default("TRACE", "");  // of thousands of launches
    emulated_ = std::make_unique<EmulatedGpu>(variables);
    both_ = std::make_unique<BothDecodeStages>(emulated_->gpu(), emulated_->kernels(), memory);
  }

  EmulatedGpu& emulated() { return *emulated_; }
  BothDecodeStages& both() { return *both_; }

  /// A run of chunks in one call.
  ::testing::AssertionResult decodes_run(const Df11Unit& unit, std::span<const std::uint16_t> weights,
                                         std::uint64_t first, std::uint64_t end, Wanted wanted) {
    const DecodeInput input = decode_input(unit, weights);
    if (auto result = both().agree(input, first, end, wanted); !result) return result;
    if (!both().status().ok) return ::testing::AssertionFailure() << text_of(both().status());
    if (wanted == Wanted::kLengths || wanted == Wanted::kComparison) return ::testing::AssertionSuccess();
    const std::uint64_t count = input.positions[end] - input.positions[first];
    if (!std::ranges::equal(both().weights(), weights.subspan(input.positions[first], count)))
      return ::testing::AssertionFailure() << "other weights than those that were encoded";
    return ::testing::AssertionSuccess();
  }

  /// All chunks in one call, against the slow decoder too.
  ::testing::AssertionResult decodes(const Df11Unit& unit, std::span<const std::uint16_t> weights,
                                     Wanted wanted = Wanted::kBoth) {
    auto result = decodes_run(unit, weights, 0, unit.gaps.size() / 320, wanted);
    if (!result) return result;
    const std::optional<bool> should_end = kernel_should_end(unit, weights);
    if (should_end.has_value() && *should_end != both().status().kernel_ends)
      return ::testing::AssertionFailure()
             << text_of(both().status()) << "; the slow decoder sees it otherwise";
    return ::testing::AssertionSuccess();
  }

 private:
  std::unique_ptr<EmulatedGpu> emulated_;
  std::unique_ptr<BothDecodeStages> both_;
};

TEST_F(GpuDecode, GoldenUnits) {
  const std::vector<std::string> names = testing::golden_units();
  ASSERT_GE(names.size(), 18u);
  int num_endless = 0;
  for (const std::string& name : names) {
    const std::vector<std::uint16_t> weights = testing::golden_weights(name);
    const Df11Unit official = testing::golden_unit(name), safe = testing::golden_unit(name, "luts_safe.u8");
    for (const Wanted wanted : kAllWanted) {
      ASSERT_TRUE(decodes_run(official, weights, 0, official.gaps.size() / 320, wanted)) << name;
      const bool hangs = name.starts_with("official_tables_hang_kernel");
      ASSERT_EQ(both().status().kernel_ends, !hangs) << name;
      num_endless += hangs ? 1 : 0;
    }
    ASSERT_TRUE(decodes(safe, weights)) << name;
    ASSERT_TRUE(both().status().kernel_ends) << name;
  }
  EXPECT_EQ(num_endless, 2 * 4);
}

TEST_F(GpuDecode, EveryNumberOfBits) {
  const PlainCode code = testing::code_of_all_lengths();
  Random random(801);
  int num_endless = 0;
  const auto check = [&](std::uint64_t bits, unsigned last) {
    if (last > bits) last = 1;
    const auto weights = testing::weights_of_bits(bits, last, bits % 3 == 0, random);
    const auto fill = static_cast<PlainFill>(random.below(3));
    const Df11Unit unit = testing::encode_plainly(code, weights, fill, PlainPositions::kOfficial,
                                                  static_cast<std::uint8_t>(random.next()));
    ASSERT_TRUE(decodes(unit, weights, kAllWanted[3 - random.below(7) / 2]))
        << bits << " bits, the last code " << last;
    num_endless += both().status().kernel_ends ? 0 : 1;
  };
  for (std::uint64_t bits = 1; bits <= 2'500; ++bits) {
    check(bits, kLengths[(bits + bits / 8) % 8]);
    if (bits <= 200) check(bits, kLengths[(bits + bits / 8 + 3) % 8]);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(num_endless, 0);
}

TEST_F(GpuDecode, AroundTheBordersOfWindows) {
  const PlainCode code = testing::code_of_all_lengths();
  Random random(802);
  for (const std::uint64_t windows : {1u, 2u, 7u, 8u, 9u, 31u, 32u, 33u, 255u, 510u, 511u})
    for (std::uint64_t bits = 64 * windows - 1; bits <= 64 * windows + 1; ++bits)
      for (const unsigned last : kLengths) {
        const auto weights = testing::weights_of_bits(bits, last, windows > 100, random);
        ASSERT_TRUE(decodes(testing::encode_plainly(code, weights), weights))
            << bits << " bits, the last code " << last;
      }
}

TEST_F(GpuDecode, AroundTheBordersOfChunks) {
  const PlainCode code = testing::code_of_all_lengths();
  Random random(803);
  int num_corners = 0;
  const auto check = [&](std::uint64_t border, std::uint64_t bits, unsigned last) {
    const auto weights = testing::weights_of_bits(bits, last, true, random);
    const bool is_corner = bits > border && bits - last < border;  // no code starts in the last chunk
    num_corners += is_corner ? 1 : 0;
    for (const auto ending : {PlainPositions::kOfficial, PlainPositions::kLong, PlainPositions::kShort}) {
      if (!is_corner && ending != PlainPositions::kOfficial) continue;
      const Df11Unit unit = testing::encode_plainly(code, weights, PlainFill::kRepeat, ending);
      SCOPED_TRACE(::testing::Message()
                   << bits << " bits, the last code " << last << ", positions " << static_cast<int>(ending));
      const std::uint64_t chunks = unit.gaps.size() / 320;
      ASSERT_TRUE(decodes_run(unit, weights, 0, chunks, Wanted::kBoth));
      if (!is_corner && bits % 4 != 0) continue;
      // The last two apart: the first of them sees less than eight bytes of the second.
      for (std::uint64_t chunk = chunks - std::min<std::uint64_t>(chunks, 2); chunk < chunks; ++chunk)
        ASSERT_TRUE(decodes_run(unit, weights, chunk, chunk + 1, kAllWanted[bits % 4]));
    }
  };
  for (std::uint64_t bits = 32'768 - 10; bits <= 32'768 + 34; ++bits)
    for (const unsigned last : kLengths) {
      check(32'768, bits, last);
      if (HasFatalFailure()) return;
    }
  for (std::uint64_t bits = 65'536 - 3; bits <= 65'536 + 34; ++bits) {
    check(65'536, bits, kLengths[4 + bits % 4]);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(num_corners, 100);
}

/// Zeros that are no code hang the official kernel: in the rest of the last window, and in each one that is
/// left of the chunk. Only a stream that fills its last chunk has neither.
TEST_F(GpuDecode, ZerosThatAreNoCode) {
  PlainCode code;
  code.add(101, 1, 1);
  code.add(102, 2, 1);
  code.add(108, 8, 1);
  Random random(809);
  for (const std::uint64_t bits : {32'768u - 65, 32'768u - 64, 32'768u - 8, 32'768u - 1, 32'768u, 65'536u}) {
    std::vector<std::uint16_t> weights;
    for (std::uint64_t left = bits; left > 0;) {
      const unsigned length = left >= 8 && random.below(4) != 0   ? 8
                              : left >= 2 && random.below(2) == 0 ? 2
                                                                  : 1;
      weights.push_back(testing::with_exponent(random, 100 + length));
      left -= length;
    }
    const Df11Unit unit = testing::encode_plainly(code, weights, PlainFill::kPointers);
    ASSERT_TRUE(decodes(unit, weights)) << bits;
    EXPECT_EQ(both().status().kernel_ends, bits % 32'768 == 0) << bits;
  }
}

/// The first bytes of the last chunk are all that the slab before it sees of it.
TEST_F(GpuDecode, AStreamThatEndsRightBehindAChunk) {
  const PlainCode code = testing::code_of_all_lengths();
  Random random(804);
  for (std::uint64_t bits = 32'768 + 35; bits <= 32'768 + 140; bits += 1 + bits % 3) {
    const unsigned last = kLengths[bits % 8];
    const auto weights = testing::weights_of_bits(bits, last, true, random);
    const Df11Unit unit = testing::encode_plainly(code, weights);
    for (const std::uint64_t chunk : {0u, 1u})
      ASSERT_TRUE(decodes_run(unit, weights, chunk, chunk + 1, Wanted::kBoth)) << bits;
    ASSERT_TRUE(decodes_run(unit, weights, 0, 2, Wanted::kBoth)) << bits;
  }
}

TEST_F(GpuDecode, RandomCodesOfAnyFill) {
  int num_endless = 0, num_long = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    const PlainCode code =
        testing::random_code(random, 1 + random.below(230), random.below(220), seed % 2 == 0 ? 0 : 4);
    const std::size_t count = 1 + random.below(seed % 8 == 0 ? 12'000 : 1'200);
    const auto weights = testing::weights_of_code(code, count, seed % 3 != 0, random);
    const Df11Unit unit = testing::encode_plainly(code, weights, static_cast<PlainFill>(seed % 3),
                                                  static_cast<PlainPositions>(random.below(3)),
                                                  static_cast<std::uint8_t>(random.next()));
    ASSERT_TRUE(decodes(unit, weights, kAllWanted[3 - random.below(5) % 4]));
    num_endless += both().status().kernel_ends ? 0 : 1;
    num_long += *std::ranges::max_element(code.lengths) > 24 ? 1 : 0;
    const std::uint64_t chunks = unit.gaps.size() / 320;
    if (chunks < 2) continue;
    const std::uint64_t first = random.below(chunks);
    ASSERT_TRUE(decodes_run(unit, weights, first, first + 1 + random.below(chunks - first),
                            kAllWanted[seed / 8 % 4]));
  }
  EXPECT_GT(num_endless, 20);
  EXPECT_GT(num_long, 20);
}

/// The distributions, sizes near every border and endings of the official kernel's tests.
TEST_F(GpuDecode, ThreeHundredRandomUnits) {
  for (std::uint64_t seed = 5'000; seed < 5'300; ++seed) {
    const testing::CodedUnit made = testing::random_unit(seed);
    Df11Unit unit = made.unit;
    if (seed % 3 == 1) unit.luts = testing::with_zero_fill(unit.luts, made.code);
    if (seed % 3 == 2) unit.luts = testing::with_carried_fill(unit.luts, made.code);
    ASSERT_TRUE(decodes(unit, made.weights)) << "seed " << seed << ", " << made.kind;
  }
}

TEST_F(GpuDecode, CodesOfOneLength) {
  Random random(805);
  for (unsigned length = 1; length <= 32; ++length) {
    SCOPED_TRACE(::testing::Message() << "codes of " << length << " bits");
    PlainCode code;
    code.add(7, length, 0);
    if (length % 2 == 0) code.add(239, length, (1u << (length - 1)) | 1u);
    for (const std::uint64_t bits : {1u, 64u, 32'768u, 32'769u}) {
      const auto weights = testing::weights_of_code(code, (bits + length - 1) / length, false, random);
      ASSERT_TRUE(decodes(testing::encode_plainly(code, weights), weights)) << bits;
    }
  }
}

/// 64 codes in each window: as many weights as a chunk can hold.
TEST_F(GpuDecode, CodesOfOneBit) {
  Random random(806);
  PlainCode two;
  two.add(3, 1, 0);
  two.add(200, 1, 1);
  PlainCode one;
  one.add(120, 1, 1);
  for (const std::size_t count : {32'767u, 32'768u, 32'769u, 65'535u, 65'600u}) {
    for (const PlainCode* code : {&two, &one}) {
      const auto weights = testing::weights_of_code(*code, count, false, random);
      const Df11Unit unit = testing::encode_plainly(*code, weights);
      ASSERT_TRUE(decodes_run(unit, weights, 0, unit.gaps.size() / 320, kAllWanted[count % 4])) << count;
      ASSERT_TRUE(decodes_run(unit, weights, 0, unit.gaps.size() / 320, Wanted::kBoth)) << count;
    }
  }
}

/// Chunks whose weights begin at every remainder by 8 from the slab's first one, and end so.
TEST_F(GpuDecode, ChunksBeginAndEndAtEveryRemainder) {
  PlainCode code;
  code.add(90, 8, 0x80);
  code.add(91, 16, 0x0123);
  Random random(807);
  // 32,768 bits are 2,048 weights, and one more for each pair of codes of 8 bits.
  const auto add_chunk = [&](std::vector<std::uint16_t>& weights, std::size_t pairs, std::size_t bits) {
    std::vector<std::uint32_t> pieces(bits / 16, 91);
    for (std::size_t i = 0; i < pairs; ++i) pieces[random.below(pieces.size() / 16) * 16 + i] = 90;
    for (const std::uint32_t exponent : pieces)
      for (std::uint32_t i = exponent == 90 ? 2 : 1; i > 0; --i)
        weights.push_back(testing::with_exponent(random, exponent));
  };
  for (std::size_t first = 0; first < 8; ++first)
    for (std::size_t second = 0; second < 8; ++second) {
      std::vector<std::uint16_t> weights;
      add_chunk(weights, first, 32'768);
      add_chunk(weights, second, 32'768);
      add_chunk(weights, (first + second) % 8, 1'600);
      const Df11Unit unit = testing::encode_plainly(code, weights);
      ASSERT_EQ(testing::position_of(unit, 1) % 8, first);
      ASSERT_EQ(testing::position_of(unit, 2) % 8, (first + second) % 8);
      SCOPED_TRACE(::testing::Message() << first << ' ' << second);
      ASSERT_TRUE(decodes_run(unit, weights, 0, 3, kAllWanted[1 + (first + second) % 3]));
      ASSERT_TRUE(decodes_run(unit, weights, 1, 3, kAllWanted[3 - second % 4]));
      ASSERT_TRUE(decodes_run(unit, weights, 1, 2, kAllWanted[1 + first % 3]));
    }
}

TEST_F(GpuDecode, OneWeight) {
  Random random(808);
  for (unsigned length = 1; length <= 32; ++length)
    for (const std::uint32_t bits : {0u, static_cast<std::uint32_t>((std::uint64_t{1} << length) - 1)})
      for (const PlainFill fill : {PlainFill::kZero, PlainFill::kRepeat, PlainFill::kPointers}) {
        PlainCode code;
        code.add(static_cast<unsigned>(random.below(240)), length, bits);
        const auto weights = testing::weights_of_code(code, 1, false, random);
        const Df11Unit unit = testing::encode_plainly(code, weights, fill, PlainPositions::kOfficial,
                                                      static_cast<std::uint8_t>(random.next()));
        for (const Wanted wanted : {Wanted::kBoth, kAllWanted[length % 4]})
          ASSERT_TRUE(decodes(unit, weights, wanted)) << length << " bits";
      }
}

TEST_F(GpuDecode, SlabsOfAnyNumberOfChunksThroughTheUnitDecoder) {
  const std::vector<std::vector<std::uint16_t>> data = {
      testing::normal_weights(70'001, 811), testing::uniform_exponents(20'000, 10, 200, 812),
      testing::mostly_zero(90'000, 20, 30, 813),
      testing::weights_of_histogram(testing::fibonacci_histogram(20, 90), 814),  // codes up to 20 bits
  };
  for (const auto& weights : data) {
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_GE(unit.gaps.size() / 320, 2u);
    const std::optional<bool> should_end = kernel_should_end(unit, weights);
    for (const std::uint64_t slab_chunks : {1u, 2u, 3u, 256u}) {
      SCOPED_TRACE(::testing::Message() << weights.size() << " weights, slabs of " << slab_chunks);
      GpuStages stages(emulated().gpu(), emulated().kernels());
      UnitOnStage memory(unit, stages, slab_chunks);
      std::vector<std::uint16_t> decoded;
      ASSERT_FALSE(memory.decode(decoded));
      ASSERT_EQ(decoded, weights);
      ASSERT_FALSE(memory.decoder().check_lengths());
      job::MemorySource source(weights);
      ASSERT_FALSE(memory.decoder().compare(source));
      EXPECT_EQ(memory.decoder().end_weight(), weights.size());
      if (should_end.has_value()) {
        EXPECT_EQ(memory.decoder().kernel_ends(), *should_end);
      }
      const std::uint64_t chunks = unit.gaps.size() / 320;
      ASSERT_FALSE(memory.decoder().compare_chunks(chunks / 2, chunks, source));
    }
  }
}

/// Every run of chunks, one call each, on one stage that keeps its memory.
TEST_F(GpuDecode, EveryRunOfChunks) {
  start({}, BothDecodeStages::Memory::kKept);
  std::size_t run = 0;
  for (const auto& weights :
       {testing::normal_weights(60'000, 821), testing::mostly_zero(120'000, 40, 10, 822),
        testing::uniform_exponents(18'000, 0, 230, 823)}) {
    const Df11Unit unit = compress_df11_unit(weights);
    const std::uint64_t chunks = unit.gaps.size() / 320;
    ASSERT_GE(chunks, 4u);
    for (std::uint64_t first = 0; first < chunks; ++first)
      for (std::uint64_t end = first + 1; end <= chunks; ++end)
        ASSERT_TRUE(decodes_run(unit, weights, first, end, kAllWanted[run++ % 4])) << first << " to " << end;
  }
}

TEST_F(GpuDecode, UnitsOfEveryShapeOfTheRealHeaders) {
  const std::vector<std::string> names = testing::real_header_names();
  EXPECT_EQ(names.size(), 37u);
  for (const std::string& name : names) {
    const std::vector<testing::RealHeaderUnit> units = testing::real_header_units(name, 1);
    EXPECT_FALSE(units.empty()) << name;
    for (const testing::RealHeaderUnit& unit : units) {
      const auto weights = testing::normal_weights(unit.num_weights, unit.seed);
      const Df11Unit stored = compress_df11_unit(weights, {.num_threads = 1});
      ASSERT_TRUE(decodes(stored, weights)) << name << ", " << unit.name << ", seed " << unit.seed;
    }
  }
}

/// Chunks, weights and bytes that 32 bits do not count.
TEST_F(GpuDecode, FarInALargeUnit) {
  const auto weights = testing::normal_weights(40'000, 827);
  const DecodeInput near = decode_input(compress_df11_unit(weights), weights);
  ASSERT_GE(near.num_chunks(), 3u);
  for (const std::uint64_t chunks_before :
       {(std::uint64_t{1} << 20) - 1, (std::uint64_t{1} << 32) - 2, std::uint64_t{1} << 40}) {
    DecodeInput far = near;
    far.chunks_before = chunks_before;
    far.weights_before = 0xFFFF'FFFF - 40'000;
    for (const Wanted wanted : kAllWanted) {
      ASSERT_TRUE(both().agree(far, 0, far.num_chunks(), wanted));
      ASSERT_TRUE(both().status().ok) << text_of(both().status());
      ASSERT_TRUE(both().agree(far, 0, 2, wanted));
      ASSERT_TRUE(both().status().ok) << text_of(both().status());
    }
    ASSERT_TRUE(both().agree(far, 0, far.num_chunks(), Wanted::kWeights));
    ASSERT_EQ(both().weights(), weights);
    far.source[far.positions[2]] ^= 1;
    ASSERT_TRUE(both().agree(far, 0, far.num_chunks(), Wanted::kComparison));
    ASSERT_FALSE(both().status().ok);
    ASSERT_EQ(both().status().chunk, chunks_before + 2);
  }
}

/// Large and small ones, other tables, in any order on one stage: nothing of the unit before is left.
TEST_F(GpuDecode, UnitAfterUnitOnOneStage) {
  start({}, BothDecodeStages::Memory::kKept);
  Random random(831);
  for (std::uint64_t round = 0; round < 60; ++round) {
    const testing::CodedUnit made = testing::random_unit(6'000 + random.below(1'000));
    ASSERT_TRUE(decodes_run(made.unit, made.weights, 0, made.unit.gaps.size() / 320, kAllWanted[round % 4]))
        << made.kind;
  }
}

/// What comes next may be told before the one before is done.
TEST_F(GpuDecode, ACallWhileAnotherIsUnderWay) {
  GpuStages& stages = emulated().stages();
  const auto a_weights = testing::normal_weights(30'000, 841),
             b_weights = testing::normal_weights(20'000, 842);
  Df11Unit a_unit = compress_df11_unit(a_weights);
  const Df11Unit b_unit = compress_df11_unit(b_weights);
  const DecodeInput a = decode_input(a_unit, a_weights), b = decode_input(b_unit, b_weights);
  const DecodeSlab a_slab(a, 0, a.num_chunks(), Wanted::kBoth), b_slab(b, 0, b.num_chunks(), Wanted::kBoth);
  stages.decode(a_slab.arguments());
  const df11::DecodeCompletion second = stages.decode(b_slab.arguments());
  EXPECT_TRUE(std::ranges::equal(a_slab.arguments().weights, a_weights));  // that call has waited
  EXPECT_TRUE(second.wait().ok);
  EXPECT_TRUE(std::ranges::equal(b_slab.arguments().weights, b_weights));
}

/// Pinned arguments: nothing is read or written before the kernel runs, and everything is by the completion.
TEST_F(GpuDecode, ArgumentsInPinnedMemory) {
  const auto weights = testing::normal_weights(40'000, 851);
  const DecodeInput input = decode_input(compress_df11_unit(weights), weights);
  for (const char* seed : {"0", "1", "2", "3", "4", "5"}) {
    start({{"SEED", seed}});
    const DecodeSlab slab(input, 0, input.num_chunks(), Wanted::kBoth);
    df11::DecodeArguments arguments = slab.arguments();
    std::vector<PinnedBuffer> buffers;
    const auto pin = [&](auto& span) {
      const PinnedBuffer& buffer = buffers.emplace_back(emulated().gpu(), span.size_bytes());
      std::memcpy(buffer.data(), span.data(), span.size_bytes());
      span = {reinterpret_cast<decltype(span.data())>(buffer.data()), span.size()};
    };
    pin(arguments.luts);
    pin(arguments.positions);
    pin(arguments.encoded_exponent);
    pin(arguments.gaps);
    pin(arguments.sign_mantissa);
    pin(arguments.source);
    pin(arguments.weights);
    GpuStages stages(emulated().gpu(), emulated().kernels());
    const df11::DecodeStatus status = stages.decode(arguments).wait();
    EXPECT_TRUE(status.ok && status.kernel_ends) << "seed " << seed;
    EXPECT_TRUE(std::ranges::equal(arguments.weights, weights)) << "seed " << seed;
  }
}

/// Orders of lanes, warps and blocks; two threads of the interpreter.
TEST_F(GpuDecode, AnyOrderOfThreads) {
  const auto weights = testing::normal_weights(45'000, 861);
  const Df11Unit normal = compress_df11_unit(weights);
  PlainCode dense;
  dense.add(60, 1, 1);
  dense.add(61, 2, 0b01);
  dense.add(62, 13, 0b0000'0000'0010'1);
  for (int seed = 1; seed <= 16; ++seed) {
    start({{"SEED", std::to_string(seed)}, {"THREADS", seed % 2 == 0 ? "2" : "1"}});
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ASSERT_TRUE(decodes_run(normal, weights, 0, normal.gaps.size() / 320, kAllWanted[3 - seed % 4]));
    Random random(static_cast<std::uint64_t>(seed));
    const auto others = testing::weights_of_code(dense, 40'000, true, random);
    const Df11Unit unit = testing::encode_plainly(dense, others);
    ASSERT_TRUE(decodes_run(unit, others, 0, unit.gaps.size() / 320, Wanted::kBoth));
  }
}

}  // namespace
}  // namespace weightpress::device
