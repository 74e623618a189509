// Reading back while writing, on a disk that flips a bit: each is noticed, wherever slabs end, and nothing
// is read but what is there.
#include "job/unit_verifier.h"

#include <gtest/gtest.h>

#include "host/decode.h"
#include "host/host_stages.h"
#include "job/unit_memory.h"
#include "support/weights.h"

namespace weightpress::job {
namespace {

struct Flip {
  UnitBuffer buffer = UnitBuffer::kLuts;
  std::uint64_t byte = 0;
  std::uint8_t mask = 0;  // 0: none
  int reads_before = 0;   // of that byte that still give it as it was
};

/// What a sink holds so far, with one byte that comes back changed.
class DamagedDisk final : public UnitBytes {
 public:
  DamagedDisk(const Df11Unit& unit, const Flip& flip) : unit_(unit), flip_(flip) {}

  void read(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> bytes) const override {
    MemoryUnit(view_of(unit_)).read(buffer, offset_bytes, bytes);
    if (buffer != flip_.buffer || flip_.byte < offset_bytes || flip_.byte >= offset_bytes + bytes.size())
      return;
    if (reads_++ >= flip_.reads_before)
      bytes[flip_.byte - offset_bytes] =
          static_cast<std::uint8_t>(bytes[flip_.byte - offset_bytes] ^ flip_.mask);
  }

 private:
  const Df11Unit& unit_;
  const Flip flip_;
  mutable int reads_ = 0;
};

/// Compresses and verifies; the fault, if there is one. The weights of each slab lie in memory of their own:
/// reading beyond them is noticed under AddressSanitizer.
std::optional<UnitFault> compress_on(const std::vector<std::uint16_t>& weights, std::uint64_t segment_weights,
                                     std::uint64_t slab_weights, const Flip& flip,
                                     Df11Unit* result = nullptr) {
  UnitCompressorOptions options;
  options.segment_weights = segment_weights;
  options.slab_weights = slab_weights;
  MemorySource source(weights);
  MemorySink sink;
  SlabBuffers buffers;
  host::HostStages stages(1);
  UnitCompressor compressor("unit", source, stages, buffers, options);
  const df11::UnitPlan plan = compressor.plan().value();
  sink.begin(plan);
  const DamagedDisk disk(sink.unit, flip);
  host::HostDecodeStage decode_stage(1);
  DecodeBuffers decode_buffers;
  std::optional<UnitVerifier> verifier;
  std::optional<UnitFault> fault;
  const auto on_written = [&](std::span<const std::uint16_t> slab,
                              const WrittenSoFar& written) -> Result<void> {
    if (!verifier) verifier.emplace(plan, disk, decode_stage, decode_buffers);
    const std::vector<std::uint16_t> own(slab.begin(), slab.end());
    fault = verifier->add(own, written);
    if (fault) return Unexpected(ErrorCode::kVerificationFailed, fault->message);
    return {};
  };
  (void)compressor.encode(plan, sink, {}, on_written);
  if (result != nullptr) *result = std::move(sink.unit);
  return fault;
}

struct Data {
  std::vector<std::uint16_t> weights;
  std::uint64_t segment_weights, slab_weights;
};

std::vector<Data> all_data() {
  return {{testing::normal_weights(60'000, 51), 1'000, 3'000},
          {testing::normal_weights(60'000, 52), 500, 500},  // many slabs a chunk
          {testing::normal_weights(60'000, 53), 5'000, 25'000},
          {testing::mostly_zero(120'000, 30, 20, 54), 5'000, 20'000},
          {testing::uniform_exponents(30'000, 100, 2, 55), 1'000, 10'000}};
}

TEST(UnitVerifier, WhatWasWrittenWellHasNoFault) {
  for (const Data& data : all_data())
    EXPECT_FALSE(compress_on(data.weights, data.segment_weights, data.slab_weights, {}));
}

TEST(UnitVerifier, NoticesEveryFlippedBit) {
  testing::Random random(56);
  int harmless = 0;
  for (const Data& data : all_data()) {
    Df11Unit unit;
    ASSERT_FALSE(compress_on(data.weights, data.segment_weights, data.slab_weights, {}, &unit));
    const std::pair<UnitBuffer, std::size_t> buffers[] = {
        {UnitBuffer::kLuts, unit.luts.size()},
        {UnitBuffer::kEncodedExponent, unit.encoded_exponent.size()},
        {UnitBuffer::kSignMantissa, unit.sign_mantissa.size()},
        {UnitBuffer::kOutputPositions, unit.output_positions.size()},
        {UnitBuffer::kGaps, unit.gaps.size()}};
    for (const auto& [buffer, size] : buffers) {
      for (int round = 0; round < 25; ++round) {
        const Flip flip = {buffer, random.below(size), static_cast<std::uint8_t>(1 << random.below(8))};
        const auto fault = compress_on(data.weights, data.segment_weights, data.slab_weights, flip);
        if (fault) {
          EXPECT_FALSE(fault->message.empty());
          continue;
        }
        // Bits of a code that became EOF's, which the tables give to the same exponent: nothing is lost.
        ASSERT_EQ(buffer, UnitBuffer::kEncodedExponent) << flip.byte << " mask " << int{flip.mask};
        ++harmless;
        Df11Unit changed = unit;
        changed.encoded_exponent[flip.byte] ^= flip.mask;
        ASSERT_EQ(decompress_df11_unit(view_of(changed)), data.weights)
            << flip.byte << " mask " << int{flip.mask};
      }
    }
  }
  EXPECT_LE(harmless, 20);
}

/// Lengths that make codes shorter than they are: more codes than weights are known.
TEST(UnitVerifier, NoticesEveryWrongCodeLength) {
  for (const Data& data : all_data()) {
    Df11Unit unit;
    ASSERT_FALSE(compress_on(data.weights, data.segment_weights, data.slab_weights, {}, &unit));
    for (std::size_t byte = unit.luts.size() - 256; byte < unit.luts.size(); ++byte) {
      if (unit.luts[byte] == 0) continue;
      const Flip flip = {UnitBuffer::kLuts, byte, 1};
      ASSERT_TRUE(compress_on(data.weights, data.segment_weights, data.slab_weights, flip)) << byte;
    }
  }
}

/// A byte that is read back well at first and then changes: what it says is hostile every time.
TEST(UnitVerifier, OutputPositionsThatChangeBetweenReads) {
  for (const Data& data : all_data()) {
    Df11Unit unit;
    ASSERT_FALSE(compress_on(data.weights, data.segment_weights, data.slab_weights, {}, &unit));
    for (std::size_t byte = 0; byte < unit.output_positions.size(); ++byte)
      for (const int reads_before : {1, 2, 3})
        for (const std::uint8_t mask : {std::uint8_t{1}, std::uint8_t{0x80}})
          compress_on(data.weights, data.segment_weights, data.slab_weights,
                      {UnitBuffer::kOutputPositions, byte, mask, reads_before});
  }
}

}  // namespace
}  // namespace weightpress::job
