#include "job/unit_decoder.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <exception>

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

std::uint64_t UnitDecoder::slab_chunks_for(std::uint64_t num_chunks, const df11::Df11DecodeStage& stage) {
  constexpr std::uint64_t kLeast = 4, kSlabs = 8;
  if (stage.most_under_way() == 1) return kDefaultSlabChunks;
  return std::clamp(num_chunks / kSlabs, kLeast, kDefaultSlabChunks);
}

/// Of chunks in slabs, as many of them under way as the stage allows.
class UnitDecoder::Run {
 public:
  Run(UnitDecoder& decoder, Wanted wanted, WeightSource* source, const OnWeights& on_weights,
      const OnSlab& on_slab)
      : decoder_(decoder),
        wanted_(wanted),
        source_(source),
        on_weights_(on_weights),
        on_slab_(on_slab),
        num_buffers_(static_cast<std::size_t>(decoder.stage_.most_under_way())) {
    assert(num_buffers_ > 0);
    while (decoder.buffers_.slabs_.size() < num_buffers_) decoder.buffers_.slabs_.emplace_back();
  }
  ~Run() {
    if (!under_way_.empty()) decoder_.stage_.abandon();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::optional<UnitFault> chunks(std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t chunk = first; chunk < end;) {
      while (under_way_.size() >= most_under_way())
        if (auto fault = finish_first()) return fault;
      const std::uint64_t count = std::min(decoder_.slab_chunks_, end - chunk);
      std::uint64_t sound = 0;
      try {
        sound = begin(chunk, count);
      } catch (...) {
        // A fault of what comes before is told first, as if nothing had been read ahead.
        const std::exception_ptr trouble = std::current_exception();
        if (auto fault = finish_all()) return fault;
        std::rethrow_exception(trouble);
      }
      if (sound < count) {
        if (auto fault = finish_all()) return fault;
        return decoder_.locate(chunk + sound, source_);
      }
      chunk += count;
    }
    return finish_all();
  }

 private:
  std::size_t most_under_way() const {
    return std::min(num_buffers_, static_cast<std::size_t>(decoder_.stage_.most_under_way()));
  }

  /// Reads so many chunks and has those before the first whose position is no use decoded; returns how many.
  std::uint64_t begin(std::uint64_t first, std::uint64_t count) {
    // None of the slabs under way has the same ones.
    DecodeBuffers::OfSlab& buffers = decoder_.buffers_.slabs_[num_begun_ % num_buffers_];
    Slab slab = decoder_.read_positions(first, count, buffers);
    const std::uint64_t sound = decoder_.num_sound_chunks(slab, source_);
    if (sound == 0) return 0;
    slab.num_chunks = sound;
    slab.positions = slab.positions.first(sound + 1);
    const df11::DecodeArguments arguments = decoder_.read_slab(slab, wanted_, source_);
    under_way_.push_back({slab, arguments, decoder_.stage_.decode(arguments)});
    ++num_begun_;
    return sound;
  }

  std::optional<UnitFault> finish_first() {
    const SlabUnderWay first = std::move(under_way_.front());
    under_way_.pop_front();
    const df11::DecodeStatus status = wait(first.completion);
    if (!status.ok) return decoder_.locate(status.chunk, source_);
    decoder_.note(first.slab, status);
    const auto positions = first.slab.positions;
    if (on_weights_) on_weights_(positions.front(), first.arguments.weights);
    if (on_slab_) on_slab_(positions.back() - positions.front());
    return std::nullopt;
  }

  df11::DecodeStatus wait(const df11::DecodeCompletion& completion) const {
    try {
      return completion.wait();
    } catch (...) {
      decoder_.stage_.abandon();  // that one may be under way yet
      throw;
    }
  }

  std::optional<UnitFault> finish_all() {
    while (!under_way_.empty())
      if (auto fault = finish_first()) return fault;
    return std::nullopt;
  }

  UnitDecoder& decoder_;
  const Wanted wanted_;
  WeightSource* const source_;
  const OnWeights& on_weights_;
  const OnSlab& on_slab_;
  const std::size_t num_buffers_;
  std::size_t num_begun_ = 0;
  std::deque<SlabUnderWay> under_way_;
};

std::optional<UnitFault> UnitDecoder::run(std::uint64_t first, std::uint64_t end, Wanted wanted,
                                          WeightSource* source, const OnWeights& on_weights,
                                          const OnSlab& on_slab) {
  return Run(*this, wanted, source, on_weights, on_slab).chunks(first, end);
}

/// Of a slab that is well.
void UnitDecoder::note(const Slab& slab, const df11::DecodeStatus& status) {
  kernel_ends_ = kernel_ends_ && status.kernel_ends;
  for (std::uint64_t i = 0; i < slab.num_chunks; ++i)
    densest_chunk_ = std::max<std::uint64_t>(densest_chunk_, slab.positions[i + 1] - slab.positions[i]);
  end_weight_ = slab.positions.back();
}

/// The positions of `count` chunks and the one after them. The entry that short output_positions lack is the
/// number of weights.
UnitDecoder::Slab UnitDecoder::read_positions(std::uint64_t first, std::uint64_t count,
                                              DecodeBuffers::OfSlab& buffers) {
  const std::span<std::uint32_t> positions = buffers.positions.get(buffers_.memory_, count + 1);
  const std::uint64_t stored = std::min(count + 1, sizes_.num_positions - first);
  bytes_.read(UnitBuffer::kOutputPositions, first * sizeof positions[0],
              {reinterpret_cast<std::uint8_t*>(positions.data()), stored * sizeof positions[0]});
  if (stored < positions.size()) positions.back() = static_cast<std::uint32_t>(sizes_.num_weights);
  return {first, count, positions, &buffers};
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
  const std::span<std::uint8_t> stream =
      slab.buffers->encoded_exponent.get(buffers_.memory_, end_byte - first_byte);
  bytes_.read(UnitBuffer::kEncodedExponent, first_byte, stream);
  const std::span<std::uint8_t> gaps = slab.buffers->gaps.get(
      buffers_.memory_, slab.num_chunks * df11::kGapBytesPerChunk + (is_last ? 0 : df11::kGapGroupBytes));
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
  const std::span<std::uint8_t> sign_mantissa = slab.buffers->sign_mantissa.get(buffers_.memory_, count);
  bytes_.read(UnitBuffer::kSignMantissa, first_weight, sign_mantissa);
  arguments.sign_mantissa = sign_mantissa;
  if (wanted == Wanted::kWeights) {
    arguments.weights = slab.buffers->weights.get(buffers_.memory_, count);
  } else {
    // Memory that the source lends is its own again with the next slab.
    if (stage_.most_under_way() == 1) arguments.source = source->in_memory(first_weight, count);
    if (arguments.source.size() != count) {
      const std::span<std::uint16_t> weights = slab.buffers->source.get(buffers_.memory_, count);
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
