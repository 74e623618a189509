// Slabs of stored units in the lanes of a GPU, on the emulated driver: status, weights and sums of the CPU,
// whatever order they are finished in, whatever the bytes are, however little memory there is.
#include "device/gpu_slab_decoder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/decode_slab.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/faulty_units.h"
#include "job/decode_stage_of_either.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

using testing::Random;

class GpuSlabDecoderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
    start({});
  }
  /// The driver anew.
  void start(EmulatedGpu::Variables variables) {
    decoder_.reset();
    emulated_.reset();
    variables.set_default("TRACE", "");
    emulated_ = std::make_unique<EmulatedGpu>(variables);
    decoder_ = std::make_unique<GpuSlabDecoder>(emulated_->gpu(), emulated_->kernels());
  }

  GpuSlabDecoder& decoder() { return *decoder_; }

  /// What a lane says of a slab that is under way in it is what the CPU says of the same chunks.
  ::testing::AssertionResult ends_as_on_the_cpu(int lane, const DecodeInput& unit, std::uint64_t first,
                                                std::uint64_t end, Wanted wanted, const DecodeSlab& slab) {
    const DecodeSlab here(unit, first, end, wanted);
    const df11::DecodeStatus expected = expected_ = host_.decode(here.arguments()).wait();
    std::vector<DecodedPart> parts;
    try {
      parts = decoder().finish(lane);
    } catch (const Error& error) {
      return ::testing::AssertionFailure() << error.what();
    }
    df11::DecodeStatus found;
    std::uint64_t next = slab.arguments().first_chunk;
    for (const DecodedPart& part : parts) {
      if (part.arguments.first_chunk != next) return ::testing::AssertionFailure() << "not in order";
      next += part.arguments.positions.size() - 1;
      if (found.ok && part.status.ok && part.sums != job::sums_of(part.arguments, 1))
        return ::testing::AssertionFailure() << "other sums";
      if (found.ok && !part.status.ok) found = part.status;
      found.kernel_ends = found.kernel_ends && part.status.kernel_ends;
    }
    num_parts_ = parts.size();
    if (next != unit.chunks_before + end) return ::testing::AssertionFailure() << "chunks are missing";
    if (text_of(found) != text_of(expected) || found.chunk != expected.chunk)
      return ::testing::AssertionFailure() << text_of(found) << ", not " << text_of(expected);
    const std::uint64_t well = expected.ok ? unit.chunks_before + end : expected.chunk;
    if (!std::ranges::equal(slab.weights_before(well), here.weights_before(well)))
      return ::testing::AssertionFailure() << "other weights";
    if (!slab.is_intact()) return ::testing::AssertionFailure() << "something beside the weights is written";
    return ::testing::AssertionSuccess();
  }

  // Of the last one:
  std::size_t num_parts_ = 0;
  df11::DecodeStatus expected_;

 private:
  std::unique_ptr<EmulatedGpu> emulated_;
  std::unique_ptr<GpuSlabDecoder> decoder_;
  host::HostDecodeStage host_{1};
};

DecodeInput unit_of(std::size_t num_weights, std::uint64_t seed) {
  const auto weights = testing::normal_weights(num_weights, seed);
  return decode_input(compress_df11_unit(weights, {.num_threads = 1}), weights);
}

