// Stages that lie: `weightpress selftest --compare` has to find each of them, and to name the path, the unit
// and what is wrong.
#include "job/selftest_compare.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "host/decode.h"
#include "host/host_stages.h"

namespace weightpress::job {
namespace {

using Words = std::vector<std::uint16_t>;

/// The CPU's stages, with whatever a test does to what they give.
class LyingStages final : public df11::Df11Stages {
 public:
  std::function<void(const df11::HistogramArguments&)> after_histogram = [](const auto&) {};
  std::function<void(const df11::ChunkStartsArguments&)> after_chunk_starts = [](const auto&) {};
  std::function<void(const df11::EncodeArguments&)> before_encode = [](const auto&) {};
  std::function<df11::StageStatus(const df11::EncodeArguments&, df11::StageStatus)> after_encode =
      [](const auto&, df11::StageStatus status) { return status; };

  df11::Completion histogram(const df11::HistogramArguments& arguments) override {
    const df11::StageStatus status = stages_.histogram(arguments).wait();
    after_histogram(arguments);
    return df11::Completion(status);
  }
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override {
    const df11::StageStatus status = stages_.chunk_starts(arguments).wait();
    after_chunk_starts(arguments);
    return df11::Completion(status);
  }
  df11::Completion encode(const df11::EncodeArguments& arguments) override {
    before_encode(arguments);
    return df11::Completion(after_encode(arguments, stages_.encode(arguments).wait()));
  }

 private:
  host::HostStages stages_{1};
};

class LyingDecodeStage final : public df11::Df11DecodeStage {
 public:
  using Decode = std::function<df11::DecodeStatus(df11::Df11DecodeStage& honest, df11::DecodeArguments)>;
  explicit LyingDecodeStage(Decode decode) : decode_(std::move(decode)) {}

  df11::DecodeCompletion decode(const df11::DecodeArguments& arguments) override {
    return df11::DecodeCompletion(decode_(stage_, arguments));
  }

 private:
  host::HostDecodeStage stage_{1};
  Decode decode_;
};

/// An honest path, and one that a test gives.
class SelftestCompare : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSeed = 21;

