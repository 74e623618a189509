// Units through the pipeline of a GPU by hand, on the emulated driver with all checks: counts, buffers, sums
// and verdict of the host's stages, whole and in slabs, several under way, dropped at any step.
#include "device/gpu_unit_pipeline.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/coded_units.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/encode_slab.h"
#include "format/lookup_tables.h"
#include "format/unit_plan.h"
#include "host/decode.h"
#include "support/stored_units.h"

namespace weightpress::device {
namespace {

using df11::kChunkBits;
using Wants = UnitOnGpu::Wants;

constexpr std::uint64_t kSegment = kGpuSegmentWeights;

/// What the host makes of a unit.
struct Expected {
  std::string kind;
  Words weights;
  df11::UnitPlan plan;
  std::vector<std::uint64_t> first_bits;             ///< of the GPU's segments, and the end
  std::array<std::vector<std::uint8_t>, 4> buffers;  ///< by OutputBuffer
  bool reads_back = false;
  bool kernel_ends = true;
};

std::vector<std::uint8_t> bytes_of(std::span<const std::uint32_t> values) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return {bytes, bytes + values.size_bytes()};
}

/// Buffers of the weights, by a plan that has codes for them, from src/host alone.
void encode_on_host(Expected& expected, df11::Codebook codebook) {
  const CountedUnit unit(expected.weights, kSegment, std::move(codebook));
  const EncodeSlab slab(unit, 0, unit.num_segments());
  SlabOutputs outputs(slab);
  ASSERT_EQ(host::HostStages(1).encode(outputs.arguments(slab)).wait().code, df11::StageCode::kOk);
  ASSERT_TRUE(outputs.is_intact());
  const auto copy = [](std::span<const std::uint8_t> bytes) {
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  expected.first_bits = unit.first_bits;
  expected.buffers = {copy(outputs.sign_mantissa.get()), copy(outputs.encoded_exponent.get()),
                      copy(outputs.gaps.get()), bytes_of(outputs.positions.get())};
  const auto& rows = expected.plan.tables.rows;
  Df11Unit stored;
  stored.luts = copy({rows.front().data(), rows.size() * sizeof rows.front()});
  stored.sign_mantissa = expected.buffers[0];
  stored.encoded_exponent = expected.buffers[1];
  stored.gaps = expected.buffers[2];
  stored.output_positions = expected.buffers[3];
  testing::UnitInMemory memory(stored);
  Words decoded;
  expected.reads_back = !memory.decode(decoded) && decoded == expected.weights;
  expected.kernel_ends = memory.decoder().kernel_ends();
}

df11::UnitPlan plan_by_hand(const CountedUnit& unit) {
  df11::UnitPlan plan;
  plan.codebook = unit.codebook;
  plan.tables = df11::build_lookup_tables(plan.codebook, df11::TableFill::kSafe);
  plan.layout = unit.layout;
  return plan;
}

/// By any codebook.
Expected expect(CodedWeights coded) {
  Expected expected;
  expected.kind = std::move(coded.kind);
  expected.weights = std::move(coded.weights);
  expected.plan = plan_by_hand(CountedUnit(expected.weights, kSegment, coded.codebook));
  encode_on_host(expected, std::move(coded.codebook));
  return expected;
}

/// As df11::plan_unit() plans it.
Expected expect_planned(std::string kind, Words weights) {
  Expected expected;
  expected.kind = std::move(kind);
  expected.weights = std::move(weights);
  expected.plan = df11::plan_unit({"unit", testing::histogram_of(expected.weights),
                                   df11::exponent_of(expected.weights.back())},
                                  {}, [](const df11::Codebook&) { return std::uint64_t{0}; })
                      .value();
  encode_on_host(expected, expected.plan.codebook);
  EXPECT_TRUE(expected.reads_back);
  return expected;
}

std::uint64_t plain_sum(std::span<const std::uint16_t> weights) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += std::uint64_t{weights[i]} << (i % 2 * 16);
  return sum;
}

std::uint32_t plain_sum(std::span<const std::uint8_t> bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) sum += std::uint32_t{bytes[i]} << (i % 4 * 8);
  return sum;
}