TEST_F(GpuSlabDecoderTest, LanesAreFinishedInAnyOrder) {
  const DecodeInput unit = unit_of(80'000, 1);
  ASSERT_EQ(unit.num_chunks(), 7);
  for (const char* seed : {"0", "1", "2", "3", "4", "5"}) {
    start({{"SEED", seed}, {"EAGER_PERCENT", *seed % 2 == 0 ? "0" : "50"}});
    ASSERT_EQ(decoder().num_lanes(), 3);
    for (const Wanted wanted : kAllWanted) {
      std::vector<int> order = {0, 1, 2};
      do {
        // Lane i has the chunks [2 i, 2 i + 2); the last one up to the unit's end.
        std::vector<std::unique_ptr<DecodeSlab>> slabs;
        for (std::uint64_t lane = 0; lane < 3; ++lane) {
          slabs.push_back(std::make_unique<DecodeSlab>(unit, 2 * lane, lane == 2 ? 7 : 2 * lane + 2, wanted));
          decoder().begin(static_cast<int>(lane), slabs.back()->arguments());
        }
        for (const int lane : order) {
          const auto first = static_cast<std::uint64_t>(2 * lane);
          ASSERT_TRUE(ends_as_on_the_cpu(lane, unit, first, lane == 2 ? 7 : first + 2, wanted,
                                         *slabs[static_cast<std::size_t>(lane)]))
              << "seed " << seed << ", lane " << lane;
          ASSERT_EQ(num_parts_, 1);
        }
      } while (wanted == Wanted::kWeights && std::next_permutation(order.begin(), order.end()));
    }
  }
}

TEST_F(GpuSlabDecoderTest, BytesOfAnyKind) {
  int num_faults = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    DecodeInput unit = sound_unit(1 + random.below(seed % 8 == 0 ? 90'000 : 5'000), random);
    if (seed % 4 != 0) add_fault(unit, random);
    if (seed % 5 == 0) unit.luts = hostile_luts(random);
    if (!keeps_contract(unit)) continue;
    const std::uint64_t border = random.below(unit.num_chunks() + 1);
    const Wanted wanted = kAllWanted[seed % 4];
    const DecodeSlab slab(unit, 0, std::max<std::uint64_t>(border, 1), wanted);
    const DecodeSlab whole(unit, 0, unit.num_chunks(), wanted);
    decoder().begin(2, slab.arguments());
    decoder().begin(0, whole.arguments());
    ASSERT_TRUE(ends_as_on_the_cpu(0, unit, 0, unit.num_chunks(), wanted, whole));
    ASSERT_TRUE(ends_as_on_the_cpu(2, unit, 0, std::max<std::uint64_t>(border, 1), wanted, slab));
    num_faults += expected_.ok ? 0 : 1;
  }
  EXPECT_GT(num_faults, 60);
}

/// Whatever the memory allows, from a chunk at once to all of them.
TEST_F(GpuSlabDecoderTest, LittleMemoryMeansParts) {
  const DecodeInput sound = unit_of(90'001, 3);
  DecodeInput faulty = sound;
  testing::flip_bit(faulty.encoded_exponent, 5 * df11::kChunkBits + 777);
  std::vector<std::size_t> parts;
  for (int kilobytes = 112; kilobytes <= 1024; kilobytes = kilobytes * 5 / 4) {
    start({{"CONTEXT_MEMORY", "16M"}, {"MEMORY", std::to_string(16 * 1024 + kilobytes) + "K"}});
    for (const DecodeInput* const unit : {&sound, static_cast<const DecodeInput*>(&faulty)}) {
      for (const Wanted wanted : {Wanted::kBoth, Wanted::kLengths}) {
        const DecodeSlab slab(*unit, 0, unit->num_chunks(), wanted);
        decoder().begin(0, slab.arguments());
        ASSERT_TRUE(ends_as_on_the_cpu(0, *unit, 0, unit->num_chunks(), wanted, slab)) << kilobytes;
        if (wanted == Wanted::kBoth) parts.push_back(num_parts_);
      }
    }
  }
  EXPECT_EQ(*std::ranges::min_element(parts), 1);
  EXPECT_GT(*std::ranges::max_element(parts), 3);
}

TEST_F(GpuSlabDecoderTest, TooLittleForAChunkIsAnErrorThatLeavesNothing) {
  start({{"CONTEXT_MEMORY", "16M"}, {"MEMORY", "16416K"}});
  const DecodeInput unit = unit_of(30'000, 4);
  const DecodeSlab slab(unit, 0, 3, Wanted::kBoth);
  for (int round = 0; round < 2; ++round) {
    try {
      decoder().begin(0, slab.arguments());
      FAIL() << "it fits";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    }
  }
  const DecodeSlab lengths(unit, 0, 1, Wanted::kLengths);
  decoder().begin(0, lengths.arguments());
  EXPECT_TRUE(ends_as_on_the_cpu(0, unit, 0, 1, Wanted::kLengths, lengths));
}

TEST_F(GpuSlabDecoderTest, AbandonedSlabsAreNotInUse) {
  const DecodeInput unit = unit_of(60'000, 5);
  for (int round = 0; round < 3; ++round) {
    {
      const DecodeSlab first(unit, 0, 2, Wanted::kWeights), second(unit, 2, 5, Wanted::kBoth);
      decoder().begin(0, first.arguments());
      decoder().begin(1, second.arguments());
      decoder().abandon(0);
      decoder().abandon(1);
    }  // and gone
    const DecodeSlab again(unit, 1, 3, Wanted::kWeights);
    decoder().begin(0, again.arguments());
    ASSERT_TRUE(ends_as_on_the_cpu(0, unit, 1, 3, Wanted::kWeights, again));
    decoder().abandon(2);  // nothing
  }
}

}  // namespace
}  // namespace weightpress::device
