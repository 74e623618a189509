// Weights that are not those that were counted: the encoder says so as the CPU does, and writes nothing
// beside its outputs, neither in the host's memory nor in the GPU's.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/coded_units.h"
#include "device/df11_launches.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/encode_slab.h"
#include "device/encode_tables.h"
#include "device/watched_memory.h"

namespace weightpress::device {
namespace {

using Segment = BothEncodeStages::Segment;

class GpuChangedSource : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};

/// An exponent without a code; another code length than that of `weight`, if there is one.
std::uint8_t exponent_without_code(const CountedUnit& unit) {
  for (std::uint32_t exponent = 0; exponent < df11::kNumSymbols; ++exponent)
    if (unit.codebook.lengths[exponent] == 0) return static_cast<std::uint8_t>(exponent);
  return 255;
}
std::uint16_t of_other_length(const CountedUnit& unit, std::uint16_t weight, Random& random) {
  for (int tries = 0; tries < 1'000; ++tries) {
    const std::uint16_t other = unit.weights[random.below(unit.weights.size())];
    if (unit.length_of(other) != unit.length_of(weight)) return other;
  }
  return weight;
}
std::uint16_t changed_weight(const CountedUnit& unit, std::uint16_t weight, Random& random) {
  if (random.below(2) == 0) return of_other_length(unit, weight, random);
  return df11::join_bf16(exponent_without_code(unit), df11::sign_mantissa_of(weight));
}

CountedUnit unit_of_seed(std::uint64_t seed) {
  Random random(seed);
  // Not those of one exponent: they have no other lengths.
  const std::size_t count = 1'000 + random.below(8'000);
  CodedWeights coded = seed % 3 == 0 ? of_lengths(std::array{1u, 3u, 9u, 24u}, count, false, random)
                                     : with_official_codebook("normal", testing::normal_weights(count, seed));
  const std::uint64_t any = seed / 8 % 3 == 0 ? 16 * (1 + random.below(40)) : 1 + random.below(4'000);
  const std::uint64_t segment_weights = std::max<std::uint64_t>(count / 12 + 1, any);
  return {std::move(coded.weights), segment_weights, std::move(coded.codebook)};
}

enum class Change : std::uint8_t {
  kOneWeight,
  kBeginOfASegment,  // where the block of the segment before it looks ahead
  kEndOfASegment,
  kEndOfTheUnit,
  kOneSegment,  // many of its weights
  kManySegments,
  kOrder,      // of two weights in a segment: as many bits
  kMadeUpFor,  // a weight without a code, and as many bits in all
  kNumKinds
};

/// Changes weights as `change` says.
void apply(Change change, const CountedUnit& unit, Words& weights, Random& random) {
  const std::uint64_t count = weights.size(), segment = random.below(unit.num_segments());
  const std::uint64_t first = segment * unit.segment_weights;
  const std::uint64_t end = std::min<std::uint64_t>(first + unit.segment_weights, count);
  const auto change_weight = [&](std::uint64_t i) { weights[i] = changed_weight(unit, weights[i], random); };
  switch (change) {
    case Change::kOneWeight:
      return change_weight(random.below(count));
    case Change::kBeginOfASegment:
      return change_weight(first + random.below(std::min<std::uint64_t>(end - first, 1 + random.below(511))));
    case Change::kEndOfASegment:
      return change_weight(end - 1);
    case Change::kEndOfTheUnit:
      return change_weight(count - 1);
    case Change::kOneSegment:
      for (std::uint64_t i = 1 + random.below(30); i > 0; --i)
        change_weight(first + random.below(end - first));
      return;
    case Change::kManySegments:
      for (std::uint64_t i = 2 + random.below(30); i > 0; --i) change_weight(random.below(count));
      return;
    case Change::kOrder: {
      const std::uint64_t one = first + random.below(end - first), other = first + random.below(end - first);
      return std::swap(weights[one], weights[other]);
    }
    default:
      for (int tries = 0; tries < 10'000; ++tries) {
        const std::uint64_t one = first + random.below(end - first),
                            other = first + random.below(end - first);
        const std::uint16_t longer = unit.weights[random.below(count)];
        if (one == other || one + 1 == end ||
            unit.length_of(weights[one]) + unit.length_of(weights[other]) != unit.length_of(longer))
          continue;
        weights[one] = df11::join_bf16(exponent_without_code(unit), 0);
        weights[other] = longer;
        return;
      }
  }
}

TEST_F(GpuChangedSource, IsToldAsTheCpuTellsIt) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  std::array<int, 2> verdicts{};
  int num_made_up_for = 0;
  for (std::uint64_t seed = 1; seed <= 210; ++seed) {
    const auto change = static_cast<Change>(seed % static_cast<std::uint64_t>(Change::kNumKinds));
    SCOPED_TRACE("seed " + std::to_string(seed) + ", change " + std::to_string(static_cast<int>(change)));
    Random random(seed);
    const CountedUnit unit = unit_of_seed(seed);
    Words weights = unit.weights;
    apply(change, unit, weights, random);
    // The CPU looks at the unit's end first, and tells no other segment if that is wrong.
    const bool has_end = unit.length_of(weights.back()) == unit.layout.last_code_length;
    const Segment segment = change == Change::kManySegments && !has_end ? Segment::kAny : Segment::kSame;
    const std::vector<std::uint64_t> borders = random_slab_borders(unit.num_segments(), random);
    for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
      const EncodeSlab slab(unit, borders[i], borders[i + 1], weights);
      ASSERT_TRUE(stages.encode_alike(slab, segment));
      ++verdicts[stages.status().code == df11::StageCode::kOk ? 0 : 1];
      if (change == Change::kOrder) {
        EXPECT_EQ(stages.status().code, df11::StageCode::kOk);
      }
      if (change == Change::kMadeUpFor && stages.status().code != df11::StageCode::kOk) ++num_made_up_for;
      ASSERT_TRUE(stages.find_starts_alike(slab, segment));
    }
  }
  EXPECT_GT(verdicts[0], 120);
  EXPECT_GT(verdicts[1], 120);
  EXPECT_GT(num_made_up_for, 10);
}

