#include "job/official_decoder.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "format/df11_constants.h"
#include "format/luts_view.h"

namespace weightpress::job {
namespace {

static_assert(std::endian::native == std::endian::little, "output_positions are read as they lie in files");

std::string hex_word(std::uint16_t word) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 12; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  return text;
}

}  // namespace

OfficialDecoder::OfficialDecoder(const UnitSizes& sizes, const UnitBytes& bytes, df11::Df11DecodeStage& own,
                                 OfficialKernelRunner& kernel, KernelBuffers& buffers, int num_threads,
                                 std::uint64_t slab_chunks)
    : sizes_(sizes),
      bytes_(bytes),
      own_(own),
      kernel_(kernel),
      buffers_(buffers),
      num_threads_(num_threads),
      slab_chunks_(slab_chunks),
      luts_(sizes.luts_bytes()) {
  assert(slab_chunks > 0 && sizes.num_tables <= df11::kMaxTables);
  bytes.read(UnitBuffer::kLuts, 0, luts_);
  survey_positions();
  can_launch_ = densest_chunk_ <= df11::kMaxChunkWeights && sizes.num_weights < df11::kMaxUnitWeights &&
                sizes.stream_bytes < df11::kMaxStreamBytes;
}

/// Of `count` chunks and of the one after them. The entry that short output_positions lack is the number of
/// weights.
std::span<std::uint32_t> OfficialDecoder::read_positions(std::uint64_t first, std::uint64_t count) {
  const std::span<std::uint32_t> positions = buffers_.positions.get(count + 1);
  const std::uint64_t stored = std::min(count + 1, sizes_.num_positions - first);
  bytes_.read(UnitBuffer::kOutputPositions, first * sizeof positions[0],
              {reinterpret_cast<std::uint8_t*>(positions.data()), stored * sizeof positions[0]});
  if (stored < positions.size()) positions.back() = static_cast<std::uint32_t>(sizes_.num_weights);
  return positions;
}

/// How many chunks have positions that a decoder can work with, and the most weights in one of them.
void OfficialDecoder::survey_positions() {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 16;
  const bool is_short = sizes_.num_positions == sizes_.num_chunks;
  for (std::uint64_t first = 0; first < sizes_.num_chunks; first += kPiece) {
    const std::uint64_t count = std::min(kPiece, sizes_.num_chunks - first);
    const auto positions = read_positions(first, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t begin = positions[i], end = positions[i + 1];
      if (begin > end || end > sizes_.num_weights || end - begin > df11::kChunkBits) return;
      const bool is_last = first + i + 1 == sizes_.num_chunks;
      if (is_last && (is_short ? begin : end) != sizes_.num_weights) return;
      ++num_sound_chunks_;
      densest_chunk_ = std::max(densest_chunk_, end - begin);
    }
  }
}

std::optional<UnitFault> OfficialDecoder::check_positions(WeightSource* source) {
  if (num_sound_chunks_ == sizes_.num_chunks) return std::nullopt;
  return locate_fault(sizes_, bytes_, luts_, num_sound_chunks_, source);
}

std::optional<UnitFault> OfficialDecoder::compare_chunks(std::uint64_t first, std::uint64_t end,
                                                         WeightSource* source, const OnSlab& on_slab) {
  assert(source == nullptr || source->num_weights() == sizes_.num_weights);
  const std::uint64_t sound_end = std::min(end, num_sound_chunks_);
  for (std::uint64_t chunk = first; chunk < sound_end;) {
    Slab slab = read_slab(chunk, std::min(slab_chunks_, sound_end - chunk));
    if (auto fault = decode_slab(slab, source)) return fault;
    if (can_launch_)
      if (auto fault = run_kernel(slab, source != nullptr)) return fault;
    if (on_slab) on_slab(slab.num_weights());
    chunk += slab.num_chunks;
  }
  return sound_end == end ? std::nullopt : check_positions(source);
}

OfficialDecoder::Slab OfficialDecoder::read_slab(std::uint64_t first_chunk, std::uint64_t num_chunks) {
  const bool is_last = first_chunk + num_chunks == sizes_.num_chunks;
  Slab slab{.first_chunk = first_chunk, .num_chunks = num_chunks};
  slab.positions = read_positions(first_chunk, num_chunks);
  const std::uint64_t first_byte = first_chunk * df11::kChunkBytes;
  const std::uint64_t end_byte = std::min(
      first_byte + num_chunks * df11::kChunkBytes + df11::kDecodeLookaheadBytes, sizes_.stream_bytes);
  slab.encoded_exponent = buffers_.encoded_exponent.get(end_byte - first_byte);
  bytes_.read(UnitBuffer::kEncodedExponent, first_byte, slab.encoded_exponent);
  slab.gaps = buffers_.gaps.get(num_chunks * df11::kGapBytesPerChunk + (is_last ? 0 : df11::kGapGroupBytes));
  bytes_.read(UnitBuffer::kGaps, first_chunk * df11::kGapBytesPerChunk, slab.gaps);
  slab.sign_mantissa = buffers_.sign_mantissa.get(slab.num_weights());
  bytes_.read(UnitBuffer::kSignMantissa, slab.first_weight(), slab.sign_mantissa);
  return slab;
}

