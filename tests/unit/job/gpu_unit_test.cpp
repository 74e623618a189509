// GpuUnit over a GPU that is made up: what it believes of it, what it reads for it, and whose errors are
// whose.
#include "job/gpu_unit.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/unit_memory.h"
#include "support/unit_reader.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

using device::OutputBuffer;
using Words = std::vector<std::uint16_t>;
using Verdict = device::UnitOnGpu::Verdict;
using Buffers = std::array<std::vector<std::uint8_t>, 4>;  // by OutputBuffer

std::array<std::uint32_t, 4> sums_of(const Buffers& buffers) {
  std::array<std::uint32_t, 4> sums{};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t k = 0; k < buffers[i].size(); ++k)
      sums[i] += std::uint32_t{buffers[i][k]} << (k % 4 * 8);
  return sums;
}

/// What the made-up GPU does.
struct Script {
  std::uint64_t part_weights = 1'000;  ///< that it takes at once
  /// In which the weights go through it once more; empty: they stay.
  std::vector<WeightRange> slabs;
  Buffers buffers;
  std::uint64_t piece_bytes = 4'096;

  std::function<void(df11::Histogram&)> change_histogram;
  std::function<void(Verdict&)> change_verdict;
  /// Of what leaves, after it was added up.
  std::function<void(OutputBuffer, std::uint64_t offset_bytes, std::vector<std::uint8_t>&)> change_piece;
  int fails_at = -1;  ///< its n-th call throws
};

class MadeUpPipeline;

class MadeUpUnit final : public device::UnitOnGpu {
 public:
  MadeUpUnit(MadeUpPipeline& pipeline, std::uint64_t num_weights);
  ~MadeUpUnit() override;

  Slab next_weights() override;
  void submit() override;
  bool has_all() const override { return num_counted_ == num_weights_; }
  df11::Histogram histogram() override;
  std::uint8_t last_exponent() const override { return last_exponent_; }
  void encode(const df11::UnitPlan& plan, bool verifies) override;
  Wants wants() const override;
  std::optional<device::OutputPiece> next_piece() override;
  Verdict verdict() override;

 private:
  MadeUpPipeline& pipeline_;
  const Script& script_;
  const std::uint64_t num_weights_;
  std::uint64_t num_counted_ = 0, next_slab_ = 0, num_filled_ = 0, source_sum_ = 0;
  std::size_t buffer_ = 0;
  std::uint64_t offset_ = 0, num_pieces_ = 0;
  df11::Histogram histogram_{};
  std::uint8_t last_exponent_ = 0;
  bool is_encoding_ = false, verifies_ = false;
  std::vector<std::uint16_t> pinned_;
  std::uint64_t first_ = 0;
  std::vector<std::uint8_t> piece_;
};

class MadeUpPipeline final : public device::UnitPipeline {
 public:
  explicit MadeUpPipeline(const Script& of) : script(of) {}

  bool has_room(std::uint64_t) const override { return num_units == 0; }
  std::uint64_t num_free_slots() const override { return 1; }
  bool can_encode() const override { return true; }
  std::unique_ptr<device::UnitOnGpu> begin_unit(std::uint64_t num_weights) override {
    call();
    return std::make_unique<MadeUpUnit>(*this, num_weights);
  }
  const Memory& memory() const override { return memory_; }

  void call() {
    if (num_calls++ == script.fails_at) throw Error(ErrorCode::kOutOfMemory, "made-up trouble");
  }

  const Script& script;
  int num_calls = 0, num_units = 0;
  std::vector<Words> given;  ///< by slab, once they are encoded
  Words counted;

 private:
  Memory memory_;
};

MadeUpUnit::MadeUpUnit(MadeUpPipeline& pipeline, std::uint64_t num_weights)
    : pipeline_(pipeline), script_(pipeline.script), num_weights_(num_weights) {
  ++pipeline_.num_units;
}

MadeUpUnit::~MadeUpUnit() {
  --pipeline_.num_units;
}