/// A unit on its way, a step at a time.
class Travelling {
 public:
  /// What is given as the weights from `first` on, in place, in the second pass.
  using Change = std::function<void(std::uint64_t first, std::span<std::uint16_t> weights)>;

  Travelling(UnitPipeline& pipeline, const Expected& expected, bool verifies = true, Change change = {})
      : pipeline_(pipeline),
        expected_(expected),
        verifies_(verifies),
        change_(std::move(change)),
        unit_(pipeline.begin_unit(expected.weights.size())) {}

  bool can_feed() const { return !unit_->has_all() || (is_encoding_ && unit_->wants() != Wants::kNothing); }
  bool must_feed() const { return is_encoding_ && unit_->wants() == Wants::kFirst; }
  bool can_encode() const { return unit_->has_all() && !is_encoding_ && pipeline_.can_encode(); }
  bool can_take() const { return is_encoding_ && !is_out_ && !must_feed(); }
  bool is_encoding() const { return is_encoding_; }
  bool is_out() const { return is_out_; }
  bool is_streamed() const { return is_streamed_; }
  const std::vector<std::uint64_t>& borders() const { return borders_; }
  const std::array<std::vector<std::uint8_t>, 4>& buffers() const { return buffers_; }
  const Words& given_last() const { return given_; }

  void feed() {
    const UnitOnGpu::Slab slab = unit_->next_weights();
    const std::uint64_t count = slab.weights.size();
    ASSERT_GT(count, 0u);
    ASSERT_LE(slab.first + count, expected_.weights.size());
    ASSERT_LE(slab.first, num_fed_);
    if (slab.first < num_fed_) {  // another slab begins, before the end of the last one
      ASSERT_TRUE(is_encoding_);
      if (num_fed_ != last_border_) borders_.push_back(last_border_ = num_fed_);
      ASSERT_LE(num_fed_ - slab.first, UnitOnGpu::kMaxOverlapWeights);
    }
    std::copy_n(expected_.weights.begin() + static_cast<std::ptrdiff_t>(slab.first), count,
                slab.weights.begin());
    if (is_encoding_ && change_) change_(slab.first, slab.weights);
    given_.resize(std::max<std::uint64_t>(given_.size(), slab.first + count));
    std::ranges::copy(slab.weights, given_.begin() + static_cast<std::ptrdiff_t>(slab.first));
    num_fed_ = slab.first + count;
    unit_->submit();
  }

  /// asks_counts: if not, the plan is known from another time, and nothing has waited for the counts.
  void encode(bool asks_counts = true) {
    ASSERT_TRUE(unit_->next_weights().weights.empty());
    if (asks_counts) {
      ASSERT_EQ(unit_->histogram(), testing::histogram_of(expected_.weights));
    }
    ASSERT_EQ(unit_->last_exponent(), df11::exponent_of(expected_.weights.back()));
    unit_->encode(expected_.plan, verifies_);
    is_encoding_ = true;
    is_streamed_ = unit_->wants() != Wants::kNothing;
    if (is_streamed_) num_fed_ = last_border_ = 0;
  }

  void take() {
    const auto piece = unit_->next_piece();
    is_out_ = !piece;
    if (!piece) return;
    std::vector<std::uint8_t>& buffer = buffers_[static_cast<std::size_t>(piece->buffer)];
    ASSERT_FALSE(piece->bytes.empty());
    ASSERT_EQ(piece->offset_bytes, buffer.size());
    buffer.insert(buffer.end(), piece->bytes.begin(), piece->bytes.end());
  }

  UnitOnGpu::Verdict verdict() { return unit_->verdict(); }

