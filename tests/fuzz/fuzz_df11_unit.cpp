// Arbitrary weights in arbitrary slabs: they are stored so that the slow decoder and the official kernel's
// way both give them back, or they are refused because an exponent cannot be stored.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "format/bf16_fields.h"
#include "host/host_stages.h"
#include "job/unit_memory.h"
#include "selftest/slow_decoder.h"

namespace {

using namespace weightpress;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// Words from bytes. Fuzzers find rare exponents by themselves, but long and skewed units only when bytes
/// stand for many.
std::vector<std::uint16_t> make_words(const std::uint8_t* data, std::size_t size, std::uint8_t mode) {
  std::vector<std::uint16_t> words;
  if (mode % 2 == 0) {
    for (std::size_t i = 0; i + 1 < size; i += 2) {
      words.push_back(static_cast<std::uint16_t>(data[i] | data[i + 1] << 8));
    }
    return words;
  }
  // Runs: an exponent and how often, up to 2^12 times.
  for (std::size_t i = 0; i + 1 < size && words.size() < 200'000; i += 2) {
    words.insert(words.end(), std::size_t{1} << (data[i + 1] % 13),
                 df11::join_bf16(data[i] % 241, data[i + 1]));
  }
  return words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 6) return 0;
  const std::vector<std::uint16_t> words = make_words(data + 6, size - 6, data[0]);
  job::UnitCompressorOptions options;
  options.segment_weights = 1 + data[1] + 256u * data[2];
  options.slab_weights = 1 + (data[3] + 256u * data[4]) * 4u;
  options.coding.fill = data[5] % 2 == 0 ? df11::TableFill::kCompat : df11::TableFill::kSafe;

  job::MemorySource source(words);
  job::MemorySink sink;
  host::HostStages stages(1 + data[5] / 2 % 3);
  const Result<df11::UnitPlan> plan = job::compress_unit("fuzz", source, sink, stages, options);
  if (!plan) {
    const bool storable = std::all_of(words.begin(), words.end(), [](std::uint16_t word) {
      return df11::exponent_of(word) < df11::kFirstPointer;
    });
    if (storable && !words.empty()) fail(plan.error().message.c_str());
    return 0;
  }
  const Df11Unit& unit = sink.unit;
  const selftest::SlowDecoding back = selftest::window_decode(
      {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps});
  if (!back.ok) fail(back.problem.c_str());
  if (back.weights != words) fail("other weights came back");
  return 0;
}
