// Arbitrary buffers of a unit through the decoder: it ends, reads nothing outside, and agrees with the slow
// decoder. Sizes are made to fit each other, so that the bytes behind them are reached.
//
// What the slow decoder accepts, ours gives back as the same weights. What ours accepts, the slow one may
// still refuse, for these reasons alone: two bit strings that lead to one exponent, codes that begin one
// another (both decode, as in the official kernel), and output_positions in the other of the two forms that
// readers take.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include <weightpress/df11.h>

#include "format/df11_constants.h"
#include "format/luts_view.h"
#include "host/decode.h"
#include "job/unit_decoder.h"
#include "job/unit_memory.h"
#include "selftest/slow_decoder.h"

namespace {

using namespace weightpress;

[[noreturn]] void fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::abort();
}

/// Takes bytes from the input; zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::vector<std::uint8_t> bytes(std::size_t count) {
    std::vector<std::uint8_t> all(count);
    const std::size_t have = std::min(count, size_);
    std::copy_n(data_, have, all.begin());
    data_ += have;
    size_ -= have;
    return all;
  }
  std::size_t left() const { return size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

/// Luts of a canonical prefix code over a few exponents, or raw ones; then a few entries changed.
std::vector<std::uint8_t> make_luts(Input& input) {
  const std::size_t num_tables = input.byte() % 4 == 0 ? 1 + input.byte() % 17 : 1;
  std::vector<std::uint8_t> luts((num_tables + 1) * 256, 0);
  if (input.byte() % 8 == 0) {
    luts = input.bytes(luts.size());
  } else {
    std::uint32_t next = 0;
    for (std::uint32_t i = 0; i < 12 && next < 256; ++i) {
      const std::uint32_t length = 1 + input.byte() % 8, run = 1u << (8 - length);
      next = (next + run - 1) / run * run;
      if (next + run > 256) break;
      const std::uint8_t exponent = static_cast<std::uint8_t>(100 + i);
      std::fill_n(luts.begin() + next, std::min<std::uint32_t>(256 - next, 256), exponent);
      luts[num_tables * 256 + exponent] = static_cast<std::uint8_t>(length);
      next += run;
    }
  }
  for (std::uint32_t changes = input.byte() % 4; changes > 0; --changes) {
    const std::size_t place = (input.byte() << 8 | input.byte()) % luts.size();
    luts[place] = input.byte();
  }
  return luts;
}

void check_raw_sizes(Input input) {
  Df11Unit unit;
  unit.luts = input.bytes(std::size_t{input.byte()} * 4);
  unit.encoded_exponent = input.bytes(input.byte());
  unit.sign_mantissa = input.bytes(input.byte());
  unit.output_positions = input.bytes(input.byte() % 16);
  unit.gaps = input.bytes(std::size_t{input.byte()} * 4);
  try {
    decompress_df11_unit(job::view_of(unit), 1);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorruptFile) fail("another error", error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_raw_sizes({data, size});
  Input input(data, size);
  const std::vector<std::uint8_t> luts = make_luts(input);
  const std::size_t slab_chunks = 1 + input.byte() % 3;
  const bool is_true_unit = input.byte() % 2 == 0;
  const std::uint8_t spoil = input.byte();
  Df11Unit unit;
  unit.luts = luts;
  // One code after the other, as many as there are, so that gaps and positions can be the right ones.
  unit.encoded_exponent = input.bytes(1 + std::min<std::size_t>(input.left(), 9000));
  const std::size_t num_chunks = (unit.encoded_exponent.size() + df11::kChunkBytes - 1) / df11::kChunkBytes;
  std::vector<std::uint8_t> gaps(num_chunks * df11::kWindowsPerChunk + 1, 0);
  std::vector<std::uint32_t> positions;
  const df11::LutsView view(unit.luts);
  std::uint64_t bit = 0, num_weights = 0;
  const std::uint64_t bits = 8 * unit.encoded_exponent.size();
  std::uint64_t windows = 0;
  while (bit < bits) {
    std::uint64_t ahead = 0;
    for (std::uint64_t i = 0; i < 5; ++i)
      ahead =
          ahead << 8 | (bit / 8 + i < unit.encoded_exponent.size() ? unit.encoded_exponent[bit / 8 + i] : 0u);
    const df11::DecodedCode code = view.look_up(static_cast<std::uint32_t>(ahead >> (8 - bit % 8)));
    if (code.length == 0 || bit + code.length > bits) break;
    for (; windows <= bit / df11::kWindowBits; ++windows)
      gaps[windows] = static_cast<std::uint8_t>(bit % df11::kWindowBits);
    while (positions.size() <= bit / df11::kChunkBits)
      positions.push_back(static_cast<std::uint32_t>(num_weights));
    ++num_weights;
    bit += code.length;
  }
  if (num_weights == 0) num_weights = 1;
  if (bit % 8 != 0 && bit / df11::kWindowBits >= windows)
    gaps[bit / df11::kWindowBits] = static_cast<std::uint8_t>(bit % 64);
  while (positions.size() < num_chunks) positions.push_back(static_cast<std::uint32_t>(num_weights));
  positions.push_back(static_cast<std::uint32_t>(num_weights));
  unit.sign_mantissa.assign(num_weights, 0x35);
  unit.gaps.assign(num_chunks * df11::kGapBytesPerChunk, 0);
  for (std::size_t w = 0; w < num_chunks * df11::kWindowsPerChunk; ++w) {
    for (std::uint32_t i = 0; i < df11::kGapBits; ++i) {
      const std::size_t place = w * df11::kGapBits + i;
      if (gaps[w] >> (df11::kGapBits - 1 - i) & 1)
        unit.gaps[place / 8] |= static_cast<std::uint8_t>(0x80 >> place % 8);
    }
  }
  for (const std::uint32_t position : positions)
    for (int shift = 0; shift < 32; shift += 8)
      unit.output_positions.push_back(static_cast<std::uint8_t>(position >> shift));
  if (!is_true_unit) {
    std::vector<std::uint8_t>* const buffers[] = {&unit.gaps, &unit.output_positions, &unit.encoded_exponent};
    std::vector<std::uint8_t>& buffer = *buffers[spoil % 3];
    buffer[(spoil * 131u) % buffer.size()] ^= static_cast<std::uint8_t>(1u << spoil / 3 % 8);
  }

  const job::UnitSizes sizes{num_weights, unit.encoded_exponent.size(), num_chunks,
                             unit.output_positions.size() / 4, unit.luts.size() / 256 - 1};
  const Df11UnitView bytes_view = job::view_of(unit);
  const job::MemoryUnit bytes(bytes_view);
  host::HostDecodeStage stage(1);
  job::DecodeBuffers buffers;
  job::UnitDecoder decoder(sizes, bytes, stage, buffers, slab_chunks);
  std::vector<std::uint16_t> weights;
  const auto fault = decoder.decode([&](std::uint64_t, std::span<const std::uint16_t> slab) {
    weights.insert(weights.end(), slab.begin(), slab.end());
  });
  if (fault.has_value() != job::UnitDecoder(sizes, bytes, stage, buffers).check_lengths().has_value())
    fail("weights and lengths disagree", fault ? fault->message : "");

  const selftest::UnitBytes slow_bytes{unit.luts, unit.encoded_exponent, unit.sign_mantissa,
                                       unit.output_positions, unit.gaps};
  const selftest::SlowDecoding slow = selftest::slow_decode(slow_bytes);
  if (slow.ok && fault) fail("refused a sound unit", fault->message);
  if (slow.ok && slow.weights != weights) fail("other weights", "");
  if (slow.ok && !decoder.kernel_ends() && selftest::window_decode(slow_bytes).ok)
    fail("the kernel ends", "");
  if (!slow.ok && !fault) {
    const bool is_known = slow.problem.find("second code") != std::string::npos ||
                          slow.problem.find("begins that of") != std::string::npos ||
                          slow.problem.find("is looked up in") != std::string::npos ||
                          slow.problem.find("cannot have a code of") != std::string::npos ||
                          (slow.problem.starts_with("output_positions") &&
                           slow.problem.find("entries instead of") != std::string::npos);
    if (!is_known) fail("accepted", slow.problem);
  }
  if (fault) {
    // The source is what the stream says, as far as it says anything: a comparison ends too.
    std::vector<std::uint16_t> source(num_weights, 0x3F35);
    job::MemorySource memory(source);
    if (!job::UnitDecoder(sizes, bytes, stage, buffers, slab_chunks).compare(memory))
      fail("no fault with a source", fault->message);
  }
  return 0;
}
