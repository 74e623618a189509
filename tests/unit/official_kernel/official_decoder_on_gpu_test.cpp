// verify --engine=official with a GPU: slab after slab on the emulated driver with all checks, and the
// verdict of the interpreter.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "official_kernel/decode_kernel_test_support.h"
#include "official_kernel/official_decoder_test_support.h"
#include "official_kernel/random_units.h"

namespace weightpress {
namespace {

using testing::BothKernels;
using testing::CodedUnit;
using Words = std::vector<std::uint16_t>;

class OfficialDecoderOnGpu : public testing::DecodeKernelTest {
 protected:
  void SetUp() override {
    if (device::embedded_images().empty()) GTEST_SKIP() << device::why_no_kernels();
    DecodeKernelTest::SetUp();
  }

  static const std::string& text() {
    static const std::string text = testing::DecodeKernel::read_text().value();
    return text;
  }
};

TEST_F(OfficialDecoderOnGpu, GoldenUnits) {
  BothKernels kernels(text());
  std::uint64_t num_padding = 0;
  for (const std::string& name : testing::golden_units()) {
    SCOPED_TRACE(name);
    const Words weights = testing::golden_weights(name);
    Df11Unit unit = testing::golden_unit(name);
    const bool hangs = name.starts_with("official_tables_hang_kernel");
    for (const std::uint64_t slab_chunks : {1u, 128u}) {
      if (testing::kIsSlowBuild && !hangs && slab_chunks == 1) continue;
      const std::uint64_t launches = kernels.num_launches();
      ASSERT_TRUE(kernels.tell_alike(unit, &weights, slab_chunks));
      ASSERT_EQ(kernels.verdict().fault.has_value(), hangs);
      if (hangs) {
        EXPECT_EQ(kernels.verdict().fault->kind, "padding");
        EXPECT_LT(kernels.num_launches() - launches, testing::sizes_of(unit).num_chunks);
        ++num_padding;
      }
    }
    if (!hangs) continue;
    unit.luts = testing::golden_unit(name, "luts_safe.u8").luts;
    ASSERT_TRUE(kernels.tell_alike(unit, nullptr, 1));
    EXPECT_FALSE(kernels.verdict().fault);
  }
  EXPECT_EQ(num_padding, 4u);
  // What the decoder is said to have launched is what the driver ran.
  std::vector<std::string> left_over;
  const std::uint64_t launches = kernels.num_launches();
  EXPECT_EQ(kernels.end(left_over), launches);
  EXPECT_EQ(left_over, std::vector<std::string>{});
}

TEST_F(OfficialDecoderOnGpu, RandomUnits) {
  constexpr std::uint64_t kUnits = testing::kIsSlowBuild ? 6 : 60;
  BothKernels kernels(text());
  std::map<std::string, int> verdicts, kinds;
  std::uint64_t num_refused = 0;
  for (std::uint64_t seed = 5'001; seed <= 5'000 + kUnits; ++seed) {
    const CodedUnit made = testing::random_unit(seed);
    SCOPED_TRACE("random_unit(" + std::to_string(seed) + "): " + made.kind + ", " +
                 std::to_string(made.weights.size()) + " weights");
    ++kinds[made.kind];
    const auto safe = made.unit.luts, carried = testing::with_carried_fill(safe, made.code),
               zeros = testing::with_zero_fill(safe, made.code);
    // Endless runs take the interpreter longest.
    for (const auto& luts : {safe, seed % 3 == 0 ? zeros : carried}) {
      Df11Unit unit = made.unit;
      unit.luts = luts;
      ASSERT_TRUE(kernels.tell_alike(unit, seed % 5 == 0 ? nullptr : &made.weights, 1 + seed % 2));
      ++verdicts[kernels.verdict().fault ? kernels.verdict().fault->kind : "none"];
      num_refused += !kernels.verdict().can_launch;
      if (kernels.verdict().can_launch) {
        EXPECT_EQ(!kernels.verdict().fault, testing::kernel_should_end(unit, made.weights));
      }
    }
  }
  std::vector<std::string> left_over;
  kernels.end(left_over);
  EXPECT_EQ(left_over, std::vector<std::string>{});
  if (testing::kIsSlowBuild) return;
  EXPECT_GT(verdicts["none"], 60);
  EXPECT_GT(verdicts["padding"], 5);
  EXPECT_EQ(verdicts.size(), 2u);
  EXPECT_GT(kinds.size(), 9u);
  EXPECT_GT(num_refused, 0u);
}

TEST_F(OfficialDecoderOnGpu, SeveralSlabsOfSeveralChunks) {
  BothKernels kernels(text());
  const std::vector<Words> data = {
      testing::normal_weights(70'000, 11), testing::uniform_exponents(20'000, 10, 200, 12),
      testing::weights_of_histogram(testing::fibonacci_histogram(24, 90), 13),  // codes up to 24 bits
  };
  for (const Words& weights : data) {
    const Df11Unit unit = compress_df11_unit(weights, {.num_threads = 1});
    const std::uint64_t num_chunks = testing::sizes_of(unit).num_chunks;
    ASSERT_GE(num_chunks, 3u);
    for (const std::uint64_t slab_chunks :
         {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, num_chunks}) {
      ASSERT_TRUE(kernels.tell_alike(unit, &weights, slab_chunks)) << slab_chunks;
      ASSERT_FALSE(kernels.verdict().fault);
      EXPECT_EQ(kernels.verdict().counts.num_weights, weights.size());
    }
  }
}

/// Device memory that has held nothing else ends with the slab.
TEST_F(OfficialDecoderOnGpu, SlabsInMemoryOfTheirOwn) {
  device::EmulatedGpu emulated({}, device::EmulatedGpu::Opens::kNothing);
  const auto path = device::open_gpu(0);
  const auto check = [&](const Df11Unit& unit, const Words& weights) {
    for (std::uint64_t chunk = 0; chunk < testing::sizes_of(unit).num_chunks; ++chunk) {
      job::OfficialKernelOnGpu kernel(*path, BothKernels::known(text()));
      const auto verdict = testing::official_verdict(unit, &weights, kernel, 1, chunk, chunk + 1);
      EXPECT_FALSE(verdict.fault) << "chunk " << chunk << ": " << verdict.text();
      EXPECT_EQ(verdict.counts.num_chunks, 1u);
    }
  };
  const Words normal = testing::normal_weights(30'000, 61);
  check(compress_df11_unit(normal, {.num_threads = 1}), normal);
  // No start in the last chunk, and no entry for it.
  testing::Random random(62);
  const Words weights = testing::weights_of_bits(65'536 + 8, 25, true, random);
  const Df11Unit unit =
      testing::encode_plainly(testing::code_of_all_lengths(), weights, testing::PlainFill::kRepeat);
  ASSERT_EQ(testing::sizes_of(unit).num_positions, 3u);
  ASSERT_EQ(testing::sizes_of(unit).num_chunks, 3u);
  check(unit, weights);
}

/// Streams that end near a chunk's border, the last code long or short: last chunks without a start, full
/// ones, output_positions that lack an entry.
TEST_F(OfficialDecoderOnGpu, EveryEndOfAUnit) {
  BothKernels kernels(text());
  const testing::PlainCode code = testing::code_of_all_lengths();
  testing::Random random(41);
  std::uint64_t num_short = 0;
  constexpr std::uint64_t kBorder = 32'768, kStep = testing::kIsSlowBuild ? 8 : 1;
  for (std::uint64_t bits = kBorder - 16; bits <= kBorder + 40; bits += kStep) {
    for (const unsigned last : {1u, 25u, 32u}) {
      const Words weights = testing::weights_of_bits(bits, last, true, random);
      const Df11Unit unit = testing::encode_plainly(code, weights, testing::PlainFill::kRepeat);
      num_short += testing::sizes_of(unit).num_positions == testing::sizes_of(unit).num_chunks;
      ASSERT_TRUE(kernels.tell_alike(unit, last == 1 ? &weights : nullptr, 1 + bits % 2))
          << bits << " bits, the last " << last;
      EXPECT_FALSE(kernels.verdict().fault) << kernels.verdict().text();
    }
  }
  EXPECT_GT(num_short, testing::kIsSlowBuild ? 1u : 5u);
}

TEST_F(OfficialDecoderOnGpu, DamagedUnits) {
  BothKernels kernels(text());
  const CodedUnit base =
      testing::compressed_unit("normal, three chunks", testing::normal_weights(40'000, 501), 98'000);
  ASSERT_EQ(testing::sizes_of(base.unit).num_chunks, 3u);
  std::map<std::string, int> verdicts;
  constexpr int kFaults = testing::kIsSlowBuild ? 3 : 24;
  for (std::size_t buffer = 0; buffer < 5; ++buffer) {
    for (int i = 0; i < kFaults; ++i) {
      testing::Random random(1'000 * buffer + static_cast<std::uint64_t>(i));
      Df11Unit unit = base.unit;
      std::vector<std::uint8_t>* const buffers[] = {&unit.luts, &unit.encoded_exponent, &unit.sign_mantissa,
                                                    &unit.output_positions, &unit.gaps};
      const std::uint64_t bits = 8 * buffers[buffer]->size();
      const std::uint64_t bit =
          buffer == 0 && i % 2 == 0 ? bits - 8 * 256 + random.below(8 * 256) : random.below(bits);
      testing::flip_bit(*buffers[buffer], bit);
      ASSERT_TRUE(kernels.tell_alike(unit, i % 3 == 0 ? nullptr : &base.weights, 1 + random.below(3)))
          << "buffer " << buffer << ", bit " << bit;
      ++verdicts[kernels.verdict().fault ? kernels.verdict().fault->kind : "none"];
    }
  }
  if (testing::kIsSlowBuild) return;
  for (const char* kind : {"none", "gap", "position", "stream", "weight"})
    EXPECT_GT(verdicts[kind], 0) << kind;
}

/// The padding, zeros, is no code's: what its entry in the table says decides.
TEST_F(OfficialDecoderOnGpu, TablesThatOnlyThePaddingReaches) {
  testing::PlainCode code;
  code.add(100, 1, 0b1);
  code.add(101, 2, 0b01);
  code.add(102, 3, 0b001);
  testing::Random random(51);
  Words weights;
  for (int i = 0; i < 30'000; ++i)
    weights.push_back(testing::with_exponent(random, static_cast<std::uint32_t>(100 + random.below(3))));
  const Df11Unit sound = testing::encode_plainly(code, weights, testing::PlainFill::kRepeat);
  ASSERT_EQ(testing::sizes_of(sound).num_chunks, 2u);
  BothKernels kernels(text());
  struct Case {
    unsigned value, length;
    bool ends;
  };
  for (const Case& one :
       {Case{50, 1, true}, Case{50, 32, true}, Case{50, 0, false}, Case{50, 33, false}, Case{50, 250, false},
        Case{50, 255, false}, Case{255, 1, false}, Case{240, 1, false}}) {
    SCOPED_TRACE("entry " + std::to_string(one.value) + ", length " + std::to_string(one.length));
    Df11Unit unit = sound;
    std::fill_n(unit.luts.begin(), 32, static_cast<std::uint8_t>(one.value));
    if (one.value < df11::kFirstPointer) unit.luts[256 + one.value] = static_cast<std::uint8_t>(one.length);
    for (const std::uint64_t slab_chunks : {1u, 2u}) {
      if (testing::kIsSlowBuild && slab_chunks == 1) continue;
      const std::uint64_t launches = kernels.num_launches();
      ASSERT_TRUE(kernels.tell_alike(unit, &weights, slab_chunks));
      EXPECT_EQ(kernels.is_padding(), !one.ends);
      EXPECT_EQ(kernels.num_launches() - launches, 2 / slab_chunks - (one.ends ? 0 : 1));
    }
  }
}

// ---- kernels that are wrong

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST_F(OfficialDecoderOnGpu, WrongWeightsAreToldWithTheirPlace) {
  const Words weights = testing::normal_weights(30'000, 21);
  const Df11Unit unit = compress_df11_unit(weights, {.num_threads = 1});
  // Without the mantissa's highest bit where threads begin; and without storing at all.
  const std::string other = replaced(text(), "and.b16  \t%rs74, %rs69, 127;", "and.b16  \t%rs74, %rs69, 63;");
  const std::string silent = replaced(text(), "st.global.u16 \t[%rd210], %rs104;", "");
  for (const auto& [kernel, says] :
       {std::pair(other, ", but the source has 0x"), {silent, " is not written"}}) {
    BothKernels kernels(kernel);
    for (const std::uint64_t slab_chunks : {1u, 2u}) {
      ASSERT_TRUE(kernels.tell_alike(unit, &weights, slab_chunks));
      ASSERT_TRUE(kernels.verdict().fault);
      EXPECT_EQ(kernels.verdict().fault->kind, "kernel");
      EXPECT_NE(kernels.verdict().fault->message.find(says), std::string::npos) << kernels.verdict().text();
    }
  }
}

TEST_F(OfficialDecoderOnGpu, OnlyTheKnownFileIsLoaded) {
  device::EmulatedGpu emulated({}, device::EmulatedGpu::Opens::kNothing);
  const auto path = device::open_gpu(0);
  job::KernelFile file = BothKernels::known(text());
  EXPECT_EQ(job::OfficialKernelOnGpu(*path, file).name(), path->name());
  file.is_known = false;
  try {
    job::OfficialKernelOnGpu kernel(*path, file);
    FAIL() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
  }
}

// ---- GPUs that fail

/// How a GPU is to fail.
struct Failure {
  device::EmulatedGpu::Variables variables;
  bool breaks_context = false;  ///< what is not taken back then goes with it
  bool is_once = false;         ///< the GPU is as good as before
};

/// A unit of three slabs on a GPU that fails.
class FailingGpu {
 public:
  enum class Outcome : std::uint8_t { kNotOpened, kFailed, kExact };

  explicit FailingGpu(const std::string& text)
      : file_(BothKernels::known(text)),
        weights_(testing::normal_weights(30'000, 31)),
        unit_(compress_df11_unit(weights_, {.num_threads = 1})) {}

  Outcome run(const Failure& failure) {
    device::EmulatedGpu emulated(failure.variables, device::EmulatedGpu::Opens::kNothing);
    Outcome outcome = Outcome::kNotOpened;
    std::unique_ptr<device::GpuPath> path;
    try {
      path = device::open_gpu(0);
    } catch (const Error&) {  // of other tests
    }
    if (path) {
      outcome = run_on(*path);
      if (outcome == Outcome::kFailed && failure.is_once) {
        EXPECT_EQ(run_on(*path), Outcome::kExact);
      }
    }
    path.reset();
    emulated.end();
    if (!failure.breaks_context) {
      EXPECT_EQ(emulated.left_over(), std::vector<std::string>{});
    }
    return outcome;
  }

  const std::string& message() const { return message_; }

 private:
  Outcome run_on(device::GpuPath& path) {
    try {
      job::OfficialKernelOnGpu kernel(path, file_);
      const auto verdict = testing::official_verdict(unit_, &weights_, kernel, 1);
      EXPECT_FALSE(verdict.fault) << verdict.text();
      EXPECT_EQ(verdict.counts.num_weights, weights_.size());
      return Outcome::kExact;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeviceFailed) << error.what();
      message_ = error.what();
      return Outcome::kFailed;
    }
  }

  job::KernelFile file_;
  Words weights_;
  Df11Unit unit_;
  std::string message_;
};

/// Fails the k-th time, k = first, first + step, ..., until nothing does. Returns how often the kernel did.
template <class FailureAt>
int fail_at_each(const std::string& text, const FailureAt& failure_at, std::uint64_t first = 1,
                 std::uint64_t step = 1) {
  FailingGpu gpu(text);
  int num_failed = 0;
  for (std::uint64_t k = first; k < 5'000 && !::testing::Test::HasFailure(); k += step) {
    SCOPED_TRACE("the " + std::to_string(k) + "th");
    const FailingGpu::Outcome outcome = gpu.run(failure_at(std::to_string(k)));
    if (outcome == FailingGpu::Outcome::kExact) return num_failed;
    num_failed += outcome == FailingGpu::Outcome::kFailed;
  }
  ADD_FAILURE() << "it fails for ever: " << gpu.message();
  return num_failed;
}

TEST_F(OfficialDecoderOnGpu, OutOfMemoryAtEachAllocation) {
  for (const bool stays : {false, true}) {
    const int num_failed = fail_at_each(text(), [&](const std::string& k) {
      return Failure{.variables = {{"OOM_AT", k}, {"OOM_STAYS", stays ? "1" : "0"}}, .is_once = !stays};
    });
    EXPECT_GE(num_failed, 7);  // the module and six buffers
  }
}

TEST_F(OfficialDecoderOnGpu, EachLaunchFails) {
  // 700: an illegal address; 701: too many resources, said at once; 719: a failed launch.
  for (const char* result : {"700", "701", "719"}) {
    const bool breaks = result != std::string("701");
    const int num_failed = fail_at_each(text(), [&](const std::string& k) {
      return Failure{.variables = {{"FAIL_LAUNCH_AT", k}, {"LAUNCH_RESULT", result}},
                     .breaks_context = breaks,
                     .is_once = !breaks};
    });
    EXPECT_EQ(num_failed, 3);
  }
}

TEST_F(OfficialDecoderOnGpu, TheDeviceIsLostAtEachCall) {
  const std::uint64_t step = testing::kIsSlowBuild ? 7 : 1;
  const int num_failed = fail_at_each(
      text(),
      [](const std::string& k) {
        return Failure{.variables = {{"LOSE_DEVICE_AT", k}}, .breaks_context = true};
      },
      2, step);
  EXPECT_GE(num_failed, testing::kIsSlowBuild ? 5 : 40);
}

}  // namespace
}  // namespace weightpress
