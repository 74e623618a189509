// The DF11 decoding stage on the CPU beside memcpy of the same bytes, in one run.
//
//   bench_df11_decode --benchmark_repetitions=5
//   WP_BENCH_THREADS=2 WP_BENCH_WEIGHTS=20000000 bench_df11_decode --benchmark_filter=normal
//
// What the stage decodes is compared with the weights before anything is timed. Counters: G_weights/s; GB/s
// of BF16 bytes, decimal; of_memcpy: share of the bandwidth of memcpy measured in this process just before.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <weightpress/df11.h>

#include "bench_data.h"
#include "host/decode.h"

namespace weightpress {
namespace {

struct Data {
  std::vector<std::uint16_t> weights, decoded;
  Df11Unit unit;
  std::vector<std::uint32_t> positions;

  df11::DecodeArguments arguments() const {
    df11::DecodeArguments a;
    a.luts = unit.luts;
    a.num_weights = weights.size();
    a.stream_bytes = unit.encoded_exponent.size();
    a.positions = positions;
    a.encoded_exponent = unit.encoded_exponent;
    a.gaps = unit.gaps;
    return a;
  }
};

void must_be_ok(const df11::DecodeStatus& status, const std::string& name) {
  if (status.ok) return;
  std::fprintf(stderr, "%s does not decode: chunk %llu\n", name.c_str(),
               static_cast<unsigned long long>(status.chunk));
  std::abort();
}

Data& prepare(const bench::WeightKind& kind, int threads) {
  static std::map<std::string, Data> all;
  Data& data = all[kind.name];
  if (!data.weights.empty()) return data;
  data.weights = kind.make(bench::num_weights());
  data.unit = compress_df11_unit(data.weights, {.num_threads = threads});
  data.positions.resize(data.unit.output_positions.size() / 4);
  std::memcpy(data.positions.data(), data.unit.output_positions.data(), data.unit.output_positions.size());
  const std::size_t chunks = data.unit.gaps.size() / df11::kGapBytesPerChunk;
  if (data.positions.size() == chunks)
    data.positions.push_back(static_cast<std::uint32_t>(data.weights.size()));
  data.decoded.resize(data.weights.size());

  host::HostDecodeStage stage(threads);
  df11::DecodeArguments arguments = data.arguments();
  arguments.sign_mantissa = data.unit.sign_mantissa;
  arguments.weights = data.decoded;
  must_be_ok(stage.decode(arguments).wait(), kind.name);
  if (data.decoded != data.weights) std::abort();
  return data;
}

void register_all(int threads) {
  for (const bench::WeightKind& kind : bench::kWeightKinds) {
    const auto add = [&](const char* stage, auto body) {
      bench::add<host::HostDecodeStage>(stage, kind, threads, prepare, body);
    };
    add("CheckLengths", [](Data& data, host::HostDecodeStage& stage) {
      must_be_ok(stage.decode(data.arguments()).wait(), "lengths");
    });
    add("DecodeCompare", [](Data& data, host::HostDecodeStage& stage) {
      df11::DecodeArguments arguments = data.arguments();
      arguments.sign_mantissa = data.unit.sign_mantissa;
      arguments.source = data.weights;
      must_be_ok(stage.decode(arguments).wait(), "compare");
    });
    add("Decode", [](Data& data, host::HostDecodeStage& stage) {
      df11::DecodeArguments arguments = data.arguments();
      arguments.sign_mantissa = data.unit.sign_mantissa;
      arguments.weights = data.decoded;
      must_be_ok(stage.decode(arguments).wait(), "decode");
    });
  }
}

}  // namespace
}  // namespace weightpress

int main(int argc, char** argv) {
  const int threads = weightpress::bench::num_threads();
  weightpress::register_all(threads);
  return weightpress::bench::run_all(argc, argv, threads);
}
