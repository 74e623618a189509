// The encoder on the emulated GPU: byte for byte what the CPU makes, on units of all kinds, cut anywhere, and
// what the official compressor made.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/coded_units.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/encode_slab.h"
#include "support/compress_with.h"
#include "support/stored_units.h"

namespace weightpress::device {
namespace {

using weightpress::testing::compress_with;
using Memory = BothEncodeStages::Memory;

class GpuEncode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};

/// A unit in slabs that begin at these segments; chunk starts are looked for in every other slab.
void expect_alike(BothEncodeStages& stages, const CountedUnit& unit, std::span<const std::uint64_t> borders) {
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const EncodeSlab slab(unit, borders[i], borders[i + 1]);
    ASSERT_TRUE(stages.encode_alike(slab));
    ASSERT_EQ(stages.status().code, df11::StageCode::kOk);
    if ((unit.weights.size() + i) % 2 == 0) {
      ASSERT_TRUE(stages.find_starts_alike(slab));
    }
  }
}

void expect_alike(BothEncodeStages& stages, const CountedUnit& unit) {
  const std::vector<std::uint64_t> whole = {0, unit.num_segments()};
  expect_alike(stages, unit, whole);
}

// ---- whole units

TEST_F(GpuEncode, GoldenUnitsEqualTheOfficialBytes) {
  EmulatedGpu emulated;
  const std::vector<std::string> names = testing::golden_units();
  EXPECT_EQ(names.size(), 19u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Words weights = testing::golden_weights(name);
    const Df11Unit golden = testing::golden_unit(name);
    const std::uint64_t part = weights.size() / 7 + 1;
    struct Cut {
      std::uint64_t segment_weights, slab_weights;
    };
    for (const Cut& cut : {Cut{kGpuSegmentWeights, weights.size()}, Cut{part, 2 * part}}) {
      const Df11Unit unit = compress_with(emulated.stages(), weights, cut.segment_weights, cut.slab_weights);
      EXPECT_TRUE(
          same_values<std::uint8_t>("encoded_exponent", unit.encoded_exponent, golden.encoded_exponent));
      EXPECT_TRUE(same_values<std::uint8_t>("sign_mantissa", unit.sign_mantissa, golden.sign_mantissa));
      EXPECT_TRUE(
          same_values<std::uint8_t>("output_positions", unit.output_positions, golden.output_positions));
      EXPECT_TRUE(same_values<std::uint8_t>("gaps", unit.gaps, golden.gaps));
      if (!name.starts_with("official_tables_hang_kernel")) {
        EXPECT_EQ(unit.luts, golden.luts);
      }
    }
  }
}

