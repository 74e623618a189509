// UnitDecoder with several slabs under way: on a stage that does nothing before a completion is waited for.
#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "host/decode.h"
#include "support/stored_units.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

/// Takes the slabs that are under way in any order once one of them is waited for, and notices what becomes
/// of their bytes until then.
class LateStage final : public df11::Df11DecodeStage {
 public:
  explicit LateStage(int most, std::uint64_t seed = 1) : most_(most), random_(seed) {}
  ~LateStage() override { EXPECT_TRUE(slabs_.empty()) << "slabs are left under way"; }

  df11::DecodeCompletion decode(const df11::DecodeArguments& arguments) override {
    EXPECT_LT(slabs_.size(), static_cast<std::size_t>(most_under_way()));
    most_seen_ = std::max(most_seen_, slabs_.size() + 1);
    const std::uint64_t number = num_begun_++;
    if (number == fails_to_begin_) throw std::runtime_error("begin");
    slabs_.emplace(number, UnderWay{arguments, hash_of(arguments), {}, false});
    return df11::DecodeCompletion([this, number] { return finish(number); });
  }
  int most_under_way() const override { return num_begun_ < shrinks_after_ ? most_ : 1; }
  void abandon() noexcept override {
    num_abandoned_ += slabs_.size();
    for (const auto& [number, slab] : slabs_) EXPECT_EQ(hash_of(slab.arguments), slab.hash);
    slabs_.clear();
  }

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t fails_to_begin_ = kNever, fails_to_finish_ = kNever;
  std::uint64_t shrinks_after_ = kNever;  // slabs: then one at a time
  std::size_t most_seen_ = 0, num_abandoned_ = 0;

 private:
  struct UnderWay {
    df11::DecodeArguments arguments;
    std::size_t hash;
    df11::DecodeStatus status;
    bool is_done;
  };

  static std::size_t hash_of(const df11::DecodeArguments& arguments) {
    std::size_t hash = 0;
    const auto add = [&hash](const auto& values) {
      const auto* const text = reinterpret_cast<const char*>(values.data());
      hash = hash * 31 + std::hash<std::string_view>()(std::string_view(text, values.size_bytes()));
    };
    add(arguments.positions);
    add(arguments.encoded_exponent);
    add(arguments.gaps);
    add(arguments.sign_mantissa);
    add(arguments.source);
    return hash;
  }

  df11::DecodeStatus finish(std::uint64_t number) {
    std::vector<std::uint64_t> order;
    for (const auto& [other, slab] : slabs_)
      if (!slab.is_done) order.push_back(other);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    for (const std::uint64_t other : order) {
      UnderWay& slab = slabs_.at(other);
      EXPECT_EQ(hash_of(slab.arguments), slab.hash) << "the bytes of a slab under way were overwritten";
      slab.status = host_.decode(slab.arguments).wait();
      slab.is_done = true;
    }
    if (number == fails_to_finish_) throw std::runtime_error("finish");
    const df11::DecodeStatus status = slabs_.at(number).status;
    slabs_.erase(number);
    return status;
  }

  const int most_;
  testing::Random random_;
  host::HostDecodeStage host_{1};
  std::uint64_t num_begun_ = 0;
  std::map<std::uint64_t, UnderWay> slabs_;
};

