// How a unit is coded: which codebook and tables, what sizes follow, and whether loaders can use it. Settled
// before the first byte of the unit is encoded.
//
// The official bytes are taken wherever a loader could use them. Where none could, the unit is rescued (same
// format, other tables or another codebook) or, with strict_identity, refused.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "format/codebook.h"
#include "format/df11_constants.h"
#include "format/lookup_tables.h"
#include "format/result.h"
#include "format/stream_layout.h"

namespace weightpress::df11 {

struct CodingOptions {
  TableFill fill = TableFill::kCompat;
  bool strict_identity = false;  ///< refuse what would differ from the official bytes
  Df11Limits limits{};
};

/// Why a unit's bytes are not the official ones.
enum class RescueReason : std::uint8_t {
  kPaddingNeverEnds,  ///< safe tables, same codes
  kChunkTooDense,     ///< own codebook without 1-bit codes
  kTooManyTables      ///< own codebook whose long codes share at most 16 first bytes
};

std::string_view rescue_reason_text(RescueReason reason);

struct UnitPlan {
  Codebook codebook;
  LookupTables tables;
  StreamLayout layout;
  /// Empty: the official bytes (with TableFill::kSafe: but for the fill of the tables).
  std::vector<RescueReason> rescues;
  /// The official code lengths depend on numpy's version; these are one of the possible results.
  bool ambiguous_limiter = false;
};

/// What the plan needs of the unit's weights.
struct UnitStatistics {
  std::string_view unit;  ///< for messages
  Histogram histogram{};
  std::uint8_t last_exponent = 0;  ///< of the last weight
};

/// Whether a unit of so many weights can be coded at all. Errors: kEmptyUnit, kUnitTooLarge. `unit`: for
/// messages.
Result<void> check_num_weights(std::string_view unit, std::uint64_t num_weights, const Df11Limits& limits);

/// Largest number of weights that start in one chunk, for a codebook: a look at the weights for code lengths
/// only. Called at most twice, and only for codebooks with a 1-bit code.
using DensestChunk = std::function<std::uint64_t(const Codebook&)>;

/// Errors: kEmptyUnit, kExponentTooLarge (no offset: the caller knows the weights), kUnitTooLarge,
/// kStreamTooLong; with strict_identity also kAmbiguousLimiter, kTooManyTables, kChunkTooDense,
/// kPaddingNeverEnds.
Result<UnitPlan> plan_unit(const UnitStatistics& statistics, const CodingOptions& options,
                           const DensestChunk& densest_chunk);

}  // namespace weightpress::df11