device::UnitOnGpu::Slab MadeUpUnit::next_weights() {
  pipeline_.call();
  std::uint64_t left = num_weights_ - num_counted_;
  first_ = num_counted_;
  if (is_encoding_) {
    const WeightRange& slab = script_.slabs.at(next_slab_);
    first_ = slab.first + num_filled_;
    left = slab.end - first_;
  }
  // What was there before is no weight.
  pinned_.assign(std::min(left, script_.part_weights), 0xFFFF);
  return {first_, pinned_};
}

void MadeUpUnit::submit() {
  pipeline_.call();
  if (!is_encoding_) {
    for (const std::uint16_t weight : pinned_) ++histogram_[df11::exponent_of(weight)];
    last_exponent_ = df11::exponent_of(pinned_.back());
    num_counted_ += pinned_.size();
    pipeline_.counted.insert(pipeline_.counted.end(), pinned_.begin(), pinned_.end());
    return;
  }
  if (num_filled_ == 0) pipeline_.given.emplace_back();
  pipeline_.given.back().insert(pipeline_.given.back().end(), pinned_.begin(), pinned_.end());
  const WeightRange& slab = script_.slabs.at(next_slab_);
  // A slab's own weights are those that the next one does not have.
  const std::uint64_t own =
      next_slab_ + 1 < script_.slabs.size() ? script_.slabs[next_slab_ + 1].first : slab.end;
  for (std::uint64_t i = 0; i < pinned_.size() && first_ + i < own; ++i)
    source_sum_ += std::uint64_t{pinned_[i]} << ((first_ + i) % 2 * 16);
  num_filled_ += pinned_.size();
  if (slab.first + num_filled_ < slab.end) return;
  ++next_slab_;
  num_filled_ = 0;
}

df11::Histogram MadeUpUnit::histogram() {
  pipeline_.call();
  df11::Histogram histogram = histogram_;
  if (script_.change_histogram) script_.change_histogram(histogram);
  return histogram;
}

void MadeUpUnit::encode(const df11::UnitPlan&, bool verifies) {
  pipeline_.call();
  is_encoding_ = true;
  verifies_ = verifies;
}

device::UnitOnGpu::Wants MadeUpUnit::wants() const {
  if (next_slab_ == script_.slabs.size()) return Wants::kNothing;
  // Two pieces for each slab that is there.
  return num_pieces_ < 2 * next_slab_ ? Wants::kMore : Wants::kFirst;
}

std::optional<device::OutputPiece> MadeUpUnit::next_piece() {
  pipeline_.call();
  EXPECT_NE(wants(), Wants::kFirst);
  // The last piece waits for all slabs.
  while (buffer_ < 4 && offset_ == script_.buffers[buffer_].size()) {
    ++buffer_;
    offset_ = 0;
  }
  if (buffer_ == 4) return std::nullopt;
  ++num_pieces_;
  const std::vector<std::uint8_t>& buffer = script_.buffers[buffer_];
  const std::uint64_t end = std::min<std::uint64_t>(buffer.size(), offset_ + script_.piece_bytes);
  piece_.assign(buffer.begin() + static_cast<std::ptrdiff_t>(offset_),
                buffer.begin() + static_cast<std::ptrdiff_t>(end));
  if (script_.change_piece) script_.change_piece(static_cast<OutputBuffer>(buffer_), offset_, piece_);
  const device::OutputPiece piece{static_cast<OutputBuffer>(buffer_), offset_, piece_};
  offset_ = end;
  return piece;
}

Verdict MadeUpUnit::verdict() {
  pipeline_.call();
  Verdict verdict;
  if (verifies_) {
    const auto& weights = pipeline_.counted;
    for (std::size_t i = 0; i < weights.size() && script_.slabs.empty(); ++i)
      source_sum_ += std::uint64_t{weights[i]} << (i % 2 * 16);
    verdict.source_sum = source_sum_;
    verdict.output_sums = sums_of(script_.buffers);
  }
  if (script_.change_verdict) script_.change_verdict(verdict);
  return verdict;
}

/// Counts how often each weight is read.
class CountingSource final : public WeightSource {
 public:
  explicit CountingSource(Words of) : weights(std::move(of)), reads(weights.size()) {}

