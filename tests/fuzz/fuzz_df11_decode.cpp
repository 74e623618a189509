// Arbitrary buffers as a unit: decoding ends, and says the same as the slow decoder. What the slow decoder
// takes, ours takes, with the same weights. What only ours takes is one of these, since it follows the tables
// and nothing else:
// - two codes for one exponent (EOF's bits, which the fill gives to its neighbour);
// - a code whose length is not that of the tables it is looked up in, or that another one begins;
// - lengths that no code can have, of exponents that do not occur;
// - output_positions with or without the entry of a last chunk in which no code starts.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "decode_fuzz.h"
#include "format/luts_check.h"
#include "format/luts_view.h"
#include "host/decode.h"
#include "job/unit_decoder.h"
#include "job/unit_memory.h"
#include "selftest/slow_decoder.h"

namespace {

using namespace weightpress;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

/// Ends the stream behind the last code that is whole, and makes gaps, positions and the number of weights
/// what its codes say: hostile tables get far into the decoder then. Leaves alone what begins with no code.
void repair_ends(Df11Unit& unit) {
  const df11::LutsView luts(unit.luts);
  const std::uint64_t num_bits = 8 * unit.encoded_exponent.size();
  std::vector<std::uint8_t> stream = unit.encoded_exponent;
  stream.resize(stream.size() + 8, 0);
  std::vector<std::uint8_t> gaps((num_bits + 63) / 64 + 512, 0);
  std::vector<std::uint32_t> positions;
  std::uint64_t bit = 0, windows = 0;
  std::uint32_t weights = 0;
  while (bit < num_bits && weights < fuzz::kMostWeights) {
    std::uint64_t ahead = 0;
    for (std::uint64_t i = 0; i < 5; ++i) ahead = ahead << 8 | stream[bit / 8 + i];
    const df11::DecodedCode code = luts.look_up(static_cast<std::uint32_t>(ahead >> (8 - bit % 8)));
    if (code.length == 0 || bit + code.length > num_bits) break;
    if (bit / 64 >= windows) gaps[bit / 64] = static_cast<std::uint8_t>(bit % 64);
    windows = bit / 64 + 1;
    if (bit / 32768 == positions.size()) positions.push_back(weights);
    ++weights;
    bit += code.length;
  }
  if (weights == 0) return;
  unit.encoded_exponent.resize((bit + 7) / 8);
  unit.sign_mantissa.resize(weights);
  const std::uint64_t num_chunks = (unit.encoded_exponent.size() + 4095) / 4096;
  if (bit % 8 != 0 && bit / 64 >= windows) gaps[bit / 64] = static_cast<std::uint8_t>(bit % 64);
  if (positions.size() < num_chunks && bit % 8 != 0) positions.push_back(weights);
  positions.push_back(weights);
  unit.gaps.assign(320 * num_chunks, 0);
  for (std::uint64_t i = 0; i < 5 * 512 * num_chunks; ++i)
    if (gaps[std::min<std::uint64_t>(i / 5, gaps.size() - 1)] >> (4 - i % 5) & 1)
      unit.gaps[i / 8] = static_cast<std::uint8_t>(unit.gaps[i / 8] | 0x80 >> i % 8);
  unit.output_positions.clear();
  for (const std::uint32_t position : positions)
    for (unsigned i = 0; i < 4; ++i)
      unit.output_positions.push_back(static_cast<std::uint8_t>(position >> 8 * i));
}

bool is_known_leniency(const std::string& problem) {
  const auto says = [&](const char* words) { return problem.find(words) != std::string::npos; };
  return says("has a second code") || says("is looked up in") || says("begins that of exponent") ||
         says("cannot have a code of") || (says("output_positions: ") && says("entries instead of"));
}

class Checks {
 public:
  Checks(const Df11Unit& unit, std::uint64_t slab_chunks)
      : unit_(unit), view_(job::view_of(unit)), bytes_(view_), slab_chunks_(slab_chunks), stage_(1) {
    sizes_ = {unit.sign_mantissa.size(), unit.encoded_exponent.size(), unit.gaps.size() / 320,
              unit.output_positions.size() / 4, unit.luts.size() / 256 - 1};
  }

