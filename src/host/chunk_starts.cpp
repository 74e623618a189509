// Chunk starts: where each chunk begins, from code lengths alone. Asked for only to find out whether a chunk
// would hold more weights than the official loader can launch, so it is plain.
#include <cassert>
#include <vector>

#include "format/bf16_fields.h"
#include "host/host_stages.h"
#include "host/segment_places.h"

namespace weightpress::host {

df11::Completion HostStages::chunk_starts(const df11::ChunkStartsArguments& arguments) {
  const std::vector<SegmentPlace> places =
      segment_places(arguments.weights, arguments.segment_weights, arguments.position, *arguments.codebook,
                     arguments.histograms);
  if (places.empty()) return df11::Completion({df11::StageCode::kSourceChanged, 0});
  const std::uint64_t segments = places.size() - 1;
  const std::uint64_t slab_chunk = df11::first_open_chunk(places[0].first_window());
  std::vector<std::uint8_t> changed(segments, 0);
#pragma omp parallel for num_threads(threads_for(segments)) schedule(dynamic)
  for (std::uint64_t segment = 0; segment < segments; ++segment) {
    const SegmentPlace& place = places[segment];
    const SegmentPlace& next = places[segment + 1];
    std::uint64_t chunk = df11::first_open_chunk(place.first_window());
    const std::uint64_t end_chunk = df11::first_open_chunk(next.first_window());
    std::uint64_t bit = place.first_bit;
    for (std::uint64_t i = place.first_weight; i < next.first_weight; ++i) {
      if (bit >= chunk * df11::kChunkBits) {
        if (chunk == end_chunk) {  // more bits than the histogram promised
          bit = ~std::uint64_t{0};
          break;
        }
        arguments.positions[chunk - slab_chunk] =
            static_cast<std::uint32_t>(arguments.position.first_weight + i);
        ++chunk;
      }
      const std::uint32_t length = arguments.codebook->lengths[df11::exponent_of(arguments.weights[i])];
      if (length == 0) {  // no weight that was counted
        bit = ~std::uint64_t{0};
        break;
      }
      bit += length;
    }
    changed[segment] = bit != next.first_bit || chunk != end_chunk;
  }
  for (std::uint64_t segment = 0; segment < segments; ++segment) {
    if (changed[segment] != 0) return df11::Completion({df11::StageCode::kSourceChanged, segment});
  }
  return df11::Completion(df11::StageStatus{});
}

}  // namespace weightpress::host