  std::uint64_t num_weights() const override { return weights.size(); }
  void read(std::uint64_t first, std::span<std::uint16_t> into) override {
    if (on_read) on_read(first);
    for (std::size_t i = 0; i < into.size(); ++i) {
      const int times = reads.at(first + i)++;
      // The second time with another mantissa, and any further time with yet another.
      into[i] = static_cast<std::uint16_t>(weights[first + i] ^ (changes_mantissas ? times : 0));
    }
  }

  Words weights;
  std::vector<int> reads;
  bool changes_mantissas = false;
  std::function<void(std::uint64_t first)> on_read;
};

class WatchedSink final : public UnitSink {
 public:
  void begin(const df11::UnitPlan& plan) override { memory.begin(plan); }
  void write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) override {
    if (on_write) on_write(buffer);
    memory.write(buffer, offset_bytes, bytes);
  }
  MemorySink memory;
  std::function<void(UnitBuffer)> on_write;
};

/// A unit, and a GPU that does it right unless the script is changed.
class GpuUnitTest : public ::testing::Test {
 protected:
  GpuUnitTest() { use(testing::normal_weights(40'000, 1)); }

  void use(Words weights) {
    unit_ = compress_df11_unit(weights, {.num_threads = 1});
    script_.buffers = {unit_.sign_mantissa, unit_.encoded_exponent, unit_.gaps, unit_.output_positions};
    source_ = std::make_unique<CountingSource>(std::move(weights));
  }

  /// All of it; the pipeline is there afterwards.
  void run(bool verifies = true) {
    pipeline_ = std::make_unique<MadeUpPipeline>(script_);
    std::ranges::fill(source_->reads, 0);
    num_between_ = 0;
    GpuUnit unit(*pipeline_, *source_, 1, nullptr);
    while (!unit.has_all()) unit.feed();
    UnitCounts counts;
    const auto planned = unit.plan("unit", {}, counts);
    ASSERT_TRUE(planned && *planned);
    plan_ = **planned;
    if (begins_early_) unit.begin_encoding(plan_, verifies);
    sink_.memory.begin(plan_);
    unit.encode(plan_, sink_, verifies, [this] {
      ++num_between_;
      if (on_between_) on_between_();
    });
  }

  /// The clause of the GpuFailure that run() throws; empty: none.
  std::string failure(bool verifies = true) {
    try {
      run(verifies);
    } catch (const GpuFailure& failure) {
      EXPECT_EQ(failure.error.code, ErrorCode::kDeviceFailed);
      EXPECT_EQ(pipeline_->num_units, 0);
      return failure.error.message;
    }
    EXPECT_TRUE(testing::same_bytes(sink_.memory.unit, unit_));
    return "";
  }

  /// The same where the buffers are not those of the unit.
  std::string failure_of_other_bytes() {
    try {
      run();
    } catch (const GpuFailure& failure) {
      return failure.error.message;
    }
    return "";
  }

  void expect_failure(const std::string& clause) { EXPECT_THAT(failure(), ::testing::HasSubstr(clause)); }

  Script script_;
  Df11Unit unit_;
  std::unique_ptr<CountingSource> source_;
  std::unique_ptr<MadeUpPipeline> pipeline_;
  WatchedSink sink_;
  df11::UnitPlan plan_;
  bool begins_early_ = false;
  std::function<void()> on_between_;
  int num_between_ = 0;
};

TEST_F(GpuUnitTest, WhatItDoesRightIsTaken) {
  // Whole segments are an even number of weights.
  for (const std::uint64_t part : {2u, 998u, 40'000u, 1u << 20})
    for (const std::uint64_t piece : {4u, 100u, 4'096u, 1u << 20})
      for (const bool verifies : {true, false}) {
        script_.part_weights = part == 2 && piece > 4 ? 14 : part;
        script_.piece_bytes = piece;
        begins_early_ = piece == 100;
        ASSERT_EQ(failure(verifies), "");
        std::uint64_t num_pieces = 0;
        for (const auto& buffer : script_.buffers) num_pieces += (buffer.size() + piece - 1) / piece;
        EXPECT_EQ(num_between_, static_cast<int>(num_pieces));
        EXPECT_EQ(pipeline_->counted, source_->weights);
        EXPECT_TRUE(std::ranges::all_of(source_->reads, [](int times) { return times == 1; }));
      }
}

// ---- what is not believed

TEST_F(GpuUnitTest, CountsThatAreNotThoseOfTheWeights) {
  const std::uint8_t last = df11::exponent_of(source_->weights.back());
  script_.change_histogram = [&](df11::Histogram& histogram) {
    ++histogram[last];
    --histogram[last - 1];
  };
  expect_failure("what it counted");
  script_.change_histogram = [&](df11::Histogram& histogram) { histogram[last] = 0; };
  expect_failure("what it counted");
  // The sum of exponents is right, the last weight's is not among them.
  script_.change_histogram = [&](df11::Histogram& histogram) {
    const std::uint64_t count = histogram[last];
    histogram[last] = 0;
    histogram[last - 1] += count / 2;
    histogram[last + 1] += count / 2;
    histogram[1] += count % 2 * last;
  };
  expect_failure("what it counted");
}

TEST_F(GpuUnitTest, AVerdictThatSaysNo) {
  script_.change_verdict = [](Verdict& verdict) { verdict.encoded.code = df11::StageCode::kSourceChanged; };
  expect_failure("not those that it counted");
  script_.change_verdict = [](Verdict& verdict) { verdict.decoded = {.ok = false, .chunk = 17}; };
  expect_failure("first in chunk 17");
  script_.change_verdict = [](Verdict& verdict) { verdict.official_difference = 12'345; };
  expect_failure("weight 12345");
  script_.change_verdict = [](Verdict& verdict) { verdict.official_difference = 0; };
  expect_failure("weight 0");
  script_.change_verdict = [](Verdict& verdict) { verdict.decoded.kernel_ends = false; };
  expect_failure("would not end");
}

TEST_F(GpuUnitTest, SumsThatDiffer) {
  for (int bit = 0; bit < 64; bit += 9) {
    script_.change_verdict = [bit](Verdict& verdict) { verdict.source_sum ^= std::uint64_t{1} << bit; };
    expect_failure("not those that it was given");
  }
  for (std::size_t buffer = 0; buffer < 4; ++buffer)
    for (int bit = 0; bit < 32; bit += 5) {
      script_.change_verdict = [buffer, bit](Verdict& verdict) {
        verdict.output_sums[buffer] ^= std::uint32_t{1} << bit;
      };
      expect_failure("changed on its way out");
    }
  // Nothing was read back: there are none.
  EXPECT_EQ(failure(false), "");
}

TEST_F(GpuUnitTest, AnyFlippedBitOfAPiece) {
  testing::Random random(5);
  for (int i = 0; i < 60; ++i) {
    const auto buffer = static_cast<std::size_t>(i % 4);
    const std::uint64_t byte = random.below(script_.buffers[buffer].size());
    script_.piece_bytes = 4 * (1 + random.below(5'000));
    script_.change_piece = [&](OutputBuffer which, std::uint64_t offset, std::vector<std::uint8_t>& bytes) {
      if (which == static_cast<OutputBuffer>(buffer) && byte >= offset && byte - offset < bytes.size())
        bytes[byte - offset] ^= static_cast<std::uint8_t>(1 << (i / 4 % 8));
    };
    expect_failure("changed on its way out");
  }
}

TEST_F(GpuUnitTest, AChunkThatIsTooDense) {
  ASSERT_GE(unit_.output_positions.size(), 16u);
  const auto set_position = [this](std::size_t index, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i)
      script_.buffers[3][4 * index + i] = static_cast<std::uint8_t>(value >> 8 * i);
  };
  for (const std::uint64_t piece : {4u, 4'096u}) {
    script_.piece_bytes = piece;
    set_position(1, 23'551);
    expect_failure("more weights than loaders can decode");
    set_position(1, 23'550);
    EXPECT_THAT(failure_of_other_bytes(), "");
    // Positions that do not ascend.
    set_position(1, 3);
    set_position(2, 2);
    expect_failure("more weights than loaders can decode");
    script_.buffers[3] = unit_.output_positions;
  }
}

TEST_F(GpuUnitTest, BitsAfterTheLastCodeThatAreNotEofs) {
  int num_tried = 0;
  for (std::size_t fewer = 0; fewer < 12; ++fewer) {
    Words weights = testing::normal_weights(30'000, 1);
    weights.resize(weights.size() - fewer);
    use(std::move(weights));
    ASSERT_EQ(failure(), "");
    const std::uint64_t used = plan_.layout.total_bits % 8;
    for (std::uint64_t bit = 0; bit < 8; ++bit) {
      script_.buffers[1].back() ^= static_cast<std::uint8_t>(0x80 >> bit);
      if (used != 0 && bit >= used) {
        expect_failure("EOF's code");
        ++num_tried;
      } else {
        EXPECT_EQ(failure_of_other_bytes(), "");  // a code's: the decoder's business
      }
      script_.buffers[1] = unit_.encoded_exponent;
    }
  }
  EXPECT_GT(num_tried, 20);
}

// ---- plans

TEST_F(GpuUnitTest, PlansThatTakeALookAtTheWeightsAreLeftToOthers) {
  const auto plan_of = [](const Words& weights, const df11::CodingOptions& coding, UnitCounts& counts) {
    const Script script;
    MadeUpPipeline pipeline(script);
    CountingSource source(weights);
    GpuUnit unit(pipeline, source, 1, nullptr);
    while (!unit.has_all()) unit.feed();
    const auto first = unit.plan("unit", coding, counts);
    const int calls = pipeline.num_calls;
    UnitCounts again;
    const auto second = unit.plan("unit", coding, again);
    EXPECT_EQ(pipeline.num_calls, calls);
    EXPECT_EQ(second.has_value(), first.has_value());
    EXPECT_EQ(again.histogram, counts.histogram);
    EXPECT_EQ(again.last_exponent, counts.last_exponent);
    if (first && second) {
      EXPECT_EQ(first->has_value(), second->has_value());
    }
    return first;
  };
  UnitCounts counts;
  EXPECT_FALSE(plan_of(Words(5'000, 0x3C00), {}, counts));                         // a 1-bit code
  EXPECT_FALSE(plan_of(testing::uniform_exponents(500, 230, 20, 1), {}, counts));  // too large
  const Words normal = testing::normal_weights(5'000, 3);
  const auto planned = plan_of(normal, {}, counts);
  ASSERT_TRUE(planned && *planned);
  EXPECT_EQ(counts.histogram, sparse(testing::histogram_of(normal)));
  EXPECT_EQ(counts.last_exponent, df11::exponent_of(normal.back()));
  EXPECT_EQ((*planned)->layout.num_bytes, compress_df11_unit(normal).encoded_exponent.size());
  df11::CodingOptions coding;
  coding.limits.max_stream_bytes = 100;
  const auto refused = plan_of(normal, coding, counts);
  ASSERT_TRUE(refused);
  ASSERT_FALSE(*refused);
  EXPECT_EQ(refused->error().code, ErrorCode::kStreamTooLong);
}

// ---- whose errors

TEST_F(GpuUnitTest, EveryCallThatFailsIsTheGpus) {
  script_.slabs = {{0, 20'000}, {15'000, 40'000}};
  ASSERT_EQ(failure(), "");
  const int num_calls = pipeline_->num_calls;
  ASSERT_GT(num_calls, 150);
  for (script_.fails_at = 0; script_.fails_at < num_calls; ++script_.fails_at) {
    try {
      run();
      FAIL() << "call " << script_.fails_at;
    } catch (const GpuFailure& failure) {
      EXPECT_EQ(failure.error.code, ErrorCode::kOutOfMemory);
      EXPECT_EQ(failure.error.message, "made-up trouble");
    }
    EXPECT_EQ(pipeline_->num_units, 0);
  }
  script_.fails_at = num_calls;
  EXPECT_EQ(failure(), "");
}

TEST_F(GpuUnitTest, WhatSourceAndSinkThrowGoesThrough) {
  script_.slabs = {{0, 20'000}, {15'000, 40'000}};
  for (const int at : {0, 5, 45, 60}) {
    int reads = 0;
    source_->on_read = [&](std::uint64_t) {
      if (reads++ == at) throw Error(ErrorCode::kIo, "a read");
    };
    try {
      run();
      FAIL() << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
    }
    source_->on_read = {};
    EXPECT_EQ(failure(), "");
  }
  for (const UnitBuffer buffer : {UnitBuffer::kLuts, UnitBuffer::kSignMantissa, UnitBuffer::kEncodedExponent,
                                  UnitBuffer::kGaps, UnitBuffer::kOutputPositions}) {
    sink_.on_write = [&](UnitBuffer written) {
      if (written == buffer) throw Error(ErrorCode::kIo, "a write");
    };
    EXPECT_THROW(run(), Error);
    EXPECT_EQ(pipeline_->num_units, 0);
  }
  sink_.on_write = {};
  on_between_ = [] { throw std::runtime_error("between"); };
  EXPECT_THROW(run(), std::runtime_error);
}

// ---- slabs that overlap

TEST_F(GpuUnitTest, SlabsThatOverlapGetTheWeightsThatWereReadOnce) {
  constexpr std::uint64_t kMost = device::UnitOnGpu::kMaxOverlapWeights;
  use(testing::normal_weights(300'001, 3));
  // A weight that is read once too often is another one.
  source_->changes_mantissas = true;
  testing::Random random(7);
  for (int round = 0; round < 40; ++round) {
    script_.part_weights = 2 * (round % 4 == 0 ? 500 + random.below(100'000) : 450 + random.below(15'000));
    script_.slabs = {{0, 2 * (35'000 + random.below(30'000))}};
    while (script_.slabs.back().end < source_->weights.size()) {
      const WeightRange last = script_.slabs.back();
      const std::uint64_t longest = std::min(kMost, last.end - last.first - 2);
      // Sums of neighbouring slabs add up from even weights on, as those of segments do.
      std::uint64_t overlap = round % 3 == 0 ? longest : random.below(longest + 1) / 2 * 2;
      if (round % 5 == 0) overlap = 2 * random.below(2);
      const std::uint64_t first = last.end - overlap;
      script_.slabs.push_back(
          {first,
           std::min<std::uint64_t>(source_->weights.size(), last.end + 2 * (10'000 + random.below(45'000)))});
    }
    begins_early_ = round % 2 == 0;
    run();
    ASSERT_TRUE(std::ranges::all_of(source_->reads, [](int times) { return times == 2; }));
    ASSERT_EQ(pipeline_->counted, source_->weights);
    ASSERT_EQ(pipeline_->given.size(), script_.slabs.size());
    for (std::size_t i = 0; i < script_.slabs.size(); ++i) {
      const auto [first, end] = script_.slabs[i];
      Words expected(source_->weights.begin() + static_cast<std::ptrdiff_t>(first),
                     source_->weights.begin() + static_cast<std::ptrdiff_t>(end));
      for (std::uint16_t& weight : expected) weight ^= 1;
      ASSERT_EQ(pipeline_->given[i], expected) << "round " << round << ", slab " << i;
    }
  }
}

TEST_F(GpuUnitTest, SumsOfTheLastPassCount) {
  script_.slabs = {{0, 20'000}, {15'000, 40'000}};
  source_->changes_mantissas = true;
  EXPECT_EQ(failure_of_other_bytes(), "");
  script_.change_verdict = [this](Verdict& verdict) {
    verdict.source_sum = 0;  // of the first pass
    for (std::size_t i = 0; i < source_->weights.size(); ++i)
      verdict.source_sum += std::uint64_t{source_->weights[i]} << (i % 2 * 16);
  };
  expect_failure("not those that it was given");
}

}  // namespace
}  // namespace weightpress::job
