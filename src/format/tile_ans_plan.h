// How a tensor is coded: tile, precision, frequencies and mode of each lane. Settled by the histograms of its
// lanes, before the first word is coded (docs/format.md, "Tile-ANS: raw or coded" and "automatic precision").
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/result.h"
#include "format/tile_ans_frequencies.h"
#include "format/tile_ans_layout.h"

namespace weightpress::tile_ans {

struct LanePlan {
  LaneMode mode = LaneMode::kAns;
  Frequencies frequencies{};  ///< of raw lanes too: their tables are stored
};

struct TensorPlan {
  Layout layout;  ///< resolved
  std::array<LanePlan, kMaxLanes> lanes;

  std::uint32_t num_ans_lanes() const;
  /// ANS lanes below this one: its states are rows rank * num_tiles .. of the buffer `states`.
  std::uint32_t ans_rank(std::uint32_t lane) const;
  /// What the words of the payload cannot be more than: a word a symbol, or half of it in raw lanes.
  std::uint64_t max_payload_words() const;
  /// Bytes of all six buffers, with so many words of payload.
  std::uint64_t stored_bytes(std::uint64_t payload_words) const;
};

/// histograms: [1, 2, 4 or 8 lanes], each over the whole tensor, so all have the same total, the number of
/// elements.
/// Errors: kUsage (settings), kEmptyUnit (no elements: the reference stores these in a raw container),
/// kUnitTooLarge (more than kMaxElements); kDeviceFailed (totals that differ: no source has such histograms).
Result<TensorPlan> plan_tensor(const Settings& settings, std::span<const Histogram> histograms);

/// What automatic precision weighs up: for tests and reports.
struct PrecisionCandidate {
  std::uint32_t probability_bits = 0;
  double estimated_bytes = 0;
  std::array<LanePlan, kMaxLanes> lanes;
};

/// Candidates in ascending order. layout: resolved but for probability_bits. Preconditions as plan_tensor()
/// checks them.
std::vector<PrecisionCandidate> precision_candidates(const Layout& layout, double threshold,
                                                     std::span<const Histogram> histograms);

/// The bits a symbol from which on a lane is raw: what the settings say, but no more than what is left when
/// the states of a full tile are paid for. May be 0 or less: then every lane is raw.
double effective_threshold(double raw_lane_threshold, std::uint64_t tile_elements);

}  // namespace weightpress::tile_ans
