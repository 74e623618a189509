// The stages of Tile-ANS, as src/host runs them and src/device enqueues them on a stream: on slabs.
//
// A slab is a run of whole tiles of a tensor (the tensor's last tile may be short) that is in memory at once,
// as the storage bytes of its elements. Tiles are independent of each other, so slabs have no borders to
// mend. But streams are stored lane by lane, all tiles of lane 0 first: while a tensor is encoded slab by
// slab, each lane grows at a place of its own, and where lane l begins is known only when the words of all
// lanes below are counted. Raw lanes count themselves (Layout::raw_lane_words). So a caller
//   1. adds up histograms over all slabs and plans (format/tile_ans_plan.h),
//   2. runs sizes() over all slabs, for the ANS lanes that are not the tensor's last lane, if there are any
//      (or encodes all slabs and keeps the words),
//   3. encodes all slabs, some or all lanes at a time, each lane's words to where that lane has got.
//
// A tile is never cut: a slab is at least one tile, which a user can make as large as the tensor. Besides its
// arguments a call needs little: on the host 16 KiB a lane for tables, 64 KiB of stack a thread, 64 bytes a
// batch of 32 Ki elements. What encode() writes can take 2 bytes a symbol, whatever comes out in the end.
//
// The words do not depend on slabs, threads, SIMD level or back end, and neither do verdicts: the fault told
// is that of the lowest tile, and in it of the lowest lane.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "format/tile_ans_frequencies.h"
#include "format/tile_ans_layout.h"
#include "format/tile_ans_plan.h"

namespace weightpress::tile_ans {

enum class StageCode : std::uint8_t {
  kOk,
  // Encoding.
  kSourceChanged,  ///< a symbol that the plan has no frequency for: the source is not what was counted
  // Decoding.
  kBadOffsets,   ///< a stream's offsets fall, are more than a word a symbol apart, or leave the payload
  kBadLength,    ///< a raw stream has not the words that its symbols take
  kBadPadding,   ///< the free byte at the end of a raw stream is not 0
  kBadState,     ///< a stored state is not in [2^15, 2^31)
  kTruncated,    ///< the stream has too few words
  kUnreadWords,  ///< the stream has too many
  kBadEnd,       ///< not all states have come back to 2^15
  kDiffers       ///< all lanes of the tile decode well, but not to the source; lane is 0
};

/// A clause on what is wrong with a stream, e.g. "it has fewer words than its symbols take".
const char* stage_code_text(StageCode code);

struct StageStatus {
  StageCode code = StageCode::kOk;
  std::uint64_t tile = 0;  ///< of the tensor: the lowest with a fault
  std::uint32_t lane = 0;  ///< the lowest at fault in it

  bool ok() const { return code == StageCode::kOk; }
  bool operator==(const StageStatus&) const = default;
};

/// The end of an enqueued stage. On the host it is already there when the call returns.
class Completion {
 public:
  explicit Completion(const StageStatus& status) : status_(status) {}
  explicit Completion(std::function<StageStatus()> wait) : wait_(std::move(wait)) {}
  /// Waits until the stage's outputs are complete. Once. Throws what a device that fails makes of it.
  StageStatus wait() const { return wait_ ? wait_() : status_; }

