#include "job/stored_unit.h"

#include "job/parallel_io.h"

namespace weightpress::job {
UnitSizes unit_sizes(const model::StoredUnit& unit) {
  return {unit.num_weights, unit.stream_bytes, unit.num_chunks, unit.num_positions, unit.num_tables};
}

UnitSizes unit_sizes(const df11::UnitPlan& plan) {
  return {plan.layout.num_weights, plan.layout.num_bytes, plan.layout.num_chunks, plan.layout.num_positions,
          plan.tables.num_tables()};
}

void CheckpointUnit::read(UnitBuffer buffer, std::uint64_t offset_bytes,
                          std::span<std::uint8_t> bytes) const {
  const model::SourceTensor& tensor = checkpoint_.tensors()[unit_.buffer(df11_buffer(buffer))];
  transfer_in_pieces(bytes.size(), num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
    checkpoint_.read(tensor, offset_bytes + offset, count, bytes.data() + offset);
  });
}

}  // namespace weightpress::job
