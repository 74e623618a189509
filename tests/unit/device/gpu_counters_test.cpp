// What the kernels cost, as the interpreter counts it on a million normal weights: memory traffic,
// instructions, bank conflicts, lanes that meet in an atomic. The limits are what a GPU can do at the speed
// of its memory (docs/kernels.md, "Costs").
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "device/embedded_kernels.h"
#include "device/emulated_gpu.h"
#include "format/bf16_fields.h"
#include "format/codebook.h"
#include "format/lookup_tables.h"
#include "format/slab_pieces.h"
#include "format/stream_layout.h"
#include "support/weights.h"

namespace weightpress::device {
namespace {

constexpr std::size_t kNumWeights = 1'000'000;

double a_weight(std::uint64_t count) {
  return static_cast<double>(count) / static_cast<double>(kNumWeights);
}
double bytes_a_weight(const ptxvm::Counters& run) {
  return 32 * a_weight(run.global_load_sectors + run.global_store_sectors);
}

void print(const std::string& name, const ptxvm::Counters& run) {
  std::cout << name << ": " << a_weight(run.lane_instructions) << " lane instructions, "
            << 32 * a_weight(run.global_load_sectors) << " bytes loaded, "
            << 32 * a_weight(run.global_store_sectors) << " stored a weight; bank factor "
            << run.bank_factor() << ", lanes on an atomic address " << run.lanes_per_address() << "\n";
}

TEST(GpuCounters, AMillionNormalWeights) {
  if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  EmulatedGpu emulated({{"CHECK", ""}, {"COUNT", "1"}});
  GpuStages& stages = emulated.stages();
  const std::vector<std::uint16_t> weights = testing::normal_weights(kNumWeights, 1);
  std::vector<df11::SegmentHistogram> histograms(df11::num_segments(kNumWeights, kGpuSegmentWeights));
  stages.histogram({weights, kGpuSegmentWeights, histograms}).wait();

  const df11::Codebook codebook = df11::build_official_codebook(df11::sum_histograms(histograms));
  const df11::StreamLayout layout =
      df11::make_stream_layout(kNumWeights, df11::total_bits(df11::sum_histograms(histograms), codebook),
                               codebook.lengths[df11::exponent_of(weights.back())]);
  std::vector<std::uint8_t> sign_mantissa(kNumWeights), stream(layout.num_bytes), gaps(layout.gaps_bytes);
  std::vector<std::uint32_t> positions(layout.num_positions);
  df11::SlabBorder border;
  df11::EncodeArguments encode{weights,
                               kGpuSegmentWeights,
                               {.is_last = true},
                               &codebook,
                               &layout,
                               histograms,
                               sign_mantissa,
                               stream,
                               gaps,
                               positions,
                               &border};
  ASSERT_EQ(stages.encode(encode).wait().code, df11::StageCode::kOk);

  const df11::LookupTables luts = df11::build_lookup_tables(codebook, df11::TableFill::kCompat);
  std::vector<std::uint16_t> decoded(kNumWeights);
  df11::DecodeArguments decode;
  decode.luts = {luts.data(), luts.size_bytes()};
  decode.num_weights = kNumWeights;
  decode.stream_bytes = layout.num_bytes;
  decode.positions = positions;
  decode.encoded_exponent = stream;
  decode.gaps = gaps;
  decode.sign_mantissa = sign_mantissa;
  decode.weights = decoded;
  ASSERT_TRUE(stages.decode(decode).wait().ok);
  ASSERT_EQ(decoded, weights);
  decode.weights = {};
  decode.source = weights;
  ASSERT_TRUE(stages.decode(decode).wait().ok);
  decode.source = {};
  decode.sign_mantissa = {};
  ASSERT_TRUE(stages.decode(decode).wait().ok);

  std::map<std::string, ptxvm::Counters> runs;
  std::vector<ptxvm::Counters> decodings;
  for (const EmulatedGpu::KernelRun& run : emulated.end()) {
    runs[run.name] += run.counters;
    if (run.name == "wp_decode") decodings.push_back(run.counters);
    print(run.name, run.counters);
  }
  ptxvm::Counters compression;
  for (const char* name : {"wp_histogram", "wp_segment_bits", "wp_segment_offsets", "wp_encode"}) {
    ASSERT_TRUE(runs.contains(name)) << name;
    compression += runs[name];
  }
  print("histogram and encode", compression);

  EXPECT_GT(bytes_a_weight(compression), 5.3) << "it cannot be less: were the counters on?";
  EXPECT_LE(bytes_a_weight(compression), 6.2);
  EXPECT_LE(a_weight(compression.lane_instructions), 50);
  EXPECT_LE(runs["wp_histogram"].bank_factor(), 1.5);
  EXPECT_LE(runs["wp_encode"].bank_factor(), 1.5);
  EXPECT_LE(runs["wp_histogram"].lanes_per_address(), 2);
  EXPECT_LE(runs["wp_encode"].lanes_per_address(), 2);
  // Weights, a comparison, lengths.
  ASSERT_EQ(decodings.size(), 3);
  EXPECT_LE(a_weight(decodings[0].lane_instructions), 40);
  EXPECT_LE(a_weight(decodings[1].lane_instructions), 40.1);
  EXPECT_LE(a_weight(decodings[2].lane_instructions), 25);
  for (const ptxvm::Counters& decoding : decodings) {
    EXPECT_LE(bytes_a_weight(decoding), 4.0);
    EXPECT_LE(decoding.bank_factor(), 3.0);
    EXPECT_LE(decoding.lanes_per_address(), 2);
  }
  EXPECT_GT(bytes_a_weight(decodings[0]), 3.3);
  EXPECT_GT(bytes_a_weight(decodings[1]), 3.3);
}

}  // namespace
}  // namespace weightpress::device