  void run() {
    const selftest::UnitBytes bytes = {unit_.luts, unit_.encoded_exponent, unit_.sign_mantissa,
                                       unit_.output_positions, unit_.gaps};
    const selftest::SlowDecoding slow = selftest::slow_decode(bytes);
    std::vector<std::uint16_t> weights;
    job::UnitDecoder decoder(sizes_, bytes_, stage_, buffers_, slab_chunks_);
    const auto fault = decoder.decode([&](std::uint64_t first, std::span<const std::uint16_t> slab) {
      require(first == weights.size(), "a hole between slabs");
      weights.insert(weights.end(), slab.begin(), slab.end());
    });
    const auto lengths_fault =
        job::UnitDecoder(sizes_, bytes_, stage_, buffers_, slab_chunks_).check_lengths();
    require(fault.has_value() == lengths_fault.has_value(), "weights and lengths disagree");
    if (fault) {
      require(!slow.ok, "refused: " + fault->message);
      require_sound(*fault);
      require_sound(*lengths_fault);
      return;
    }
    require(slow.ok || is_known_leniency(slow.problem), "accepted, but: " + slow.problem);
    require(weights.size() == unit_.sign_mantissa.size(), "another number of weights");
    require(slow.weights.size() <= weights.size() &&
                std::equal(slow.weights.begin(), slow.weights.end(), weights.begin()),
            "other weights");
    if (slow.ok) check_kernel(selftest::window_decode(bytes), decoder.kernel_ends());
    compare(weights);
  }

 private:
  void require_sound(const job::UnitFault& fault) const {
    require(fault.kind == "stream" || fault.kind == "gap" || fault.kind == "position",
            "kind " + fault.kind + " without a source");
    require(fault.message.find(": ") != std::string::npos, "no buffer: " + fault.message);
    require(fault.chunk < sizes_.num_chunks, "no such chunk: " + fault.message);
    if (fault.window != job::UnitFault::kNowhere)
      require(fault.chunk == fault.window / 512, "window of another chunk: " + fault.message);
    if (fault.weight != job::UnitFault::kNowhere)
      require(fault.weight < sizes_.num_weights, "no such weight: " + fault.message);
  }

  static void check_kernel(const selftest::SlowDecoding& windows, bool kernel_ends) {
    // Otherwise a limit of the kernel, which it names first.
    const bool never_ends = windows.problem.find("never ends") != std::string::npos;
    if (windows.ok || never_ends) require(kernel_ends == windows.ok, "kernel_ends, but: " + windows.problem);
  }

  /// Against itself, and against itself with one weight changed.
  void compare(std::vector<std::uint16_t>& weights) {
    const auto against_source = [&] {
      job::MemorySource source(weights);
      return job::UnitDecoder(sizes_, bytes_, stage_, buffers_, slab_chunks_).compare(source);
    };
    require(!against_source(), "differs from what it decodes to");
    const std::uint64_t changed = (unit_.sign_mantissa[0] + 257u * unit_.luts[0]) % weights.size();
    weights[changed] = static_cast<std::uint16_t>(weights[changed] ^ 1u << unit_.luts[0] % 16);
    const auto fault = against_source();
    require(fault && fault->kind == "weight" && fault->weight == changed, "a changed weight was not found");
  }

  const Df11Unit& unit_;
  Df11UnitView view_;
  job::MemoryUnit bytes_;
  std::uint64_t slab_chunks_;
  job::UnitSizes sizes_;
  host::HostDecodeStage stage_;
  job::DecodeBuffers buffers_;
};

void decode_raw_sizes(std::span<const std::uint8_t> input) {
  fuzz::InputReader reader(input.subspan(1));
  Df11Unit unit;
  // Nearly what fits, or anything.
  unit.luts = reader.run(reader.number(1) * 128);
  unit.encoded_exponent = reader.run(reader.number(2) % fuzz::kMostStreamBytes);
  unit.gaps = reader.run(reader.number(1) * 320 + reader.number(1) % 2);
  unit.output_positions = reader.run(reader.number(1));
  unit.sign_mantissa = reader.run(reader.number(2));
  try {
    const auto weights = decompress_df11_unit(job::view_of(unit), 1);
    require(weights.size() == unit.sign_mantissa.size(), "another number of weights");
    const auto slow = selftest::slow_decode(
        {unit.luts, unit.encoded_exponent, unit.sign_mantissa, unit.output_positions, unit.gaps});
    require(slow.ok || is_known_leniency(slow.problem), "accepted, but: " + slow.problem);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kCorruptFile, error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 10) return 0;
  const std::span input(data, size);
  if (data[0] & fuzz::kRawSizes) {
    decode_raw_sizes(input);
    return 0;
  }
  fuzz::DecodeSeed seed = fuzz::read_sized_unit(input);
  if (seed.mode & fuzz::kRepairedEnds) repair_ends(seed.unit);
  // Of any tables: it ends.
  const auto lost = df11::find_lost_code(df11::LutsView(seed.unit.luts));
  require(!lost || *lost < df11::kFirstPointer, "a lost code of no exponent");
  Checks(seed.unit, seed.slab_chunks).run();
  return 0;
}
