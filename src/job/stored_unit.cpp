#include "job/stored_unit.h"

#include "job/parallel_io.h"

namespace weightpress::job {
namespace {

using model::Df11Buffer;

static_assert(static_cast<int>(UnitBuffer::kLuts) == static_cast<int>(Df11Buffer::kLuts) &&
              static_cast<int>(UnitBuffer::kEncodedExponent) ==
                  static_cast<int>(Df11Buffer::kEncodedExponent) &&
              static_cast<int>(UnitBuffer::kSignMantissa) == static_cast<int>(Df11Buffer::kSignMantissa) &&
              static_cast<int>(UnitBuffer::kOutputPositions) ==
                  static_cast<int>(Df11Buffer::kOutputPositions) &&
              static_cast<int>(UnitBuffer::kGaps) == static_cast<int>(Df11Buffer::kGaps));

}  // namespace

UnitSizes unit_sizes(const model::StoredUnit& unit) {
  return {unit.num_weights, unit.stream_bytes, unit.num_chunks, unit.num_positions, unit.num_tables};
}

UnitSizes unit_sizes(const df11::UnitPlan& plan) {
  return {plan.layout.num_weights, plan.layout.num_bytes, plan.layout.num_chunks, plan.layout.num_positions,
          plan.tables.num_tables()};
}

void CheckpointUnit::read(UnitBuffer buffer, std::uint64_t offset_bytes,
                          std::span<std::uint8_t> bytes) const {
  const model::SourceTensor& tensor = checkpoint_.tensors()[unit_.buffer(static_cast<Df11Buffer>(buffer))];
  transfer_in_pieces(bytes.size(), num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
    checkpoint_.read(tensor, offset_bytes + offset, count, bytes.data() + offset);
  });
}

}  // namespace weightpress::job
