// Several back ends as one, over some that hold little, fail when they are told to, and do nothing before a
// completion is waited for.
#include "device/tile_ans_back_ends.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <weightpress/error.h>

#include "support/host_tile_ans_back_end.h"
#include "support/tile_ans_faults.h"

namespace weightpress::device {
namespace {

using namespace testing;
using tile_ans::Completion;
using tile_ans::StageCode;
using tile_ans::StageStatus;

constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// What the back ends of a test have in common.
struct Script {
  std::uint64_t fails_at = kNever;  ///< the n-th call of all
  bool fails_to_begin = false;      ///< or at its completion
  ErrorCode code = ErrorCode::kDeviceFailed;

  std::uint64_t num_calls = 0, num_under_way = 0, most_under_way = 0;
  /// Parts that were done, in the order of their completions: first and count of tiles.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> done;
};

/// Takes so many tiles or elements at once. Before it throws it leaves nonsense in the outputs.
class SmallBackEnd final : public TileAnsBackEnd {
 public:
  struct Limits {
    std::uint64_t most_tiles = kNever, most_elements = kNever;
    bool refuses_to_begin = false;  ///< what is more; or at the completion
    bool is_late = true;
  };

  SmallBackEnd(Script& script, const Limits& limits) : script_(script), limits_(limits) {}
  ~SmallBackEnd() override { EXPECT_FALSE(is_under_way_); }

  Completion histogram(const tile_ans::HistogramArguments& arguments) override {
    EXPECT_GT(arguments.elements.size(), 0u);
    const std::uint64_t count = arguments.elements.size() / arguments.num_lanes;
    return call(
        count > limits_.most_elements, [&arguments, this] { return host_.histogram(arguments).wait(); },
        [&arguments] {
          for (tile_ans::Histogram& histogram : arguments.histograms)
            for (std::uint64_t& number : histogram) number += 77;
        });
  }
  Completion sizes(const tile_ans::EncodeArguments& arguments) override {
    return call(
        arguments.tiles.num_tiles > limits_.most_tiles,
        [&arguments, this] { return note(arguments.tiles, host_.sizes(arguments).wait()); },
        [&arguments] { spoil_outputs(arguments); });
  }
  Completion encode(const tile_ans::EncodeArguments& arguments) override {
    return call(
        arguments.tiles.num_tiles > limits_.most_tiles,
        [&arguments, this] {
          // What lies behind the last word is unspecified.
          for (const tile_ans::LaneOutput& output : arguments.lanes)
            std::ranges::fill(output.words, std::uint16_t{0xDEAD});
          return note(arguments.tiles, host_.encode(arguments).wait());
        },
        [&arguments] { spoil_outputs(arguments); });
  }
  Completion decode(const tile_ans::DecodeArguments& arguments) override {
    return call(
        arguments.tiles.num_tiles > limits_.most_tiles,
        [&arguments, this] { return note(arguments.tiles, host_.decode(arguments).wait()); },
        [&arguments] { std::ranges::fill(arguments.elements, std::uint8_t{0x5A}); });
  }
  std::uint64_t decoded_sum() const override { return host_.decoded_sum(); }
  std::shared_ptr<void> pinned(std::uint64_t bytes) override { return host_.pinned(bytes); }