  /// Once all is out: everything is as on the host.
  void expect_as_on_host() {
    const UnitOnGpu::Verdict verdict = this->verdict();
    EXPECT_EQ(verdict.encoded.code, df11::StageCode::kOk);
    EXPECT_TRUE(verdict.decoded.ok) << "chunk " << verdict.decoded.chunk;
    EXPECT_FALSE(verdict.official_difference);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(same_values<std::uint8_t>(kNames[i], buffers_[i], expected_.buffers[i]));
      if (verifies_) {
        EXPECT_EQ(verdict.output_sums[i], plain_sum(expected_.buffers[i])) << kNames[i];
      }
    }
    EXPECT_EQ(num_fed_, expected_.weights.size());
    if (verifies_) {
      EXPECT_EQ(verdict.source_sum, plain_sum(expected_.weights));
      EXPECT_EQ(verdict.decoded.kernel_ends, expected_.kernel_ends);
    }
  }

  /// The next step that can be made; false: there is none.
  bool step() {
    if (!unit_->has_all() || must_feed()) {
      feed();
    } else if (!is_encoding_) {
      encode();
    } else if (can_feed() && !fed_last_) {  // by turns
      feed();
      fed_last_ = true;
      return true;
    } else if (!is_out_) {
      take();
    } else {
      return false;
    }
    fed_last_ = false;
    return true;
  }
  void run() {
    while (step() && !::testing::Test::HasFatalFailure()) {
    }
  }

 private:
  static constexpr std::array<const char*, 4> kNames = {"sign_mantissa", "encoded_exponent", "gaps",
                                                        "output_positions"};

  UnitPipeline& pipeline_;
  const Expected& expected_;
  const bool verifies_;
  const Change change_;
  std::unique_ptr<UnitOnGpu> unit_;
  std::uint64_t num_fed_ = 0, last_border_ = 0;
  std::vector<std::uint64_t> borders_;  // ends of slabs, but for the last one
  Words given_;
  std::array<std::vector<std::uint8_t>, 4> buffers_;
  bool is_encoding_ = false, is_streamed_ = false, is_out_ = false, fed_last_ = false;
};

/// Pinned memory for one segment a part, and pieces of 16 KiB.
constexpr std::uint64_t kHostBytes = 128 << 10;

constexpr std::uint64_t kLongest = 14 * kSegment;

/// With slabs of three segments, as many as this at once. Units of five segments and more go through so.
UnitPipelineSizes in_slabs(std::uint64_t num_slabs, std::uint64_t host_bytes = kHostBytes) {
  const std::uint64_t slab = 2 * 3 * kSegment + encoding_bytes(3 * kSegment, false);
  return {.longest_unit_weights = kLongest,
          .host_bytes = host_bytes,
          .device_bytes = 14 * (1024 + 8) + (64 << 10) + num_slabs * slab + 1'000};
}

class GpuUnitPipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
  void TearDown() override {
    if (!emulated_) return;
    pipeline_.reset();
    emulated_->end();
    EXPECT_THAT(emulated_->left_over(), ::testing::IsEmpty());
  }
  /// The driver anew.
  void start(const UnitPipelineSizes& sizes, const EmulatedGpu::Variables& variables = {}) {
    pipeline_.reset();
    emulated_.reset();
    emulated_ = std::make_unique<EmulatedGpu>(variables);
    again(sizes);
  }
  /// The pipeline anew.
  void again(const UnitPipelineSizes& sizes) {
    pipeline_.reset();
    pipeline_ = std::make_unique<GpuUnitPipeline>(emulated_->gpu(), emulated_->kernels(), sizes);
  }
  UnitPipeline& pipeline() { return *pipeline_; }
  std::uint64_t free_bytes() const { return emulated_->gpu().memory().free_bytes; }

  void expect_alike(const Expected& expected, bool verifies = true) {
    SCOPED_TRACE(::testing::Message() << expected.kind << ", " << expected.weights.size() << " weights, "
                                      << expected.plan.layout.total_bits << " bits");
    Travelling unit(pipeline(), expected, verifies);
    unit.run();
    unit.expect_as_on_host();
    borders_ = unit.borders();
  }

  std::vector<std::uint64_t> borders_;  // of the last one

 private:
  std::unique_ptr<EmulatedGpu> emulated_;
  std::unique_ptr<GpuUnitPipeline> pipeline_;
};

// ---- units that are held whole

