#include "format/tile_ans_stages.h"

#include <cassert>

namespace weightpress::tile_ans {

const char* stage_code_text(StageCode code) {
  switch (code) {
    case StageCode::kOk:
      return "it is as it should be";
    case StageCode::kSourceChanged:
      return "the source holds a byte that was not there when it was counted";
    case StageCode::kBadOffsets:
      return "its offsets fall, lie further apart than its symbols can, or lead out of the payload";
    case StageCode::kBadLength:
      return "it is stored raw and has not as many words as its bytes take";
    case StageCode::kBadPadding:
      return "the byte that fills its last word is not 0";
    case StageCode::kBadState:
      return "one of its states is not between 2^15 and 2^31";
    case StageCode::kTruncated:
      return "it has fewer words than its symbols take";
    case StageCode::kUnreadWords:
      return "it has more words than its symbols take";
    case StageCode::kBadEnd:
      return "its states do not come back to where every state begins";
    case StageCode::kDiffers:
      return "it decodes to other bytes than the source's";
  }
  return "unknown";
}

std::uint64_t lane_words_capacity(const TensorPlan& plan, std::uint32_t lane, const TileRange& tiles) {
  const Layout& layout = plan.layout;
  const std::uint64_t elements = layout.elements_of(tiles.first_tile, tiles.num_tiles);
  if (plan.lanes[lane].mode == LaneMode::kAns) return elements;
  return elements / layout.tile_elements * raw_words(layout.tile_elements) +
         raw_words(elements % layout.tile_elements);
}

bool add_offsets(std::span<const std::uint32_t> stream_words, std::uint64_t& end,
                 std::span<std::uint32_t> offsets) {
  assert(offsets.size() == stream_words.size());
  for (std::size_t i = 0; i < stream_words.size(); ++i) {
    end += stream_words[i];
    if (end >= kPayloadWordsLimit) return false;
    offsets[i] = static_cast<std::uint32_t>(end);
  }
  return true;
}

WordRange lane_words(const Layout& layout, LaneMode mode, const TileRange& tiles,
                     std::span<const std::uint32_t> offsets, std::uint64_t payload_words) {
  const std::uint64_t first = offsets.front();
  std::uint64_t end = first;
  for (std::uint64_t i = 0; i < tiles.num_tiles; ++i) {
    const std::uint64_t count = layout.elements_of(tiles.first_tile + i);
    const std::uint64_t most = mode == LaneMode::kRaw ? raw_words(count) : count;
    const std::uint64_t next = offsets[i + 1];
    if (next < end || next - end > most || next > payload_words) break;
    end = next;
  }
  return {first, end - first};
}

}  // namespace weightpress::tile_ans