 private:
  template <class Run, class Spoil>
  Completion call(bool has_too_much, Run run, Spoil spoil) {
    EXPECT_FALSE(is_under_way_) << "the last call was not waited for";
    const bool fails = script_.num_calls++ == script_.fails_at;
    const bool is_too_much = has_too_much && !fails;
    if (fails && script_.fails_to_begin) throw Error(script_.code, "begin");
    if (is_too_much && limits_.refuses_to_begin) throw Error(ErrorCode::kOutOfMemory, "begin");
    is_under_way_ = true;
    script_.most_under_way = std::max(script_.most_under_way, ++script_.num_under_way);
    std::optional<StageStatus> early;
    if (!limits_.is_late && !fails && !is_too_much) early = run();
    return Completion([=, this] {
      EXPECT_TRUE(is_under_way_) << "waited for twice";
      is_under_way_ = false;
      --script_.num_under_way;
      if (fails || is_too_much) {
        spoil();
        throw Error(fails ? script_.code : ErrorCode::kOutOfMemory, "end");
      }
      return early ? *early : run();
    });
  }
  static void spoil_outputs(const tile_ans::EncodeArguments& arguments) {
    for (const tile_ans::LaneOutput& output : arguments.lanes) {
      std::ranges::fill(output.stream_words, 0x9999'9999u);
      std::ranges::fill(output.words, std::uint16_t{0x9999});
      std::ranges::fill(output.states, 0x9999'9999u);
    }
  }
  StageStatus note(const tile_ans::TileRange& tiles, const StageStatus& status) {
    script_.done.emplace_back(tiles.first_tile, tiles.num_tiles);
    return status;
  }

  Script& script_;
  const Limits limits_;
  HostTileAnsBackEnd host_;
  bool is_under_way_ = false;
};

TileAnsBackEnds make(Script& script, const std::vector<SmallBackEnd::Limits>& limits) {
  std::vector<std::unique_ptr<TileAnsBackEnd>> back_ends;
  for (const SmallBackEnd::Limits& one : limits)
    back_ends.push_back(std::make_unique<SmallBackEnd>(script, one));
  return TileAnsBackEnds(std::move(back_ends));
}

/// least: of a tensor of so many tiles and elements, so that there are not thousands of parts.
std::vector<SmallBackEnd::Limits> random_limits(Random& random, std::uint64_t num_tiles,
                                                std::uint64_t num_elements) {
  std::vector<SmallBackEnd::Limits> limits(1 + random.below(4));
  for (SmallBackEnd::Limits& one : limits) {
    if (random.below(3) != 0) one.most_tiles = num_tiles / 60 + 1 + random.below(6);
    if (random.below(3) != 0) one.most_elements = num_elements / 60 + 1 + random.below(300);
    one.refuses_to_begin = random.below(2) == 0;
    one.is_late = random.below(4) != 0;
  }
  return limits;
}

/// Compares the sum of what was decoded, slab by slab.
class SumChecked final : public tile_ans::TileAnsDecodeStage {
 public:
  explicit SumChecked(TileAnsBackEnds& back_ends) : back_ends_(back_ends) {}
  Completion decode(const tile_ans::DecodeArguments& arguments) override {
    const StageStatus status = back_ends_.decode(arguments).wait();
    const auto elements = arguments.elements.empty() ? arguments.source : arguments.elements;
    if (status.ok() && !elements.empty()) {
      EXPECT_EQ(back_ends_.decoded_sum(), plain_sum(elements, arguments.layout.num_lanes));
      ++num_sums;
    }
    return Completion(status);
  }
  int num_sums = 0;

 private:
  TileAnsBackEnds& back_ends_;
};

TEST(TileAnsBackEnds, RandomTensorsAsOnTheHost) {
  Random random(1);
  int num_sums = 0;
  std::uint64_t most_under_way = 0, num_parts = 0;
  for (int run = 0; run < 250; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    const RandomTensor tensor(random);
    host::HostTileAnsStages host(1);
    const tile_ans::TensorPlan plan = plan_with(host, tensor.bytes, tensor.num_lanes, tensor.settings);
    const TileAnsBuffers expected = encode_with(host, tensor.bytes, plan);

    Script script;
    TileAnsBackEnds stages =
        make(script, random_limits(random, plan.layout.num_tiles(), plan.layout.num_elements));
    const Slabs slabs = random_slabs(random, static_cast<std::int64_t>(plan.layout.tile_elements));
    const tile_ans::TensorPlan same =
        plan_with(stages, tensor.bytes, tensor.num_lanes, tensor.settings, slabs);
    ASSERT_EQ(same.layout, plan.layout);
    const TileAnsBuffers made = encode_with(stages, tensor.bytes, same, slabs);
    ASSERT_TRUE(made == expected);

    SumChecked decode(stages);
    for (const auto& [with_source, want_bytes] : {std::pair{false, true}, {true, false}, {true, true}, {}}) {
      const std::span<const std::uint8_t> source =
          with_source ? tensor.bytes : std::span<const std::uint8_t>();
      const Decoded decoded = decode_with(decode, made, std::array{tensor.bytes.size() / tensor.num_lanes},
                                          tensor.num_lanes, slabs, source, want_bytes);
      ASSERT_EQ(decoded.error, "");
      ASSERT_EQ(decoded.status, StageStatus{});
      if (want_bytes) {
        ASSERT_TRUE(decoded.bytes == tensor.bytes);
      }
    }
    num_sums += decode.num_sums;
    most_under_way = std::max(most_under_way, script.most_under_way);
    num_parts += script.done.size();
  }
  EXPECT_GT(num_sums, 1'500);
  EXPECT_EQ(most_under_way, 4u);
  EXPECT_GT(num_parts, 10'000u);
}

TEST(TileAnsBackEnds, TheVerdictIsTheHostsOnTheWholeSlab) {
  Random random(2);
  std::vector<int> seen(16);
  for (int run = 0; run < 2'000; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    StoredTileAns stored = random_container(random);
    for (std::uint64_t faults = random.below(4); faults > 0; --faults) spoil(random, stored.buffers);
    std::vector<std::uint8_t> source = random.below(3) == 0 ? std::vector<std::uint8_t>{} : stored.bytes;
    if (!source.empty() && random.below(4) == 0) source[random.below(source.size())] ^= 4;
    const bool want_bytes = random.below(3) != 0;
    const Slabs slabs = random_slabs(random, stored.buffers.layout[0]);

    host::HostTileAnsDecodeStage host(1);
    const Decoded expected = stored.decode(host, slabs, source, want_bytes);
    Script script;
    TileAnsBackEnds back_ends = make(script, random_limits(random, 1, 1));
    SumChecked decode(back_ends);
    const Decoded decoded = stored.decode(decode, slabs, source, want_bytes);
    ASSERT_EQ(decoded.error, expected.error);
    ASSERT_EQ(decoded.status, expected.status)
        << stage_code_text(decoded.status.code) << " and " << stage_code_text(expected.status.code);
    if (expected.ok() && want_bytes) {
      ASSERT_TRUE(decoded.bytes == expected.bytes);
    }
    if (expected.error.empty()) ++seen[static_cast<std::size_t>(expected.status.code)];
  }
  EXPECT_EQ(std::ranges::count(seen, 0), 16 - 9) << "well, and all that can be wrong";
}

/// One slab of 20 tiles of 50, the last one short, which begins at tile 3, with a raw and a coded lane.
struct Slab {
  static constexpr tile_ans::TileRange kTiles{3, 20};

  Slab() {
    Random random(3);
    bytes = RandomTensor::gaussian_bytes(random, 1'137, 2, 20);
    for (std::uint8_t& byte : bytes) byte &= 0x3F;  // so that 0xC0 was not counted
    host::HostTileAnsStages host(1);
    plan = plan_with(host, bytes, 2, {.tile_elements = 50, .probability_bits = 10});
    plan.lanes[1].mode = tile_ans::LaneMode::kAns;
    stored = encode_with(host, bytes, plan);
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      offsets[lane] = std::span(stored.offsets).subspan(plan.layout.stream_of(lane, kTiles.first_tile));
      words[lane].resize(tile_ans::lane_words_capacity(plan, lane, kTiles));
      stream_words[lane].resize(kTiles.num_tiles);
      outputs.push_back(
          {.lane = lane, .stream_words = stream_words[lane], .words = words[lane], .states = {}});
    }
    states.resize(tile_ans::kNumStates * kTiles.num_tiles);
    outputs[1].states = states;
  }
  std::span<const std::uint8_t> elements() const { return slab_bytes(bytes, plan.layout, kTiles); }
  tile_ans::EncodeArguments encode_arguments() const { return {&plan, kTiles, elements(), outputs}; }
  StageStatus decode(TileAnsBackEnd& stage, std::span<const std::uint8_t> source) const {
    std::vector<tile_ans::LaneInput> lanes(2);
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      lanes[lane].mode = plan.lanes[lane].mode;
      lanes[lane].frequencies = &plan.lanes[lane].frequencies;
      lanes[lane].offsets = offsets[lane].first(kTiles.num_tiles + 1);
      lanes[lane].words = std::span(stored.payload).subspan(offsets[lane].front());
    }
    lanes[1].states =
        std::span(stored.states).subspan(tile_ans::kNumStates * kTiles.first_tile, states.size());
    return stage
        .decode({.layout = plan.layout, .tiles = kTiles, .lanes = lanes, .source = source, .elements = {}})
        .wait();
  }
  void expect_encoded() const {
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      const std::uint64_t count = offsets[lane][kTiles.num_tiles] - offsets[lane][0];
      EXPECT_EQ(std::accumulate(stream_words[lane].begin(), stream_words[lane].end(), std::uint64_t{0}),
                count);
      EXPECT_TRUE(std::ranges::equal(std::span(words[lane]).first(count),
                                     std::span(stored.payload).subspan(offsets[lane].front(), count)));
    }
    EXPECT_TRUE(std::ranges::equal(
        states, std::span(stored.states).subspan(tile_ans::kNumStates * kTiles.first_tile, states.size())));
  }

  std::vector<std::uint8_t> bytes;
  tile_ans::TensorPlan plan;
  TileAnsBuffers stored;
  std::span<const std::uint32_t> offsets[2];
  std::vector<std::uint16_t> words[2];
  std::vector<std::uint32_t> stream_words[2], states;
  std::vector<tile_ans::LaneOutput> outputs;
};

/// The four calls, each on all of the slab.
enum class Call : std::uint8_t { kHistogram, kSizes, kEncode, kDecode };
constexpr Call kCalls[] = {Call::kHistogram, Call::kSizes, Call::kEncode, Call::kDecode};

StageStatus run(TileAnsBackEnds& stages, Call call, const Slab& slab,
                std::span<tile_ans::Histogram> histograms) {
  switch (call) {
    case Call::kHistogram:
      return stages.histogram({slab.elements(), 2, histograms}).wait();
    case Call::kSizes:
      return stages.sizes(slab.encode_arguments()).wait();
    case Call::kEncode:
      return stages.encode(slab.encode_arguments()).wait();
    case Call::kDecode:
      return slab.decode(stages, slab.elements());
  }
  return {};
}

TEST(TileAnsBackEnds, AFailureLeavesNothingUnderWayAndNoHalfCounts) {
  const Slab slab;
  std::vector<tile_ans::Histogram> before(2), expected(2);
  for (tile_ans::Histogram& histogram : before) histogram.fill(5);
  expected = before;
  host::HostTileAnsStages(1).histogram({slab.elements(), 2, expected}).wait();
  for (const Call call : kCalls) {
    for (std::size_t num_gpus = 1; num_gpus <= 4; ++num_gpus) {
      for (const bool fails_to_begin : {false, true}) {
        for (std::uint64_t fails_at = 0;; ++fails_at) {
          SCOPED_TRACE("call " + std::to_string(static_cast<int>(call)) + ", " + std::to_string(num_gpus) +
                       " back ends, fails at " + std::to_string(fails_at));
          Script script{.fails_at = fails_at, .fails_to_begin = fails_to_begin};
          TileAnsBackEnds stages = make(
              script,
              std::vector<SmallBackEnd::Limits>(
                  num_gpus, {.most_tiles = 3, .most_elements = 150, .refuses_to_begin = fails_at % 2 == 0}));
          std::vector<tile_ans::Histogram> histograms = before;
          std::optional<ErrorCode> thrown;
          try {
            run(stages, call, slab, histograms);
          } catch (const Error& error) {
            thrown = error.code();
          }
          EXPECT_EQ(script.num_under_way, 0u);
          if (!thrown) {
            // It was not called so often.
            EXPECT_LE(script.num_calls, fails_at);
            EXPECT_GT(fails_at, 6u);
            break;
          }
          EXPECT_EQ(*thrown, ErrorCode::kDeviceFailed);
          EXPECT_EQ(histograms, before);
          // And it can be tried again.
          script.fails_at = kNever;
          EXPECT_EQ(run(stages, call, slab, histograms), StageStatus{});
          EXPECT_EQ(histograms, call == Call::kHistogram ? expected : before);
          if (call == Call::kEncode) slab.expect_encoded();
          if (call == Call::kDecode) {
            EXPECT_EQ(stages.decoded_sum(), plain_sum(slab.elements(), 2));
          }
        }
      }
    }
  }
}

TEST(TileAnsBackEnds, ATileThatDoesNotFitIsTold) {
  const Slab slab;
  for (const Call call : kCalls) {
    for (const bool refuses_to_begin : {false, true}) {
      for (const std::size_t num_small : {1u, 3u}) {
        std::vector<SmallBackEnd::Limits> limits(3);
        for (std::size_t i = 0; i < num_small; ++i)
          limits[i] = {.most_tiles = 0, .most_elements = 0, .refuses_to_begin = refuses_to_begin};
        Script script;
        TileAnsBackEnds stages = make(script, limits);
        std::vector<tile_ans::Histogram> histograms(2);
        try {
          run(stages, call, slab, histograms);
          ADD_FAILURE() << "it fits";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
        }
        EXPECT_EQ(script.num_under_way, 0u);
        EXPECT_EQ(histograms, std::vector<tile_ans::Histogram>(2));
      }
    }
  }
}

/// What is done is not done again, and what comes back in parts is in order.
TEST(TileAnsBackEnds, PartsAreEqualSharesHalvedUntilTheyFit) {
  const Slab slab;
  std::vector<tile_ans::Histogram> histograms(2);
  using Parts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  for (const Call call : {Call::kSizes, Call::kEncode, Call::kDecode}) {
    Script whole;
    TileAnsBackEnds one = make(whole, {{}});
    run(one, call, slab, histograms);
    EXPECT_EQ(whole.done, (Parts{{3, 20}}));

    Script shared;
    TileAnsBackEnds three = make(shared, {{}, {}, {}});
    run(three, call, slab, histograms);
    EXPECT_EQ(shared.done, (Parts{{3, 7}, {10, 7}, {17, 6}}));
    EXPECT_EQ(shared.most_under_way, 3u);

    for (const bool refuses_to_begin : {false, true}) {
      // 10 and 10: the second does not fit, and what is left goes in shares of 5.
      Script little;
      TileAnsBackEnds two = make(little, {{}, {.most_tiles = 5, .refuses_to_begin = refuses_to_begin}});
      run(two, call, slab, histograms);
      EXPECT_EQ(little.done, (Parts{{3, 10}, {13, 5}, {18, 5}}));
    }
  }
}

/// The lowest trouble counts, be it a fault or a failure.
TEST(TileAnsBackEnds, FaultsAndFailuresInTheOrderOfTiles) {
  const Slab slab;
  for (std::uint64_t failed = 0; failed < 4; ++failed) {
    for (std::uint64_t faulty = 0; faulty < 4; ++faulty) {
      std::vector<std::uint8_t> changed(slab.elements().begin(), slab.elements().end());
      changed[2 * 50 * 5 * faulty + 1] = 0xC0;  // of five tiles each the first, in the coded lane
      Slab other;
      std::ranges::copy(changed, other.bytes.begin() + 2 * 50 * 3);
      for (const Call call : {Call::kSizes, Call::kEncode, Call::kDecode}) {
        Script script{.fails_at = failed};
        TileAnsBackEnds stages = make(script, {{}, {}, {}, {}});
        std::vector<tile_ans::Histogram> histograms(2);
        const auto work = [&] {
          return call == Call::kDecode ? slab.decode(stages, changed) : run(stages, call, other, histograms);
        };
        if (failed <= faulty) {
          EXPECT_THROW(work(), Error);
        } else {
          const std::uint64_t tile = 3 + 5 * faulty;
          EXPECT_EQ(work(), (call == Call::kDecode ? StageStatus{StageCode::kDiffers, tile, 0}
                                                   : StageStatus{StageCode::kSourceChanged, tile, 1}));
        }
        EXPECT_EQ(script.num_under_way, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace weightpress::device
