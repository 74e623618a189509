// Stages of Tile-ANS that lie: `weightpress selftest --compare` has to find each of them, and to name the
// path, the tensor and what is wrong. And what random tensors there are.
#include "job/selftest_tile_ans.h"

#include <algorithm>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "format/tile_ans_plan.h"
#include "host/tile_ans_stages.h"

namespace weightpress::job {
namespace {

using tile_ans::EncodeArguments;
using tile_ans::StageStatus;

/// The CPU's stages, with whatever a test does to what they give.
class Liar final : public tile_ans::TileAnsStages, public tile_ans::TileAnsDecodeStage {
 public:
  std::function<void(const tile_ans::HistogramArguments&)> after_histogram = [](const auto&) {};
  std::function<StageStatus(const EncodeArguments&, StageStatus)> after_sizes = [](const auto&, auto status) {
    return status;
  };
  std::function<StageStatus(const EncodeArguments&, StageStatus)> after_encode = after_sizes;
  std::function<void(tile_ans::DecodeArguments&)> before_decode = [](auto&) {};
  std::function<StageStatus(const tile_ans::DecodeArguments&, StageStatus)> after_decode =
      [](const auto&, auto status) { return status; };

  tile_ans::Completion histogram(const tile_ans::HistogramArguments& arguments) override {
    stages_.histogram(arguments).wait();
    after_histogram(arguments);
    return tile_ans::Completion(StageStatus());
  }
  tile_ans::Completion sizes(const EncodeArguments& arguments) override {
    return tile_ans::Completion(after_sizes(arguments, stages_.sizes(arguments).wait()));
  }
  tile_ans::Completion encode(const EncodeArguments& arguments) override {
    return tile_ans::Completion(after_encode(arguments, stages_.encode(arguments).wait()));
  }
  tile_ans::Completion decode(const tile_ans::DecodeArguments& arguments) override {
    tile_ans::DecodeArguments changed = arguments;
    before_decode(changed);
    return tile_ans::Completion(after_decode(changed, decode_.decode(changed).wait()));
  }

 private:
  host::HostTileAnsStages stages_{1};
  host::HostTileAnsDecodeStage decode_{1};
};

/// Paths that are honest, and one that a test gives between them.
class SelftestTileAns : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kNumTensors = 40;

