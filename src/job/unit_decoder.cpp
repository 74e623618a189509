#include "job/unit_decoder.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace weightpress::job {
namespace {

static_assert(std::endian::native == std::endian::little, "output_positions are read as they lie in files");

}  // namespace

UnitDecoder::UnitDecoder(const UnitSizes& sizes, const UnitBytes& bytes, df11::Df11DecodeStage& stage,
                         DecodeBuffers& buffers, std::uint64_t slab_chunks)
    : sizes_(sizes), bytes_(bytes), stage_(stage), buffers_(buffers), slab_chunks_(slab_chunks) {
  assert(slab_chunks > 0 && sizes.num_weights > 0 && sizes.stream_bytes > 0);
  // Tables that no pointer reaches are left out; there may be any number of them.
  const std::uint64_t num_tables = std::min<std::uint64_t>(sizes.num_tables, df11::kMaxTables);
  luts_.resize((num_tables + 1) * df11::kNumSymbols);
  const std::span<std::uint8_t> lengths = std::span(luts_).last(df11::kNumSymbols);
  bytes.read(UnitBuffer::kLuts, 0, std::span(luts_).first(num_tables * df11::kNumSymbols));
  bytes.read(UnitBuffer::kLuts, sizes.num_tables * df11::kNumSymbols, lengths);
}

std::optional<UnitFault> UnitDecoder::decode(const OnWeights& on_weights) {
  return run(0, sizes_.num_chunks, Wanted::kWeights, nullptr, on_weights, {});
}

std::optional<UnitFault> UnitDecoder::compare(WeightSource& source, const OnSlab& on_slab) {
  return compare_chunks(0, sizes_.num_chunks, source, on_slab);
}

std::optional<UnitFault> UnitDecoder::check_lengths(const OnSlab& on_slab) {
  return run(0, sizes_.num_chunks, Wanted::kLengths, nullptr, {}, on_slab);
}

std::optional<UnitFault> UnitDecoder::compare_chunks(std::uint64_t first, std::uint64_t end,
                                                     WeightSource& source, const OnSlab& on_slab) {
  assert(source.num_weights() == sizes_.num_weights);
  return run(first, end, Wanted::kComparison, &source, {}, on_slab);
}

std::optional<UnitFault> UnitDecoder::run(std::uint64_t first, std::uint64_t end, Wanted wanted,
                                          WeightSource* source, const OnWeights& on_weights,
                                          const OnSlab& on_slab) {
  for (std::uint64_t chunk = first; chunk < end;) {
    Slab slab = read_positions(chunk, std::min(slab_chunks_, end - chunk));
    const std::uint64_t sound = num_sound_chunks(slab, source);
    const bool is_sound = sound == slab.num_chunks;
    if (sound > 0) {
      slab.num_chunks = sound;
      slab.positions = slab.positions.first(sound + 1);
      const df11::DecodeArguments arguments = read_slab(slab, wanted, source);
      const df11::DecodeStatus status = stage_.decode(arguments).wait();
      if (!status.ok) return locate(status.chunk, source);
      kernel_ends_ = kernel_ends_ && status.kernel_ends;
      for (std::uint64_t i = 0; i < sound; ++i)
        densest_chunk_ = std::max<std::uint64_t>(densest_chunk_, slab.positions[i + 1] - slab.positions[i]);
      end_weight_ = slab.positions.back();
      if (on_weights) on_weights(slab.positions.front(), arguments.weights);
      if (on_slab) on_slab(slab.positions.back() - slab.positions.front());
    }
    if (!is_sound) return locate(chunk + sound, source);
    chunk += slab.num_chunks;
  }
  return std::nullopt;
}

/// The positions of `count` chunks and the one after them. The entry that short output_positions lack is the
/// number of weights.
UnitDecoder::Slab UnitDecoder::read_positions(std::uint64_t first, std::uint64_t count) {
  const std::span<std::uint32_t> positions = buffers_.positions.get(count + 1);
  const std::uint64_t stored = std::min(count + 1, sizes_.num_positions - first);
  bytes_.read(UnitBuffer::kOutputPositions, first * sizeof positions[0],
              {reinterpret_cast<std::uint8_t*>(positions.data()), stored * sizeof positions[0]});
  if (stored < positions.size()) positions.back() = static_cast<std::uint32_t>(sizes_.num_weights);
  return {first, count, positions};
}

/// So many chunks, from the first on, have positions that a decoder can work with, and do not speak of
/// weights that the source does not have.
std::uint64_t UnitDecoder::num_sound_chunks(const Slab& slab, const WeightSource* source) const {
  const WeightRange known = source != nullptr ? source->readable() : WeightRange{0, sizes_.num_weights};
  std::uint64_t sound = 0;
  for (; sound < slab.num_chunks; ++sound) {
    const std::uint64_t begin = slab.positions[sound], end = slab.positions[sound + 1];
    if (begin > end || begin < known.first || end > known.end || end - begin > df11::kChunkBits) break;
    if (slab.first_chunk + sound + 1 < sizes_.num_chunks) continue;
    // The last chunk: of short output_positions the last one stored is the number of weights.
    const bool is_short = sizes_.num_positions == sizes_.num_chunks;
    if ((is_short ? begin : end) != sizes_.num_weights) break;
  }
  return sound;
}

df11::DecodeArguments UnitDecoder::read_slab(const Slab& slab, Wanted wanted, WeightSource* source) {
  const bool is_last = slab.first_chunk + slab.num_chunks == sizes_.num_chunks;
  const std::uint64_t first_byte = slab.first_chunk * df11::kChunkBytes;
  const std::uint64_t end_byte = std::min(
      first_byte + slab.num_chunks * df11::kChunkBytes + df11::kDecodeLookaheadBytes, sizes_.stream_bytes);
  const std::span<std::uint8_t> stream = buffers_.encoded_exponent.get(end_byte - first_byte);
  bytes_.read(UnitBuffer::kEncodedExponent, first_byte, stream);
  const std::span<std::uint8_t> gaps =
      buffers_.gaps.get(slab.num_chunks * df11::kGapBytesPerChunk + (is_last ? 0 : df11::kGapGroupBytes));
  bytes_.read(UnitBuffer::kGaps, slab.first_chunk * df11::kGapBytesPerChunk, gaps);

  df11::DecodeArguments arguments;
  arguments.luts = luts_;
  arguments.num_weights = sizes_.num_weights;
  arguments.stream_bytes = sizes_.stream_bytes;
  arguments.first_chunk = slab.first_chunk;
  arguments.positions = slab.positions;
  arguments.encoded_exponent = stream;
  arguments.gaps = gaps;
  if (wanted == Wanted::kLengths) return arguments;

  const std::uint64_t first_weight = slab.positions.front();
  const std::uint64_t count = slab.positions.back() - first_weight;
  const std::span<std::uint8_t> sign_mantissa = buffers_.sign_mantissa.get(count);
  bytes_.read(UnitBuffer::kSignMantissa, first_weight, sign_mantissa);
  arguments.sign_mantissa = sign_mantissa;
  if (wanted == Wanted::kWeights) {
    arguments.weights = buffers_.weights.get(count);
  } else {
    arguments.source = source->in_memory(first_weight, count);
    if (arguments.source.size() != count) {
      const std::span<std::uint16_t> weights = buffers_.source.get(count);
      source->read(first_weight, weights);
      arguments.source = weights;
    }
  }
  return arguments;
}

UnitFault UnitDecoder::locate(std::uint64_t chunk, WeightSource* source) const {
  return locate_fault(sizes_, bytes_, luts_, chunk, source);
}

}  // namespace weightpress::job
