// Damaged units: the official kernel in the interpreter does what a plain model of it does, and goes wrong
// where our decoder says that the unit is wrong.
#include <map>

#include <gtest/gtest.h>

#include "official_kernel/decode_kernel_test_support.h"
#include "official_kernel/kernel_model.h"
#include "official_kernel/random_units.h"
#include "support/plain_encoder.h"

namespace weightpress {
namespace {

using job::UnitFault;
using testing::CodedUnit;
using testing::KernelRun;
using testing::KernelRunOptions;

// With damaged code lengths of more than 32 bits the kernel, which adds modulo 256, may take longer than any
// sound unit lets it; but a length that is not 0 adds up to 32 in fewer than 256 steps, and then once more.
constexpr std::uint64_t kMaxBranches = 1'024;
constexpr std::uint8_t kPad = 0x55;
constexpr int kFaultsPerBuffer = testing::kIsSlowBuild ? 4 : 40;

CodedUnit base_unit(int which) {
  testing::Random random(static_cast<std::uint64_t>(which) + 500);
  switch (which) {
    case 0:
      return testing::compressed_unit("normal, three chunks", testing::normal_weights(40'000, 501), 98'000);
    case 1:
      return testing::compressed_unit("one chunk, mostly empty", testing::normal_weights(500, 502), 3'000);
    case 2:
      return testing::compressed_unit("many tables", testing::uniform_exponents(6'000, 10, 200, 503), 40'000);
    case 3: {
      // No start in the last chunk, and no entry for it.
      auto weights = testing::weights_of_bits(65'536 + 8, 25, false, random);
      return testing::plain_unit("short corner", testing::code_of_all_lengths(), std::move(weights),
                                 testing::PlainPositions::kOfficial, 0);
    }
    case 4:
      return testing::compressed_unit("short codes", testing::mostly_zero(40'000, 3, 2, 504), 60'000);
    default: {
      const testing::PlainCode code = testing::random_code(random, 60, 120, 5);
      auto weights = testing::weights_of_code(code, 12'000, true, random);
      testing::cut_near(weights, code.lengths, 50'000);
      return testing::plain_unit("incomplete code", code, std::move(weights),
                                 testing::PlainPositions::kOfficial, 0x55);
    }
  }
}
constexpr int kBaseUnits = 6;

constexpr const char* kBuffers[] = {"luts", "encoded_exponent", "sign_mantissa", "output_positions", "gaps"};

std::vector<std::uint8_t>& buffer_of(Df11Unit& unit, std::size_t buffer) {
  std::vector<std::uint8_t>* const buffers[] = {&unit.luts, &unit.encoded_exponent, &unit.sign_mantissa,
                                                &unit.output_positions, &unit.gaps};
  return *buffers[buffer];
}

/// What our decoder says of the unit when it compares it with its weights.
struct Verdict {
  std::optional<UnitFault> fault;
  bool kernel_ends = true;
};

Verdict our_verdict(const Df11Unit& unit, std::span<const std::uint16_t> weights) {
  testing::UnitInMemory memory(unit);
  job::MemorySource source(weights);
  Verdict verdict;
  verdict.fault = memory.decoder().compare(source);
  verdict.kernel_ends = memory.decoder().kernel_ends();
  return verdict;
}

class InjectedFaults : public testing::DecodeKernelTestOf<int> {
 protected:
  void SetUp() override {
    DecodeKernelTestOf::SetUp();
    base_ = base_unit(GetParam());
    chunks_ = base_.unit.gaps.size() / 320;
  }

  KernelRun run(const Df11Unit& unit, std::uint64_t first_block, std::uint64_t num_blocks) {
    KernelRunOptions options;
    options.launch.first_block = first_block;
    options.launch.num_blocks = num_blocks;
    options.launch.max_branches = kMaxBranches;
    options.launch.check_initialised = true;
    options.pad = kPad;
    // As for the sound unit: damaged positions ask for any amount.
    options.chunk_weights = testing::densest_chunk(base_.unit);
    options.max_shared_bytes = 96 * 1024;
    return kernel().run(unit, options);
  }

  /// Block by block: the same fault, or the same words.
  void run_as_modelled(const Df11Unit& unit, std::vector<KernelRun>& runs) {
    testing::KernelModel model(unit, testing::densest_chunk(base_.unit), kPad, kMaxBranches);
    for (std::uint64_t block = 0; block < chunks_; ++block) {
      const testing::ModelledBlock wanted = model.run(block);
      const KernelRun& ran = runs.emplace_back(run(unit, block, 1));
      ASSERT_FALSE(ran.refusal) << *ran.refusal;
      ASSERT_EQ(ran.fault.has_value(), wanted.fault.has_value())
          << "block " << block << ": " << ran.trouble();
      if (ran.fault) {
        ASSERT_EQ(ran.fault->kind, *wanted.fault) << "block " << block << ": " << ran.trouble();
        ASSERT_EQ(ran.fault->block_number, block);
        continue;
      }
      ASSERT_LE(wanted.first_weight + wanted.weights.size(), ran.weights.size());
      for (std::size_t i = 0; i < wanted.weights.size(); ++i)
        ASSERT_EQ(ran.weights[wanted.first_weight + i], wanted.weights[i]) << "block " << block << ", " << i;
    }
  }

  bool chunk_is_right(const KernelRun& ran, std::uint64_t chunk) const {
    if (ran.fault) return false;
    const std::size_t begin = testing::position_of(base_.unit, chunk);
    const std::size_t end = chunk + 1 < base_.unit.output_positions.size() / 4
                                ? testing::position_of(base_.unit, chunk + 1)
                                : begin;
    for (std::size_t i = begin; i < end; ++i)
      if (ran.weights[i] != base_.weights[i]) return false;
    return true;
  }

  /// The first chunk that does not come out; nothing: all do.
  std::optional<std::uint64_t> first_wrong_chunk(const std::vector<KernelRun>& runs) const {
    for (std::uint64_t chunk = 0; chunk < chunks_; ++chunk)
      if (!chunk_is_right(runs[chunk], chunk)) return chunk;
    return std::nullopt;
  }

  /// Our decoder takes what docs/format.md says and nothing else; two such faults the kernel never notices.
  bool is_beyond_the_kernels_care(const Df11Unit& unit, const UnitFault& fault) const {
    // Gaps of windows behind the stream's end: their bits are 0 from any of them on.
    if (fault.kind == "gap")
      return fault.window > testing::code_starts(base_.unit, base_.weights).back() / 64;
    // The end of the last chunk, as long as it is not too early: the number of weights bounds it too.
    // (Counted from the chunk's begin without a sign, so one before that is not too early.)
    const std::uint64_t entries = unit.output_positions.size() / 4;
    if (fault.kind != "position" || entries == chunks_) return false;
    for (std::uint64_t i = 0; i + 1 < entries; ++i)
      if (testing::position_of(unit, i) != testing::position_of(base_.unit, i)) return false;
    const std::uint32_t begin = testing::position_of(unit, entries - 2);
    return testing::position_of(unit, entries - 1) - begin >= base_.weights.size() - begin;
  }

  void check(const Df11Unit& unit) {
    std::vector<KernelRun> runs;
    ASSERT_NO_FATAL_FAILURE(run_as_modelled(unit, runs));
    const Verdict verdict = our_verdict(unit, base_.weights);
    const std::optional<std::uint64_t> wrong = first_wrong_chunk(runs);
    if (!verdict.fault) {
      // Sound in all that decoders read; but padding may lead anywhere.
      ++sound_;
      if (verdict.kernel_ends) {
        EXPECT_FALSE(wrong) << "chunk " << *wrong;
        EXPECT_TRUE(is_exact(run(unit, 0, 0), base_.weights));
        EXPECT_EQ(decompress_df11_unit(job::view_of(unit), 1), base_.weights);
      } else if (wrong) {
        EXPECT_EQ(*wrong, chunks_ - 1);
        EXPECT_TRUE(runs.back().fault);
      }
      return;
    }
    SCOPED_TRACE(verdict.fault->kind + ": " + verdict.fault->message);
    ++kinds_[verdict.fault->kind];
    ASSERT_NE(verdict.fault->chunk, UnitFault::kNowhere);
    // Never before; an entry of output_positions is the end of one chunk and the begin of the next.
    const std::uint64_t chunk = verdict.fault->chunk;
    if (wrong) {
      ASSERT_GE(*wrong + (verdict.fault->kind == "position" ? 1 : 0), chunk);
    }
    const bool comes_out = !wrong || *wrong > chunk;
    if (is_beyond_the_kernels_care(unit, *verdict.fault)) {
      ASSERT_FALSE(wrong) << "chunk " << *wrong;
      ++harmless_;
      return;
    }
    if (comes_out) {
      // The same weights on a wrong way, as the model found too: a length of more than 32 bits of a window's
      // last code, or a window that is read from elsewhere, but all of whose codes look alike.
      ++lucky_;
      return;
    }
    if (verdict.fault->kind != "weight") return;
    const KernelRun& ran = runs[*wrong];
    if (ran.fault) return;
    const auto begin = ran.weights.begin() + testing::position_of(base_.unit, *wrong);
    const auto first = std::mismatch(begin, ran.weights.end(),
                                     base_.weights.begin() + testing::position_of(base_.unit, *wrong));
    EXPECT_EQ(static_cast<std::uint64_t>(first.first - ran.weights.begin()), verdict.fault->weight);
    ++first_places_;
  }

  CodedUnit base_;
  std::uint64_t chunks_ = 0, sound_ = 0, harmless_ = 0, lucky_ = 0, first_places_ = 0;
  std::map<std::string, int> kinds_;
};

TEST_P(InjectedFaults, GoWrongAsModelledAndWhereOurDecoderSays) {
  ASSERT_TRUE(is_exact(run(base_.unit, 0, 0), base_.weights));
  for (std::size_t buffer = 0; buffer < std::size(kBuffers); ++buffer) {
    for (int i = 0; i < kFaultsPerBuffer; ++i) {
      const std::uint64_t seed = 1000 * buffer + static_cast<std::uint64_t>(i);
      testing::Random random(seed);
      Df11Unit unit = base_.unit;
      std::vector<std::uint8_t>& bytes = buffer_of(unit, buffer);
      // Most of a table is never read, and most of the gaps of a short unit.
      const std::uint64_t bits = 8 * bytes.size();
      const std::uint64_t bit =
          buffer == 0 && i % 2 == 0 ? bits - 8 * 256 + random.below(8 * 256) : random.below(bits);
      testing::flip_bit(bytes, bit);
      SCOPED_TRACE(base_.kind + ", " + kBuffers[buffer] + ", bit " + std::to_string(bit) + ", seed " +
                   std::to_string(seed));
      check(unit);
      if (HasFailure()) return;
    }
  }
  std::string counts;
  for (const auto& [kind, count] : kinds_) counts += ", " + std::to_string(count) + " " + kind;
  std::printf("%s: %llu sound, %llu harmless, %llu lucky, %llu first places%s\n", base_.kind.c_str(),
              static_cast<unsigned long long>(sound_), static_cast<unsigned long long>(harmless_),
              static_cast<unsigned long long>(lucky_), static_cast<unsigned long long>(first_places_),
              counts.c_str());
  EXPECT_LE(50 * lucky_, static_cast<std::uint64_t>(kFaultsPerBuffer) * std::size(kBuffers));
  if (testing::kIsSlowBuild) return;
  EXPECT_GT(sound_, 10u);
  EXPECT_GT(first_places_, 40u);
  for (const char* kind : {"gap", "position", "weight"}) EXPECT_GT(kinds_[kind], 20) << kind;
}

INSTANTIATE_TEST_SUITE_P(Unit, InjectedFaults, ::testing::Range(0, kBaseUnits));

}  // namespace
}  // namespace weightpress
