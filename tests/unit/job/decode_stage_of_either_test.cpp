// The decode stage of a GPU with the CPU's behind it, on a GPU that does as it is told: right, wrong or not
// at all.
#include "job/decode_stage_of_either.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "host/decode.h"
#include "support/stored_units.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

/// Decodes when a slab is finished, by the CPU's stage.
class ToldGpu final : public device::SlabDecoder {
 public:
  ~ToldGpu() override { EXPECT_TRUE(under_way_.empty()); }
  int num_lanes() const override { return 3; }
  void begin(int lane, const df11::DecodeArguments& arguments) override {
    EXPECT_FALSE(under_way_.contains(lane));
    if (const auto code = on_begin(static_cast<int>(under_way_.size()))) throw Error(*code, "begin");
    under_way_.emplace(lane, arguments);
  }
  std::vector<device::DecodedPart> finish(int lane) override {
    const df11::DecodeArguments slab = under_way_.at(lane);
    under_way_.erase(lane);
    ++num_finished;
    device::DecodedPart part{slab, host_.decode(slab).wait(), {}};
    part.sums = sums_of(slab, 1);
    std::vector<device::DecodedPart> parts = {part};
    change(parts);
    return parts;
  }
  void abandon(int lane) noexcept override { under_way_.erase(lane); }
  std::shared_ptr<void> pinned(std::uint64_t) override { throw std::bad_alloc(); }

  using Refusal = std::optional<ErrorCode>;
  std::function<Refusal(int num_under_way)> on_begin = [](int) { return std::nullopt; };
  std::function<void(std::vector<device::DecodedPart>&)> change = [](auto&) {};
  int num_finished = 0;

 private:
  host::HostDecodeStage host_{1};
  std::map<int, df11::DecodeArguments> under_way_;
};

struct Outcome {
  std::optional<UnitFault> fault;
  std::vector<std::uint16_t> weights;
  std::vector<std::string> failures;
  int on_gpu = 0;
};