 private:
  StageStatus status_;
  std::function<StageStatus()> wait_;
};

/// A slab's tiles: first_tile .. first_tile + num_tiles - 1 of the tensor, all of them there, at least one.
struct TileRange {
  std::uint64_t first_tile = 0;
  std::uint64_t num_tiles = 0;
};

// ---- histograms

struct HistogramArguments {
  /// Storage bytes of any run of whole elements, any alignment; tiles do not matter. May be empty.
  std::span<const std::uint8_t> elements;
  std::uint32_t num_lanes = 0;      ///< 1, 2, 4 or 8
  std::span<Histogram> histograms;  ///< in, out: [num_lanes], which the counts are added to
};

// ---- sizes and encoding

/// What one lane of a slab becomes.
struct LaneOutput {
  std::uint32_t lane = 0;
  /// Out: words of each of the slab's streams, [num_tiles].
  std::span<std::uint32_t> stream_words;
  /// Out: the words of the slab's streams, one after the other without gaps, as in the payload. Capacity:
  /// lane_words_capacity(); behind the last word contents are unspecified. Not looked at by sizes().
  std::span<std::uint16_t> words;
  /// Out: final states, [kNumStates * num_tiles], tile by tile as in the buffer `states`. Empty for raw
  /// lanes. Not looked at by sizes().
  std::span<std::uint32_t> states;
};

struct EncodeArguments {
  const TensorPlan* plan = nullptr;
  TileRange tiles;
  /// Storage bytes of the slab, any alignment: [num_lanes * layout.elements_of(first_tile, num_tiles)].
  std::span<const std::uint8_t> elements;
  /// In ascending order of `lane`, any of the tensor's. Their spans must not overlap.
  std::span<const LaneOutput> lanes;
};

/// Words that encode() may need for a lane of a slab: what the lane can take in the worst case.
std::uint64_t lane_words_capacity(const TensorPlan& plan, std::uint32_t lane, const TileRange& tiles);

/// Turns streams' words into their entries of the buffer `offsets`, in the order of streams. end: in, out:
/// words before them and with them, 0 before the first stream. offsets: out, [stream_words.size()], the
/// entry after each stream's (the very first entry, 0, is the caller's). False: the payload has
/// kPayloadWordsLimit words or more, so the tensor is stored in a raw container; then all is unspecified.
bool add_offsets(std::span<const std::uint32_t> stream_words, std::uint64_t& end,
                 std::span<std::uint32_t> offsets);

/// What src/host and src/device offer. An object serves one caller at a time; its calls may run on many
/// threads or on a stream. Arguments and what they point to must live until the completion.
class TileAnsStages {
 public:
  virtual ~TileAnsStages() = default;

  /// Always kOk.
  virtual Completion histogram(const HistogramArguments& arguments) = 0;
  /// Only stream_words. kOk or kSourceChanged; then the outputs are unspecified.
  virtual Completion sizes(const EncodeArguments& arguments) = 0;
  /// kOk or kSourceChanged; then the outputs are unspecified. Weights that changed since sizes(), but have
  /// frequencies, are no error here: the caller compares stream_words, which are always true.
  virtual Completion encode(const EncodeArguments& arguments) = 0;
};

// ---- decoding. All that is read is a stranger's: whatever it is, decoding ends and stays inside the spans.

/// Words of the payload, from the first on.
struct WordRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// The words to read for a lane of a slab: those of its streams up to the first whose offsets cannot be true.
/// So however wrong offsets are, no more are read than the slab's symbols can take, a word each. offsets:
/// [num_tiles + 1], as in LaneInput.
WordRange lane_words(const Layout& layout, LaneMode mode, const TileRange& tiles,
                     std::span<const std::uint32_t> offsets, std::uint64_t payload_words);

/// One lane of a slab as it is stored. Decoding has all lanes.
struct LaneInput {
  LaneMode mode = LaneMode::kAns;
  /// Checked by the caller (format/tile_ans_container.h): they sum to the table size. Not read for raw lanes.
  const Frequencies* frequencies = nullptr;
  /// [num_tiles + 1] of the buffer `offsets`, from the slab's first stream of this lane on. Any numbers.
  std::span<const std::uint32_t> offsets;
  /// Words of the payload from offsets.front() on, at least those of lane_words().
  std::span<const std::uint16_t> words;
  std::span<const std::uint32_t> states;  ///< [kNumStates * num_tiles]; empty for raw lanes
};

struct DecodeArguments {
  Layout layout;  ///< valid, as read_container() makes it
  TileRange tiles;
  std::span<const LaneInput> lanes;  ///< [num_lanes]
  /// To be compared with, [num_lanes * layout.elements_of(first_tile, num_tiles)]; empty: not.
  std::span<const std::uint8_t> source;
  /// Out: storage bytes, as many; empty: not wanted, the streams are only checked. In tiles at fault
  /// unspecified. Must not overlap any input.
  std::span<std::uint8_t> elements;
};

/// Decodes with all checks: offsets, lengths, every state, words to the last one, padding. What passes
/// them is, given the tables, the one encoding of what it decodes to.
class TileAnsDecodeStage {
 public:
  virtual ~TileAnsDecodeStage() = default;
  virtual Completion decode(const DecodeArguments& arguments) = 0;
};

}  // namespace weightpress::tile_ans
