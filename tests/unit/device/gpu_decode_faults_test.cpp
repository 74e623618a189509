// The decode stage of a GPU on buffers with faults, on the emulated driver with all checks: whatever the
// bytes are, it ends, touches nothing outside its buffers, and says what the CPU's stage says.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/decode_slab.h"
#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/faulty_units.h"
#include "job/unit_memory.h"
#include "support/plain_encoder.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

using testing::PlainCode;
using testing::PlainFill;
using testing::PlainPositions;
using testing::Random;

class GpuDecodeFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
    start({});
  }

  /// The driver anew.
  void start(EmulatedGpu::Variables variables,
             BothDecodeStages::Memory memory = BothDecodeStages::Memory::kNew) {
    both_.reset();
    emulated_.reset();
    variables.set_default("TRACE", "");  // of thousands of launches
    emulated_ = std::make_unique<EmulatedGpu>(variables);
    both_ = std::make_unique<BothDecodeStages>(emulated_->gpu(), emulated_->kernels(), memory);
    num_ok_ = num_faults_ = num_endless_ = 0;
  }

  EmulatedGpu& emulated() { return *emulated_; }

  /// Some run of the unit's chunks, or all.
  ::testing::AssertionResult agree_on_run(const DecodeInput& unit, std::uint64_t first, std::uint64_t end,
                                          Wanted wanted) {
    auto result = both_->agree(unit, first, end, wanted);
    const df11::DecodeStatus& status = both_->status();
    num_ok_ += status.ok ? 1 : 0;
    num_faults_ += status.ok ? 0 : 1;
    num_endless_ += status.kernel_ends ? 0 : 1;
    return result;
  }
  ::testing::AssertionResult agree(const DecodeInput& unit, Wanted wanted) {
    return agree_on_run(unit, 0, unit.num_chunks(), wanted);
  }
  const df11::DecodeStatus& status() const { return both_->status(); }
  const std::vector<std::uint16_t>& decoded() const { return both_->weights(); }

  int num_ok_ = 0, num_faults_ = 0, num_endless_ = 0;

 private:
  std::unique_ptr<EmulatedGpu> emulated_;
  std::unique_ptr<BothDecodeStages> both_;
};

/// All bits of the windows that are used, one of each of the others.
TEST_F(GpuDecodeFaults, BitsOfAllGaps) {
  const auto source = testing::normal_weights(300, 901);
  const DecodeInput sound = decode_input(compress_df11_unit(source), source);
  const std::uint64_t used = (sound.encoded_exponent.size() + 7) / 8;
  for (std::uint64_t bit = 0; bit < 8 * sound.gaps.size(); bit += bit / 5 < used + 2 ? 1 : 4) {
    DecodeInput unit = sound;
    testing::flip_bit(unit.gaps, bit);
    ASSERT_TRUE(agree(unit, kAllWanted[bit % 4])) << "bit " << bit;
    ASSERT_FALSE(status().ok) << "bit " << bit;
  }
}