TEST_F(GpuChangedSource, CountedAgainTheEndIsNotThePlannedOne) {
  EmulatedGpu emulated;
  BothEncodeStages stages(emulated.gpu(), emulated.kernels());
  for (std::uint64_t seed = 1'001; seed <= 1'060; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const CountedUnit planned = unit_of_seed(seed);
    Words weights = planned.weights;
    // With codes all: it is the sum that is wrong, or the last length.
    const std::uint64_t at = seed % 3 == 0 ? weights.size() - 1 : random.below(weights.size());
    weights[at] = of_other_length(planned, weights[at], random);
    CountedUnit unit(weights, planned.segment_weights, planned.codebook);
    unit.layout = planned.layout;
    const std::uint64_t first = random.below(unit.num_segments());
    if (unit.first_bits[first] + 64 > planned.layout.total_bits) continue;  // no such pieces
    ASSERT_TRUE(stages.encode_alike(EncodeSlab(unit, first, unit.num_segments())));
    EXPECT_EQ(stages.status().code, df11::StageCode::kSourceChanged);
    EXPECT_EQ(stages.status().segment, unit.num_segments() - first - 1);
  }
}

// ---- the kernel alone

/// A slab on the device, weights anywhere, every output between guards.
class DeviceSlab {
 public:
  DeviceSlab(const EmulatedGpu& emulated, const EncodeSlab& slab, std::uint64_t weight_offset)
      : DeviceSlab(emulated, slab, weight_offset, first_bits(slab), groups(slab)) {}

  /// bits: first bits of the segments, and the end. num_groups: that there is room for.
  DeviceSlab(const EmulatedGpu& emulated, const EncodeSlab& slab, std::uint64_t weight_offset,
             std::span<const std::uint64_t> bits, std::uint64_t num_groups)
      : slab_(slab),
        num_groups_(num_groups),
        launches_(emulated.kernels()),
        stream_(emulated.gpu()),
        tables_(make_encode_tables(slab.unit.codebook)),
        d_weights_(emulated.gpu(), slab.weights, weight_offset),
        d_bits_(emulated.gpu(), bits),
        d_tables_(emulated.gpu(), {&tables_, 1}),
        d_status_(emulated.gpu(), std::array{EncodeStatusWord::kOk}),
        d_sign_mantissa_(emulated.gpu(), slab.weights.size()),
        d_encoded_exponent_(emulated.gpu(), num_groups * kGroupBytes),
        d_gaps_(emulated.gpu(), num_groups * df11::kGapGroupBytes),
        d_positions_(emulated.gpu(), slab.num_starts) {}

