// The official kernel as a module on the emulated driver: whole units and slabs of them, in device memory
// that ends where the kernel may read no further, with all checks.
#include "device/official_kernel_launch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "device/watched_memory.h"
#include "format/df11_constants.h"
#include "official_kernel/decode_kernel_test_support.h"
#include "official_kernel/random_units.h"

namespace weightpress::device {
namespace {

using Words = std::vector<std::uint16_t>;

/// What a slab begins as is in none of the tests' weights: exponents end at 239.
constexpr std::uint16_t kUnwritten = 0xFFFF;

/// Chunks of a unit in device memory, without a byte to spare.
Words run_slab(const EmulatedGpu& emulated, OfficialKernelLaunch& kernel, const Df11Unit& unit,
               std::uint64_t first_chunk, std::uint64_t num_chunks, std::uint8_t pad) {
  const Gpu& gpu = emulated.gpu();
  const std::uint64_t stream_bytes = unit.encoded_exponent.size(), num_weights = unit.sign_mantissa.size();
  const std::uint64_t num_entries = unit.output_positions.size() / 4;
  std::vector<std::uint32_t> positions;
  for (std::uint64_t i = first_chunk; i <= first_chunk + num_chunks; ++i)
    positions.push_back(i < num_entries ? testing::position_of(unit, i) : 0x01010101u * pad);
  const std::uint64_t end = first_chunk + num_chunks < num_entries ? positions.back() : num_weights;
  const std::uint64_t first = positions.front(), count = end - first;
  std::uint64_t densest = 0;
  for (std::uint64_t i = 0; i < num_chunks; ++i)
    densest = std::max(densest, (i + 1 < num_chunks ? positions[i + 1] : end) - positions[i]);

  const std::uint64_t first_byte = first_chunk * df11::kChunkBytes;
  const std::uint64_t end_byte = std::min(first_byte + num_chunks * df11::kChunkBytes + 4, stream_bytes);
  std::vector<std::uint8_t> gaps(unit.gaps.begin() + static_cast<std::ptrdiff_t>(320 * first_chunk),
                                 unit.gaps.end());
  gaps.resize(320 * num_chunks + 1, pad);

  const auto bytes = [](const std::vector<std::uint8_t>& all, std::uint64_t begin, std::uint64_t size) {
    return std::span(all).subspan(begin, size);
  };
  const DeviceValues<std::uint8_t> d_luts(gpu, unit.luts);
  const DeviceValues<std::uint8_t> d_stream(gpu,
                                            bytes(unit.encoded_exponent, first_byte, end_byte - first_byte));
  const DeviceValues<std::uint8_t> d_sign_mantissa(gpu, bytes(unit.sign_mantissa, first, count));
  const DeviceValues<std::uint32_t> d_positions(gpu, positions);
  const DeviceValues<std::uint8_t> d_gaps(gpu, gaps);
  const DeviceValues<std::uint16_t> d_outputs(gpu, Words(count, kUnwritten));

  OfficialKernelLaunch::Parameters parameters;
  parameters.d_luts = d_luts.get();
  parameters.d_encoded_exponent = d_stream.get();
  parameters.d_sign_mantissa = d_sign_mantissa.get() - first;
  parameters.d_output_positions = d_positions.get();
  parameters.d_gaps = d_gaps.get();
  parameters.d_outputs = d_outputs.get() - 2 * first;
  parameters.luts_rows = static_cast<std::uint32_t>(unit.luts.size() / 256);
  parameters.stream_bytes = static_cast<std::uint32_t>(stream_bytes - first_byte);
  parameters.num_weights = static_cast<std::uint32_t>(num_weights);
  parameters.num_chunks = num_chunks;
  parameters.chunk_weights = densest;
  const Stream stream(gpu);
  kernel.enqueue(stream, parameters);
  stream.wait();
  return d_outputs.read();
}

class OfficialKernelLaunches : public testing::DecodeKernelTest {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
    DecodeKernelTest::SetUp();
  }