TEST_F(GpuDecodeFaults, EachBitOfTheStream) {
  Random random(902);
  PlainCode complete;
  for (unsigned length = 1; length <= 20; ++length) complete.add(100 + length, length, 1);
  complete.add(100, 20, 0);
  const auto source = testing::weights_of_code(complete, 91, false, random);
  const Df11Unit unit_of_complete = testing::encode_plainly(complete, source);
  const std::uint64_t num_bits = testing::code_starts(unit_of_complete, source).back();
  ASSERT_NE(num_bits % 8, 0u);
  const PlainCode incomplete = testing::code_of_all_lengths();
  const auto others = testing::weights_of_bits(1'203, 25, false, random);
  const DecodeInput units[] = {
      decode_input(unit_of_complete, source),
      decode_input(testing::encode_plainly(incomplete, others, PlainFill::kPointers), others)};
  for (const DecodeInput& sound : units)
    for (std::uint64_t bit = 0; bit < 8 * sound.encoded_exponent.size(); ++bit) {
      DecodeInput unit = sound;
      testing::flip_bit(unit.encoded_exponent, bit);
      const bool is_complete = &sound == &units[0];
      ASSERT_TRUE(agree(unit, is_complete ? Wanted::kBoth : kAllWanted[bit % 4])) << bit;
      if (is_complete) {
        ASSERT_EQ(status().ok, bit >= num_bits) << bit;
      }
    }
}

TEST_F(GpuDecodeFaults, EntriesOfTheTables) {
  Random random(903);
  const PlainCode code = testing::code_of_all_lengths();
  const auto weights = testing::weights_of_bits(900, 32, false, random);
  const DecodeInput sound = decode_input(testing::encode_plainly(code, weights), weights);
  for (std::uint64_t byte = 0; byte < sound.luts.size(); byte += 1 + byte % 2) {
    DecodeInput unit = sound;
    testing::flip_bit(unit.luts, 8 * byte + random.below(8));
    ASSERT_TRUE(agree(unit, kAllWanted[byte % 4])) << "byte " << byte;
  }
  // Each bit of each code length that is used.
  for (const std::uint8_t exponent : code.exponents())
    for (std::uint64_t bit = 0; bit < 8; ++bit) {
      DecodeInput unit = sound;
      testing::flip_bit(unit.luts, 8 * (unit.luts.size() - 256 + exponent) + bit);
      ASSERT_TRUE(agree(unit, Wanted::kWeights)) << int{exponent} << ", bit " << bit;
    }
  EXPECT_GT(num_ok_, 100);
  EXPECT_GT(num_faults_, 50);
}

TEST_F(GpuDecodeFaults, EachBitOfTheSigns) {
  const auto weights = testing::normal_weights(203, 904);
  const DecodeInput sound = decode_input(compress_df11_unit(weights), weights);
  for (std::uint64_t bit = 0; bit < 8 * sound.sign_mantissa.size(); bit += 1 + bit % 3) {
    DecodeInput unit = sound;
    testing::flip_bit(unit.sign_mantissa, bit);
    ASSERT_TRUE(agree(unit, bit % 2 == 0 ? Wanted::kBoth : Wanted::kComparison)) << bit;
    ASSERT_FALSE(status().ok) << bit;
    if (bit % 8 != 0) continue;
    ASSERT_TRUE(agree(unit, Wanted::kWeights)) << bit;
    ASSERT_TRUE(status().ok && decoded() != sound.source) << bit;
  }
}

/// It is the chunk before that then has other numbers of weights.
TEST_F(GpuDecodeFaults, EachBitOfThePositions) {
  const auto source = testing::normal_weights(38'000, 909);
  const DecodeInput sound = decode_input(compress_df11_unit(source), source);
  int num_checked = 0;
  for (std::size_t i = 0; i + 1 < sound.positions.size(); ++i)
    for (unsigned bit = 0; bit < 17; ++bit) {
      DecodeInput unit = sound;
      unit.positions[i] ^= 1u << bit;
      if (!keeps_contract(unit)) continue;
      ++num_checked;
      SCOPED_TRACE(::testing::Message() << "bit " << bit << " of position " << i);
      ASSERT_TRUE(agree(unit, kAllWanted[bit % 4]));
      ASSERT_FALSE(status().ok);
      ASSERT_EQ(status().chunk, i == 0 ? 0 : i - 1);
    }
  EXPECT_GE(num_checked, 30);
}

/// Each weight of the source in turn, and the chunk that it is in.
TEST_F(GpuDecodeFaults, OneWeightOfTheSource) {
  const auto weights = testing::normal_weights(38'000, 905);
  const DecodeInput sound = decode_input(compress_df11_unit(weights), weights);
  ASSERT_GE(sound.num_chunks(), 3u);
  Random random(905);
  std::vector<std::uint64_t> changed = {0, weights.size() - 1};
  for (std::size_t i = 1; i + 1 < sound.positions.size(); ++i)
    for (std::uint64_t near = 0; near < 18; ++near) changed.push_back(sound.positions[i] - 9 + near);
  for (int i = 0; i < 60; ++i) changed.push_back(random.below(weights.size()));
  for (const std::uint64_t weight : changed) {
    DecodeInput unit = sound;
    unit.source[weight] = static_cast<std::uint16_t>(unit.source[weight] ^ 1u << random.below(16));
    ASSERT_TRUE(agree(unit, weight % 2 == 0 ? Wanted::kBoth : Wanted::kComparison)) << weight;
    ASSERT_FALSE(status().ok) << weight;
    ASSERT_TRUE(unit.positions[status().chunk] <= weight && weight < unit.positions[status().chunk + 1]);
  }
}

/// The last chunk has no weight, and the stream ends in its first window.
TEST_F(GpuDecodeFaults, AroundACodeThatCrossesIntoTheLastChunk) {
  Random random(906);
  const PlainCode code = testing::code_of_all_lengths();
  for (const std::uint64_t bits :
       {32'768 + 1, 32'768 + 7, 32'768 + 8, 32'768 + 11, 32'768 + 24, 32'768 + 31}) {
    const auto weights = testing::weights_of_bits(bits, 32, true, random);
    const DecodeInput sound = decode_input(
        testing::encode_plainly(code, weights, PlainFill::kRepeat, PlainPositions::kLong), weights);
    ASSERT_TRUE(agree(sound, Wanted::kBoth));
    ASSERT_TRUE(status().ok);
    for (unsigned gap = 0; gap < 32; ++gap)
      for (const std::uint64_t window : {511u, 512u, 513u}) {
        DecodeInput unit = sound;
        Df11Unit gaps;
        gaps.gaps = unit.gaps;
        testing::set_gap(gaps, window, gap);
        unit.gaps = gaps.gaps;
        SCOPED_TRACE(::testing::Message() << bits << " bits, gap " << gap << " of window " << window);
        ASSERT_TRUE(agree(unit, kAllWanted[gap % 4]));
        if (window == 512) {
          ASSERT_TRUE(agree_on_run(unit, gap % 2, gap % 2 + 1, Wanted::kWeights));
        }
      }
    for (std::uint64_t bytes = 4'096 - 3; bytes <= 4'096 + 12; ++bytes) {
      DecodeInput unit = sound;
      set_stream_bytes(unit, bytes, random);
      ASSERT_TRUE(agree(unit, kAllWanted[bytes % 4])) << bits << " bits, " << bytes << " bytes";
    }
    for (const std::int64_t more : {-2, -1, 1, 2}) {
      DecodeInput unit = sound;
      set_num_weights(unit, static_cast<std::uint64_t>(static_cast<std::int64_t>(weights.size()) + more));
      ASSERT_TRUE(agree(unit, Wanted::kBoth)) << bits << " bits, " << more << " weights more";
      if (more < 0) continue;
      unit.positions[1] = static_cast<std::uint32_t>(weights.size());  // the others are the last chunk's
      ASSERT_TRUE(agree(unit, Wanted::kBoth)) << bits << " bits, " << more << " weights more";
    }
  }
  EXPECT_GT(num_ok_, 20);
}

/// Behind the last weight come bits that are no code: as many as a look-up without a code might seem to take.
TEST_F(GpuDecodeFaults, BitsThatAreNoCodeAreNotTheEndOfOne) {
  PlainCode code;
  code.add(100, 8, 0);
  for (const std::size_t count : {4'088u, 4'089u, 4'091u, 4'092u, 4'095u, 4'096u})
    for (std::size_t bytes = 4'097; bytes <= 4'096 + 72; bytes += 1 + (bytes + count) % 3) {
      const std::vector<std::uint16_t> weights(count, 100 << 7);
      DecodeInput unit = decode_input(testing::encode_plainly(code, weights, PlainFill::kZero), weights);
      unit.encoded_exponent.resize(bytes, 0xFF);
      unit.gaps.assign(640, 0);
      unit.positions = {0, static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count)};
      for (const std::uint64_t end : {1u, 2u}) {
        ASSERT_TRUE(agree_on_run(unit, 0, end, Wanted::kBoth)) << count << " weights, " << bytes << " bytes";
        ASSERT_FALSE(status().ok);
        ASSERT_EQ(status().chunk, 0u);
      }
    }
}

/// The same inside a chunk: a window ends early, and the next one's gap is as far in it.
TEST_F(GpuDecodeFaults, AWindowThatEndsEarly) {
  PlainCode code;
  code.add(100, 8, 0);
  const std::vector<std::uint16_t> source(160, 100 << 7);
  const DecodeInput sound = decode_input(testing::encode_plainly(code, source, PlainFill::kZero), source);
  for (std::uint64_t window = 0; window < 20; ++window)
    for (const unsigned gap : {0u, 8u, 24u}) {
      DecodeInput unit = sound;
      for (std::uint64_t byte = 8 * window + gap / 8; byte < 8 * window + 8; ++byte)
        unit.encoded_exponent[byte] = 0xFF;
      set_num_weights(unit, window < 19 ? 152 : 152 + gap / 8);
      if (window < 19) {
        Df11Unit gaps;
        gaps.gaps = unit.gaps;
        testing::set_gap(gaps, window + 1, gap);
        unit.gaps = gaps.gaps;
      }
      ASSERT_TRUE(agree(unit, Wanted::kLengths)) << "window " << window << ", gap " << gap;
      ASSERT_FALSE(status().ok) << "window " << window << ", gap " << gap;
    }
}

TEST_F(GpuDecodeFaults, EveryTruncationOfTheStreamAndTheWeights) {
  Random random(907);
  const DecodeInput sound = [&] {
    const PlainCode code = testing::code_of_all_lengths();
    const auto weights = testing::weights_of_bits(1'500, 7, false, random);
    return decode_input(testing::encode_plainly(code, weights), weights);
  }();
  for (std::uint64_t bytes = 1; bytes <= sound.encoded_exponent.size() + 80; ++bytes) {
    DecodeInput unit = sound;
    set_stream_bytes(unit, bytes, random);
    ASSERT_TRUE(agree(unit, kAllWanted[bytes % 4])) << bytes << " bytes";
    ASSERT_EQ(status().ok, bytes == sound.encoded_exponent.size()) << bytes << " bytes";
  }
  for (std::uint64_t count = 1; count <= sound.num_weights() + 80; ++count) {
    DecodeInput unit = sound;
    set_num_weights(unit, count);
    ASSERT_TRUE(agree(unit, kAllWanted[count % 4])) << count << " weights";
    ASSERT_EQ(status().ok, count == sound.num_weights()) << count << " weights";
  }
}

TEST_F(GpuDecodeFaults, StreamsOfHostileTables) {
  for (std::uint64_t seed = 10'000; seed < 11'000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    const std::uint64_t bytes = seed % 50 == 0  ? 4'096 * random.below(3) + 4'080 + random.below(40)
                                : seed % 5 == 0 ? 1 + random.below(20)
                                                : 1 + random.below(400);
    const HostileUnit made = hostile_unit(random, bytes);
    ASSERT_TRUE(agree(made.input, Wanted::kBoth));
    ASSERT_TRUE(status().ok) << text_of(status());
    ASSERT_EQ(status().kernel_ends, made.kernel_ends);
    ASSERT_EQ(decoded(), made.input.source);
  }
  EXPECT_GT(num_endless_, 20);
}

TEST_F(GpuDecodeFaults, HostileTablesOfSoundStreams) {
  for (std::uint64_t seed = 20'000; seed < 20'400; ++seed) {
    Random random(seed);
    DecodeInput unit = sound_unit(random.below(2'000), random);
    switch (random.below(4)) {
      case 0:  // any bytes
        unit.luts.resize(256 * (2 + random.below(40)));
        for (std::uint8_t& byte : unit.luts) byte = random_byte(random);
        break;
      case 1:  // pointers everywhere, in a circle or not
        for (std::size_t i = 0; i + 256 < unit.luts.size(); ++i)
          unit.luts[i] = static_cast<std::uint8_t>(random.below(2) == 0 ? 255 : 240 + random.below(16));
        break;
      case 2: {  // each code length the same
        static constexpr std::uint8_t kLengths[] = {0, 1, 2, 31, 32, 33, 255};
        const std::uint8_t length = kLengths[random.below(std::size(kLengths))];
        std::fill(unit.luts.end() - 256, unit.luts.end(), length);
        break;
      }
      default:
        unit.luts = hostile_luts(random);
    }
    ASSERT_TRUE(agree(unit, kAllWanted[seed % 4])) << "seed " << seed;
  }
  EXPECT_GT(num_faults_, 300);
}

TEST_F(GpuDecodeFaults, RandomGapsAndPositions) {
  for (std::uint64_t seed = 30'000; seed < 30'300; ++seed) {
    Random random(seed);
    const std::uint64_t chunks = seed % 3 == 0 ? 1 : random.below(3);
    DecodeInput unit = sound_unit(32'768 * chunks + random.below(1'000), random);
    const std::uint64_t kind = random.below(3);
    if (kind != 0) set_random_positions(unit, kind == 1 ? 32'768 : 3'000, random);
    if (kind != 2)
      for (std::uint8_t& byte : unit.gaps) byte = random_byte(random);
    ASSERT_TRUE(agree(unit, kAllWanted[seed % 4])) << "seed " << seed;
  }
}

/// One fault, at times two, in small units.
TEST_F(GpuDecodeFaults, ThousandsOfFaultsInSmallUnits) {
  for (std::uint64_t seed = 40'000; seed < 42'500; ++seed) {
    Random random(seed);
    DecodeInput unit = sound_unit(1 + random.below(random.below(3) == 0 ? 70 : 1'500), random);
    std::string faults = add_fault(unit, random);
    if (seed % 4 == 0) faults += std::string(", ") + add_fault(unit, random);
    ASSERT_TRUE(agree(unit, kAllWanted[random.below(4)])) << "seed " << seed << ": " << faults;
  }
  EXPECT_GT(num_ok_, 300);
  EXPECT_GT(num_faults_, 1'000);
  EXPECT_GT(num_endless_, 30);
}

TEST_F(GpuDecodeFaults, HundredsOfFaultsInUnitsOfSeveralChunks) {
  for (std::uint64_t seed = 50'000; seed < 50'320; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    DecodeInput unit = sound_unit(32'768 * (1 + random.below(3)) + random.below(200) - 100, random);
    std::string faults = add_fault(unit, random);
    for (std::uint64_t more = random.below(3); more > 0; --more)
      faults += std::string(", ") + add_fault(unit, random);
    const Wanted wanted = kAllWanted[random.below(4)];
    ASSERT_TRUE(agree(unit, wanted)) << faults;
    const std::uint64_t first = random.below(unit.num_chunks());
    ASSERT_TRUE(agree_on_run(unit, first, first + 1 + random.below(unit.num_chunks() - first), wanted))
        << faults;
  }
  EXPECT_GT(num_ok_, 100);
  EXPECT_GT(num_faults_, 100);
}

/// Everything random.
TEST_F(GpuDecodeFaults, Garbage) {
  for (std::uint64_t seed = 60'000; seed < 60'300; ++seed) {
    Random random(seed);
    DecodeInput unit;
    unit.luts = hostile_luts(random);
    unit.encoded_exponent.resize(1 + random.below(2 * 4'096 + 100));
    if (seed % 4 != 0) unit.encoded_exponent.resize(1 + random.below(300));
    for (std::uint8_t& byte : unit.encoded_exponent) byte = random_byte(random);
    unit.gaps.resize(unit.num_chunks() * 320);
    if (seed % 2 == 0)
      for (std::uint8_t& byte : unit.gaps) byte = random_byte(random);
    unit.positions.resize(unit.num_chunks() + 1);
    set_random_positions(unit, seed % 3 == 0 ? 32'768 : 800, random);
    ASSERT_TRUE(agree(unit, kAllWanted[seed / 2 % 4])) << "seed " << seed;
  }
}

/// Several faults at known places: the first of them, whatever the order of blocks and lanes is.
TEST_F(GpuDecodeFaults, TheFirstChunkAtFaultInAnyOrder) {
  const auto source = testing::normal_weights(90'000, 908);
  const Df11Unit sound = compress_df11_unit(source);
  const std::uint64_t chunks = sound.gaps.size() / 320;
  ASSERT_GE(chunks, 7u);
  for (int seed = 1; seed <= 16; ++seed) {
    start({{"SEED", std::to_string(seed)}, {"THREADS", seed % 2 == 0 ? "2" : "1"}});
    Random random(70'000 + static_cast<std::uint64_t>(seed));
    for (int round = 0; round < 4; ++round) {
      Df11Unit unit = sound;
      std::uint64_t first = chunks;
      for (std::uint64_t faults = 1 + random.below(4); faults > 0; --faults) {
        const std::uint64_t window = random.below(512 * chunks);
        testing::set_gap(unit, window, testing::gap_of(sound, window) ^ (1u << random.below(5)));
        // It is the chunk before that has to end where the gap says.
        const bool is_border = window % 512 == 0 && window > 0;
        first = std::min(first, window / 512 - (is_border ? 1 : 0));
      }
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round);
      ASSERT_TRUE(agree(decode_input(unit, source), kAllWanted[random.below(4)]));
      ASSERT_EQ(status().ok, first == chunks);
      if (!status().ok) {
        ASSERT_EQ(status().chunk, first);
      }
    }
  }
}

/// A fault leaves nothing behind for the next call on the stage.
TEST_F(GpuDecodeFaults, SoundUnitsAfterFaultyOnes) {
  start({}, BothDecodeStages::Memory::kKept);
  for (std::uint64_t seed = 80'000; seed < 80'150; ++seed) {
    Random random(seed);
    const DecodeInput sound = sound_unit(1 + random.below(seed % 5 == 0 ? 40'000 : 3'000), random);
    DecodeInput faulty = sound;
    add_fault(faulty, random);
    ASSERT_TRUE(agree(faulty, kAllWanted[random.below(4)])) << "seed " << seed;
    ASSERT_TRUE(agree(sound, Wanted::kBoth)) << "seed " << seed;
    ASSERT_TRUE(status().ok) << "seed " << seed;
    ASSERT_EQ(decoded(), sound.source) << "seed " << seed;
  }
}

/// What users are told is the same with either stage.
TEST_F(GpuDecodeFaults, TheSameMessagesThroughTheUnitDecoder) {
  const auto text_of_fault = [](const std::optional<job::UnitFault>& fault) {
    if (!fault) return std::string("none");
    return fault->kind + ": " + fault->message + " (" + std::to_string(fault->chunk) + ", " +
           std::to_string(fault->window) + ", " + std::to_string(fault->weight) + ")";
  };
  int num_faults = 0;
  for (std::uint64_t seed = 90'000; seed < 90'150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    const auto source = testing::normal_weights(1 + random.below(seed % 4 == 0 ? 40'000 : 3'000), seed);
    DecodeInput faulty = decode_input(compress_df11_unit(source, {.num_threads = 1}), source);
    add_fault(faulty, random);
    if (faulty.num_weights() != source.size()) continue;
    Df11Unit unit{faulty.luts, faulty.encoded_exponent, faulty.sign_mantissa, {}, faulty.gaps, {}};
    unit.output_positions.resize(4 * faulty.positions.size());
    for (std::size_t i = 0; i < faulty.positions.size(); ++i)
      testing::set_position(unit, i, faulty.positions[i]);

    const job::MemoryUnit bytes(job::view_of(unit));
    job::DecodeBuffers buffers;
    host::HostDecodeStage host(1);
    GpuStages gpu(emulated().gpu(), emulated().kernels());
    const std::uint64_t slab_chunks = 1 + random.below(3);
    job::UnitDecoder here(testing::sizes_of(unit), bytes, host, buffers, slab_chunks),
        there(testing::sizes_of(unit), bytes, gpu, buffers, slab_chunks);
    job::MemorySource weights(source);
    const auto compared = here.compare(weights);
    ASSERT_EQ(text_of_fault(there.compare(weights)), text_of_fault(compared));
    ASSERT_EQ(there.kernel_ends(), here.kernel_ends());
    ASSERT_EQ(there.end_weight(), here.end_weight());
    ASSERT_EQ(text_of_fault(there.check_lengths()), text_of_fault(here.check_lengths()));
    num_faults += compared.has_value() ? 1 : 0;
  }
  EXPECT_GT(num_faults, 50);
}

}  // namespace
}  // namespace weightpress::device
