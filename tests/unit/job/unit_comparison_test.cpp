// UnitDecoder with a source, with some of its chunks, and with lengths alone.
#include <gtest/gtest.h>

#include "support/plain_encoder.h"
#include "support/stored_units.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

using testing::UnitInMemory;

TEST(UnitComparison, TheDensestChunkIsCounted) {
  const testing::PlainCode code = testing::code_of_all_lengths();
  // 32,768 1-bit codes, then 8,192 of 4 bits, then one more.
  std::vector<std::uint16_t> weights(32'768, 101 << 7);
  weights.resize(32'768 + 8'192, 104 << 7);
  weights.push_back(132 << 7);
  const Df11Unit unit = testing::encode_plainly(code, weights);
  for (const std::uint64_t slab_chunks : {1u, 3u}) {
    UnitInMemory memory(unit, slab_chunks);
    EXPECT_FALSE(memory.decoder().check_lengths());
    EXPECT_EQ(memory.decoder().densest_chunk(), 32'768u);
  }
}

/// Six chunks and a bit.
struct ComparedUnit {
  std::vector<std::uint16_t> weights = testing::normal_weights(75'000, 21);
  Df11Unit unit = compress_df11_unit(weights);
  std::vector<std::uint64_t> starts = testing::code_starts(unit, weights);
  std::uint64_t num_chunks = unit.gaps.size() / 320;

  std::uint64_t chunk_of(std::uint64_t weight) const { return starts[weight] / 32'768; }
};

TEST(UnitComparison, ComparisonNamesExactlyTheChangedWeight) {
  const ComparedUnit u;
  testing::Random random(22);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint16_t> source = u.weights;
    // Also the first and the last, and the last of a chunk and the one after it.
    std::uint64_t changed = random.below(source.size());
    if (round % 8 == 0) changed = round % 16 == 0 ? 0 : source.size() - 1;
    if (round % 8 == 1)
      changed = testing::position_of(u.unit, 1 + random.below(u.num_chunks - 1)) - (round % 16 == 1 ? 1 : 0);
    source[changed] = static_cast<std::uint16_t>(source[changed] ^ 1u << random.below(16));
    MemorySource memory_source(source);
    UnitInMemory memory(u.unit, 1 + random.below(4), 1 + static_cast<int>(random.below(2)));
    std::uint64_t well = 0;
    const auto fault = memory.decoder().compare(memory_source, [&](std::uint64_t count) { well += count; });
    ASSERT_TRUE(fault) << changed;
    EXPECT_EQ(fault->kind, "weight") << fault->message;
    EXPECT_EQ(fault->weight, changed) << fault->message;
    EXPECT_EQ(fault->window, u.starts[changed] / 64) << fault->message;
    EXPECT_EQ(fault->chunk, u.chunk_of(changed)) << fault->message;
    EXPECT_LE(well, changed);
  }
}

TEST(UnitComparison, OfTwoChangedWeightsTheFirstIsTold) {
  const ComparedUnit u;
  testing::Random random(23);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint16_t> source = u.weights;
    const std::uint64_t a = random.below(source.size()), b = random.below(source.size());
    source[a] ^= 0x8000;
    if (a != b) source[b] ^= 1;
    MemorySource memory_source(source);
    UnitInMemory memory(u.unit, 1 + random.below(8), 2);
    const auto fault = memory.decoder().compare(memory_source);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->weight, std::min(a, b));
  }
}

TEST(UnitComparison, ComparisonOfSomeChunksSeesThoseOnly) {
  const ComparedUnit u;
  ASSERT_GE(u.num_chunks, 6u);
  std::vector<std::uint16_t> source = u.weights;
  const std::uint64_t changed = source.size() / 2;
  source[changed] ^= 0x80;
  const std::uint64_t at_fault = u.chunk_of(changed);
  for (std::uint64_t first = 0; first < u.num_chunks; ++first) {
    for (std::uint64_t end = first + 1; end <= u.num_chunks; ++end) {
      for (const std::uint64_t slab_chunks : {1u, 2u, 256u}) {
        MemorySource memory_source(source);
        UnitInMemory memory(u.unit, slab_chunks);
        std::uint64_t compared = 0;
        const auto fault = memory.decoder().compare_chunks(first, end, memory_source,
                                                           [&](std::uint64_t count) { compared += count; });
        ASSERT_EQ(fault.has_value(), first <= at_fault && at_fault < end) << first << ' ' << end;
        if (fault) {
          EXPECT_EQ(fault->weight, changed);
        } else {
          EXPECT_EQ(compared, testing::position_of(u.unit, end) - testing::position_of(u.unit, first));
        }
      }
    }
  }
}

/// Gives weights through read() only, as files do.
class CopyingSource final : public WeightSource {
 public:
  explicit CopyingSource(std::span<const std::uint16_t> weights) : memory_(weights) {}
  std::uint64_t num_weights() const override { return memory_.num_weights(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override { memory_.read(first, weights); }

 private:
  MemorySource memory_;
};

TEST(UnitComparison, SourcesThatAreNotInMemory) {
  ComparedUnit u;
  CopyingSource source(u.weights);
  EXPECT_FALSE(UnitInMemory(u.unit, 2).decoder().compare(source));
  u.weights[50'000] ^= 1;
  CopyingSource changed(u.weights);
  const auto fault = UnitInMemory(u.unit, 2).decoder().compare(changed);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->weight, 50'000u);
}

TEST(UnitComparison, LengthsAreCheckedWithoutSignMantissa) {
  const ComparedUnit u;
  for (const std::uint64_t slab_chunks : {1u, 3u, 256u}) {
    UnitInMemory memory(u.unit, slab_chunks, 2);
    std::uint64_t well = 0;
    EXPECT_FALSE(memory.decoder().check_lengths([&](std::uint64_t count) { well += count; }));
    EXPECT_EQ(well, u.weights.size());
    EXPECT_TRUE(memory.decoder().kernel_ends());
    // Nothing of sign_mantissa is looked at; all else is.
    Df11Unit changed = u.unit;
    for (std::uint8_t& byte : changed.sign_mantissa) byte ^= 0xFF;
    EXPECT_FALSE(UnitInMemory(changed, slab_chunks).decoder().check_lengths());
    testing::set_gap(changed, 1'234, testing::gap_of(changed, 1'234) ^ 1);
    EXPECT_TRUE(UnitInMemory(changed, slab_chunks).decoder().check_lengths());
  }
}

}  // namespace
}  // namespace weightpress::job