  static std::vector<std::uint64_t> first_bits(const EncodeSlab& slab) {
    const auto begin = std::ranges::find(slab.unit.first_bits, slab.position.first_bit);
    return {begin, begin + static_cast<std::ptrdiff_t>(slab.histograms.size() + 1)};
  }
  static std::uint64_t groups(const EncodeSlab& slab) {
    return (slab.end_bit + kGroupBits - 1) / kGroupBits - slab.position.first_bit / kGroupBits;
  }

  void encode() {
    launches_.encode(stream_, parameters());
    stream_.wait();
  }
  void find_starts() {
    EncodeKernel::Parameters starts = parameters();
    starts.d_sign_mantissa = starts.d_encoded_exponent = starts.d_gaps = 0;
    launches_.chunk_starts(stream_, starts);
    stream_.wait();
  }

  std::uint64_t status() const { return d_status_.read().front(); }
  bool is_intact() const {
    std::array<bool, 4> intact{};
    d_sign_mantissa_.read(intact[0]);
    d_encoded_exponent_.read(intact[1]);
    d_gaps_.read(intact[2]);
    d_positions_.read(intact[3]);
    return std::ranges::all_of(intact, [](bool one) { return one; });
  }

  /// What the CPU makes of it, in whole groups.
  ::testing::AssertionResult has_bytes_of_the_cpu() const {
    SlabOutputs expected(slab_);
    EXPECT_EQ(host::HostStages(1).encode(expected.arguments(slab_)).wait().code, df11::StageCode::kOk);
    const std::uint64_t first_group = slab_.position.first_bit / kGroupBits;
    std::vector<std::uint8_t> stream(num_groups_ * kGroupBytes), gaps(num_groups_ * df11::kGapGroupBytes);
    const auto put = [](std::vector<std::uint8_t>& all, std::uint64_t at,
                        std::span<const std::uint8_t> bytes) {
      // The last slab's gaps go on to the end of the chunk.
      for (std::size_t i = 0; i < bytes.size() && at + i < all.size(); ++i) all[at + i] = bytes[i];
    };
    const std::uint64_t stream_at = slab_.pieces.first_byte - first_group * kGroupBytes;
    const std::uint64_t gaps_at = (slab_.pieces.first_gap_group - first_group) * df11::kGapGroupBytes;
    put(stream, stream_at, expected.encoded_exponent.get());
    put(gaps, gaps_at, expected.gaps.get());
    if (!slab_.position.is_last) {
      put(stream, stream_at + slab_.pieces.num_bytes, {&expected.border.byte, 1});
      put(gaps, gaps_at + expected.gaps.get().size(), expected.border.gap_group);
    }
    bool ignored = false;
    for (const auto& same :
         {same_values<std::uint8_t>("sign_mantissa", d_sign_mantissa_.read(ignored),
                                    expected.sign_mantissa.get()),
          same_values<std::uint8_t>("encoded_exponent", d_encoded_exponent_.read(ignored), stream),
          same_values<std::uint8_t>("gaps", d_gaps_.read(ignored), gaps),
          same_values<std::uint32_t>("positions", d_positions_.read(ignored),
                                     expected.positions.get().first(slab_.num_starts))})
      if (!same) return same;
    return ::testing::AssertionSuccess();
  }

 private:
  EncodeKernel::Parameters parameters() const {
    EncodeKernel::Parameters parameters;
    parameters.d_weights = d_weights_.get();
    parameters.num_weights = slab_.weights.size();
    parameters.segment_weights = slab_.unit.segment_weights;
    parameters.d_bits = d_bits_.get();
    parameters.d_tables = d_tables_.get();
    parameters.first_weight = slab_.position.first_weight;
    parameters.first_open_window =
        df11::first_open_window(slab_.position.first_bit, slab_.position.previous_code_length);
    parameters.d_sign_mantissa = d_sign_mantissa_.get();
    parameters.d_encoded_exponent = d_encoded_exponent_.get();
    parameters.d_gaps = d_gaps_.get();
    parameters.num_groups = num_groups_;
    parameters.d_positions = d_positions_.get();
    parameters.first_position = slab_.pieces.first_position;
    parameters.num_positions = slab_.num_starts;
    parameters.is_last = slab_.position.is_last ? 1 : 0;
    const auto used = static_cast<std::uint32_t>(slab_.end_bit % 8);
    if (slab_.position.is_last && used != 0)
      parameters.eof_bits = df11::eof_padding(slab_.unit.codebook, 8 - used);
    parameters.d_status = d_status_.get();
    return parameters;
  }

