#include "job/unit_compressor.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/bf16_fields.h"
#include "format/chunk_density.h"
#include "format/slab_border.h"

namespace weightpress::job {
namespace {

static_assert(std::endian::native == std::endian::little,
              "output_positions are stored as they lie in memory");

std::span<const std::uint8_t> bytes_of(std::span<const std::uint32_t> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

bool has_all_codes(const df11::SegmentHistogram& histogram, const df11::Codebook& codebook) {
  for (std::uint32_t exponent = 0; exponent < df11::kNumSymbols; ++exponent)
    if (histogram[exponent] != 0 && codebook.lengths[exponent] == 0) return false;
  return true;
}

}  // namespace

UnitCompressor::UnitCompressor(std::string_view unit, WeightSource& source, df11::Df11Stages& stages,
                               SlabBuffers& buffers, const UnitCompressorOptions& options)
    : unit_(unit),
      source_(source),
      stages_(stages),
      buffers_(buffers),
      options_(options),
      num_weights_(source.num_weights()),
      segment_weights_(options.segment_weights != 0 ? options.segment_weights
                                                    : df11::segment_weights_for(num_weights_)) {
  const std::uint64_t segments_per_slab =
      df11::num_segments(std::max<std::uint64_t>(options.slab_weights, 1), segment_weights_);
  slab_weights_ = std::min(segments_per_slab * segment_weights_, num_weights_);
}

void UnitCompressor::hold(std::span<std::uint16_t> memory) {
  assert(memory.empty() || memory.size() == num_weights_);
  held_ = memory;
  num_held_ = 0;
}

/// Those of a slab, out of memory if they are there.
std::span<const std::uint16_t> UnitCompressor::weights_of_slab(std::uint64_t first, std::uint64_t count) {
  if (const auto weights = source_.in_memory(first, count); weights.size() == count) return weights;
  if (first + count <= num_held_) return held_.subspan(first, count);
  const bool holds = !held_.empty() && first == num_held_;
  const std::span<std::uint16_t> weights =
      holds ? held_.subspan(first, count) : buffers_.weights.get(slab_weights_).first(count);
  const StageTimer timer(options_.times, Stage::kRead, 2 * count);
  source_.read(first, weights);
  if (holds) num_held_ += count;
  return weights;
}

/// Counts each slab if its histograms are not kept, and gives it to visit(slab), which returns whether to go
/// on.
template <class Visit>
bool UnitCompressor::for_each_slab(Visit visit) {
  for (std::uint64_t first = 0; first < num_weights_; first += slab_weights_) {
    const std::uint64_t count = std::min(slab_weights_, num_weights_ - first);
    const std::span<const std::uint16_t> weights = weights_of_slab(first, count);
    const std::uint64_t num_segments = df11::num_segments(count, segment_weights_);
    std::span<df11::SegmentHistogram> histograms;
    if (histograms_.empty()) {
      slab_histograms_.resize(num_segments);
      histograms = slab_histograms_;
      const StageTimer timer(options_.times, Stage::kHistogram, 2 * count);
      stages_.histogram({weights, segment_weights_, histograms}).wait();
    } else {
      histograms = std::span(histograms_).subspan(first / segment_weights_, num_segments);
    }
    if (!visit(Slab{first, weights, histograms, first + count == num_weights_})) return false;
  }
  return true;
}

Result<df11::UnitPlan> UnitCompressor::plan(const OnSlab& on_slab) {
  // Checked before anything is allocated for it.
  if (auto sizes = df11::check_num_weights(unit_, num_weights_, options_.coding.limits); !sizes)
    return Unexpected(std::move(sizes.error()));
  std::uint8_t last_exponent = 0;
  histograms_.resize(df11::num_segments(num_weights_, segment_weights_));
  for_each_slab([&](const Slab& slab) {
    {
      const StageTimer timer(options_.times, Stage::kHistogram, slab.weights.size_bytes());
      stages_.histogram({slab.weights, segment_weights_, slab.histograms}).wait();
    }
    last_exponent = df11::exponent_of(slab.weights.back());
    if (on_slab) on_slab(slab.weights.size());
    return true;
  });
  const df11::Histogram histogram = df11::sum_histograms(histograms_);
  counts_ = {sparse(histogram), last_exponent, {}};
  Result<df11::UnitPlan> plan = df11::plan_unit(
      {unit_, histogram, last_exponent}, options_.coding, [this](const df11::Codebook& codebook) {
        // Mostly the histograms tell that no chunk is dense, and nothing is read again.
        const std::uint64_t bound = df11::densest_chunk_bound(histograms_, codebook);
        const bool ruled_out = bound <= options_.coding.limits.max_chunk_weights;
        counts_.densest_chunks.push_back(ruled_out ? bound : densest_chunk(codebook));
        return counts_.densest_chunks.back();
      });
  if (!plan && plan.error().code == ErrorCode::kExponentTooLarge) {
    plan.error().offset = find_large_exponent();
    if (plan.error().offset == ErrorDetails::kNoOffset) return changed();
  }
  if (source_changed_) return changed();
  return plan;
}

void UnitCompressor::release_histograms() {
  histograms_ = {};
}

/// A slab in as few parts of whole segments as leave the codes of each at most a byte a weight of a slab:
/// that much memory they may take, however long they are in places. visit(part, bits).
template <class Visit>
bool UnitCompressor::for_each_part(const Slab& slab, const df11::Codebook& codebook, Visit visit) {
  const std::uint64_t max_bits = 8 * slab_weights_;
  for (std::size_t first = 0; first < slab.histograms.size();) {
    std::uint64_t bits = 0;
    std::size_t end = first;
    for (; end < slab.histograms.size(); ++end) {
      const std::uint64_t more = df11::total_bits(slab.histograms[end], codebook);
      if (end > first && bits + more > max_bits) break;
      bits += more;
    }
    const std::uint64_t first_weight = first * segment_weights_;
    const std::uint64_t count =
        std::min<std::uint64_t>((end - first) * segment_weights_, slab.weights.size() - first_weight);
    const Slab part{slab.first_weight + first_weight, slab.weights.subspan(first_weight, count),
                    slab.histograms.subspan(first, end - first),
                    slab.is_last && end == slab.histograms.size()};
    if (!visit(part, bits)) return false;
    first = end;
  }
  return true;
}

/// Walks the slabs with their positions in the bitstream. visit(slab, position, bits, last_code_length).
template <class Visit>
bool UnitCompressor::for_each_slab_position(const df11::Codebook& codebook, Visit visit) {
  df11::SlabPosition position;
  const auto visit_part = [&](const Slab& slab, std::uint64_t bits) {
    const std::uint32_t last_length = codebook.lengths[df11::exponent_of(slab.weights.back())];
    if (last_length == 0 || last_length > bits) return false;  // not what was counted
    position.first_weight = slab.first_weight;
    position.is_last = slab.is_last;
    if (!visit(slab, position, bits, last_length)) return false;
    position.first_bit += bits;
    position.previous_code_length = last_length;
    return true;
  };
  return for_each_slab([&](const Slab& slab) {
    // Counted again, a source that changed can hold exponents that have no code.
    if (histograms_.empty()) {
      for (const df11::SegmentHistogram& histogram : slab.histograms)
        if (!has_all_codes(histogram, codebook)) return false;
    }
    return for_each_part(slab, codebook, visit_part);
  });
}

std::uint64_t UnitCompressor::densest_chunk(const df11::Codebook& codebook) {
  std::vector<std::uint32_t> starts;
  std::uint64_t densest = 0, previous = 0;
  const bool complete = for_each_slab_position(codebook, [&](const Slab& slab,
                                                             const df11::SlabPosition& position,
                                                             std::uint64_t bits, std::uint32_t last_length) {
    const std::uint64_t first_window =
        df11::first_open_window(position.first_bit, position.previous_code_length);
    const std::uint64_t end_window = df11::first_open_window(position.first_bit + bits, last_length);
    starts.resize(df11::first_open_chunk(end_window) - df11::first_open_chunk(first_window));
    const df11::StageStatus status =
        stages_.chunk_starts({slab.weights, segment_weights_, position, &codebook, slab.histograms, starts})
            .wait();
    for (const std::uint32_t start : starts) {
      densest = std::max(densest, start - previous);
      previous = start;
    }
    return status.code == df11::StageCode::kOk;
  });
  if (!complete) source_changed_ = true;
  return std::max(densest, num_weights_ - previous);
}

Result<void> UnitCompressor::encode(const df11::UnitPlan& plan, UnitSink& sink, const OnSlab& on_slab,
                                    const OnWritten& on_written) {
  assert(plan.layout.num_weights == num_weights_);
  sink.write(UnitBuffer::kLuts, 0, {plan.tables.data(), plan.tables.size_bytes()});
  df11::SlabJoiner joiner;
  std::uint64_t total_bits = 0;
  Result<void> accepted;
  const bool complete = for_each_slab_position(plan.codebook, [&](const Slab& slab,
                                                                  const df11::SlabPosition& position,
                                                                  std::uint64_t bits,
                                                                  std::uint32_t last_length) {
    total_bits = position.first_bit + bits;
    // Counted again, a source that changed can have more bits than were planned for.
    if (total_bits > plan.layout.total_bits ||
        (position.is_last &&
         (total_bits != plan.layout.total_bits || last_length != plan.layout.last_code_length))) {
      return false;
    }
    const df11::SlabPieces pieces = df11::slab_pieces(position, bits, last_length, plan.layout);
    const std::span<std::uint8_t> halves = buffers_.sign_mantissa.get(slab.weights.size());
    const std::span<std::uint8_t> bitstream = buffers_.encoded_exponent.get(pieces.num_bytes);
    const std::span<std::uint8_t> gaps = buffers_.gaps.get(pieces.num_gap_groups * df11::kGapGroupBytes);
    const std::span<std::uint32_t> positions = buffers_.positions.get(pieces.num_positions);
    df11::SlabBorder border;
    std::optional<StageTimer> timer(std::in_place, options_.times, Stage::kEncode, slab.weights.size_bytes());
    const df11::StageStatus status = stages_
                                         .encode({.weights = slab.weights,
                                                  .segment_weights = segment_weights_,
                                                  .position = position,
                                                  .codebook = &plan.codebook,
                                                  .layout = &plan.layout,
                                                  .histograms = slab.histograms,
                                                  .sign_mantissa = halves,
                                                  .encoded_exponent = bitstream,
                                                  .gaps = gaps,
                                                  .positions = positions,
                                                  .border = &border})
                                         .wait();
    if (status.code != df11::StageCode::kOk) return false;
    joiner.add(bitstream, gaps, border);
    timer.emplace(options_.times, Stage::kWrite,
                  halves.size() + bitstream.size() + gaps.size() + positions.size_bytes());
    sink.write(UnitBuffer::kSignMantissa, slab.first_weight, halves);
    sink.write(UnitBuffer::kEncodedExponent, pieces.first_byte, bitstream);
    sink.write(UnitBuffer::kGaps, pieces.first_gap_group * df11::kGapGroupBytes, gaps);
    sink.write(UnitBuffer::kOutputPositions, 4 * pieces.first_position, bytes_of(positions));
    const WrittenSoFar written = {.stream_bytes = pieces.first_byte + bitstream.size(),
                                  .gaps_bytes = pieces.first_gap_group * df11::kGapGroupBytes + gaps.size(),
                                  .num_positions = pieces.first_position + positions.size()};
    timer.reset();
    if (on_written) timer.emplace(options_.times, Stage::kVerify, slab.weights.size_bytes());
    if (on_written) accepted = on_written(slab.weights, written);
    timer.reset();
    if (!accepted) return false;
    if (on_slab) on_slab(slab.weights.size());
    return true;
  });
  if (!accepted) return accepted;
  if (!complete) return changed();
  return {};
}

std::uint64_t UnitCompressor::find_large_exponent() {
  std::uint64_t found = ErrorDetails::kNoOffset;
  for_each_slab([&](const Slab& slab) {
    const auto large = std::find_if(slab.weights.begin(), slab.weights.end(), [](std::uint16_t weight) {
      return df11::exponent_of(weight) >= df11::kFirstPointer;
    });
    if (large == slab.weights.end()) return true;
    found = slab.first_weight + static_cast<std::uint64_t>(large - slab.weights.begin());
    return false;
  });
  return found;
}

Unexpected UnitCompressor::changed() const {
  return Unexpected(
      ErrorDetails{.code = ErrorCode::kSourceChanged,
                   .message = "unit " + std::string(unit_) +
                              ": its weights changed while it was compressed; run the command again "
                              "once nothing writes to the source",
                   .unit = std::string(unit_)});
}

Result<df11::UnitPlan> compress_unit(std::string_view unit, WeightSource& source, UnitSink& sink,
                                     df11::Df11Stages& stages, SlabBuffers& buffers,
                                     const UnitCompressorOptions& options) {
  UnitCompressor compressor(unit, source, stages, buffers, options);
  Result<df11::UnitPlan> plan = compressor.plan();
  if (!plan) return plan;
  sink.begin(*plan);
  if (auto encoded = compressor.encode(*plan, sink); !encoded) return Unexpected(std::move(encoded.error()));
  return plan;
}

}  // namespace weightpress::job
