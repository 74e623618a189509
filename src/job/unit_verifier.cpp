#include "job/unit_verifier.h"

#include <algorithm>
#include <cassert>

namespace weightpress::job {

UnitVerifier::UnitVerifier(const df11::UnitPlan& plan, const UnitBytes& bytes, df11::Df11DecodeStage& stage,
                           DecodeBuffers& buffers, std::uint64_t slab_chunks)
    : plan_(plan),
      sizes_(unit_sizes(plan)),
      bytes_(bytes),
      decoder_(sizes_, bytes, stage, buffers, slab_chunks),
      weights_(sizes_.num_weights) {}

std::optional<UnitFault> UnitVerifier::add(std::span<const std::uint16_t> weights,
                                           const WrittenSoFar& written) {
  weights_.add(weights);
  const bool is_last = weights_.end() == sizes_.num_weights;
  const std::uint64_t complete = is_last ? sizes_.num_chunks : num_complete_chunks(written);
  if (complete > chunks_done_) {
    if (auto fault = decoder_.compare_chunks(chunks_done_, complete, weights_)) return fault;
    chunks_done_ = complete;
  }
  if (is_last && !decoder_.kernel_ends())
    return UnitFault{.kind = "padding", .message = "luts: the official kernel would not end on the padding"};
  // A plan that was made of wrong counts: loaders cannot launch such a chunk.
  if (is_last && decoder_.densest_chunk() > df11::Df11Limits{}.max_chunk_weights)
    return UnitFault{.kind = "limit", .message = "a chunk holds more weights than loaders can decode"};
  if (is_last) return check_unreached();
  weights_.carry_on(decoder_.end_weight());
  return std::nullopt;
}

/// What decoding alone does not tell: entries that no code reaches, and the bits after the last code.
std::optional<UnitFault> UnitVerifier::check_unreached() const {
  std::vector<std::uint8_t> luts(sizes_.luts_bytes());
  bytes_.read(UnitBuffer::kLuts, 0, luts);
  if (!std::equal(luts.begin(), luts.end(), plan_.tables.data()))
    return UnitFault{.kind = "table", .message = "luts: they are not those of the codebook"};
  const auto used_bits = static_cast<std::uint32_t>(plan_.layout.total_bits % 8);
  if (used_bits == 0) return std::nullopt;
  std::uint8_t last = 0;
  bytes_.read(UnitBuffer::kEncodedExponent, sizes_.stream_bytes - 1, {&last, 1});
  if ((last & (0xFF >> used_bits)) == df11::eof_padding(plan_.codebook, 8 - used_bits)) return std::nullopt;
  return UnitFault{.kind = "stream",
                   .message = "encoded_exponent: EOF's code does not complete the last byte"};
}

/// Chunks of which all bits, gaps and positions that a decoder looks at are written.
std::uint64_t UnitVerifier::num_complete_chunks(const WrittenSoFar& written) const {
  const auto whole = [](std::uint64_t have, std::uint64_t beyond, std::uint64_t each) {
    return have < beyond ? 0 : (have - beyond) / each;
  };
  return std::min({whole(written.stream_bytes, df11::kDecodeLookaheadBytes, df11::kChunkBytes),
                   whole(written.gaps_bytes, df11::kGapGroupBytes, df11::kGapBytesPerChunk),
                   whole(written.num_positions, 1, 1), sizes_.num_chunks - 1});
}

void UnitVerifier::Weights::add(std::span<const std::uint16_t> slab) {
  assert(slab_.empty());
  slab_ = slab;
}

void UnitVerifier::Weights::carry_on(std::uint64_t first) {
  assert(first >= first_ && first <= end());
  std::vector<std::uint16_t> rest(end() - first);
  read(first, rest);
  carried_ = std::move(rest);
  first_ = first;
  slab_ = {};
}

void UnitVerifier::Weights::read(std::uint64_t first, std::span<std::uint16_t> weights) {
  assert(first >= first_ && first + weights.size() <= end());
  const std::uint64_t begin = std::min<std::uint64_t>(first - first_, carried_.size());
  const std::uint64_t from_carried = std::min<std::uint64_t>(carried_.size() - begin, weights.size());
  std::copy_n(carried_.begin() + static_cast<std::ptrdiff_t>(begin), from_carried, weights.begin());
  const std::uint64_t in_slab = first + from_carried - first_ - carried_.size();
  if (from_carried == weights.size()) return;
  std::copy_n(slab_.begin() + static_cast<std::ptrdiff_t>(in_slab), weights.size() - from_carried,
              weights.begin() + static_cast<std::ptrdiff_t>(from_carried));
}

std::span<const std::uint16_t> UnitVerifier::Weights::in_memory(std::uint64_t first, std::uint64_t count) {
  const std::uint64_t slab_first = first_ + carried_.size();
  if (first < slab_first) return {};
  return slab_.subspan(first - slab_first, count);
}

}  // namespace weightpress::job
