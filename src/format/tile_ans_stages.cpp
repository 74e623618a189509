#include "format/tile_ans_stages.h"

namespace weightpress::tile_ans {

const char* stage_code_text(StageCode code) {
  switch (code) {
    case StageCode::kOk:
      return "it is as it should be";
    case StageCode::kSourceChanged:
      return "the source holds a byte that was not there when it was counted";
    case StageCode::kBadOffsets:
      return "its offsets do not follow each other or lead out of the payload";
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

}  // namespace weightpress::tile_ans
