// Encodes one segment of a slab: bitstream, gaps and output positions in one pass over the weights.
#pragma once

#include <cstdint>
#include <span>

#include "format/codebook.h"
#include "format/stages.h"
#include "host/pair_codes.h"
#include "host/segment_places.h"

namespace weightpress::host {

/// A segment's own pieces, by the same rule as a slab's (df11::SlabPieces): bytes and gap groups that it
/// completes, chunks that it opens.
struct SegmentOutput {
  std::span<std::uint8_t> sign_mantissa;
  std::span<std::uint8_t> encoded_exponent;
  std::span<std::uint8_t> gaps;
  std::span<std::uint32_t> positions;
};

/// pairs: of the codebook, or nullptr (small slabs: code by code).
/// first_weight: index in the unit of the segment's first weight.
/// Returns false when the weights do not take the bits from place to next; nothing outside the output was
/// written.
bool encode_segment(std::span<const std::uint16_t> weights, std::uint64_t first_weight,
                    const SegmentPlace& place, const SegmentPlace& next, const df11::Codebook& codebook,
                    const PairCodes::Entry* pairs, const SegmentOutput& output, df11::SlabBorder& border);

}  // namespace weightpress::host