class DecodeStageOfEitherTest : public ::testing::Test {
 protected:
  static const std::vector<std::uint16_t>& weights() {
    static const std::vector<std::uint16_t> weights = testing::normal_weights(100'000, 32);
    return weights;
  }
  static const Df11Unit& sound() {
    static const Df11Unit unit = compress_df11_unit(weights());
    return unit;
  }

  /// Eight chunks in slabs of one.
  static Outcome run(ToldGpu& gpu, const Df11Unit& unit = sound(), bool is_required = false) {
    Outcome outcome;
    host::HostDecodeStage host(1);
    DecodeStageOfEither stage(gpu, host, 2, [&](const GpuFailure& failure) {
      outcome.failures.push_back(failure.error.message);
      if (is_required) throw Error(ErrorCode::kDeviceFailed, failure.error.message);
    });
    const MemoryUnit bytes(view_of(unit));
    DecodeBuffers buffers;
    UnitDecoder decoder(testing::sizes_of(unit), bytes, stage, buffers, 1);
    outcome.fault = decoder.decode([&](std::uint64_t, std::span<const std::uint16_t> slab) {
      outcome.weights.insert(outcome.weights.end(), slab.begin(), slab.end());
    });
    outcome.on_gpu = gpu.num_finished;
    return outcome;
  }
};

TEST_F(DecodeStageOfEitherTest, AGpuThatWorksDoesItAll) {
  ToldGpu gpu;
  const Outcome found = run(gpu);
  EXPECT_FALSE(found.fault);
  EXPECT_EQ(found.weights, weights());
  EXPECT_TRUE(found.failures.empty());
  EXPECT_EQ(found.on_gpu, 8);
}

TEST_F(DecodeStageOfEitherTest, AnythingElseIsRedoneByTheCpuWithOneWarning) {
  using Sums = device::DecodeSums;
  const std::vector<std::function<void(Sums&)>> lies = {
      [](Sums& sums) { sums.sign_mantissa ^= 1; },
      [](Sums& sums) { sums.encoded_exponent ^= 1u << 31; },
      [](Sums& sums) { sums.gaps ^= 1; },
      [](Sums& sums) { sums.positions ^= 1; },
      [](Sums& sums) { sums.luts ^= 1ull << 40; },
      [](Sums& sums) { sums.weights ^= 1; },
      [](Sums& sums) { sums.source ^= 1ull << 40; },
  };
  for (const auto& lie : lies) {
    for (const int slab : {1, 2, 3, 8}) {
      ToldGpu gpu;
      gpu.change = [&](std::vector<device::DecodedPart>& parts) {
        if (gpu.num_finished == slab) lie(parts[0].sums);
      };
      const Outcome found = run(gpu);
      EXPECT_FALSE(found.fault);
      EXPECT_EQ(found.weights, weights());
      EXPECT_EQ(found.failures.size(), 1u);
      EXPECT_EQ(found.on_gpu, slab);
    }
  }
}

TEST_F(DecodeStageOfEitherTest, ABitThatFlipsInTheWeightsOnTheirWayOut) {
  ToldGpu gpu;
  gpu.change = [&](std::vector<device::DecodedPart>& parts) {
    if (gpu.num_finished == 5) parts[0].arguments.weights[77] ^= 0x10;
  };
  const Outcome found = run(gpu);
  EXPECT_EQ(found.weights, weights());
  EXPECT_EQ(found.failures.size(), 1u);
}

TEST_F(DecodeStageOfEitherTest, CallsThatFail) {
  for (const bool is_required : {false, true}) {
    for (int call = 0; call < 8; ++call) {
      for (const bool begins : {false, true}) {
        ToldGpu gpu;
        int num_begun = 0;
        if (begins) {
          gpu.on_begin = [&](int) {
            return num_begun++ == call ? ToldGpu::Refusal(ErrorCode::kDeviceFailed) : std::nullopt;
          };
        } else {
          gpu.change = [&](auto&) {
            if (gpu.num_finished == call + 1) throw Error(ErrorCode::kDeviceFailed, "finish");
          };
        }
        if (is_required) {
          EXPECT_THROW(run(gpu, sound(), true), Error);
          continue;
        }
        const Outcome found = run(gpu);
        EXPECT_EQ(found.weights, weights());
        EXPECT_EQ(found.failures, std::vector<std::string>{begins ? "begin" : "finish"});
      }
    }
  }
}

/// The second or third slab does not fit beside others: no failure, but no more than fit are under way.
TEST_F(DecodeStageOfEitherTest, TooLittleMemoryForThreeAtOnce) {
  for (const int room : {0, 1, 2}) {
    ToldGpu gpu;
    int num_refused = 0;
    gpu.on_begin = [&](int num_under_way) -> ToldGpu::Refusal {
      if (num_under_way < room) return std::nullopt;
      ++num_refused;
      return ErrorCode::kOutOfMemory;
    };
    const Outcome found = run(gpu);
    EXPECT_EQ(found.weights, weights());
    EXPECT_EQ(found.failures.size(), room == 0 ? 1u : 0u);
    EXPECT_EQ(found.on_gpu, room == 0 ? 0 : 8);
    EXPECT_LE(num_refused, 2);
  }
}

TEST_F(DecodeStageOfEitherTest, AFaultCountsOnceTheCpuFindsIt) {
  Df11Unit faulty = sound();
  testing::flip_bit(faulty.gaps, 4 * 8 * 320 + 333);
  ToldGpu honest;
  const Outcome told = run(honest, faulty);
  ASSERT_TRUE(told.fault);
  EXPECT_EQ(told.fault->chunk, 4u);
  EXPECT_TRUE(told.failures.empty());

  for (const Df11Unit* unit : {&sound(), static_cast<const Df11Unit*>(&faulty)}) {
    for (const std::uint64_t chunk : {0u, 3u, 4u}) {
      ToldGpu gpu;
      gpu.change = [&](std::vector<device::DecodedPart>& parts) {
        if (parts[0].arguments.first_chunk == chunk) parts[0].status = {.ok = false, .chunk = chunk};
      };
      const Outcome found = run(gpu, *unit);
      const bool is_true = unit == &faulty && chunk == 4;
      EXPECT_EQ(found.failures.size(), is_true ? 0u : 1u);
      EXPECT_EQ(found.fault.has_value(), unit == &faulty);
      if (found.fault) {
        EXPECT_EQ(found.fault->message, told.fault->message);
      }
    }
  }
  // And one that is hidden does not fit the sums: those of a chunk at fault are none.
  ToldGpu hiding;
  hiding.change = [&](std::vector<device::DecodedPart>& parts) {
    if (!parts[0].status.ok) parts[0] = {.arguments = parts[0].arguments, .status = {}, .sums = {}};
  };
  const Outcome found = run(hiding, faulty);
  ASSERT_TRUE(found.fault);
  EXPECT_EQ(found.fault->message, told.fault->message);
  EXPECT_EQ(found.failures.size(), 1u);
}

/// Any bit of what counts changes the sums, and with any number of threads they are the same.
TEST(DecodeSums, OfEveryBit) {
  const auto weights = testing::normal_weights(150'001, 33);
  Df11Unit unit = compress_df11_unit(weights);
  std::vector<std::uint32_t> positions;
  for (std::uint64_t i = 0; i < 4; ++i) positions.push_back(testing::position_of(unit, i));
  std::vector<std::uint16_t> source(weights.begin(), weights.begin() + positions.back());
  df11::DecodeArguments arguments;
  arguments.luts = unit.luts;
  arguments.num_weights = weights.size();
  arguments.stream_bytes = unit.encoded_exponent.size();
  arguments.positions = positions;
  const std::span stream = std::span(unit.encoded_exponent).first(3 * 4096 + 8);
  const std::span gaps = std::span(unit.gaps).first(3 * 320 + 5);
  arguments.encoded_exponent = stream;
  arguments.gaps = gaps;
  arguments.sign_mantissa = std::span(unit.sign_mantissa).first(source.size());
  arguments.source = source;
  arguments.weights = source;
  const device::DecodeSums sums = sums_of(arguments, 1);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(sums_of(arguments, threads), sums);

  testing::Random random(34);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint8_t>& bytes = round % 4 == 0   ? unit.luts
                                       : round % 4 == 1 ? unit.encoded_exponent
                                       : round % 4 == 2 ? unit.gaps
                                                        : unit.sign_mantissa;
    const std::uint64_t counted[] = {bytes.size(), 3 * 4096 + 4, 3 * 320 + 1, source.size()};
    const std::uint64_t bit = random.below(8 * counted[round % 4]);
    testing::flip_bit(bytes, bit);
    // Lengths that no code can have are all the same.
    const bool counts = round % 4 != 0 || bit / 8 < bytes.size() - 256 || bit % 8 > 2;
    if (counts) {
      EXPECT_NE(sums_of(arguments, 1), sums) << round;
    }
    testing::flip_bit(bytes, bit);
    auto& weight = source[random.below(source.size())];
    const auto flipped = static_cast<std::uint16_t>(1u << random.below(16));
    weight ^= flipped;
    const device::DecodeSums others = sums_of(arguments, 1);
    EXPECT_TRUE(others.weights != sums.weights && others.source != sums.source);
    weight ^= flipped;
  }
  EXPECT_EQ(sums_of(arguments, 1), sums);
}

}  // namespace
}  // namespace weightpress::job