  void compare(df11::Df11Stages& stages, df11::Df11DecodeStage& decode_stage, bool in_pieces = false,
               std::uint64_t num_units = 40) {
    PathComparison comparison({{.name = "honest", .stages = &host_stages_, .decode_stage = &host_decode_},
                               {.name = "liar",
                                .stages = &stages,
                                .decode_stage = &decode_stage,
                                .segment_weights = 1'000,
                                .in_pieces = in_pieces},
                               {.name = "last", .stages = &host_stages_, .decode_stage = &host_decode_}});
    for (std::uint64_t i = 0; i < num_units; ++i) comparison.add(random_unit(kSeed, i, 20'000));
    outcome_ = comparison.outcome();
    ASSERT_EQ(outcome_.size(), 3u);
    EXPECT_EQ(outcome_[0].name, "honest");
    EXPECT_EQ(outcome_[1].name, "liar");
    for (const std::size_t honest : {0u, 2u}) {
      EXPECT_EQ(outcome_[honest].problems, std::vector<std::string>());
      EXPECT_EQ(outcome_[honest].num_units, num_units);
    }
  }
  void compare_stages(df11::Df11Stages& stages, bool in_pieces = false) {
    compare(stages, host_decode_, in_pieces);
  }
  void compare_decoder(LyingDecodeStage::Decode decode, bool in_pieces = false) {
    LyingDecodeStage stage(std::move(decode));
    compare(host_stages_, stage, in_pieces);
  }

  const std::vector<std::string>& problems() const { return outcome_[1].problems; }
  void expect_found(const std::string& words) const {
    ASSERT_FALSE(problems().empty()) << words;
    for (const std::string& problem : problems()) {
      EXPECT_TRUE(problem.starts_with("random unit ")) << problem;
      EXPECT_NE(problem.find(" of seed 21 ("), std::string::npos) << problem;
    }
    EXPECT_TRUE(std::ranges::any_of(
        problems(), [&](const std::string& problem) { return problem.find(words) != std::string::npos; }))
        << words << "\nnot in: " << problems().front();
  }

  host::HostStages host_stages_{1};
  host::HostDecodeStage host_decode_{1};
  std::vector<SelftestPath> outcome_;
};

TEST_F(SelftestCompare, HonestPathsAreAlike) {
  for (const bool in_pieces : {false, true}) {
    LyingStages stages;
    compare(stages, host_decode_, in_pieces);
    EXPECT_EQ(problems(), std::vector<std::string>());
    EXPECT_EQ(outcome_[1].num_units, 40u);
  }
}

TEST_F(SelftestCompare, AWrongBitInABuffer) {
  struct Case {
    const char* words;
    std::function<std::span<std::uint8_t>(const df11::EncodeArguments&)> buffer;
  };
  const Case cases[] = {
      {"sign_mantissa differs from byte ", [](const auto& a) { return a.sign_mantissa; }},
      {"encoded_exponent differs from byte ", [](const auto& a) { return a.encoded_exponent; }},
      {"gaps differs from byte ", [](const auto& a) { return a.gaps; }},
      {"output_positions differs from byte ", [](const auto& a) {
         return std::span(reinterpret_cast<std::uint8_t*>(a.positions.data()), a.positions.size_bytes());
       }}};
  for (const Case& wrong : cases) {
    for (const bool in_pieces : {false, true}) {
      LyingStages stages;
      int large_slabs = 0;
      stages.after_encode = [&](const df11::EncodeArguments& arguments, df11::StageStatus status) {
        const std::span<std::uint8_t> bytes = wrong.buffer(arguments);
        large_slabs += arguments.weights.size() > 1'000 && !bytes.empty();
        if (large_slabs == 3 && !bytes.empty()) {
          bytes.back() ^= 8;
          ++large_slabs;
        }
        return status;
      };
      compare_stages(stages, in_pieces);
      expect_found(wrong.words);
      if (problems().empty()) continue;
      EXPECT_LE(problems().size(), 2u) << problems().back();  // positions: those of the chunk starts as well
      EXPECT_EQ(problems().front().find(" [segments of ") != std::string::npos, in_pieces)
          << problems().front();
    }
  }
}

TEST_F(SelftestCompare, TheOffsetAndTheNumberOfWrongBytesAreTold) {
  LyingStages stages;
  bool done = false;
  stages.after_encode = [&](const df11::EncodeArguments& arguments, df11::StageStatus status) {
    if (!std::exchange(done, done || arguments.weights.size() >= 100) && arguments.weights.size() >= 100) {
      arguments.sign_mantissa[17] ^= 1;
      arguments.sign_mantissa[90] ^= 0x80;
    }
    return status;
  };
  compare_stages(stages);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].find("sign_mantissa differs from byte 17 on: 2 of "), std::string::npos)
      << problems()[0];
}

TEST_F(SelftestCompare, ABorderOfSlabsThatIsNotHandedOver) {
  LyingStages stages;
  stages.after_encode = [](const df11::EncodeArguments& arguments, df11::StageStatus status) {
    arguments.border->byte = 0;
    return status;
  };
  compare_stages(stages, true);
  expect_found("encoded_exponent differs");
  stages.after_encode = [](const df11::EncodeArguments& arguments, df11::StageStatus status) {
    std::ranges::fill(arguments.border->gap_group, std::uint8_t{0});
    return status;
  };
  compare_stages(stages, true);
  expect_found("gaps differs");
}

TEST_F(SelftestCompare, OutputsHoldGarbageBeforeTheyAreWritten) {
  LyingStages stages;
  const auto is_garbage = [](auto values) {
    return std::ranges::all_of(std::as_bytes(values), [](std::byte byte) { return byte == std::byte{0xA5}; });
  };
  stages.before_encode = [&](const df11::EncodeArguments& arguments) {
    EXPECT_TRUE(is_garbage(arguments.sign_mantissa) && is_garbage(arguments.encoded_exponent) &&
                is_garbage(arguments.gaps) && is_garbage(arguments.positions) &&
                is_garbage(std::span(arguments.border, 1)));
  };
  LyingDecodeStage decode([&](df11::Df11DecodeStage& honest, const df11::DecodeArguments& arguments) {
    EXPECT_TRUE(is_garbage(arguments.weights));
    return honest.decode(arguments).wait();
  });
  compare(stages, decode, true, 10);
  EXPECT_EQ(problems(), std::vector<std::string>());
}

TEST_F(SelftestCompare, BytesThatAreNotWritten) {
  LyingStages stages;
  std::uint8_t kept = 0;
  stages.before_encode = [&](const df11::EncodeArguments& arguments) { kept = arguments.gaps.back(); };
  stages.after_encode = [&](const df11::EncodeArguments& arguments, df11::StageStatus status) {
    arguments.gaps.back() = kept;
    return status;
  };
  compare_stages(stages);
  expect_found("gaps differs from byte ");
  EXPECT_EQ(outcome_[1].num_units, 5u);  // given up: each unit had a problem
}

TEST_F(SelftestCompare, WrongHistograms) {
  LyingStages stages;
  std::uint64_t calls = 0;
  stages.after_histogram = [&](const df11::HistogramArguments& arguments) {
    if (++calls == 9) arguments.histograms.back()[77] += 0x4000'0000;  // what a flipped bit does
  };
  compare_stages(stages);
  expect_found("of a slab: 1073741824 weights of exponent 77 instead of 0");
  EXPECT_EQ(problems().size(), 1u);
  EXPECT_EQ(outcome_[1].num_units, 40u);
}

TEST_F(SelftestCompare, WrongChunkStarts) {
  for (const bool in_pieces : {false, true}) {
    LyingStages stages;
    stages.after_chunk_starts = [](const df11::ChunkStartsArguments& arguments) {
      if (arguments.positions.size() > 1) ++arguments.positions.back();
    };
    compare_stages(stages, in_pieces);
    expect_found("the chunk starts alone: chunk ");
  }
}

TEST_F(SelftestCompare, SoundWeightsThatAreSaidToHaveChanged) {
  LyingStages stages;
  std::uint64_t calls = 0;
  stages.after_encode = [&](const df11::EncodeArguments&, df11::StageStatus status) {
    if (++calls == 3) return df11::StageStatus{df11::StageCode::kSourceChanged, 0};
    return status;
  };
  compare_stages(stages);
  expect_found("its weights changed while it was compressed");
  EXPECT_EQ(problems().size(), 1u);
  EXPECT_EQ(outcome_[1].num_units, 40u);  // an answer, if a wrong one: the path goes on
}

TEST_F(SelftestCompare, AMachineThatFails) {
  LyingStages stages;
  std::uint64_t calls = 0;
  stages.after_encode = [&](const df11::EncodeArguments&, df11::StageStatus status) -> df11::StageStatus {
    if (++calls == 4) throw Error(ErrorCode::kDeviceFailed, "the GPU's driver failed in cuLaunchKernel");
    return status;
  };
  compare_stages(stages);
  ASSERT_EQ(problems().size(), 1u);
  expect_found("): the GPU's driver failed in cuLaunchKernel");
  EXPECT_EQ(outcome_[1].num_units, 4u);
  EXPECT_EQ(calls, 4u);  // it is left alone then
}

TEST_F(SelftestCompare, AFaultyChunkThatIsCalledSound) {
  compare_decoder([](df11::Df11DecodeStage& honest, const df11::DecodeArguments& arguments) {
    df11::DecodeStatus status = honest.decode(arguments).wait();
    status.ok = true;
    return status;
  });
  expect_found("finds no fault instead of in chunk ");
  expect_found("with bit ");
}

TEST_F(SelftestCompare, ASourceThatIsNotLookedAt) {
  compare_decoder([](df11::Df11DecodeStage& honest, df11::DecodeArguments arguments) {
    arguments.source = {};
    return honest.decode(arguments).wait();
  });
  expect_found("of the source flipped, comparing with the weights finds no fault instead of in chunk ");
}

TEST_F(SelftestCompare, ASoundChunkThatIsCalledFaulty) {
  using Arguments = df11::DecodeArguments;
  const std::pair<const char*, bool (*)(const Arguments&)> readings[] = {
      {"): decoding finds ", [](const Arguments& a) { return !a.weights.empty(); }},
      {"): comparing with the weights finds ", [](const Arguments& a) { return !a.source.empty(); }},
      {"): checking lengths finds ", [](const Arguments& a) { return a.sign_mantissa.empty(); }}};
  for (const auto& reading : readings) {
    compare_decoder([&](df11::Df11DecodeStage& honest, const Arguments& arguments) {
      df11::DecodeStatus status = honest.decode(arguments).wait();
      if (reading.second(arguments)) status = {.ok = false, .chunk = arguments.first_chunk};
      return status;
    });
    expect_found(reading.first);
    expect_found(" instead of no fault");
  }
}

TEST_F(SelftestCompare, AnotherChunkThanTheFirstFaultyOne) {
  for (const bool in_pieces : {false, true}) {
    compare_decoder(
        [](df11::Df11DecodeStage& honest, const df11::DecodeArguments& arguments) {
          df11::DecodeStatus status = honest.decode(arguments).wait();
          if (!status.ok) status.chunk = arguments.first_chunk + arguments.positions.size() - 2;
          return status;
        },
        in_pieces);
    expect_found(" instead of in chunk ");
  }
}

TEST_F(SelftestCompare, AChunkThatIsNoneOfTheUnit) {
  compare_decoder([](df11::Df11DecodeStage& honest, const df11::DecodeArguments& arguments) {
    df11::DecodeStatus status = honest.decode(arguments).wait();
    status.chunk |= std::uint64_t{1} << 60;
    return status;
  });
  ASSERT_EQ(problems().size(), 1u);
  expect_found(", chunk 1152921504606846976 is said to be at fault");
}

TEST_F(SelftestCompare, WrongWeights) {
  compare_decoder([](df11::Df11DecodeStage& honest, const df11::DecodeArguments& arguments) {
    const df11::DecodeStatus status = honest.decode(arguments).wait();
    if (arguments.weights.size() > 9'000) arguments.weights[8'999] ^= 0x100;
    return status;
  });
  expect_found("): decoding gives other weights, the first is 8999: ");
}

TEST_F(SelftestCompare, WhetherTheOfficialKernelEnds) {
  compare_decoder([](df11::Df11DecodeStage& honest, const df11::DecodeArguments& arguments) {
    df11::DecodeStatus status = honest.decode(arguments).wait();
    status.kernel_ends = false;
    return status;
  });
  expect_found("says that the official kernel would not end");
}

TEST_F(SelftestCompare, TheFirstPathIsCheckedByTheSlowDecoder) {
  using Arguments = df11::EncodeArguments;
  const std::pair<const char*, std::span<std::uint8_t> Arguments::*> buffers[] = {
      {"): the slow decoder finds '", &Arguments::gaps},
      {"): the slow decoder reads other weights", &Arguments::sign_mantissa}};
  for (const auto& buffer : buffers) {
    LyingStages stages;
    stages.after_encode = [&](const Arguments& arguments, df11::StageStatus status) {
      (arguments.*buffer.second)[0] ^= 1;
      return status;
    };
    PathComparison comparison({{.name = "liar", .stages = &stages, .decode_stage = &host_decode_}});
    comparison.add(random_unit(kSeed, 0, 20'000));
    const std::vector<SelftestPath> outcome = comparison.outcome();
    ASSERT_EQ(outcome.size(), 1u);
    ASSERT_FALSE(outcome[0].problems.empty());
    EXPECT_NE(outcome[0].problems[0].find(buffer.first), std::string::npos) << outcome[0].problems[0];
  }
}

TEST_F(SelftestCompare, UseIsCalledBeforeEachUnit) {
  std::string used;
  host::HostStages stages(1);
  CodecPath first{.name = "first", .stages = &host_stages_, .decode_stage = &host_decode_}, second = first;
  first.use = [&] { used += '1'; };
  second.use = [&] { used += '2'; };
  PathComparison comparison({first, second});
  for (std::uint64_t i = 0; i < 3; ++i) comparison.add(random_unit(kSeed, i, 100));
  EXPECT_EQ(used, "121212");
}

}  // namespace
}  // namespace weightpress::job