TEST_F(GpuUnitPipelineTest, GoldenUnitsEqualTheOfficialBytes) {
  std::vector<Expected> units;
  std::uint64_t longest = 0;
  for (const std::string& name : testing::golden_units()) {
    Words weights = testing::golden_weights(name);
    longest = std::max<std::uint64_t>(longest, weights.size());
    const Df11Unit golden = testing::golden_unit(name);
    Expected expected = expect_planned(name, std::move(weights));
    expected.buffers = {golden.sign_mantissa, golden.encoded_exponent, golden.gaps, golden.output_positions};
    units.push_back(std::move(expected));
  }
  EXPECT_EQ(units.size(), 19u);
  start({.longest_unit_weights = longest, .host_bytes = kHostBytes});
  for (const Expected& unit : units) expect_alike(unit);
}

TEST_F(GpuUnitPipelineTest, RandomUnitsOfEveryLength) {
  start({.longest_unit_weights = 30'000, .host_bytes = kHostBytes});
  std::set<std::pair<std::uint64_t, std::uint64_t>> ends;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CodedWeights coded = random_weights(seed);
    if (df11::count_tables(coded.codebook) > df11::kMaxTables || coded.weights.size() > 30'000) continue;
    for (const std::uint64_t fewer : {0, 1, 2, 3}) {
      if (coded.weights.size() <= fewer || (fewer > 0 && coded.weights.size() > 2'000)) continue;
      CodedWeights shorter = coded;
      shorter.weights.resize(coded.weights.size() - fewer);
      const Expected unit = expect(std::move(shorter));
      // Tables are made for complete codes; where EOF's is alone in one, they are not.
      if (!unit.reads_back) continue;
      ends.emplace(unit.weights.size() % 8, unit.plan.layout.total_bits % 8);
      expect_alike(unit, seed % 5 != 0);
      if (HasFailure()) FAIL() << "seed " << seed;
    }
  }
  EXPECT_GT(ends.size(), 55u);  // of 64
}

/// Exponents 100 + bits of code_of_each_length(), whose codes take exactly `bits`; the last one `last`.
CodedWeights weights_of_exact_bits(std::uint64_t bits, unsigned last, Random& random) {
  CodedWeights coded{"ends", {}, codebook_of(code_of_each_length(), df11::kMaxCodeBits, 0)};
  for (std::uint64_t left = bits - last; left > 0;) {
    const std::uint64_t length = left <= 32 ? left : std::min(2 + random.below(31), left - 2);
    coded.weights.push_back(testing::with_exponent(random, static_cast<std::uint32_t>(100 + length)));
    left -= length;
  }
  coded.weights.push_back(testing::with_exponent(random, 100 + last));
  return coded;
}

TEST_F(GpuUnitPipelineTest, EndsAroundTheBordersOfChunks) {
  start({.longest_unit_weights = 30'000, .host_bytes = kHostBytes});
  Random random(3);
  for (const std::uint64_t border : {kChunkBits, 2 * kChunkBits})
    for (const int more : {-64, -33, -8, -7, -1, 0, 1, 7, 8, 31, 32, 63, 64}) {
      const std::uint64_t bits = border + static_cast<std::uint64_t>(more);
      const unsigned last = more % 2 == 0 ? 32 : 2;
      const Expected unit = expect(weights_of_exact_bits(bits, last, random));
      ASSERT_TRUE(unit.reads_back);
      ASSERT_EQ(unit.plan.layout.total_bits, bits);
      expect_alike(unit);
    }
}

// ---- in slabs

/// Weights of `segments` segments and some, whose slabs end anywhere in a chunk.
CodedWeights long_weights(std::uint64_t segments, std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t count = (segments - 1) * kSegment + 1 + random.below(kSegment);
  switch (seed % 6) {
    case 0:
      return with_official_codebook("normal", testing::normal_weights(count, seed));
    case 1:
      return with_official_codebook("flat", testing::uniform_exponents(count, 0, 240, seed));
    case 2: {
      static constexpr std::array<unsigned, 4> kLengths = {2, 3, 5, 7};
      return of_lengths(kLengths, count, true, random);
    }
    case 3: {
      static constexpr std::array<unsigned, 4> kLengths = {2, 9, 17, 32};
      return of_lengths(kLengths, count, seed % 4 == 1, random);
    }
    case 4: {
      std::array<unsigned, 4> lengths{};
      for (unsigned& length : lengths) length = static_cast<unsigned>(2 + random.below(31));
      return of_lengths(lengths, count, random.below(2) == 0, random);
    }
    default: {
      // Two exponents alone, then others: segments of very different numbers of bits.
      Words weights = testing::uniform_exponents(count, 120, 3, seed);
      const Words rare = testing::uniform_exponents(count / 3, 90, 60, seed + 1);
      std::ranges::copy(rare, weights.begin() + static_cast<std::ptrdiff_t>(count / 4));
      return with_official_codebook("two parts", std::move(weights));
    }
  }
}

TEST_F(GpuUnitPipelineTest, SlabsThatEndAnywhereInAChunk) {
  start(in_slabs(1));
  std::set<std::uint64_t> sixteenths;  // of a chunk, in which slabs end
  std::size_t num_borders = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const std::uint64_t segments = 5 + seed * 3 % 10;
    const Expected unit = expect(long_weights(segments, seed));
    ASSERT_TRUE(unit.reads_back);
    again(in_slabs(1 + seed % 3, seed % 2 == 0 ? kHostBytes : 4 * kHostBytes));
    expect_alike(unit, seed % 6 != 5);
    if (HasFailure()) FAIL() << "seed " << seed << ", " << segments << " segments";
    num_borders += borders_.size();
    for (const std::uint64_t border : borders_) {
      ASSERT_EQ(border % kSegment, 0u);
      sixteenths.insert(unit.first_bits[border / kSegment] % kChunkBits / (kChunkBits / 16));
    }
  }
  EXPECT_GT(num_borders, 100u);
  EXPECT_GE(sixteenths.size(), 15u);
}

/// `count` weights of seven bits, more or less, whose codes take exactly `bits`.
Words weights_near_seven_bits(std::uint64_t count, std::uint64_t bits, Random& random) {
  std::vector<unsigned> lengths(count, 7);
  auto more = static_cast<std::int64_t>(bits) - 7 * static_cast<std::int64_t>(count);
  while (more != 0) {
    unsigned& length = lengths[random.below(count)];
    if (length != 7) continue;
    const std::int64_t change = std::clamp<std::int64_t>(more, -5, 25);
    length = static_cast<unsigned>(7 + change);
    more -= change;
  }
  Words weights;
  for (const unsigned length : lengths) weights.push_back(testing::with_exponent(random, 100 + length));
  return weights;
}

TEST_F(GpuUnitPipelineTest, SlabsThatEndAtTheBorderOfAChunk) {
  start(in_slabs(1));
  for (const int more : {-600, -513, -512, -511, -64, -32, -1, 0, 1, 32, 63, 64, 511, 512, 513}) {
    Random random(static_cast<std::uint64_t>(more + 1'000));
    const std::uint64_t bits = 7 * 3 * kSegment / kChunkBits * kChunkBits + static_cast<std::uint64_t>(more);
    Words weights = weights_near_seven_bits(3 * kSegment, bits, random);
    const Words rest = weights_near_seven_bits(kSegment + 77, 7 * (kSegment + 77), random);
    weights.insert(weights.end(), rest.begin(), rest.end());
    const Expected unit =
        expect({"border", std::move(weights), codebook_of(code_of_each_length(), df11::kMaxCodeBits, 0)});
    ASSERT_TRUE(unit.reads_back);
    again(in_slabs(1));
    ASSERT_LT(pipeline().memory().resident_weights, unit.weights.size());
    expect_alike(unit);
    ASSERT_GE(borders_.size(), 1u);
    ASSERT_EQ(borders_.front(), 3 * kSegment) << more;
    ASSERT_EQ(unit.first_bits[3], bits);
  }
}

TEST_F(GpuUnitPipelineTest, TakesNoMoreMemoryThanItMay) {
  const Expected small = expect_planned("normal", testing::normal_weights(kSegment, 1));
  const Expected large = expect_planned("normal", testing::normal_weights(5 * kSegment + 9, 2));
  start(in_slabs(1));
  for (const std::uint64_t slabs : {1, 2, 3, 0}) {
    again({.longest_unit_weights = 1, .host_bytes = kHostBytes});
    const std::uint64_t before = free_bytes();  // but for little
    UnitPipelineSizes sizes = in_slabs(slabs);
    if (slabs == 0) sizes.device_bytes = 4 << 20;
    again(sizes);
    EXPECT_EQ(pipeline().memory().usable_bytes, sizes.device_bytes);
    EXPECT_EQ(pipeline().memory().resident_weights == kLongest, slabs == 0);
    std::uint64_t most = before - free_bytes();
    for (const Expected* const expected : {&large, &small, &large}) {
      Travelling unit(pipeline(), *expected);
      while (unit.step()) most = std::max(most, before - free_bytes());
      EXPECT_EQ(unit.is_streamed(), slabs != 0 && expected == &large);
      unit.expect_as_on_host();
    }
    EXPECT_LE(most, sizes.device_bytes);
    EXPECT_GE(most, sizes.device_bytes / 4);
  }
}

// ---- several under way

TEST_F(GpuUnitPipelineTest, SeveralUnderWayInAnyOrder) {
  std::vector<Expected> units;
  for (std::uint64_t i = 0; i < 6; ++i)
    units.push_back(expect_planned("normal", testing::normal_weights(1 + 9'000 * i * (i % 2 + 1), i)));
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    start({.longest_unit_weights = 2 * 9'000 * 5 + 1,
           .num_units_kept = seed % 3,
           .host_bytes = seed % 2 == 0 ? kHostBytes : 2 * kHostBytes},
          {{"SEED", std::to_string(seed)}, {"EAGER_PERCENT", seed % 4 == 3 ? "50" : "0"}});
    Random random(seed);
    struct UnderWay {
      std::unique_ptr<Travelling> unit;
      std::size_t number;
    };
    std::vector<UnderWay> under_way;
    Travelling* leaving = nullptr;
    std::size_t num_begun = 0, num_done = 0, most = 0;
    const std::uint64_t num_slots = 3 + seed % 3;
    while (num_done < units.size() && !HasFailure()) {
      ASSERT_EQ(pipeline().num_free_slots(), num_slots - under_way.size());
      ASSERT_EQ(pipeline().has_room(1), under_way.size() < num_slots);
      most = std::max(most, under_way.size());
      if (num_begun < units.size() && pipeline().has_room(1) && random.below(3) == 0) {
        under_way.push_back({std::make_unique<Travelling>(pipeline(), units[num_begun]), num_begun});
        ++num_begun;
      }
      if (under_way.empty()) continue;
      UnderWay& one = under_way[random.below(under_way.size())];
      if (one.unit->can_feed()) {
        one.unit->feed();
      } else if (one.unit->can_encode()) {
        one.unit->encode(random.below(2) == 0);
      } else if (one.unit->can_take() && (leaving == nullptr || leaving == one.unit.get())) {
        leaving = one.unit.get();
        one.unit->take();
        if (!one.unit->is_out()) continue;
        one.unit->expect_as_on_host();
        leaving = nullptr;
        ++num_done;
        std::erase_if(under_way, [&](const UnderWay& other) { return other.number == one.number; });
      }
    }
    EXPECT_GE(most, 3u);
  }
}

TEST_F(GpuUnitPipelineTest, ALoneUnitThenOthersThenALoneOne) {
  const Expected large = expect_planned("normal", testing::normal_weights(5 * kSegment + 1, 7));
  const Expected second = expect_planned("flat", testing::uniform_exponents(7 * kSegment, 0, 240, 8));
  const Expected small = expect_planned("normal", testing::normal_weights(kSegment - 3, 9));
  for (const char* seed : {"0", "1", "2"}) {
    start(in_slabs(2), {{"SEED", seed}});
    const std::uint64_t resident = pipeline().memory().resident_weights;
    ASSERT_GE(resident, small.weights.size());
    ASSERT_LT(resident, second.weights.size());
    const std::uint64_t slots = pipeline().num_free_slots();
    for (const Expected* const unit : {&large, &second}) {
      {
        Travelling lone(pipeline(), *unit);
        EXPECT_FALSE(pipeline().has_room(1));
        EXPECT_FALSE(pipeline().has_room(unit->weights.size()));
        EXPECT_EQ(pipeline().num_free_slots(), 0u);
        lone.run();
        EXPECT_TRUE(lone.is_streamed());
        lone.expect_as_on_host();
      }
      EXPECT_EQ(pipeline().num_free_slots(), slots);
      Travelling first(pipeline(), small);
      EXPECT_FALSE(pipeline().has_room(unit->weights.size()));
      EXPECT_EQ(pipeline().has_room(1), slots > 1);
      EXPECT_FALSE(first.is_streamed());
      Travelling other(pipeline(), small);
      other.feed();
      first.run();
      first.expect_as_on_host();
      other.run();
      other.expect_as_on_host();
    }
  }
}

// ---- dropped

TEST_F(GpuUnitPipelineTest, DroppedAtAnyStepItLeavesTheNextOneRight) {
  const Expected large = expect_planned("normal", testing::normal_weights(5 * kSegment + 5, 11));
  const Expected next = expect_planned("flat", testing::uniform_exponents(kSegment / 2, 0, 240, 12));
  const Expected short_unit = expect_planned("normal", testing::normal_weights(kSegment - 1, 13));
  start(in_slabs(3), {{"SEED", "4"}});
  ASSERT_GE(pipeline().memory().resident_weights, short_unit.weights.size());
  ASSERT_LT(pipeline().memory().resident_weights, large.weights.size());
  const std::uint64_t slots = pipeline().num_free_slots();
  for (const Expected* const expected : {&short_unit, &large}) {
    bool is_over = false;
    for (int steps = 0; !is_over && !HasFailure(); steps += expected == &large ? 3 : 1) {
      SCOPED_TRACE(::testing::Message() << steps << " steps of " << expected->weights.size());
      {
        Travelling dropped(pipeline(), *expected);
        for (int i = 0; i < steps && !is_over; ++i) is_over = !dropped.step();
      }
      EXPECT_EQ(pipeline().num_free_slots(), slots);
      expect_alike(next);
    }
  }
}

TEST_F(GpuUnitPipelineTest, DroppedBesideOthersItLeavesThemRight) {
  const Expected one = expect_planned("normal", testing::normal_weights(kSegment + 11, 21));
  const Expected two = expect_planned("flat", testing::uniform_exponents(kSegment / 2, 0, 240, 22));
  for (const char* seed : {"0", "5"}) {
    start({.longest_unit_weights = one.weights.size(), .host_bytes = kHostBytes}, {{"SEED", seed}});
    for (int steps = 0; steps < 12; ++steps) {
      SCOPED_TRACE(steps);
      Travelling stays(pipeline(), two);
      if (steps % 2 == 0) stays.feed();
      {
        Travelling dropped(pipeline(), one);
        for (int i = 0; i < steps; ++i) dropped.step();
        if (steps % 3 == 0 && stays.can_encode()) stays.encode();
      }
      stays.run();
      stays.expect_as_on_host();
    }
  }
}

// ---- weights that are not those that were counted

class ChangedBetweenPasses : public GpuUnitPipelineTest {
 protected:
  void SetUp() override {
    GpuUnitPipelineTest::SetUp();
    if (IsSkipped()) return;
    static constexpr std::array<unsigned, 4> kLengths = {2, 5, 9, 14};
    Random random(31);
    unit_ = expect(of_lengths(kLengths, 5 * kSegment + 123, false, random));
    ASSERT_TRUE(unit_.reads_back);
    start(in_slabs(2));
  }

  enum class Ends : std::uint8_t { kWell, kFound };
  /// kWell: no fault is told; then the bytes are those of what was given last.
  Ends run(const Travelling::Change& change) {
    Travelling unit(pipeline(), unit_, true, change);
    try {
      unit.run();
      const UnitOnGpu::Verdict verdict = unit.verdict();
      if (verdict.encoded.code != df11::StageCode::kOk || !verdict.decoded.ok) return Ends::kFound;
      sum_ = verdict.source_sum;
      given_ = unit.given_last();
      buffers_ = unit.buffers();
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(verdict.output_sums[i], plain_sum(buffers_[i]));
      return Ends::kWell;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeviceFailed) << error.what();
      return Ends::kFound;
    }
  }

  Expected unit_;
  // Of the last run, if it ended well:
  std::uint64_t sum_ = 0;
  Words given_;
  std::array<std::vector<std::uint8_t>, 4> buffers_;
};

/// Gives weight `index` another value whenever it is asked for.
Travelling::Change exchange(std::uint64_t index, std::uint16_t mask) {
  return [=](std::uint64_t first, std::span<std::uint16_t> weights) {
    if (index >= first && index - first < weights.size()) weights[index - first] ^= mask;
  };
}

TEST_F(ChangedBetweenPasses, AFlippedBitIsFoundByTheCodesOrTheSum) {
  Random random(33);
  int num_found = 0, num_well = 0;
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t index = random.below(unit_.weights.size());
    const auto mask = static_cast<std::uint16_t>(1u << i);
    SCOPED_TRACE(::testing::Message() << "bit " << i << " of weight " << index);
    const bool in_exponent = i >= 7 && i < 15;
    if (run(exchange(index, mask)) == Ends::kFound) {
      EXPECT_TRUE(in_exponent);
      ++num_found;
      continue;
    }
    EXPECT_FALSE(in_exponent);  // no two exponents have codes of one length
    EXPECT_NE(sum_, plain_sum(unit_.weights));
    EXPECT_EQ(sum_, plain_sum(given_));
    // Encoded as it was given.
    Expected given;
    given.weights = given_;
    given.plan = unit_.plan;
    encode_on_host(given, unit_.plan.codebook);
    EXPECT_EQ(buffers_, given.buffers);
    ++num_well;
  }
  EXPECT_EQ(num_found, 8);
  EXPECT_EQ(num_well, 8);
  EXPECT_EQ(run({}), Ends::kWell);  // the pipeline is as it was
  EXPECT_EQ(buffers_, unit_.buffers);
}

TEST_F(ChangedBetweenPasses, WeightsThatMoveToAnotherSegmentAreFound) {
  for (std::uint64_t segment = 0; segment < 4; ++segment) {
    // The same counts in all: a weight of this segment and one of the next, with other codes, change places.
    const std::uint64_t one = segment * kSegment + 500;
    std::uint64_t other = (segment + 1) * kSegment + 50;
    while (unit_.plan.codebook.lengths[df11::exponent_of(unit_.weights[one])] ==
           unit_.plan.codebook.lengths[df11::exponent_of(unit_.weights[other])])
      ++other;
    const auto mask = static_cast<std::uint16_t>(unit_.weights[one] ^ unit_.weights[other]);
    EXPECT_EQ(run([&](std::uint64_t first, std::span<std::uint16_t> weights) {
                exchange(one, mask)(first, weights);
                exchange(other, mask)(first, weights);
              }),
              Ends::kFound)
        << segment;
  }
}

TEST_F(ChangedBetweenPasses, WeightsOfAnotherUnitAreFound) {
  // Where a slab's end is never reached its position stays unwritten, and is read.
  start(in_slabs(2), {{"CHECK", "race,barrier"}});
  Random random(35);
  EXPECT_EQ(run([&](std::uint64_t, std::span<std::uint16_t> weights) {
              for (std::uint16_t& weight : weights) weight = static_cast<std::uint16_t>(random.next());
            }),
            Ends::kFound);
  EXPECT_EQ(run([&](std::uint64_t, std::span<std::uint16_t> weights) { std::ranges::fill(weights, 0); }),
            Ends::kFound);
}

}  // namespace
}  // namespace weightpress::device
