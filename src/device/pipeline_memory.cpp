#include "device/pipeline_memory.h"

#include <algorithm>

#include "device/gpu_stages.h"
#include "format/histogram.h"
#include "format/stages.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kSegmentWeights = kGpuSegmentWeights;
// A slab begins up to two segments before what is new in it.
constexpr std::uint64_t kLeastSlabSegments = 3;
// Shorter slabs of long units overlap better, longer ones launch less.
constexpr std::uint64_t kSlabsOfUnit = 16, kMinSlabWeights = std::uint64_t{8} << 20;
// Tables, results, what the driver rounds up.
constexpr std::uint64_t kSlackBytes = std::uint64_t{64} << 10;

std::uint64_t segments_of(std::uint64_t num_weights) {
  return df11::num_segments(num_weights, kSegmentWeights);
}

std::uint64_t slab_bytes(std::uint64_t num_weights, bool has_outputs) {
  return 2 * num_weights + encoding_bytes(num_weights, has_outputs);
}

}  // namespace

std::uint64_t slot_bytes(std::uint64_t num_weights) {
  return 2 * num_weights + segments_of(num_weights) * sizeof(df11::SegmentHistogram);
}

std::uint64_t encoding_bytes(std::uint64_t num_weights, bool has_outputs) {
  return (has_outputs ? 4 : 2) * num_weights + num_weights / 8 + kSlackBytes;
}

std::optional<PipelineMemory> plan_pipeline_memory(const PipelineMemoryRequest& request) {
  const std::uint64_t longest_unit_weights = request.longest_unit_weights;
  const std::uint64_t usable_bytes = request.usable_bytes, most_slots = request.most_slots;
  const bool outputs = request.has_outputs;
  const std::uint64_t slot = slot_bytes(longest_unit_weights);
  const std::uint64_t out = encoding_bytes(longest_unit_weights, outputs);
  for (const std::uint64_t encodings : {std::uint64_t{2}, std::uint64_t{1}}) {
    if (usable_bytes < encodings * out + slot) continue;
    PipelineMemory memory;
    memory.resident_weights = longest_unit_weights;
    memory.num_encodings = encodings;
    memory.num_slots = std::min((usable_bytes - encodings * out) / slot, most_slots);
    return memory;
  }
  // Shorter units go two by two all the same, in the same memory.
  PipelineMemory memory;
  std::uint64_t resident =
      usable_bytes / (2 * (2 + (outputs ? 4 : 2) + 1)) / kSegmentWeights * kSegmentWeights;
  while (resident > 0 && 2 * (slot_bytes(resident) + encoding_bytes(resident, outputs)) > usable_bytes)
    resident -= kSegmentWeights;
  if (resident > 0) {
    memory.resident_weights = resident;
    memory.num_slots = std::min<std::uint64_t>(2, most_slots);
    memory.num_encodings = 2;
  }
  const std::uint64_t of_unit =
      segments_of(longest_unit_weights) * (sizeof(df11::SegmentHistogram) + sizeof(std::uint64_t)) +
      kSlackBytes;
  const std::uint64_t wanted = std::max(kMinSlabWeights, longest_unit_weights / kSlabsOfUnit);
  for (std::uint64_t slabs = 3; slabs > 0; --slabs) {
    if (usable_bytes < of_unit + slabs * slab_bytes(kLeastSlabSegments * kSegmentWeights, outputs)) continue;
    std::uint64_t segments =
        (usable_bytes - of_unit) / slabs / (slab_bytes(kSegmentWeights, outputs) - kSlackBytes);
    while (slab_bytes(segments * kSegmentWeights, outputs) > (usable_bytes - of_unit) / slabs) --segments;
    memory.num_slabs = slabs;
    memory.slab_weights =
        std::clamp(wanted / kSegmentWeights, kLeastSlabSegments, segments) * kSegmentWeights;
    return memory;
  }
  return std::nullopt;
}

}  // namespace weightpress::device