/// 24 chunks, 12 slabs.
class SlabsUnderWay : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSlabChunks = 2;

  static const std::vector<std::uint16_t>& weights() {
    static const std::vector<std::uint16_t> weights = testing::normal_weights(300'000, 31);
    return weights;
  }
  static const Df11Unit& unit() {
    static const Df11Unit unit = compress_df11_unit(weights());
    return unit;
  }

  struct Outcome {
    std::string fault;  // empty: none
    std::vector<std::uint16_t> weights;
    std::vector<std::uint64_t> slabs;  // numbers of weights
    std::uint64_t end_weight = 0, densest_chunk = 0;
    bool kernel_ends = true;
    bool operator==(const Outcome&) const = default;
  };
  static std::string text_of(const std::optional<UnitFault>& fault) {
    if (!fault) return {};
    return fault->kind + ": " + fault->message + " " + std::to_string(fault->chunk) + " " +
           std::to_string(fault->window) + " " + std::to_string(fault->weight);
  }

  enum class Way : std::uint8_t { kWeights, kLengths, kComparison };
  static Outcome run(const Df11Unit& unit, df11::Df11DecodeStage& stage, Way way) {
    const MemoryUnit bytes(view_of(unit));
    DecodeBuffers buffers;
    UnitDecoder decoder(testing::sizes_of(unit), bytes, stage, buffers, kSlabChunks);
    Outcome outcome;
    const auto on_slab = [&](std::uint64_t count) { outcome.slabs.push_back(count); };
    MemorySource source(weights());
    if (way == Way::kWeights) {
      outcome.fault = text_of(decoder.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
        EXPECT_EQ(first, outcome.weights.size());
        outcome.weights.insert(outcome.weights.end(), slab.begin(), slab.end());
      }));
    } else if (way == Way::kLengths) {
      outcome.fault = text_of(decoder.check_lengths(on_slab));
    } else {
      outcome.fault = text_of(decoder.compare(source, on_slab));
    }
    outcome.end_weight = decoder.end_weight();
    outcome.densest_chunk = decoder.densest_chunk();
    outcome.kernel_ends = decoder.kernel_ends();
    return outcome;
  }
};

TEST_F(SlabsUnderWay, GiveWhatOneAtATimeGives) {
  for (const Way way : {Way::kWeights, Way::kLengths, Way::kComparison}) {
    host::HostDecodeStage host(1);
    const Outcome expected = run(unit(), host, way);
    EXPECT_EQ(expected.fault, "");
    if (way == Way::kWeights) {
      EXPECT_EQ(expected.weights, weights());
    }
    for (const int most : {1, 2, 3, 20}) {
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        LateStage stage(most, seed);
        EXPECT_EQ(run(unit(), stage, way), expected) << most;
        EXPECT_EQ(stage.most_seen_, static_cast<std::size_t>(std::min(most, 12)));
        EXPECT_EQ(stage.num_abandoned_, 0u);
        LateStage shrinking(most, seed);
        shrinking.shrinks_after_ = 5;
        EXPECT_EQ(run(unit(), shrinking, way), expected) << most;
      }
    }
  }
}

