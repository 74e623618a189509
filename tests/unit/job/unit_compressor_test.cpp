// A unit through slabs: the same bytes whatever the threads, segments and slabs; every stream length;
// rescues; a source that changes.
#include "job/unit_compressor.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "host/host_stages.h"
#include "job/unit_memory.h"
#include "support/unit_reader.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

using Words = std::vector<std::uint16_t>;

Df11Unit compress(const Words& weights, int threads, std::uint64_t segment_weights,
                  std::uint64_t slab_weights) {
  MemorySource source(weights);
  MemorySink sink;
  SlabBuffers buffers;
  host::HostStages stages(threads);
  UnitCompressorOptions options;
  options.segment_weights = segment_weights;
  options.slab_weights = slab_weights;
  compress_unit("unit", source, sink, stages, buffers, options).value();
  return sink.unit;
}

TEST(UnitCompressor, BytesDoNotDependOnThreadsSegmentsOrSlabs) {
  const std::vector<Words> units = {
      testing::normal_weights(70'001, 1),
      testing::uniform_exponents(5'000, 10, 200, 2),
      Words(30'000, 0),
      testing::mostly_zero(60'000, 9, 20, 3),
      testing::weights_of_histogram(testing::fibonacci_histogram(20, 100), 4),
  };
  for (const Words& weights : units) {
    const Df11Unit whole = compress(weights, 1, 0, 1 << 20);
    ASSERT_TRUE(testing::reads_back_as(whole, weights));
    for (const int threads : {1, 2, 3, 7}) {
      for (const std::uint64_t segment : {997u, 4'096u, 30'000u}) {
        for (const std::uint64_t slab : {1u, 5'000u, 1u << 20}) {
          ASSERT_TRUE(testing::same_bytes(whole, compress(weights, threads, segment, slab)))
              << threads << " threads, segments of " << segment << ", slabs of " << slab;
        }
      }
    }
  }
}

TEST(UnitCompressor, SegmentsAndSlabsFromOneWeightUp) {
  const std::vector<Words> units = {testing::normal_weights(700, 1), Words(300, 0), Words(1, 0x3C00),
                                    testing::uniform_exponents(400, 0, 240, 2),
                                    testing::weights_of_histogram(testing::fibonacci_histogram(13, 100), 4)};
  for (const Words& weights : units) {
    const Df11Unit whole = compress(weights, 1, 0, 1 << 20);
    ASSERT_TRUE(testing::reads_back_as(whole, weights));
    for (std::uint64_t segment = 1; segment <= 40; ++segment) {
      for (const std::uint64_t slab :
           {std::uint64_t{1}, 2 * segment, 3 * segment, 7 * segment, 11 * segment}) {
        ASSERT_TRUE(testing::same_bytes(whole, compress(weights, 2, segment, slab)))
            << "segments of " << segment << ", slabs of " << slab;
      }
    }
  }
}

/// A unit whose bitstream has exactly `bits` bits: exponents with codes of 1, 2 and 3 bits (and EOF's, of 3).
Words unit_of_bits(std::uint64_t bits, testing::Random& random) {
  // Counts n1 > n2 + n3 > ... keep the lengths 1, 2, 3: found by trying random counts until the sum is right.
  while (true) {
    const std::uint64_t c = 1 + random.below(bits / 12 + 1);
    const std::uint64_t b = c + 1 + random.below(bits / 8 + 2);
    if (3 * c + 2 * b >= bits) {
      if (bits < 12) break;
      continue;
    }
    const std::uint64_t a = bits - 3 * c - 2 * b;
    if (10 * (a + b + c) > 7 * bits && bits > 2'500) continue;  // chunks would be too dense
    df11::Histogram histogram{};
    histogram[100] = c;
    histogram[101] = b;
    histogram[102] = a;
    if (df11::total_bits(histogram, df11::build_official_codebook(histogram)) == bits) {
      return testing::weights_of_histogram(histogram, random.next());
    }
  }
  return Words(bits, 0x3C00);  // one exponent: one bit a weight
}

TEST(UnitCompressor, EveryStreamLengthFrom1To2500BitsAndAroundEachBorder) {
  testing::Random random(29);
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t bits = 1; bits <= 2'500; ++bits) lengths.push_back(bits);
  for (std::uint64_t border = 32'768; border <= 4 * 32'768; border += 32'768) {
    for (std::uint64_t bits = border - 70; bits <= border + 70; ++bits) lengths.push_back(bits);
  }
  for (const std::uint64_t bits : lengths) {
    const Words weights = unit_of_bits(bits, random);
    const Df11Unit unit = compress(weights, 2, 61, 500);
    ASSERT_EQ(unit.encoded_exponent.size(), (bits + 7) / 8);
    ASSERT_TRUE(testing::reads_back_as(unit, weights)) << bits << " bits";
  }
}

TEST(UnitCompressor, RescuedUnitsAreLoadable) {
  std::vector<Words> units = {Words(100'000, 0), Words(50'000, 0x3F80),
                              testing::mostly_zero(200'000, 10, 12, 1),
                              testing::mostly_zero(200'000, 100, 12, 2)};
  Words outliers = testing::normal_weights(90'000, 1);
  const Words rare = testing::uniform_exponents(10'000, 20, 200, 2);
  outliers.insert(outliers.end(), rare.begin(), rare.end());
  units.push_back(outliers);
  for (const Words& weights : units) {
    const Df11Unit unit = compress_df11_unit(weights);
    EXPECT_EQ(unit.rescues.size(), 1u);
    EXPECT_TRUE(testing::reads_back_as(unit, weights));
    EXPECT_THROW(compress_df11_unit(weights, {.strict_identity = true}), Error);
    EXPECT_TRUE(testing::same_bytes(unit, compress(weights, 2, 1'000, 10'000)));
  }
}

TEST(UnitCompressor, DensityIsCheckedToTheLastChunk) {
  EXPECT_TRUE(compress_df11_unit(Words(23'550, 0)).rescues.empty());
  EXPECT_EQ(compress_df11_unit(Words(23'551, 0)).rescues.size(), 1u);
  // Sparse chunks first, then one dense chunk at the very end.
  for (const std::size_t zeros : {20'000u, 60'000u}) {
    Words weights = testing::uniform_exponents(70'000, 100, 8, 1);
    weights.insert(weights.end(), zeros, std::uint16_t{0});
    weights.insert(weights.begin(), 60'000,
                   std::uint16_t{0x3F80});  // so that zeros are not alone in being common
    const Df11Unit unit = compress_df11_unit(weights);
    EXPECT_TRUE(testing::reads_back_as(unit, weights)) << zeros;
  }
}

TEST(UnitCompressor, FirstLargeExponentIsLocated) {
  Words weights = testing::normal_weights(50'000, 1);
  weights[31'415] = 0x7F80;
  weights[40'000] = 0x7F80;
  MemorySource source(weights);
  MemorySink sink;
  SlabBuffers buffers;
  host::HostStages stages(2);
  UnitCompressorOptions options;
  options.segment_weights = 1'000;
  options.slab_weights = 7'000;
  const Result<df11::UnitPlan> result = compress_unit("unit", source, sink, stages, buffers, options);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kExponentTooLarge);
  EXPECT_EQ(result.error().offset, 31'415u);
  EXPECT_TRUE(sink.unit.luts.empty());
}

/// Gives other weights from the nth read on.
class ChangingSource final : public WeightSource {
 public:
  ChangingSource(Words before, Words after, int reads_before)
      : before_(std::move(before)), after_(std::move(after)), reads_left_(reads_before) {}

  std::uint64_t num_weights() const override { return before_.size(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override {
    const Words& from = reads_left_-- > 0 ? before_ : after_;
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), weights.size(), weights.begin());
  }

 private:
  Words before_, after_;
  int reads_left_;
};

TEST(UnitCompressor, SourceThatChangesBetweenTheReadsIsReported) {
  testing::Random random(31);
  const Words before = testing::normal_weights(40'000, 1);
  for (int round = 0; round < 300; ++round) {
    Words after = before;
    const std::uint64_t kind = random.below(4);
    if (kind == 0) after[random.below(after.size())] = 0x0080;  // an exponent without a code
    if (kind == 1) after[after.size() - 1] = 0x0080;            // the last weight
    if (kind == 2) std::reverse(after.begin(), after.end());    // same histogram, other slabs
    if (kind == 3) after = testing::uniform_exponents(after.size(), 0, 256, random.next());
    ChangingSource source(before, after, 10);  // four slabs of histograms, then six of which some are changed
    MemorySink sink;
    SlabBuffers buffers;
    host::HostStages stages(2);
    UnitCompressorOptions options;
    options.segment_weights = 1'000;
    options.slab_weights = 4'000;  // ten slabs
    const Result<df11::UnitPlan> result = compress_unit("unit", source, sink, stages, buffers, options);
    ASSERT_FALSE(result.has_value()) << "round " << round << " kind " << kind;
    EXPECT_EQ(result.error().code, ErrorCode::kSourceChanged);
  }
}

TEST(UnitCompressor, DenseScanNoticesAChangedSource) {
  // A codebook with a 1-bit code: the weights are read again before encoding.
  const Words before = testing::mostly_zero(40'000, 3, 8, 1);
  ChangingSource source(before, Words(40'000, 0x3F80), 10);
  MemorySink sink;
  SlabBuffers buffers;
  host::HostStages stages(2);
  UnitCompressorOptions options;
  options.segment_weights = 1'000;
  options.slab_weights = 4'000;
  const Result<df11::UnitPlan> result = compress_unit("unit", source, sink, stages, buffers, options);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kSourceChanged);
}

}  // namespace
}  // namespace weightpress::job
