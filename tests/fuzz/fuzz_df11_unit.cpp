// Arbitrary weights in arbitrary slabs: they are stored so that the slow decoder and the official kernel's
// way both give them back, or they are refused because an exponent cannot be stored. Sometimes the source
// changes at some read: then nothing may be written outside, and what was stored without complaint is sound
// all the same.
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

/// Changes one weight at the nth read.
class ChangingSource final : public job::WeightSource {
 public:
  ChangingSource(std::vector<std::uint16_t> words, int read, std::size_t place, std::uint16_t word)
      : words_(std::move(words)), reads_left_(read), place_(place), word_(word) {}

  std::uint64_t num_weights() const override { return words_.size(); }
  void read(std::uint64_t first, std::span<std::uint16_t> weights) override {
    if (reads_left_-- == 0 && !words_.empty()) words_[place_ % words_.size()] = word_;
    std::copy_n(words_.begin() + static_cast<std::ptrdiff_t>(first), weights.size(), weights.begin());
  }

 private:
  std::vector<std::uint16_t> words_;
  int reads_left_;
  std::size_t place_;
  std::uint16_t word_;
};

selftest::SlowDecoding read_back(const Df11Unit& unit) {
  selftest::SlowDecoding back = selftest::window_decode(
      {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps});
  if (!back.ok) fail(back.problem.c_str());
  return back;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 6) return 0;
  const std::vector<std::uint16_t> words = make_words(data + 6, size - 6, data[0]);
  job::UnitCompressorOptions options;
  options.segment_weights = 1 + data[1] + 256u * data[2];
  options.slab_weights = 1 + (data[3] + 256u * data[4]) * 4u;
  options.coding.fill = data[5] % 2 == 0 ? df11::TableFill::kCompat : df11::TableFill::kSafe;

  job::MemorySink sink;
  job::SlabBuffers buffers;
  host::HostStages stages(1 + data[5] / 2 % 3);
  if (data[0] % 4 >= 2) {
    const auto word = static_cast<std::uint16_t>(data[size - 1] | data[size - 2] << 8);
    ChangingSource changing(words, data[5] / 8, data[1] * std::size_t{257} + data[3], word);
    if (job::compress_unit("fuzz", changing, sink, stages, buffers, options)) read_back(sink.unit);
    return 0;
  }
  job::MemorySource source(words);
  const Result<df11::UnitPlan> plan = job::compress_unit("fuzz", source, sink, stages, buffers, options);
  if (!plan) {
    const bool storable = std::all_of(words.begin(), words.end(), [](std::uint16_t word) {
      return df11::exponent_of(word) < df11::kFirstPointer;
    });
    if (storable && !words.empty()) fail(plan.error().message.c_str());
    return 0;
  }
  if (read_back(sink.unit).weights != words) fail("other weights came back");
  return 0;
}