TEST_F(SlabsUnderWay, TheFirstFaultIsToldWhereverOthersAre) {
  testing::Random random(7);
  const std::uint64_t num_chunks = unit().gaps.size() / 320;
  for (int round = 0; round < 60; ++round) {
    Df11Unit faulty = unit();
    // In the first, a middle or the last slab, or in several.
    std::vector<std::uint64_t> chunks = {round % 3 == 0   ? 0
                                         : round % 3 == 1 ? num_chunks - 1
                                                          : random.below(num_chunks)};
    for (std::uint64_t more = random.below(4); more > 0; --more) chunks.push_back(random.below(num_chunks));
    for (const std::uint64_t chunk : chunks) {
      const std::uint64_t last_bit = faulty.encoded_exponent.size() * 8 - 20;
      switch (random.below(4)) {
        case 0:
          testing::flip_bit(faulty.encoded_exponent,
                            std::min(chunk * df11::kChunkBits + random.below(df11::kChunkBits), last_bit));
          break;
        case 1:
          testing::flip_bit(faulty.gaps, chunk * 8 * 320 + random.below(1000));
          break;
        case 2:
          testing::set_position(faulty, chunk, testing::position_of(faulty, chunk) ^ 1);
          break;
        default:
          testing::set_position(faulty, chunk, 0xFFFF'0000);  // which no decoder can work with
      }
    }
    for (const Way way : {Way::kWeights, Way::kLengths, Way::kComparison}) {
      host::HostDecodeStage host(1);
      LateStage stage(3, static_cast<std::uint64_t>(round));
      EXPECT_EQ(run(faulty, stage, way), run(faulty, host, way)) << round;
    }
  }
}

TEST_F(SlabsUnderWay, WhatCallbacksAndStagesThrowGoesThroughWithNothingLeftUnderWay) {
  const MemoryUnit bytes(view_of(unit()));
  for (std::uint64_t slab = 0; slab < 12; ++slab) {
    for (const int what : {0, 1, 2}) {
      LateStage stage(3, slab);
      if (what == 1) stage.fails_to_begin_ = slab;
      if (what == 2) stage.fails_to_finish_ = slab;
      DecodeBuffers buffers;
      UnitDecoder decoder(testing::sizes_of(unit()), bytes, stage, buffers, kSlabChunks);
      std::uint64_t num_slabs = 0;
      EXPECT_THROW(decoder.check_lengths([&](std::uint64_t) {
        if (num_slabs++ == slab && what == 0) throw std::runtime_error("callback");
      }),
                   std::runtime_error);
      // As if nothing had been read ahead.
      EXPECT_EQ(num_slabs, slab + (what == 0 ? 1 : 0));
    }
  }
}

/// Throws from a weight on.
class CutSource final : public WeightSource {
 public:
  CutSource(std::span<const std::uint16_t> weights, std::uint64_t readable)
      : weights_(weights), readable_(readable) {}
  std::uint64_t num_weights() const override { return weights_.size(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override {
    if (first + weights.size() > readable_) throw std::runtime_error("cut");
    std::ranges::copy(weights_.subspan(first, weights.size()), weights.begin());
  }

 private:
  std::span<const std::uint16_t> weights_;
  std::uint64_t readable_;
};

TEST_F(SlabsUnderWay, AFaultBeforeASourceThatThrowsIsTold) {
  for (const std::uint64_t cut_slab : {2u, 3u, 4u}) {
    const std::uint64_t readable = testing::position_of(unit(), kSlabChunks * cut_slab);
    for (const std::uint64_t faulty_slab : {0u, 1u, 2u, 3u, 4u, 5u}) {
      std::vector<std::uint16_t> other = weights();
      const std::uint64_t wrong = testing::position_of(unit(), kSlabChunks * faulty_slab) + 5;
      other[wrong] ^= 1;
      const MemoryUnit bytes(view_of(unit()));
      for (const int most : {1, 3}) {
        LateStage stage(most);
        DecodeBuffers buffers;
        UnitDecoder decoder(testing::sizes_of(unit()), bytes, stage, buffers, kSlabChunks);
        CutSource source(other, readable);
        std::uint64_t well = 0;
        const auto on_slab = [&](std::uint64_t count) { well += count; };
        if (faulty_slab < cut_slab) {
          const auto fault = decoder.compare(source, on_slab);
          ASSERT_TRUE(fault);
          EXPECT_EQ(fault->weight, wrong);
          EXPECT_EQ(well, testing::position_of(unit(), kSlabChunks * faulty_slab));
        } else {
          EXPECT_THROW(decoder.compare(source, on_slab), std::runtime_error);
          EXPECT_EQ(well, readable);
        }
      }
    }
  }
}

TEST_F(SlabsUnderWay, ShortUnitsAreSeveralSlabsWhereTheyCanBeUnderWay) {
  host::HostDecodeStage host(1);
  EXPECT_EQ(UnitDecoder::slab_chunks_for(8, host), 256u);
  EXPECT_EQ(UnitDecoder::slab_chunks_for(1'000'000, host), 256u);
  const LateStage stage(3);
  EXPECT_EQ(UnitDecoder::slab_chunks_for(1, stage), 4u);
  EXPECT_EQ(UnitDecoder::slab_chunks_for(80, stage), 10u);
  EXPECT_EQ(UnitDecoder::slab_chunks_for(1'000'000, stage), 256u);
}

}  // namespace
}  // namespace weightpress::job