  const EncodeSlab& slab_;
  std::uint64_t num_groups_;
  Df11Launches launches_;
  Stream stream_;
  EncodeTables tables_;
  DeviceValues<std::uint16_t> d_weights_;
  DeviceValues<std::uint64_t> d_bits_;
  DeviceValues<EncodeTables> d_tables_;
  DeviceValues<std::uint64_t> d_status_;
  GuardedDeviceSpan<std::uint8_t> d_sign_mantissa_, d_encoded_exponent_, d_gaps_;
  GuardedDeviceSpan<std::uint32_t> d_positions_;
};

TEST_F(GpuChangedSource, UnchangedTheKernelFillsItsBuffersWhereverTheWeightsLie) {
  EmulatedGpu emulated;
  for (std::uint64_t seed = 2'000; seed < 2'120; ++seed) {
    CodedWeights coded = random_weights(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + coded.kind);
    Random random(seed);
    const std::uint64_t segment_weights = random_segment_weights(coded.weights.size(), random);
    const CountedUnit unit(std::move(coded.weights), segment_weights, std::move(coded.codebook));
    const std::uint64_t first = random.below(unit.num_segments());
    const EncodeSlab slab(unit, first, first + 1 + random.below(unit.num_segments() - first));
    DeviceSlab device(emulated, slab, seed / 8 % 8);
    device.encode();
    EXPECT_EQ(device.status(), EncodeStatusWord::kOk);
    EXPECT_TRUE(device.is_intact());
    ASSERT_TRUE(device.has_bytes_of_the_cpu());
  }
}

TEST_F(GpuChangedSource, TheKernelWritesNothingBesideItsOutputs) {
  EmulatedGpu emulated;
  for (std::uint64_t seed = 3'000; seed < 3'200; ++seed) {
    const auto change = static_cast<Change>(seed % static_cast<std::uint64_t>(Change::kNumKinds));
    SCOPED_TRACE("seed " + std::to_string(seed) + ", change " + std::to_string(static_cast<int>(change)));
    Random random(seed);
    const CountedUnit unit = unit_of_seed(seed);
    Words weights = unit.weights;
    apply(change, unit, weights, random);
    const std::uint64_t first = random.below(unit.num_segments());
    const EncodeSlab slab(unit, first, first + 1 + random.below(unit.num_segments() - first), weights);
    DeviceSlab device(emulated, slab, seed / 8 % 8);
    device.encode();
    EXPECT_TRUE(device.is_intact());
    device.find_starts();
    EXPECT_TRUE(device.is_intact());
  }
}

TEST_F(GpuChangedSource, TheKernelKeepsToItsRoomWhateverTheHistogramsAre) {
  EmulatedGpu emulated;
  int reported = 0;
  for (std::uint64_t seed = 4'000; seed < 4'120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const CountedUnit unit = unit_of_seed(seed);
    const std::uint64_t first = random.below(unit.num_segments());
    const EncodeSlab slab(unit, first, first + 1 + random.below(unit.num_segments() - first));
    std::vector<std::uint64_t> bits = DeviceSlab::first_bits(slab);
    // Segments of any number of bits: nearly right, far too many, or none.
    std::uint64_t more = 0;
    for (std::size_t i = 1; i < bits.size(); ++i) {
      const std::uint64_t kind = random.below(6);
      if (kind == 0) more += random.below(40);
      if (kind == 1) more += random.next() >> random.below(64) >> 24;
      bits[i] = kind == 2 ? bits[i - 1] : std::max(bits[i - 1], bits[i] + more);
    }
    const std::uint64_t groups = DeviceSlab::groups(slab);
    DeviceSlab device(emulated, slab, seed / 8 % 8, bits, seed % 3 == 0 ? 1 + random.below(groups) : groups);
    device.encode();
    EXPECT_TRUE(device.is_intact());
    device.find_starts();
    EXPECT_TRUE(device.is_intact());
    if (bits != DeviceSlab::first_bits(slab)) {
      EXPECT_EQ(device.status() & 0xFF, EncodeStatusWord::kSourceChanged);
      ++reported;
    }
  }
  EXPECT_GT(reported, 50);
}

}  // namespace
}  // namespace weightpress::device
