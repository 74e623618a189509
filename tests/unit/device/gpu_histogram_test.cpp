// Histograms and first bits of segments on the emulated GPU, against Thrust on the CPU.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/df11_launches.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/thrust_oracle.h"
#include "device/watched_memory.h"
#include "format/bf16_fields.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

using weightpress::testing::Random;
using Words = std::vector<std::uint16_t>;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};

using GpuHistogram = GpuTest;
using GpuSegmentOffsets = GpuTest;

// ---- histograms

constexpr std::uint64_t kNumKinds = 5;

Words weights_of_kind(std::uint64_t kind, std::size_t count, std::uint64_t seed) {
  switch (kind % kNumKinds) {
    case 0:
      return testing::normal_weights(count, seed);
    case 1:
      return testing::uniform_exponents(count, 0, 256, seed);
    case 2:
      return testing::uniform_exponents(count, static_cast<std::uint32_t>(seed % 256), 1, seed);
    case 3: {
      // Every exponent in turn: neighbours differ always.
      Words weights(count);
      for (std::size_t i = 0; i < count; ++i) weights[i] = static_cast<std::uint16_t>((i + seed) * 0x81);
      return weights;
    }
    default:
      return testing::mostly_zero(count, 50, 256 - 100, seed);
  }
}

/// Sizes around those of a segment, of a block's threads and loads, and of a word of 16 bytes.
std::vector<std::uint64_t> sizes_for(std::uint64_t segment_weights) {
  std::vector<std::uint64_t> sizes = {1, 31, 32, 33};
  if (segment_weights >= 7) sizes.insert(sizes.end(), {7, 8, 9, 15, 16, 17, 255, 256, 257});
  if (segment_weights >= 333) sizes.insert(sizes.end(), {2'047, 2'048, 2'049});
  if (segment_weights == 65'536) sizes.insert(sizes.end(), {8'191, 8'192, 8'193, 8'199, 16'385});
  for (const std::uint64_t segments : {1u, 2u})
    for (const std::uint64_t more : {0u, 1u, 2u, 9u}) sizes.push_back(segments * segment_weights + more - 1);
  std::erase(sizes, 0u);
  return sizes;
}

constexpr std::uint64_t kSegmentSizes[] = {1, 7, 333, 4'096, kGpuSegmentWeights, 65'536};

TEST_F(GpuHistogram, EqualsThrustForEverySizeAlignmentAndSegment) {
  EmulatedGpu emulated;
  const Df11Launches launches(emulated.kernels());
  const Stream stream(emulated.gpu());
  std::uint64_t seed = 0;
  for (const std::uint64_t segment_weights : kSegmentSizes)
    for (const std::uint64_t count : sizes_for(segment_weights)) {
      // Large ones at some of the alignments.
      const std::uint64_t step = count > 10'000 ? 3 : 1;
      for (std::uint64_t offset = count % step; offset < 8; offset += step) {
        ++seed;
        SCOPED_TRACE(std::to_string(count) + " weights, " + std::to_string(offset) +
                     " words off, segments of " + std::to_string(segment_weights) + ", seed " +
                     std::to_string(seed));
        const Words weights = weights_of_kind(seed, count, seed);
        const std::vector<df11::SegmentHistogram> expected = thrust_histograms(weights, segment_weights);
        const DeviceValues<std::uint16_t> d_weights(emulated.gpu(), weights, offset);
        const GuardedDeviceSpan<df11::SegmentHistogram> d_histograms(emulated.gpu(), expected.size());
        launches.histogram(stream, {d_weights.get(), count, segment_weights, d_histograms.get(), 0});
        stream.wait();
        bool is_intact = false;
        ASSERT_EQ(d_histograms.read(is_intact), expected);
        ASSERT_TRUE(is_intact);
      }
    }
}

TEST_F(GpuHistogram, OfTheStageEqualsThrustWhereverTheWeightsLie) {
  EmulatedGpu emulated;
  std::uint64_t seed = 1'000;
  for (const std::uint64_t segment_weights : {1u, 7u, 333u, 4'096u, 32'256u})
    for (const std::uint64_t count : {segment_weights, 2 * segment_weights + 33})
      for (std::uint64_t offset = 0; offset < 8; offset += count > 10'000 ? 5 : 1) {
        ++seed;
        SCOPED_TRACE(std::to_string(count) + " weights, " + std::to_string(offset) +
                     " words off, segments of " + std::to_string(segment_weights) + ", seed " +
                     std::to_string(seed));
        const Words memory = weights_of_kind(seed, offset + count, seed);
        const auto weights = std::span(memory).subspan(offset);
        GuardedSpan<df11::SegmentHistogram> histograms(df11::num_segments(count, segment_weights));
        const df11::HistogramArguments arguments{weights, segment_weights, histograms.get()};
        ASSERT_EQ(emulated.stages().histogram(arguments).wait().code, df11::StageCode::kOk);
        ASSERT_TRUE(std::ranges::equal(histograms.get(), thrust_histograms(weights, segment_weights)));
        ASSERT_TRUE(histograms.is_intact());
      }
}

TEST_F(GpuHistogram, IsTheSameInEveryOrderOfThreads) {
  const Words weights = weights_of_kind(1, 70'001, 1);
  const std::vector<df11::SegmentHistogram> expected = thrust_histograms(weights, 10'001);
  for (const char* threads : {"1", "2"})
    for (const char* seed : {"1", "2", "3"}) {
      SCOPED_TRACE(std::string("seed ") + seed + ", " + threads + " threads");
      EmulatedGpu emulated({{"SEED", seed}, {"THREADS", threads}});
      std::vector<df11::SegmentHistogram> histograms(expected.size());
      emulated.stages().histogram({weights, 10'001, histograms}).wait();
      EXPECT_EQ(histograms, expected);
    }
}

TEST_F(GpuHistogram, OfAUnitAddsUpOverSlabs) {
  EmulatedGpu emulated({{"SEED", "4"}, {"THREADS", "2"}});
  const Df11Launches launches(emulated.kernels());
  const Stream stream(emulated.gpu());
  for (std::uint64_t seed = 2'000; seed < 2'000 + 2 * kNumKinds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Words weights = weights_of_kind(seed, 40'000 + random.below(100), seed);
    const std::uint64_t segment_weights = 1 + random.below(9'000);
    // What is there already counts too, and beyond 32 bits.
    std::vector<std::uint64_t> expected(df11::kNumSymbols);
    for (std::uint64_t& count : expected) count = random.next() >> 20;
    const DeviceValues<std::uint64_t> d_unit(emulated.gpu(), expected);
    const df11::SegmentHistogram counts = thrust_histograms(weights, weights.size()).front();
    for (std::uint32_t symbol = 0; symbol < df11::kNumSymbols; ++symbol) expected[symbol] += counts[symbol];

    const DeviceValues<std::uint16_t> d_weights(emulated.gpu(), weights);
    for (std::uint64_t first = 0; first < weights.size();) {
      const std::uint64_t slab_weights =
          std::min<std::uint64_t>(segment_weights * (1 + random.below(4)), weights.size() - first);
      const GuardedDeviceSpan<df11::SegmentHistogram> d_histograms(
          emulated.gpu(), df11::num_segments(slab_weights, segment_weights));
      launches.histogram(stream, {d_weights.get() + 2 * first, slab_weights, segment_weights,
                                  d_histograms.get(), d_unit.get()});
      stream.wait();
      bool is_intact = false;
      ASSERT_EQ(d_histograms.read(is_intact),
                thrust_histograms(std::span(weights).subspan(first, slab_weights), segment_weights));
      ASSERT_TRUE(is_intact);
      first += slab_weights;
    }
    EXPECT_EQ(d_unit.read(), expected);
  }
}

// ---- first bits of segments

constexpr std::uint8_t kSymbolOfWeights = 100, kSymbolWithoutCode = 200;

/// Segments of any counts, and weights of which only the last of each segment matters.
struct Segments {
  std::uint64_t segment_weights = 1;
  Words weights;
  std::vector<df11::SegmentHistogram> histograms;
  EncodeTables tables;
  std::vector<std::uint64_t> bits;  ///< by a plain loop

  Segments(std::uint64_t num_segments, std::uint64_t seed) : histograms(num_segments) {
    Random random(seed);
    segment_weights = 1 + random.below(3);
    // The last one is mostly short.
    weights.resize(num_segments * segment_weights - random.below(segment_weights));
    for (std::uint32_t symbol = 0; symbol < df11::kNumSymbols; ++symbol)
      tables.lengths[symbol] = static_cast<std::uint8_t>(random.below(df11::kMaxCodeBits + 1));
    tables.lengths[kSymbolWithoutCode] = 0;
    tables.lengths[kSymbolOfWeights] = df11::kMaxCodeBits;
    for (std::uint16_t& weight : weights) weight = testing::with_exponent(random, kSymbolOfWeights);
    for (df11::SegmentHistogram& histogram : histograms) {
      // Mostly a few counts of any size, now and then all at their highest.
      const bool is_full = random.below(500) == 0;
      for (std::uint32_t& count : histogram)
        if (is_full || random.below(16) == 0)
          count = is_full ? ~std::uint32_t{0}
                          : static_cast<std::uint32_t>(random.next() >> (32 + random.below(32)));
      histogram[kSymbolOfWeights] = std::max<std::uint32_t>(histogram[kSymbolOfWeights], 1);
    }
    count_bits();
  }

  void count_bits() {
    bits.clear();
    for (const df11::SegmentHistogram& histogram : histograms) {
      std::uint64_t sum = 0;
      for (std::uint32_t symbol = 0; symbol < df11::kNumSymbols; ++symbol)
        sum += std::uint64_t{histogram[symbol]} * tables.lengths[symbol];
      bits.push_back(sum);
    }
  }
};

/// What a slab's two kernels make of segments.
class SegmentRun {
 public:
  SegmentRun(const EmulatedGpu& emulated, const Segments& segments)
      : segments_(segments),
        launches_(emulated.kernels()),
        stream_(emulated.gpu()),
        d_weights_(emulated.gpu(), segments.weights, segments.weights.size() % 8),
        d_histograms_(emulated.gpu(), segments.histograms),
        d_tables_(emulated.gpu(), {&segments.tables, 1}),
        d_bits_(emulated.gpu(), segments.bits.size() + 1),
        d_status_(emulated.gpu(), std::array{EncodeStatusWord::kOk}) {}

  void count_bits() {
    SegmentBitsKernel::Parameters parameters;
    parameters.d_weights = d_weights_.get();
    parameters.num_weights = segments_.weights.size();
    parameters.segment_weights = segments_.segment_weights;
    parameters.num_segments = segments_.bits.size();
    parameters.d_histograms = d_histograms_.get();
    parameters.d_tables = d_tables_.get();
    parameters.d_bits = d_bits_.get();
    parameters.d_status = d_status_.get();
    launches_.segment_bits(stream_, parameters);
    stream_.wait();
  }

  /// expected_end 0: nothing is expected.
  void add_up(std::uint64_t first_bit, std::uint64_t expected_end, std::uint64_t expected_last_length) {
    SegmentOffsetsKernel::Parameters parameters;
    parameters.d_bits = d_bits_.get();
    parameters.num_segments = segments_.bits.size();
    parameters.first_bit = first_bit;
    parameters.expected_end = expected_end;
    parameters.expected_last_length = expected_last_length;
    if (expected_end != 0) {
      parameters.d_last_weight = d_weights_.get() + 2 * (segments_.weights.size() - 1);
      parameters.d_tables = d_tables_.get();
    }
    parameters.d_status = d_status_.get();
    launches_.segment_offsets(stream_, parameters);
    stream_.wait();
  }

  /// [num_segments + 1]
  std::vector<std::uint64_t> bits() const {
    bool is_intact = false;
    std::vector<std::uint64_t> values = d_bits_.read(is_intact);
    EXPECT_TRUE(is_intact);
    return values;
  }
  std::uint64_t status() const { return d_status_.read().front(); }

 private:
  const Segments& segments_;
  Df11Launches launches_;
  Stream stream_;
  DeviceValues<std::uint16_t> d_weights_;
  DeviceValues<df11::SegmentHistogram> d_histograms_;
  DeviceValues<EncodeTables> d_tables_;
  GuardedDeviceSpan<std::uint64_t> d_bits_;
  DeviceValues<std::uint64_t> d_status_;
};

constexpr std::uint64_t changed(std::uint64_t segment) {
  return segment << 8 | EncodeStatusWord::kSourceChanged;
}

TEST_F(GpuSegmentOffsets, EqualThrustsScanOfDotProducts) {
  EmulatedGpu emulated;
  std::uint64_t seed = 3'000;
  for (const std::uint64_t num_segments :
       {1u, 2u, 3u, 7u, 8u, 9u, 511u, 513u, 2'047u, 2'048u, 2'049u, 10'000u})
    for (const std::uint64_t first_bit :
         {std::uint64_t{0}, std::uint64_t{12'345}, (std::uint64_t{1} << 33) + 77}) {
      if (num_segments == 10'000 && first_bit == 12'345) continue;  // a second of its own
      ++seed;
      SCOPED_TRACE(std::to_string(num_segments) + " segments from bit " + std::to_string(first_bit) +
                   ", seed " + std::to_string(seed));
      const Segments segments(num_segments, seed);
      const std::vector<std::uint64_t> expected = thrust_prefix_sums(segments.bits, first_bit);
      SegmentRun run(emulated, segments);
      run.count_bits();
      std::vector<std::uint64_t> bits = run.bits();
      bits.pop_back();
      ASSERT_EQ(bits, segments.bits);
      run.add_up(first_bit, seed % 2 == 0 ? expected.back() : 0, df11::kMaxCodeBits);
      ASSERT_EQ(run.bits(), expected);
      ASSERT_EQ(run.status(), EncodeStatusWord::kOk);
    }
}

TEST_F(GpuSegmentOffsets, LastWeightsThatCannotBeOnesCountedAreReported) {
  EmulatedGpu emulated;
  for (const std::uint64_t num_segments : {1u, 2u, 9u, 40u})
    for (const std::uint64_t segment : {std::uint64_t{0}, num_segments / 2, num_segments - 1})
      for (int kind = 0; kind < 3; ++kind) {
        SCOPED_TRACE("segment " + std::to_string(segment) + " of " + std::to_string(num_segments) +
                     ", kind " + std::to_string(kind));
        Segments segments(num_segments, 4'000 + num_segments);
        const std::uint64_t last =
            std::min<std::uint64_t>((segment + 1) * segments.segment_weights, segments.weights.size()) - 1;
        if (kind == 0) {
          segments.weights[last] = df11::join_bf16(kSymbolWithoutCode, 0x5A);
        } else {
          // A bit less than the last code takes, or just as many.
          segments.tables.lengths[7] = static_cast<std::uint8_t>(df11::kMaxCodeBits - 2 + kind);
          segments.histograms[segment].fill(0);
          segments.histograms[segment][7] = 1;
          segments.count_bits();
        }
        SegmentRun run(emulated, segments);
        run.count_bits();
        // No place can be told: the offsets after it mean nothing.
        EXPECT_EQ(run.status(), kind < 2 ? changed(0) : EncodeStatusWord::kOk);
      }
}

TEST_F(GpuSegmentOffsets, AnEndThatIsNotThePlannedOneIsReported) {
  EmulatedGpu emulated;
  for (const std::uint64_t num_segments : {1u, 2u, 2'048u, 2'049u}) {
    SCOPED_TRACE(std::to_string(num_segments) + " segments");
    Segments segments(num_segments, 5'000 + num_segments);
    const std::uint64_t first_bit = (std::uint64_t{1} << 40) + 3;
    const std::uint64_t end = thrust_prefix_sums(segments.bits, first_bit).back();
    struct Case {
      std::uint64_t end, last_length;
      bool is_changed;
    };
    for (const Case& one : {Case{end, 32, false}, Case{end + 1, 32, true}, Case{end - 1, 32, true},
                            Case{end + (std::uint64_t{1} << 32), 32, true}, Case{end, 31, true},
                            Case{end, 0, true}, Case{0, 31, false}}) {
      SCOPED_TRACE("end " + std::to_string(one.end) + ", last code of " + std::to_string(one.last_length));
      SegmentRun run(emulated, segments);
      run.count_bits();
      run.add_up(first_bit, one.end, one.last_length);
      EXPECT_EQ(run.bits().back(), end);
      EXPECT_EQ(run.status(), one.is_changed ? changed(num_segments - 1) : EncodeStatusWord::kOk);
    }
    // A lower segment counts.
    if (num_segments == 1) continue;
    segments.weights[segments.segment_weights - 1] = df11::join_bf16(kSymbolWithoutCode, 0);
    SegmentRun run(emulated, segments);
    run.count_bits();
    run.add_up(first_bit, end + 1, df11::kMaxCodeBits);
    EXPECT_EQ(run.status(), changed(0));
  }
}

}  // namespace
}  // namespace weightpress::device
