// A unit through slabs: the same bytes whatever the threads, segments and slabs; every stream length;
// rescues; a source that changes.
#include "job/unit_compressor.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "host/host_stages.h"
#include "job/journal_records.h"
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

/// Counts how often each weight is read.
class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(const Words& weights) : weights_(weights), times_read_(weights.size(), 0) {}

  std::uint64_t num_weights() const override { return weights_.size(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override {
    ASSERT_LE(first + weights.size(), weights_.size());
    longest_read_ = std::max<std::uint64_t>(longest_read_, weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = weights_[first + i];
      ++times_read_[first + i];
    }
  }

  bool was_read(int times) const {
    return std::ranges::all_of(times_read_, [&](int read) { return read == times; });
  }
  std::uint64_t longest_read() const { return longest_read_; }

 private:
  const Words& weights_;
  std::vector<int> times_read_;
  std::uint64_t longest_read_ = 0;
};

/// The host's stages, and how much memory they were given at once.
class WatchedStages final : public df11::Df11Stages {
 public:
  explicit WatchedStages(int num_threads) : stages_(num_threads) {}

  df11::Completion histogram(const df11::HistogramArguments& arguments) override {
    return stages_.histogram(arguments);
  }
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override {
    return stages_.chunk_starts(arguments);
  }
  df11::Completion encode(const df11::EncodeArguments& arguments) override {
    ++num_encoded;
    max_code_bytes = std::max<std::uint64_t>(max_code_bytes, arguments.encoded_exponent.size());
    max_bytes = std::max(max_bytes, arguments.sign_mantissa.size() + arguments.encoded_exponent.size() +
                                        arguments.gaps.size() + arguments.positions.size_bytes());
    return stages_.encode(arguments);
  }

  std::uint64_t num_encoded = 0, max_code_bytes = 0, max_bytes = 0;

 private:
  host::HostStages stages_;
};

/// What shapes and kinds of units take other ways through the compressor.
std::vector<Words> units_of_all_kinds() {
  Words outliers = testing::normal_weights(90'000, 1);
  const Words rare = testing::uniform_exponents(10'000, 20, 200, 2);
  outliers.insert(outliers.end(), rare.begin(), rare.end());
  return {testing::normal_weights(70'001, 1),
          testing::uniform_exponents(5'000, 10, 200, 2),
          Words(60'000, 0),                        // rescued: too dense
          testing::mostly_zero(60'000, 9, 20, 3),  // a 1-bit code, and no dense chunk
          testing::mostly_zero(200'000, 100, 12, 2),
          outliers,  // rescued: too many tables
          Words(1, 0x3C00)};
}

bool same_plan(const df11::UnitPlan& a, const df11::UnitPlan& b) {
  const std::span bytes_a(a.tables.data(), a.tables.size_bytes());
  const std::span bytes_b(b.tables.data(), b.tables.size_bytes());
  return a.codebook.lengths == b.codebook.lengths && a.codebook.codes == b.codebook.codes &&
         std::ranges::equal(bytes_a, bytes_b) && a.layout.num_weights == b.layout.num_weights &&
         a.layout.total_bits == b.layout.total_bits && a.layout.num_bytes == b.layout.num_bytes &&
         a.layout.gaps_bytes == b.layout.gaps_bytes &&
         a.layout.last_code_length == b.layout.last_code_length &&
         a.layout.positions_bytes() == b.layout.positions_bytes() && a.rescues == b.rescues &&
         a.ambiguous_limiter == b.ambiguous_limiter;
}

TEST(UnitCompressor, HeldUnitsAreReadOnceAndHaveTheSameBytes) {
  for (const Words& weights : units_of_all_kinds()) {
    const Df11Unit whole = compress(weights, 2, 0, 1 << 20);
    for (const std::uint64_t slab : {1u, 1'000u, 7'000u, 64'000u, 1u << 20}) {
      for (const bool keeps_histograms : {true, false}) {
        SCOPED_TRACE(std::to_string(weights.size()) + " weights in slabs of " + std::to_string(slab) +
                     (keeps_histograms ? "" : ", counted again"));
        CountingSource source(weights);
        SlabBuffers buffers;
        host::HostStages stages(2);
        UnitCompressorOptions options;
        options.segment_weights = 1'000;
        options.slab_weights = slab;
        UnitCompressor compressor("unit", source, stages, buffers, options);
        EXPECT_FALSE(compressor.is_held());
        Words memory(weights.size());
        compressor.hold(memory);
        EXPECT_TRUE(compressor.is_held());
        const auto plan = compressor.plan();
        ASSERT_TRUE(plan.has_value());
        EXPECT_EQ(memory, weights);
        EXPECT_GT(compressor.histogram_bytes(), 0u);
        if (!keeps_histograms) compressor.release_histograms();
        MemorySink sink;
        sink.begin(*plan);
        ASSERT_TRUE(compressor.encode(*plan, sink).has_value());
        EXPECT_TRUE(testing::same_bytes(whole, sink.unit));
        EXPECT_TRUE(source.was_read(1));
        // Given back, it is read again, into a slab's memory.
        compressor.release_weights();
        EXPECT_FALSE(compressor.is_held());
        std::ranges::fill(memory, std::uint16_t{0x7F80});
        MemorySink again;
        again.begin(*plan);
        ASSERT_TRUE(compressor.encode(*plan, again).has_value());
        EXPECT_TRUE(testing::same_bytes(whole, again.unit));
        EXPECT_TRUE(source.was_read(2));
      }
    }
  }
}

TEST(UnitCompressor, StreamedUnitsAreReadBySlabs) {
  for (const std::uint64_t slab : {1u, 1'000u, 6'500u, 1u << 20}) {
    const Words weights = testing::normal_weights(50'000, 3);
    CountingSource source(weights);
    MemorySink sink;
    SlabBuffers buffers;
    host::HostStages stages(2);
    UnitCompressorOptions options;
    options.segment_weights = 1'000;
    options.slab_weights = slab;
    ASSERT_TRUE(compress_unit("unit", source, sink, stages, buffers, options).has_value());
    EXPECT_TRUE(source.was_read(2));
    EXPECT_EQ(source.longest_read(), std::min<std::uint64_t>((slab + 999) / 1'000 * 1'000, 50'000));
  }
}

TEST(UnitCompressor, ReleasedHistogramsAreCountedAgain) {
  for (const Words& weights : units_of_all_kinds()) {
    const Df11Unit whole = compress(weights, 1, 0, 1 << 20);
    for (const int threads : {1, 3}) {
      for (const std::uint64_t slab : {1u, 3'000u, 1u << 20}) {
        MemorySource source(weights);
        SlabBuffers buffers;
        host::HostStages stages(threads);
        UnitCompressorOptions options;
        options.segment_weights = 997;
        options.slab_weights = slab;
        UnitCompressor compressor("unit", source, stages, buffers, options);
        const auto plan = compressor.plan();
        ASSERT_TRUE(plan.has_value());
        EXPECT_EQ(compressor.histogram_bytes(), (weights.size() + 996) / 997 * 1'024);
        compressor.release_histograms();
        EXPECT_EQ(compressor.histogram_bytes(), 0u);
        for (int time = 0; time < 2; ++time) {
          MemorySink sink;
          sink.begin(*plan);
          ASSERT_TRUE(compressor.encode(*plan, sink).has_value());
          ASSERT_TRUE(testing::same_bytes(whole, sink.unit)) << threads << " threads, slabs of " << slab;
        }
      }
    }
  }
}

TEST(UnitCompressor, SourceThatChangesBeforeItIsCountedAgainIsReported) {
  testing::Random random(37);
  const Words before = testing::normal_weights(40'000, 1);
  int reported = 0;
  for (int round = 0; round < 400; ++round) {
    Words after = before;
    const std::uint64_t kind = random.below(5);
    if (kind == 0) after[random.below(after.size())] = 0x0080;  // an exponent without a code
    if (kind == 1) after[after.size() - 1] = 0x0080;            // the last weight
    if (kind == 2) after.assign(after.size(), before[0]);
    if (kind == 3) after = testing::uniform_exponents(after.size(), 0, 256, random.next());
    if (kind == 4) after[random.below(after.size())] ^= 0x0100;  // maybe a code of another length
    ChangingSource source(before, after, 10);
    MemorySink sink;
    SlabBuffers buffers;
    host::HostStages stages(2);
    UnitCompressorOptions options;
    options.segment_weights = 1'000;
    options.slab_weights = 4'000;  // ten slabs
    UnitCompressor compressor("unit", source, stages, buffers, options);
    const auto plan = compressor.plan();
    ASSERT_TRUE(plan.has_value());
    compressor.release_histograms();
    sink.begin(*plan);
    const Result<void> result = compressor.encode(*plan, sink);
    if (result.has_value()) {
      // Its codes are as long in all: that shows in the hash of what was read, not here.
      EXPECT_EQ(kind, 4u);
      EXPECT_EQ(df11::total_bits(testing::histogram_of(after), plan->codebook), plan->layout.total_bits);
      continue;
    }
    ++reported;
    EXPECT_EQ(result.error().code, ErrorCode::kSourceChanged);
  }
  EXPECT_GT(reported, 300);
}

TEST(UnitCompressor, APlanIsMadeAgainFromItsCounts) {
  std::size_t asked = 0, rescued = 0;
  for (const Words& weights : units_of_all_kinds()) {
    for (const std::uint64_t max_chunk_weights : {df11::kMaxChunkWeights, 15'000u}) {
      MemorySource source(weights);
      SlabBuffers buffers;
      host::HostStages stages(2);
      UnitCompressorOptions options;
      options.segment_weights = 1'000;
      options.slab_weights = 7'000;
      options.coding.limits.max_chunk_weights = max_chunk_weights;
      UnitCompressor compressor("unit", source, stages, buffers, options);
      const auto plan = compressor.plan();
      ASSERT_TRUE(plan.has_value());
      asked += compressor.counts().densest_chunks.size();
      rescued += plan->rescues.size();
      const auto again = plan_again("unit", weights.size(), compressor.counts(), options.coding);
      ASSERT_TRUE(again.has_value());
      EXPECT_TRUE(same_plan(*plan, *again));
      // And out of a journal.
      PastRun past;
      ASSERT_TRUE(past.add(planned_line("unit", {compressor.counts(), {}, 1})));
      const auto from_journal =
          plan_again("unit", weights.size(), past.planned("unit")->counts, options.coding);
      ASSERT_TRUE(from_journal.has_value());
      EXPECT_TRUE(same_plan(*plan, *from_journal));
      // Counts that cannot be right give no plan.
      EXPECT_FALSE(plan_again("unit", weights.size() + 1, compressor.counts(), options.coding).has_value());
      UnitCounts wrong = compressor.counts();
      wrong.last_exponent = 239;
      EXPECT_FALSE(plan_again("unit", weights.size(), wrong, options.coding).has_value());
      wrong = compressor.counts();
      wrong.histogram.front().second += std::uint64_t{1} << 63;  // the sum is right but for 2^64
      wrong.histogram.emplace_back(std::uint8_t{238}, std::uint64_t{1} << 63);
      EXPECT_FALSE(plan_again("unit", weights.size(), wrong, options.coding).has_value());
      if (!compressor.counts().densest_chunks.empty()) {
        wrong = compressor.counts();
        wrong.densest_chunks.clear();
        EXPECT_FALSE(plan_again("unit", weights.size(), wrong, options.coding).has_value());
      }

      // Such a unit is encoded without having been planned by this object, and read once for that.
      const Df11Unit whole = [&] {
        MemorySink sink;
        sink.begin(*plan);
        EXPECT_TRUE(compressor.encode(*plan, sink).has_value());
        return sink.unit;
      }();
      for (const bool holds : {false, true}) {
        CountingSource counting(weights);
        UnitCompressor resumed("unit", counting, stages, buffers, options);
        Words memory(weights.size());
        if (holds) resumed.hold(memory);
        MemorySink sink;
        sink.begin(*again);
        ASSERT_TRUE(resumed.encode(*again, sink).has_value());
        EXPECT_TRUE(testing::same_bytes(whole, sink.unit));
        EXPECT_TRUE(counting.was_read(1));
      }
    }
  }
  EXPECT_GE(asked, 5u);
  EXPECT_GE(rescued, 5u);
}

TEST(UnitCompressor, CountsAreOfTheWeights) {
  for (const Words& weights : units_of_all_kinds()) {
    MemorySource source(weights);
    SlabBuffers buffers;
    host::HostStages stages(2);
    UnitCompressor compressor("unit", source, stages, buffers, {});
    ASSERT_TRUE(compressor.plan().has_value());
    EXPECT_EQ(compressor.counts().histogram, sparse(testing::histogram_of(weights)));
    EXPECT_EQ(compressor.counts().last_exponent, df11::exponent_of(weights.back()));
  }
}

/// First common exponents, then rare ones alone: their codes are longer than a byte.
Words common_then_rare(std::size_t common, std::size_t rare) {
  Words weights = testing::uniform_exponents(common, 100, 2, 1);
  const Words second = testing::uniform_exponents(rare, 110, 100, 2);
  weights.insert(weights.end(), second.begin(), second.end());
  return weights;
}

// As memory_plan.cpp counts a slab, but for the weights themselves.
constexpr std::uint64_t slab_bytes_without_weights(std::uint64_t slab_weights) {
  return slab_weights * 2 * 17 / 16 + slab_weights / 8;
}

TEST(UnitCompressor, SlabsOfLongCodesAreCut) {
  for (const bool rare_first : {false, true}) {
    Words weights = common_then_rare(1'000'000, 250'000);
    if (rare_first) std::ranges::reverse(weights);
    const Df11Unit whole = compress(weights, 2, 0, 1 << 22);
    ASSERT_TRUE(testing::reads_back_as(whole, weights));
    for (const std::uint64_t segment : {1'000u, 4'096u}) {
      for (const std::uint64_t segments_a_slab : {4u, 25u}) {
        for (const bool keeps_histograms : {true, false}) {
          const std::uint64_t slab = segment * segments_a_slab;
          SCOPED_TRACE("segments of " + std::to_string(segment) + ", slabs of " + std::to_string(slab));
          MemorySource source(weights);
          SlabBuffers buffers;
          WatchedStages stages(2);
          UnitCompressorOptions options;
          options.segment_weights = segment;
          options.slab_weights = slab;
          UnitCompressor compressor("unit", source, stages, buffers, options);
          const auto plan = compressor.plan();
          ASSERT_TRUE(plan.has_value());
          if (!keeps_histograms) compressor.release_histograms();
          MemorySink sink;
          sink.begin(*plan);
          std::uint64_t told = 0;
          ASSERT_TRUE(
              compressor.encode(*plan, sink, [&](std::uint64_t count) { told += count; }).has_value());
          EXPECT_TRUE(testing::same_bytes(whole, sink.unit));
          EXPECT_EQ(told, weights.size());
          EXPECT_GT(stages.num_encoded, (weights.size() + slab - 1) / slab);  // else the test is none
          EXPECT_LE(stages.max_code_bytes, slab + 1);
          EXPECT_LE(stages.max_bytes, slab_bytes_without_weights(slab));
        }
      }
    }
  }
}

TEST(UnitCompressor, ASlabOfOneSegmentTakesNoMoreThanItsCodes) {
  // The one case beyond a byte a weight: a segment is not cut. At most 4 bytes a weight, so for the 256 Ki
  // weights of the largest segments 1 MiB, which the plan has as unforeseen.
  const Words weights = common_then_rare(500'000, 20'000);
  MemorySource source(weights);
  SlabBuffers buffers;
  WatchedStages stages(2);
  UnitCompressorOptions options;
  options.segment_weights = 1'000;
  options.slab_weights = 1'000;
  MemorySink sink;
  ASSERT_TRUE(compress_unit("unit", source, sink, stages, buffers, options).has_value());
  EXPECT_EQ(stages.num_encoded, 520u);
  EXPECT_GT(stages.max_code_bytes, 1'000u);
  EXPECT_LE(stages.max_code_bytes, 4'000u);
  EXPECT_TRUE(testing::same_bytes(compress(weights, 1, 0, 1 << 20), sink.unit));
}

TEST(UnitCompressor, SlabsOfShortCodesAreNotCut) {
  const Words weights = testing::normal_weights(1'000'000, 5);
  MemorySource source(weights);
  SlabBuffers buffers;
  WatchedStages stages(2);
  UnitCompressorOptions options;
  options.slab_weights = 4 * 65'536;
  MemorySink sink;
  ASSERT_TRUE(compress_unit("unit", source, sink, stages, buffers, options).has_value());
  EXPECT_EQ(stages.num_encoded, 4u);
  EXPECT_LE(stages.max_bytes, slab_bytes_without_weights(options.slab_weights));
}

}  // namespace
}  // namespace weightpress::job
