// GpuTileAnsStages holds no more of the GPU's memory than it may, whatever came before, and works right when
// it has given some back. Few launches, so that sanitizers see it too.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <weightpress/error.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/gpu_tile_ans_stages.h"
#include "host/tile_ans_stages.h"
#include "support/tile_ans_faults.h"

namespace weightpress::device {
namespace {

using namespace testing;
using tile_ans::LaneMode;

class GpuTileAnsMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};

/// A tensor, and what the CPU makes of it.
struct Sample {
  Sample(Random& random, std::uint64_t count, std::uint32_t lanes, std::uint64_t tile) : num_lanes(lanes) {
    bytes = RandomTensor::gaussian_bytes(random, count, lanes, 25);
    host::HostTileAnsStages host(1);
    plan = plan_with(host, bytes, lanes, {.tile_elements = tile, .probability_bits = 9});
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
      plan.lanes[lane].mode = random.below(3) == 0 ? LaneMode::kRaw : LaneMode::kAns;
    stored = encode_with(host, bytes, plan);
  }

  /// kind: 0: histogram, 1: sizes and encoding, 2: decoding, 3: with the source. False: it takes more memory
  /// than there is, and outputs are none.
  bool run(TileAnsBackEnd& stages, std::uint64_t kind) const try {
    if (kind == 0) {
      std::vector<tile_ans::Histogram> counted(num_lanes), expected(num_lanes);
      stages.histogram({bytes, num_lanes, counted}).wait();
      host::HostTileAnsStages(1).histogram({bytes, num_lanes, expected}).wait();
      EXPECT_EQ(counted, expected);
    } else if (kind == 1) {
      EXPECT_TRUE(encode_with(stages, bytes, plan) == stored);
    } else {
      const std::array shape{bytes.size() / num_lanes};
      const Decoded decoded = decode_with(stages, stored, shape, num_lanes, {},
                                          kind == 3 ? bytes : std::vector<std::uint8_t>(), kind == 2);
      EXPECT_TRUE(decoded.ok());
      EXPECT_EQ(decoded.bytes.empty(), kind == 3);
      EXPECT_TRUE(kind == 3 || decoded.bytes == bytes);
    }
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
    return false;
  }

  std::uint32_t num_lanes;
  std::vector<std::uint8_t> bytes;
  tile_ans::TensorPlan plan;
  TileAnsBuffers stored;
};

/// One that is long in each of the buffers, and some that are not.
std::vector<Sample> make_samples(Random& random) {
  std::vector<Sample> samples;
  samples.emplace_back(random, 8'000, 1, 4'096);
  samples.emplace_back(random, 400, 2, 5);
  samples.emplace_back(random, 1'000, 8, 400);
  samples.emplace_back(random, 2'001, 4, 1'001);
  samples.emplace_back(random, 3, 2, 4'096);
  return samples;
}

TEST_F(GpuTileAnsMemory, NoMoreIsHeldThanMayBe) {
  Random random(1);
  const std::vector<Sample> samples = make_samples(random);
  // Each call alone takes so much; nothing is given back in between.
  std::vector<std::uint64_t> needed;
  {
    EmulatedGpu emulated({{"CHECK", ""}});
    for (const Sample& sample : samples) {
      for (std::uint64_t kind = 0; kind < 4; ++kind) {
        const std::uint64_t before = emulated.gpu().memory().free_bytes;
        GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
        EXPECT_TRUE(sample.run(stages, kind));
        needed.push_back(before - emulated.gpu().memory().free_bytes);
      }
    }
  }
  const auto [least, most] = std::ranges::minmax(needed);
  ASSERT_GT(most, 25'000u);
  int num_done = 0, num_refused = 0;
  for (const std::uint64_t device_bytes : {most * 11 / 10 + 8'192, most * 2 / 3, most / 3}) {
    EmulatedGpu emulated({{"CHECK", ""}});
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels(), device_bytes);
    const std::uint64_t before = emulated.gpu().memory().free_bytes;
    for (int call = 0; call < 18; ++call) {
      const std::uint64_t index = random.below(needed.size());
      SCOPED_TRACE("call " + std::to_string(call) + ", kind " + std::to_string(index % 4) + " of sample " +
                   std::to_string(index / 4) + " in " + std::to_string(device_bytes) + " bytes");
      const bool is_done = samples[index / 4].run(stages, index % 4);
      // What is allocated is rounded up, by at most 512 bytes for each of ten and 32 buffers.
      constexpr std::uint64_t kRounding = 42 * 512;
      EXPECT_TRUE(is_done || needed[index] + kRounding > device_bytes);
      EXPECT_TRUE(!is_done || needed[index] <= device_bytes);
      ++(is_done ? num_done : num_refused);
      ASSERT_LE(before - emulated.gpu().memory().free_bytes, device_bytes);
    }
  }
  EXPECT_GT(num_done, 25);
  EXPECT_GT(num_refused, 4);
}

/// Somebody else has taken what may be used: what is not needed now is given back, and only if that is too
/// little it is told.
TEST_F(GpuTileAnsMemory, AGpuThatIsFullerThanItWas) {
  Random random(2);
  const std::vector<Sample> samples = make_samples(random);
  EmulatedGpu emulated({{"CHECK", ""}});
  GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
  EXPECT_TRUE(samples[2].run(stages, 1));
  EXPECT_TRUE(samples[2].run(stages, 3));
  const Sample large(random, 200'000, 1, 4'096);
  {
    const DeviceBuffer others(emulated.gpu(), emulated.gpu().memory().free_bytes / 256 * 256);
    ASSERT_LT(emulated.gpu().memory().free_bytes, 256u);
    EXPECT_TRUE(samples[4].run(stages, 1));
    EXPECT_TRUE(samples[3].run(stages, 2)) << "in what the calls before have held";
    EXPECT_FALSE(large.run(stages, 0));
    EXPECT_TRUE(samples[4].run(stages, 2)) << "after a call that failed";
  }
  EXPECT_TRUE(large.run(stages, 0));
}

/// Words of a raw stream that no encoding can have, by a bit that flips in the GPU's memory: whoever writes
/// the words relies on their number.
TEST_F(GpuTileAnsMemory, SizesThatAreFlippedAreNotHandedOn) {
  Random random(3);
  const std::vector<std::uint8_t> bytes = RandomTensor::gaussian_bytes(random, 300, 1, 9);
  host::HostTileAnsStages host(1);
  const tile_ans::TensorPlan plan = plan_with(host, bytes, 1, {.tile_elements = 1, .probability_bits = 9});
  ASSERT_EQ(plan.lanes[0].mode, LaneMode::kRaw);
  int num_told = 0;
  for (int seed = 0; seed < 6; ++seed) {
    EmulatedGpu emulated({{"CHECK", ""}, {"SEED", std::to_string(seed)}, {"FLIP_AT", "1"}});
    GpuTileAnsStages stages(emulated.gpu(), emulated.kernels());
    std::vector<std::uint32_t> stream_words(300);
    std::vector<std::uint16_t> words(300);
    const tile_ans::LaneOutput output = {
        .lane = 0, .stream_words = stream_words, .words = words, .states = {}};
    try {
      stages.encode({&plan, {0, 300}, bytes, {&output, 1}}).wait();
      EXPECT_EQ(stream_words, std::vector<std::uint32_t>(300, 1)) << seed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeviceFailed);
      ++num_told;
    }
  }
  EXPECT_GT(num_told, 1);
}

}  // namespace
}  // namespace weightpress::device