df11::DecodeArguments OfficialDecoder::arguments_of(const Slab& slab) const {
  df11::DecodeArguments arguments;
  arguments.luts = luts_;
  arguments.num_weights = sizes_.num_weights;
  arguments.stream_bytes = sizes_.stream_bytes;
  arguments.first_chunk = slab.first_chunk;
  arguments.positions = slab.positions;
  arguments.encoded_exponent = slab.encoded_exponent;
  arguments.gaps = slab.gaps;
  arguments.sign_mantissa = slab.sign_mantissa;
  return arguments;
}

/// Our own decoder. Sets the slab's expected weights.
std::optional<UnitFault> OfficialDecoder::decode_slab(Slab& slab, WeightSource* source) {
  df11::DecodeArguments arguments = arguments_of(slab);
  const std::span<std::uint16_t> expected = buffers_.expected.get(slab.num_weights());
  if (source == nullptr) {
    arguments.weights = expected;
  } else {
    source->read(slab.first_weight(), expected);
    arguments.source = expected;
  }
  slab.expected = expected;
  const df11::DecodeStatus status = own_.decode(arguments).wait();
  if (!status.ok) return locate_fault(sizes_, bytes_, luts_, status.chunk, source);
  own_kernel_ends_ = own_kernel_ends_ && status.kernel_ends;
  return std::nullopt;
}

std::optional<UnitFault> OfficialDecoder::run_kernel(const Slab& slab, bool has_source) {
  if (!own_kernel_ends_ && !kernel_.is_interpreter()) return never_ends(sizes_.num_chunks - 1);
  const std::span<std::uint16_t> outputs = buffers_.outputs.get(slab.num_weights());
  // So that a weight that the kernel does not write is a wrong one.
  std::ranges::transform(slab.expected, outputs.begin(),
                         [](std::uint16_t weight) { return static_cast<std::uint16_t>(~weight); });
  KernelSlab given{.sizes = sizes_,
                   .arguments = arguments_of(slab),
                   .densest_chunk = densest_chunk_,
                   .num_threads = num_threads_};
  given.arguments.weights = outputs;
  const KernelRun run = kernel_.run(given);
  if (run.fault) return fault_of(*run.fault);
  counts_ += run.counts;
  const auto wrong = std::ranges::mismatch(slab.expected, outputs);
  if (wrong.in1 == slab.expected.end()) return std::nullopt;
  return wrong_weight(slab, static_cast<std::uint64_t>(wrong.in1 - slab.expected.begin()), *wrong.in2,
                      has_source);
}

UnitFault OfficialDecoder::never_ends(std::uint64_t chunk) {
  UnitFault told;
  told.kind = "padding";
  told.chunk = chunk;
  told.message =
      "luts: the weights are intact, but the official kernel never ends on the bits after the last one "
      "(chunk " +
      std::to_string(chunk) + "), and would hang the GPU: compress the unit again";
  return told;
}

UnitFault OfficialDecoder::fault_of(const ptxvm::Fault& fault) const {
  const std::uint64_t chunk = fault.block.x;
  if (fault.kind == ptxvm::FaultKind::kEndless && chunk + 1 == sizes_.num_chunks) return never_ends(chunk);
  UnitFault told;
  told.kind = "kernel";
  told.chunk = chunk;
  told.message = "decode.ptx: does not get through chunk " + std::to_string(chunk) + ": " + fault.message;
  return told;
}

UnitFault OfficialDecoder::wrong_weight(const Slab& slab, std::uint64_t index, std::uint16_t output,
                                        bool has_source) const {
  const std::uint64_t weight = slab.first_weight() + index;
  // The last chunk that begins with it or before it: those before may be empty.
  const auto after = std::ranges::upper_bound(slab.positions.first(slab.num_chunks), weight);
  const auto chunk = static_cast<std::uint64_t>(after - slab.positions.begin()) - 1;
  UnitFault fault;
  fault.kind = "kernel";
  fault.chunk = slab.first_chunk + chunk;
  fault.window = fault.chunk * df11::kWindowsPerChunk + window_of(slab, chunk, weight);
  fault.weight = weight;
  const std::uint16_t expected = slab.expected[index];
  const bool is_unwritten = output == static_cast<std::uint16_t>(~expected);
  fault.message = "decode.ptx: weight " + std::to_string(weight) + ", window " +
                  std::to_string(fault.window) + " (chunk " + std::to_string(fault.chunk) + "), " +
                  (is_unwritten ? "is not written" : "is " + hex_word(output)) + ", but " +
                  (has_source ? "the source has " : "our own decoder finds ") + hex_word(expected);
  return fault;
}

/// Of the chunk, by a walk along its codes, which our own decoder found sound.
std::uint64_t OfficialDecoder::window_of(const Slab& slab, std::uint64_t chunk, std::uint64_t weight) const {
  const df11::LutsView luts(luts_);
  const std::span<const std::uint8_t> stream = slab.encoded_exponent.subspan(chunk * df11::kChunkBytes);
  std::uint64_t bit = slab.gaps[chunk * df11::kGapBytesPerChunk] >> (8 - df11::kGapBits);
  for (std::uint64_t before = weight - slab.positions[chunk]; before > 0; --before) {
    std::uint64_t bits = 0;
    for (std::uint64_t i = 0; i < 5; ++i)
      bits = bits << 8 | (bit / 8 + i < stream.size() ? stream[bit / 8 + i] : 0);
    bit += luts.look_up(static_cast<std::uint32_t>(bits >> (8 - bit % 8))).length;
  }
  return std::min<std::uint64_t>(bit / df11::kWindowBits, df11::kWindowsPerChunk - 1);
}

}  // namespace weightpress::job
