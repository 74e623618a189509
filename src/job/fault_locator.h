// Says what is wrong in a chunk that a decoder found at fault, and where: a plain walk along its codes, the
// same for every back end. Rare, so nothing here is tuned.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "job/stored_unit.h"
#include "job/unit_compressor.h"

namespace weightpress::job {

/// A fault of a unit, as users and programs are told it.
struct UnitFault {
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  std::string kind;     ///< docs/cli.md, "verify": "stream", "gap", "position", "weight", ...
  std::string message;  ///< a clause that begins with the buffer's name: "gaps: window 7 (chunk 0) ..."
  // Counted from the unit's first; kNowhere where that is not known.
  std::uint64_t chunk = kNowhere;
  std::uint64_t window = kNowhere;
  std::uint64_t weight = kNowhere;
};

/// The first fault of `chunk`. The chunks before it are taken to be right, and so is its output position.
/// source: of the unit; nullptr: none, and then a fault of the bitstream can only be told from one of gaps or
/// positions by what fits together.
UnitFault locate_fault(const UnitSizes& sizes, const UnitBytes& bytes, std::span<const std::uint8_t> luts,
                       std::uint64_t chunk, WeightSource* source);

}  // namespace weightpress::job