  void compare(Liar& liar, bool in_pieces = false, std::function<std::uint64_t()> decoded_sum = {}) {
    TileAnsPathComparison comparison({{.name = "honest", .stages = &honest_, .decode_stage = &honest_},
                                      {.name = "liar",
                                       .stages = &liar,
                                       .decode_stage = &liar,
                                       .in_pieces = in_pieces,
                                       .decoded_sum = std::move(decoded_sum)},
                                      {.name = "last", .stages = &honest_, .decode_stage = &honest_}});
    for (std::uint64_t i = 0; i < kNumTensors; ++i) comparison.add(random_tensor(21, i, 20'000));
    outcome_ = comparison.outcome();
    ASSERT_EQ(outcome_.size(), 3u);
    for (const std::size_t honest : {0u, 2u}) {
      EXPECT_EQ(outcome_[honest].problems, std::vector<std::string>());
      EXPECT_EQ(outcome_[honest].num_units, kNumTensors);
    }
  }
  const std::vector<std::string>& problems() const { return outcome_[1].problems; }
  void expect_found(const std::string& words) const {
    ASSERT_FALSE(problems().empty()) << words;
    for (const std::string& problem : problems())
      EXPECT_TRUE(problem.starts_with("random tensor ")) << problem;
    EXPECT_TRUE(std::ranges::any_of(
        problems(), [&](const std::string& problem) { return problem.find(words) != std::string::npos; }))
        << words << "\nnot in: " << problems().front();
  }

  Liar honest_;
  std::vector<SelftestPath> outcome_;
};

TEST_F(SelftestTileAns, HonestPathsAreAlike) {
  for (const bool in_pieces : {false, true}) {
    Liar liar;
    compare(liar, in_pieces);
    EXPECT_EQ(problems(), std::vector<std::string>());
    EXPECT_EQ(outcome_[1].num_units, kNumTensors);
  }
}

TEST_F(SelftestTileAns, WrongHistograms) {
  for (const bool in_pieces : {false, true}) {
    Liar liar;
    int calls = 0;
    liar.after_histogram = [&](const tile_ans::HistogramArguments& arguments) {
      if (++calls == 9) arguments.histograms.back()[77] += 3;
    };
    compare(liar, in_pieces);
    expect_found("the histogram of lane ");
    EXPECT_EQ(problems().size(), 1u);
  }
  Liar liar;
  liar.after_histogram = [](const tile_ans::HistogramArguments& arguments) {
    // Counts that are set and not added.
    for (std::uint32_t lane = 0; lane < arguments.num_lanes; ++lane)
      arguments.histograms[lane][255] -= 1000 * lane + 255;
  };
  compare(liar);
  expect_found(" bytes 255 instead of ");
}

TEST_F(SelftestTileAns, WrongSizes) {
  Liar liar;
  int calls = 0;
  liar.after_sizes = [&](const EncodeArguments& arguments, StageStatus status) {
    if (++calls == 5) ++arguments.lanes[0].stream_words.back();
    return status;
  };
  compare(liar);
  expect_found(" words, but ");
  EXPECT_EQ(outcome_[1].num_units, kNumTensors);
}

TEST_F(SelftestTileAns, AWrongBitInABuffer) {
  for (const bool in_pieces : {false, true}) {
    Liar liar;
    bool done = false;
    liar.after_encode = [&](const EncodeArguments& arguments, StageStatus status) {
      const tile_ans::LaneOutput& output = arguments.lanes.back();
      if (done || output.stream_words.front() == 0) return status;
      done = true;
      output.words.front() ^= 0x100;
      return status;
    };
    compare(liar, in_pieces);
    expect_found("payload differs from byte ");
    EXPECT_EQ(problems().size(), 1u);
    EXPECT_EQ(problems()[0].find(" [histograms of ") != std::string::npos, in_pieces) << problems()[0];

    done = false;
    liar.after_encode = [&](const EncodeArguments& arguments, StageStatus status) {
      const tile_ans::LaneOutput& output = arguments.lanes.back();
      if (done || output.states.empty()) return status;
      done = true;
      output.states.back() = 0xA5A5A5A5;  // what it was: not written
      return status;
    };
    compare(liar, in_pieces);
    expect_found("states differs from byte ");
  }
}

TEST_F(SelftestTileAns, WordsThatAreCountedWrongTwice) {
  Liar liar;
  liar.after_sizes = liar.after_encode = [](const EncodeArguments& arguments, StageStatus status) {
    arguments.lanes.front().stream_words.front() += 1'000'000;
    return status;
  };
  compare(liar);
  expect_found(" words, more than its bytes can take");
}

TEST_F(SelftestTileAns, ASourceThatIsSaidToHaveChanged) {
  for (const bool in_sizes : {false, true}) {
    Liar liar;
    int calls = 0;
    (in_sizes ? liar.after_sizes : liar.after_encode) = [&](const EncodeArguments&, StageStatus status) {
      return ++calls == 1 ? StageStatus{tile_ans::StageCode::kSourceChanged, 0, 0} : status;
    };
    compare(liar);
    expect_found(in_sizes ? "): counting words finds in tile 0, lane 0 'the source holds a byte that was not"
                          : "): encoding finds in tile 0, lane 0 'the source holds a byte that was not");
    EXPECT_EQ(outcome_[1].num_units, kNumTensors);  // an answer, if a wrong one: the path goes on
  }
}

TEST_F(SelftestTileAns, ASourceThatHasChangedUnseen) {
  Liar liar;
  liar.after_encode = [](const EncodeArguments&, StageStatus) { return StageStatus(); };
  liar.after_sizes = liar.after_encode;
  compare(liar);
  expect_found(" of the tensor flipped, encoding finds no fault instead of in tile ");
}

TEST_F(SelftestTileAns, AnotherPlaceThanTheLowest) {
  for (const bool in_pieces : {false, true}) {
    Liar liar;
    liar.after_decode = [](const tile_ans::DecodeArguments& arguments, StageStatus status) {
      if (!status.ok()) status.lane = arguments.layout.num_lanes - 1 - status.lane;
      return status;
    };
    compare(liar, in_pieces);
    expect_found(" instead of in tile ");
  }
}

TEST_F(SelftestTileAns, AFaultThatIsNotFound) {
  Liar liar;
  liar.after_decode = [](const tile_ans::DecodeArguments&, StageStatus) { return StageStatus(); };
  compare(liar);
  expect_found(" finds no fault instead of in tile ");
  expect_found(": with bit ");
}

TEST_F(SelftestTileAns, ASourceThatIsNotLookedAt) {
  Liar liar;
  liar.before_decode = [](tile_ans::DecodeArguments& arguments) { arguments.source = {}; };
  compare(liar);
  expect_found(" of the tensor flipped, comparing with the tensor finds no fault instead of in tile ");
}

TEST_F(SelftestTileAns, ASoundTileThatIsCalledFaulty) {
  using Arguments = tile_ans::DecodeArguments;
  const std::pair<const char*, bool (*)(const Arguments&)> readings[] = {
      {"decoding finds ", [](const Arguments& a) { return !a.elements.empty(); }},
      {"comparing with the tensor finds ", [](const Arguments& a) { return !a.source.empty(); }},
      {"checking finds ", [](const Arguments& a) { return a.source.empty() && a.elements.empty(); }}};
  for (const auto& reading : readings) {
    Liar liar;
    liar.after_decode = [&](const Arguments& arguments, StageStatus status) {
      if (reading.second(arguments)) status = {tile_ans::StageCode::kBadEnd, arguments.tiles.first_tile, 0};
      return status;
    };
    compare(liar);
    expect_found(reading.first);
    expect_found(" instead of no fault");
  }
}

TEST_F(SelftestTileAns, WrongElements) {
  for (const bool in_pieces : {false, true}) {
    Liar liar;
    liar.after_decode = [](const tile_ans::DecodeArguments& arguments, StageStatus status) {
      if (arguments.elements.size() > 900) arguments.elements[800] = 0xA5;  // not written
      return status;
    };
    compare(liar, in_pieces);
    expect_found("decoding gives another tensor, from byte 800 on: 165 instead of ");
  }
}

TEST_F(SelftestTileAns, AWrongSumOfWhatWasDecoded) {
  Liar liar;
  compare(liar, false, [] { return std::uint64_t{1} << 63; });
  expect_found("): decoding gives other elements than the sum of those that it decoded says");
  EXPECT_EQ(outcome_[1].num_units, 5u);  // given up: each tensor had a problem
}

TEST_F(SelftestTileAns, AMachineThatFails) {
  Liar liar;
  int calls = 0;
  liar.after_encode = [&](const EncodeArguments&, StageStatus status) -> StageStatus {
    if (++calls == 4) throw Error(ErrorCode::kDeviceFailed, "the GPU's driver failed in cuLaunchKernel");
    return status;
  };
  compare(liar);
  ASSERT_EQ(problems().size(), 1u);
  expect_found("): the GPU's driver failed in cuLaunchKernel");
  EXPECT_LE(outcome_[1].num_units, 4u);
  EXPECT_EQ(calls, 4);  // it is left alone then
}

TEST_F(SelftestTileAns, TheFirstPathIsCheckedByTheSlowDecoderAndTheReference) {
  const auto problems_of = [](Liar& liar, const SelftestTensor& tensor) {
    TileAnsPathComparison comparison({{.name = "liar", .stages = &liar, .decode_stage = &liar}});
    comparison.add(tensor);
    return comparison.outcome()[0].problems;
  };
  const SelftestTensor tensor = built_in_tensors(UINT64_MAX)[1];
  ASSERT_NE(tensor.hashes, nullptr);
  Liar liar;
  EXPECT_EQ(problems_of(liar, tensor), std::vector<std::string>());
  EXPECT_EQ(check_tensor({.name = "liar", .stages = &liar, .decode_stage = &liar}, tensor), "");
  // Lane 0 is raw, lane 1 coded.
  liar.after_encode = [](const EncodeArguments& arguments, StageStatus status) {
    arguments.lanes[0].words[9] ^= 1;
    return status;
  };
  std::vector<std::string> problems = problems_of(liar, tensor);
  ASSERT_GE(problems.size(), 2u);
  EXPECT_NE(problems[0].find(": not what the reference, entropack 0.1.0, makes of it: payload"),
            std::string::npos);
  EXPECT_NE(problems[1].find(": the slow decoder reads another tensor"), std::string::npos);
  EXPECT_EQ(check_tensor({.name = "liar", .stages = &liar, .decode_stage = &liar}, tensor),
            "not what the reference, entropack 0.1.0, makes of it: payload");
  liar.after_encode = [](const EncodeArguments& arguments, StageStatus status) {
    arguments.lanes[1].states[40] ^= 1;
    return status;
  };
  problems = problems_of(liar, tensor);
  ASSERT_GE(problems.size(), 2u);
  EXPECT_NE(problems[0].find("makes of it: states"), std::string::npos);
  EXPECT_NE(problems[1].find(": the slow decoder finds 'the stream of lane 1, tile 1: "), std::string::npos)
      << problems[1];

  Liar reader;
  reader.after_decode = [](const tile_ans::DecodeArguments& arguments, StageStatus status) {
    if (!arguments.elements.empty()) arguments.elements[7] ^= 1;
    return status;
  };
  EXPECT_TRUE(check_tensor({.name = "liar", .stages = &reader, .decode_stage = &reader}, tensor)
                  .starts_with("the fast decoder gives another tensor, from byte 7 on: "));
}

TEST_F(SelftestTileAns, BuiltInTensorsThatAreCutHaveNoHashes) {
  for (const SelftestTensor& tensor : built_in_tensors(100)) {
    EXPECT_LE(tensor.bytes.size(), 100u);
    EXPECT_GE(tensor.num_elements(), 1u);
    EXPECT_EQ(tensor.hashes != nullptr, tensor.name == "U64, one element") << tensor.name;
  }
  for (const SelftestTensor& tensor : built_in_tensors(1)) EXPECT_EQ(tensor.num_elements(), 1u);
}

TEST_F(SelftestTileAns, RandomTensorsAreOfAllKinds) {
  constexpr std::uint64_t kMax = 50'000;
  std::map<std::uint64_t, int> lanes, bits, digits;
  int automatic = 0, many_tiles = 0, short_last = 0, raw = 0, coded = 0;
  for (std::uint64_t number = 0; number < 400; ++number) {
    const SelftestTensor tensor = random_tensor(5, number, kMax);
    ASSERT_GE(tensor.num_elements(), 1u);
    ASSERT_LE(tensor.bytes.size(), kMax);
    ASSERT_EQ(tensor.bytes.size() % tensor.num_lanes, 0u);
    std::vector<tile_ans::Histogram> histograms(tensor.num_lanes);
    for (std::size_t i = 0; i < tensor.bytes.size(); ++i) ++histograms[i % tensor.num_lanes][tensor.bytes[i]];
    const tile_ans::TensorPlan plan = tile_ans::plan_tensor(tensor.settings, histograms).value();
    ASSERT_LE(plan.layout.num_streams(), 2000u) << tensor.name;
    ++lanes[tensor.num_lanes];
    ++bits[plan.layout.probability_bits];
    ++digits[std::to_string(tensor.num_elements()).size()];
    automatic += tensor.settings.tile_elements == 0;
    many_tiles += plan.layout.num_tiles() > 2;
    short_last += plan.layout.num_elements % plan.layout.tile_elements != 0;
    coded += static_cast<int>(plan.num_ans_lanes());
    raw += static_cast<int>(tensor.num_lanes - plan.num_ans_lanes());
  }
  for (const std::uint64_t number : {1, 2, 4, 8}) EXPECT_GE(lanes[number], 60) << number;
  for (const std::uint64_t number : {9, 10, 11, 12}) EXPECT_GE(bits[number], 25) << number;
  for (const std::uint64_t number : {1, 2, 3, 4, 5}) EXPECT_GE(digits[number], 8) << number;
  EXPECT_GE(automatic, 80);
  EXPECT_GE(many_tiles, 80);
  EXPECT_GE(short_last, 150);
  EXPECT_GE(raw, 300);
  EXPECT_GE(coded, 300);
  EXPECT_EQ(random_tensor(5, 7, kMax).bytes, random_tensor(5, 7, kMax).bytes);
  EXPECT_NE(random_tensor(5, 7, kMax).bytes, random_tensor(6, 6, kMax).bytes);
}

}  // namespace
}  // namespace weightpress::job
