// Reading units back: against the slow decoder, in slabs of all sizes, on every length of the stream's end.
#include <cstring>

#include <gtest/gtest.h>

#include "host/decode.h"
#include "job/unit_decoder.h"
#include "job/unit_memory.h"
#include "support/golden.h"
#include "support/unit_reader.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

UnitSizes sizes_of(const Df11Unit& unit) {
  return {unit.sign_mantissa.size(), unit.encoded_exponent.size(), unit.gaps.size() / 320,
          unit.output_positions.size() / 4, unit.luts.size() / 256 - 1};
}

/// Decodes in slabs of so many chunks; the fault's message in place of weights if there is one.
std::vector<std::uint16_t> decode(const Df11Unit& unit, std::uint64_t slab_chunks, int threads) {
  host::HostDecodeStage stage(threads);
  DecodeBuffers buffers;
  const Df11UnitView view = view_of(unit);
  const MemoryUnit bytes(view);
  UnitDecoder decoder(sizes_of(unit), bytes, stage, buffers, slab_chunks);
  std::vector<std::uint16_t> weights;
  const auto fault = decoder.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
    EXPECT_EQ(first, weights.size());
    weights.insert(weights.end(), slab.begin(), slab.end());
  });
  if (fault) ADD_FAILURE() << fault->kind << ": " << fault->message;
  EXPECT_TRUE(fault || decoder.kernel_ends());
  return weights;
}

TEST(UnitDecoder, AllKindsOfWeightsInSlabsOfAllSizes) {
  const std::vector<std::vector<std::uint16_t>> data = {
      testing::normal_weights(200'001, 1),
      testing::uniform_exponents(100'001, 10, 200, 2),
      testing::uniform_exponents(50'000, 100, 2, 3),
      testing::mostly_zero(150'000, 20, 30, 4),
      testing::weights_of_histogram(testing::fibonacci_histogram(24, 90), 5),  // codes up to 24 bits
      std::vector<std::uint16_t>(100'000, 0x3C00),
  };
  for (const auto& weights : data) {
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_TRUE(testing::reads_back_as(unit, weights));
    for (const std::uint64_t slab_chunks : {1u, 2u, 3u, 256u})
      for (const int threads : {1, 3}) ASSERT_EQ(decode(unit, slab_chunks, threads), weights) << slab_chunks;
    EXPECT_EQ(decompress_df11_unit(view_of(unit), 2), weights);
  }
}

TEST(UnitDecoder, EveryLengthOfTheStreamAndEveryBorder) {
  const std::vector<std::uint16_t> all = testing::normal_weights(40'000, 7);
  const auto check = [&](std::size_t count) {
    const std::vector<std::uint16_t> weights(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    const Df11Unit unit = compress_df11_unit(weights);
    ASSERT_TRUE(testing::reads_back_as(unit, weights)) << count;
    ASSERT_EQ(decode(unit, 1, 1), weights) << count;
  };
  for (std::size_t count = 1; count <= 1000; ++count) check(count);
  for (std::size_t count = 12'000; count <= 12'800; ++count) check(count);  // around 32,768 bits
  for (std::size_t count = 24'400; count <= 24'900; ++count) check(count);
}

}  // namespace
}  // namespace weightpress::job