TEST_F(GpuEncode, UnitsInSlabsOfEverySizeEqualTheCpus) {
  EmulatedGpu emulated;
  host::HostStages host(1);
  const std::vector<Words> units = {testing::normal_weights(9'001, 1),
                                    testing::uniform_exponents(3'000, 10, 200, 2),
                                    testing::mostly_zero(40'000, 9, 20, 3),
                                    Words(30'000, 0),  // rescued: chunks too dense
                                    testing::weights_of_histogram(testing::fibonacci_histogram(16, 100), 4),
                                    Words(1, 0x3C00)};
  for (const Words& weights : units) {
    const Df11Unit whole = compress_with(host, weights);
    for (const std::uint64_t segment_weights : {997u, 1'600u, 4'096u, 30'000u})
      for (const std::uint64_t slab_segments : {1u, 2u, 3u, 5u, 8u}) {
        if ((slab_segments - 1) * segment_weights > weights.size()) continue;
        SCOPED_TRACE(std::to_string(weights.size()) + " weights, segments of " +
                     std::to_string(segment_weights) + ", slabs of " + std::to_string(slab_segments));
        ASSERT_TRUE(testing::same_bytes(
            compress_with(emulated.stages(), weights, segment_weights, slab_segments * segment_weights),
            whole));
      }
  }
}

TEST_F(GpuEncode, SegmentsAndSlabsFromOneWeightUp) {
  EmulatedGpu emulated;
  host::HostStages host(1);
  const std::vector<Words> units = {testing::normal_weights(90, 1), Words(150, 0),
                                    testing::uniform_exponents(70, 0, 240, 2),
                                    testing::weights_of_histogram(testing::fibonacci_histogram(9, 100), 4)};
  for (const Words& weights : units) {
    const Df11Unit whole = compress_with(host, weights);
    for (std::uint64_t segment_weights = 1; segment_weights <= 40; ++segment_weights) {
      const std::uint64_t slab_weights = segment_weights * (1 + segment_weights * 5 % 7);
      if (weights.size() / slab_weights > 8) continue;
      ASSERT_TRUE(testing::same_bytes(
          compress_with(emulated.stages(), weights, segment_weights, slab_weights), whole))
          << "segments of " << segment_weights << ", slabs of " << slab_weights;
    }
    // Slabs that complete no byte.
    const std::span<const std::uint16_t> few = std::span(weights).first(24);
    const Df11Unit small = compress_with(host, few);
    for (const std::uint64_t segment_weights : {1u, 2u, 3u})
      for (const std::uint64_t slab_segments : {1u, 2u})
        ASSERT_TRUE(testing::same_bytes(
            compress_with(emulated.stages(), few, segment_weights, slab_segments * segment_weights), small))
            << "segments of " << segment_weights << ", slabs of " << slab_segments;
  }
}

// ---- slabs, one by one

TEST_F(GpuEncode, RandomUnitsCutAnywhereEqualTheCpus) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CodedWeights coded = random_weights(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + coded.kind);
    Random random(seed + 1'000);
    const std::uint64_t segment_weights = random_segment_weights(coded.weights.size(), random);
    const CountedUnit unit(std::move(coded.weights), segment_weights, std::move(coded.codebook));
    expect_alike(stages, unit, random_slab_borders(unit.num_segments(), random));
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuEncode, EveryStreamLengthFrom1To2500Bits) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels(), Memory::kKept);
  for (std::uint64_t bits = 1; bits <= 2'500; ++bits) {
    SCOPED_TRACE(std::to_string(bits) + " bits");
    Random random(bits);
    static constexpr unsigned kLengths[] = {1, 2, 4, 7, 11, 16, 25, 32};
    unsigned last = 0;
    do last = kLengths[random.below(8)];
    while (last > bits);
    const bool long_codes = random.below(4) != 0;
    Words weights = testing::weights_of_bits(bits, last, long_codes, random);
    const std::uint64_t segment_weights = weights.size() / (bits % 4 == 0 ? 2 : 1) + 1;
    const CountedUnit unit(std::move(weights), segment_weights, codebook_of_all_lengths(random));
    ASSERT_EQ(unit.layout.total_bits, bits);
    ASSERT_TRUE(stages.encode_alike(EncodeSlab(unit, 0, unit.num_segments())));
  }
}

TEST_F(GpuEncode, EndsOfUnitsSegmentsAndSlabsAroundEachBorder) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  std::uint64_t seed = 2'000;
  for (const std::uint64_t border : {64u, 128u, 512u, 1'024u, 32'768u, 65'536u})
    for (const int more : {-33, -32, -31, -9, -8, -7, -1, 0, 1, 7, 8, 9, 31, 32, 33})
      for (const unsigned last : {1u, 2u, 7u, 25u, 32u}) {
        ++seed;
        if (border == 65'536 && (std::abs(more) > 1 || last == 2)) continue;
        Random random(seed);
        const std::uint64_t bits = border + static_cast<std::uint64_t>(more);
        if (bits < last) continue;
        SCOPED_TRACE(std::to_string(bits) + " bits, the last code of " + std::to_string(last) + ", seed " +
                     std::to_string(seed));
        Words weights = testing::weights_of_bits(bits, last, true, random);
        // A segment that ends there, the whole unit at first; then others follow, and slabs end there.
        const std::uint64_t segment_weights = weights.size();
        const df11::Codebook codebook = codebook_of_all_lengths(random);
        expect_alike(stages, CountedUnit(weights, segment_weights, codebook));
        const std::uint64_t rest_bits = 32 + random.below(bits + 100);
        const Words rest = testing::weights_of_bits(rest_bits, 4, true, random);
        weights.insert(weights.end(), rest.begin(), rest.end());
        const CountedUnit unit(weights, segment_weights, codebook);
        if (seed % 2 == 0) expect_alike(stages, unit);
        const std::vector<std::uint64_t> apart = {0, 1, unit.num_segments()};
        if (seed % 2 == 1) expect_alike(stages, unit, apart);
        if (HasFatalFailure()) return;
      }
}

TEST_F(GpuEncode, TilesAroundWhatABufferHolds) {
  // Tiles of exactly as many bits as are put together at once, and of one more or less, after an unfinished
  // group of every size.
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  constexpr std::uint64_t kTile = EncodeKernel::kTileWeights, kBits = EncodeKernel::kTileBits;
  std::uint64_t seed = 3'000;
  for (const int more : {-1, 0, 1})
    for (const std::uint64_t before : {0u, 1u, 8u, 256u, 504u, 510u, 511u}) {
      Random random(++seed);
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(before) + " bits before");
      const std::uint64_t bits = kBits + static_cast<std::uint64_t>(more);
      Words weights = weights_of_count_and_bits(kTile, 60 * 512 + before, random);
      for (int tile = 0; tile < 2; ++tile) {
        const Words full = weights_of_count_and_bits(kTile, bits, random);
        weights.insert(weights.end(), full.begin(), full.end());
      }
      const df11::Codebook codebook = codebook_of_all_lengths(random);
      // Segments of a tile, all in one, and one of which the last one is cut.
      expect_alike(stages, CountedUnit(weights, kTile, codebook));
      expect_alike(stages, CountedUnit(weights, 3 * kTile, codebook));
      weights.resize(weights.size() - random.below(kTile));
      expect_alike(stages, CountedUnit(weights, 2 * kTile, codebook));
      if (HasFatalFailure()) return;
    }
}

TEST_F(GpuEncode, TilesOfLongCodesGoWarpByWarp) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  for (std::uint64_t seed = 4'000; seed < 4'012; ++seed) {
    Random random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const unsigned longest = seed % 3 == 0 ? 32 : static_cast<unsigned>(9 + random.below(23));
    const std::size_t count = 1 + random.below(12'000);
    CodedWeights coded = of_lengths(std::array{longest}, count, false, random);
    // Some in which warps have nearly nothing to place.
    if (seed % 4 == 3) coded = of_lengths(std::array{1u, longest}, count, true, random);
    const CountedUnit unit(std::move(coded.weights), seed % 2 == 0 ? kGpuSegmentWeights : 5'000,
                           std::move(coded.codebook));
    expect_alike(stages, unit);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuEncode, LargeUnitsOfEachHistogram) {
  EmulatedGpu emulated({{"SEED", "1"}, {"THREADS", "2"}});
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  std::vector<CodedWeights> units;
  units.push_back(
      with_official_codebook("normal", testing::normal_weights(2 * kGpuSegmentWeights + 4'097, 1)));
  units.push_back(with_official_codebook("one bit a weight", Words(70'001, 0x3C00)));
  units.push_back(with_official_codebook("flat", testing::uniform_exponents(20'000, 0, 240, 2)));
  units.push_back(with_official_codebook("mostly zero", testing::mostly_zero(60'000, 30, 60, 3)));
  units.push_back(with_official_codebook(
      "Fibonacci", testing::weights_of_histogram(testing::fibonacci_histogram(21, 100), 4)));
  {
    // The codes of the longest Fibonacci histogram, each as often as the others.
    df11::Codebook codebook = df11::build_official_codebook(testing::fibonacci_histogram(36, 90));
    EXPECT_EQ(codebook.longest_length(), 32u);
    units.push_back(
        {"codes of up to 32 bits", testing::uniform_exponents(9'000, 90, 36, 5), std::move(codebook)});
  }
  for (CodedWeights& coded : units) {
    SCOPED_TRACE(coded.kind);
    const CountedUnit unit(std::move(coded.weights), kGpuSegmentWeights, std::move(coded.codebook));
    expect_alike(stages, unit);
    // A weight less than tiles and rows, and one more.
    for (const std::uint64_t count : {511u, 512u, 513u, 4'095u, 4'096u, 4'097u, 8'191u})
      expect_alike(stages, CountedUnit(Words(unit.weights.begin(), unit.weights.begin() + count),
                                       kGpuSegmentWeights, unit.codebook));
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuEncode, OneToAHundredWeightsWhereverTheyLie) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  for (std::size_t count = 1; count <= 100; ++count) {
    SCOPED_TRACE(std::to_string(count) + " weights");
    const CodedWeights coded = with_official_codebook("normal", testing::normal_weights(count, count));
    const CountedUnit unit(coded.weights, kGpuSegmentWeights, coded.codebook);
    Words memory(count % 8);
    memory.insert(memory.end(), coded.weights.begin(), coded.weights.end());
    const EncodeSlab slab(unit, 0, 1, std::span(memory).subspan(count % 8));
    ASSERT_TRUE(stages.encode_alike(slab));
    ASSERT_TRUE(stages.find_starts_alike(slab));
  }
}

TEST_F(GpuEncode, TheSameInEveryOrderOfThreads) {
  for (const char* threads : {"1", "2"})
    for (const char* order : {"1", "2", "3"}) {
      EmulatedGpu emulated(
          {{"SEED", order}, {"THREADS", threads}, {"EAGER_PERCENT", order[0] == '2' ? "50" : "0"}});
      BothEncodeStages stages(emulated.gpu(), emulated.kernels(), Memory::kKept);
      for (std::uint64_t seed = 5'000; seed < 5'012; ++seed) {
        CodedWeights coded = random_weights(seed);
        SCOPED_TRACE("order " + std::string(order) + ", " + threads + " threads, seed " +
                     std::to_string(seed) + ", " + coded.kind);
        Random random(seed);
        const std::uint64_t segment_weights = random_segment_weights(coded.weights.size(), random);
        const CountedUnit unit(std::move(coded.weights), segment_weights, std::move(coded.codebook));
        expect_alike(stages, unit, random_slab_borders(unit.num_segments(), random));
        if (HasFatalFailure()) return;
      }
    }
}

/// A slab's weights and outputs in pinned memory: copies run as late as they can.
TEST_F(GpuEncode, PinnedMemoryIsReadAndWrittenLate) {
  for (const char* order : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(std::string("order ") + order);
    EmulatedGpu emulated({{"SEED", order}, {"THREADS", "1"}});
    const Words weights = testing::normal_weights(20'000, 1);
    const CodedWeights coded = with_official_codebook("normal", weights);
    const CountedUnit unit(weights, 3'001, coded.codebook);
    const PinnedBuffer pinned_weights(emulated.gpu(), 2 * weights.size());
    const std::span<std::uint16_t> late(reinterpret_cast<std::uint16_t*>(pinned_weights.data()),
                                        weights.size());
    std::ranges::copy(weights, late.begin());
    for (const auto& [first, end] : {std::pair{0, 4}, std::pair{4, 7}}) {
      const EncodeSlab slab(unit, first, end, late);
      SlabOutputs expected(slab);
      host::HostStages(1).encode(expected.arguments(slab)).wait();
      const PinnedBuffer outputs(emulated.gpu(), 8 * weights.size());
      const std::span<std::uint8_t> bytes = outputs.bytes();
      df11::EncodeArguments arguments = expected.arguments(slab);
      df11::SlabBorder border;
      arguments.sign_mantissa = bytes.first(slab.weights.size());
      arguments.encoded_exponent = bytes.subspan(2 * weights.size(), slab.pieces.num_bytes);
      arguments.gaps = bytes.subspan(4 * weights.size(), slab.pieces.num_gap_groups * df11::kGapGroupBytes);
      arguments.positions = {reinterpret_cast<std::uint32_t*>(bytes.data() + 6 * weights.size()),
                             slab.pieces.num_positions};
      arguments.border = &border;
      ASSERT_EQ(emulated.stages().encode(arguments).wait().code, df11::StageCode::kOk);
      EXPECT_TRUE(std::ranges::equal(arguments.sign_mantissa, expected.sign_mantissa.get()));
      EXPECT_TRUE(std::ranges::equal(arguments.encoded_exponent, expected.encoded_exponent.get()));
      EXPECT_TRUE(std::ranges::equal(arguments.gaps, expected.gaps.get()));
      EXPECT_TRUE(std::ranges::equal(arguments.positions, expected.positions.get()));
      EXPECT_EQ(border.byte, expected.border.byte);
      EXPECT_TRUE(std::ranges::equal(border.gap_group, expected.border.gap_group));
    }
  }
}

}  // namespace
}  // namespace weightpress::device