  static std::string text() { return testing::DecodeKernel::read_text().value(); }
};

TEST_F(OfficialKernelLaunches, GoldenUnitsWholeAndChunkByChunk) {
  std::uint64_t num_slabs = 0, num_short = 0;
  EmulatedGpu emulated;
  OfficialKernelLaunch kernel(emulated.gpu(), text());
  for (const std::string& name : testing::golden_units()) {
    SCOPED_TRACE(name);
    Df11Unit unit = testing::golden_unit(name);
    if (name.starts_with("official_tables_hang_kernel"))
      unit.luts = testing::golden_unit(name, "luts_safe.u8").luts;
    const Words weights = testing::golden_weights(name);
    const std::uint64_t num_chunks = unit.gaps.size() / 320;
    num_short += unit.output_positions.size() / 4 == num_chunks;
    for (const unsigned pad : {0x00u, 0xFFu}) {
      if (testing::kIsSlowBuild && pad != 0) continue;
      EXPECT_EQ(run_slab(emulated, kernel, unit, 0, num_chunks, static_cast<std::uint8_t>(pad)), weights);
    }
    Words joined;
    for (std::uint64_t chunk = 0; chunk < num_chunks; ++chunk, ++num_slabs) {
      const Words slab = run_slab(emulated, kernel, unit, chunk, 1, 0x55);
      joined.insert(joined.end(), slab.begin(), slab.end());
    }
    EXPECT_EQ(joined, weights);
  }
  EXPECT_GT(num_slabs, testing::golden_units().size());
  EXPECT_GT(num_short, 0u);
}

TEST_F(OfficialKernelLaunches, MoreSharedMemoryThanTheDefault) {
  EmulatedGpu emulated;
  OfficialKernelLaunch kernel(emulated.gpu(), text());
  testing::Random random(11);
  testing::PlainCode code;
  code.add(100, 1, 0);
  code.add(101, 2, 0b10);
  Words weights;
  for (int i = 0; i < 40'000; ++i) weights.push_back(testing::with_exponent(random, i % 50 == 0 ? 101 : 100));
  const Df11Unit unit = testing::encode_plainly(code, weights, testing::PlainFill::kRepeat,
                                                testing::PlainPositions::kOfficial, 0);
  ASSERT_GT(testing::densest_chunk(unit), df11::kMaxChunkWeights);
  EXPECT_EQ(run_slab(emulated, kernel, unit, 0, 2, 0), weights);
  EXPECT_EQ(run_slab(emulated, kernel, unit, 0, 1, 0).size(), testing::densest_chunk(unit));
}

/// One that the driver takes, but that is another kernel.
std::string with_entry(std::string text, const std::string& entry) {
  const std::string own = ".visible .entry decode(";
  return text.replace(text.find(own), own.size(), entry);
}

TEST_F(OfficialKernelLaunches, TextsThatAreNotLaunched) {
  EmulatedGpu emulated({{"DRIVER_VERSION", "12020"}});
  const Gpu& gpu = emulated.gpu();
  EXPECT_NO_THROW(OfficialKernelLaunch(gpu, text()));
  EXPECT_THROW(OfficialKernelLaunch(gpu, "no PTX"), CudaError);
  EXPECT_THROW(OfficialKernelLaunch(gpu, with_entry(text(), ".visible .entry encode(")), CudaError);

  std::string small = text();
  const std::size_t body = small.find(")\n{");
  small.insert(body + 1, "\n.maxntid 256, 1, 1");
  try {
    OfficialKernelLaunch kernel(gpu, small);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeviceFailed);
    EXPECT_NE(std::string(error.what()).find("256 threads"), std::string::npos) << error.what();
  }
}

TEST_F(OfficialKernelLaunches, ADriverOlderThanTheText) {
  EmulatedGpu emulated({{"DRIVER_VERSION", "12000"}});
  try {
    OfficialKernelLaunch kernel(emulated.gpu(), text());
    FAIL() << "it was taken";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.result(), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  }
}

}  // namespace
}  // namespace weightpress::device
